"""F_k: the paper's Table 2, and the package's whole numbers over a grid of shares, capacities and streams."""

from itertools import product

import pytest

import odedm
from oracles.prototype_count import prototype_count

CIFAR10, CIFAR100, TINY = (5, 2), (10, 10), (10, 20)
"""Tasks, and classes of each."""
TABLE_2 = {
    (CIFAR10, 200): {0.25: 6, 0.5: 13, 0.75: 19},
    (CIFAR10, 500): {0.25: 16, 0.5: 31, 0.75: 47},
    (CIFAR10, 5120): {0.25: 160, 0.5: 320, 0.75: 480},
    (CIFAR100, 200): {0.5: 1},
    (CIFAR100, 500): {0.25: 1, 0.5: 3, 0.75: 4},
    (CIFAR100, 5120): {0.25: 14, 0.5: 28},  # for 0.75 it prints 42 where the formula gives 43
    (TINY, 200): {0.75: 1},
    (TINY, 500): {0.25: 1, 0.75: 2},
    (TINY, 5120): {0.25: 7, 0.5: 14, 0.75: 21},
}


@pytest.mark.parametrize(("stream", "capacity"), TABLE_2)
def test_the_formula_gives_table_2(stream, capacity):
    for rho, k in TABLE_2[stream, capacity].items():
        assert prototype_count(rho, capacity, *stream) == k


def test_the_package_counts_as_the_formula_does():
    shares = [step / 20 for step in range(1, 21)]
    capacities = [1, 10, 50, 100, 130, 200, 500, 1000, 5120, 99_999]
    for rho, capacity, tasks, classes in product(shares, capacities, (2, 3, 5, 10, 20), (1, 2, 5, 10, 100)):
        k = prototype_count(rho, capacity, tasks, classes)
        if k:
            assert odedm.prototypes_per_class(rho, capacity, tasks=tasks, classes=classes) == k
        else:
            with pytest.raises(odedm.UsageError):
                odedm.prototypes_per_class(rho, capacity, tasks=tasks, classes=classes)
