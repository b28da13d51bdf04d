"""F_k and the budget check."""

import pytest

from odedm.core.errors import UsageError
from odedm.memory.build_context import StreamShape
from odedm.memory.quotas import prototypes_per_class
from odedm.memory.settings import ODEDM

CIFAR10 = {"tasks": 5, "classes": 2}
CIFAR100 = {"tasks": 10, "classes": 10}
TINY = {"tasks": 10, "classes": 20}


@pytest.mark.parametrize(
    ("stream", "capacity", "expected"),
    [
        (CIFAR10, 200, [6, 13, 19]),
        (CIFAR10, 500, [16, 31, 47]),
        (CIFAR10, 5120, [160, 320, 480]),
        (CIFAR100, 500, [1, 3, 4]),
        (CIFAR100, 5120, [14, 28, 43]),  # the paper prints 42 for the last
        (TINY, 5120, [7, 14, 21]),
    ],
)
def test_the_papers_table(stream, capacity, expected):
    assert [prototypes_per_class(rho, capacity, **stream) for rho in (0.25, 0.5, 0.75)] == expected


@pytest.mark.parametrize(
    ("stream", "capacity", "rho", "expected"),
    [
        (CIFAR100, 200, 0.5, 1),
        (CIFAR100, 200, 0.75, 2),
        (TINY, 200, 0.5, 1),
        (TINY, 200, 0.75, 1),
        (TINY, 500, 0.25, 1),
        (TINY, 500, 0.75, 2),
    ],
)
def test_small_memories(stream, capacity, rho, expected):
    assert prototypes_per_class(rho, capacity, **stream) == expected


def test_halves_go_up():
    assert prototypes_per_class(0.5, 200, **CIFAR10) == 13  # 12.5


def test_a_half_that_floats_cannot_hold_goes_up_too():
    assert prototypes_per_class(0.7, 10, tasks=3, classes=1) == 4  # 3.5, in floats 3.4999…


def test_rows_per_prototype_share_the_budget():
    assert prototypes_per_class(0.25, 200, rows_per_prototype=2, **CIFAR10) == 3


def test_zero_by_rounding_names_the_smallest_rho_and_capacity():
    with pytest.raises(UsageError) as caught:
        prototypes_per_class(0.1, 200, **CIFAR100)
    assert "0.225" in str(caught.value)
    assert "450" in str(caught.value)
    assert prototypes_per_class(0.225, 200, **CIFAR100) == 1
    assert prototypes_per_class(0.1, 450, **CIFAR100) == 1
    with pytest.raises(UsageError):
        prototypes_per_class(0.2249, 200, **CIFAR100)
    with pytest.raises(UsageError):
        prototypes_per_class(0.1, 449, **CIFAR100)


def test_no_rho_is_named_where_none_helps():
    with pytest.raises(UsageError) as caught:
        prototypes_per_class(1.0, 20, **CIFAR100)
    assert "rho of at least" not in str(caught.value)
    assert "45 rows" in str(caught.value)


@pytest.mark.parametrize("rho", [0.0, -0.1, 1.01, float("nan")])
def test_rho_outside_its_range(rho):
    with pytest.raises(UsageError, match="rho"):
        prototypes_per_class(rho, 200, **CIFAR10)


def test_one_task_is_explained():
    with pytest.raises(UsageError, match="single task"):
        prototypes_per_class(0.5, 200, tasks=1, classes=2)


@pytest.mark.parametrize("wrong", [{"tasks": 0}, {"classes": 0}, {"rows_per_prototype": 0}])
def test_counts_below_one(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        prototypes_per_class(0.5, 200, **(CIFAR10 | wrong))


def resolved(capacity, tasks=5, classes=2, **settings):
    return ODEDM(capacity, **settings).resolve(StreamShape(tasks, classes), "reservoir").k


def test_budget_fits_exactly():
    assert resolved(200, k=25) == 25
    assert resolved(0, k=0) == 0
    assert resolved(10, k=99, tasks=1) == 99
    with pytest.raises(UsageError, match=r"208 .*largest k that fits is 25"):
        resolved(200, k=26)


def test_what_does_not_fit_says_which_capacity_would():
    with pytest.raises(
        UsageError, match=r"^1 prototype of each of 8 classes needs 8 .* has 5 .*or raise the capacity to 8\.$"
    ):
        resolved(5, k=1)
    assert resolved(8, k=1) == 1
    with pytest.raises(UsageError, match=r"Raise the capacity to 18, or give rho=0, which pins none\.$"):
        resolved(12, rho=0.5, candidates=5)
    assert resolved(18, rho=0.5, candidates=5) == 1


def test_budget_counts_reserved_rows_and_rows_per_prototype():
    assert resolved(200, k=10, rows_per_prototype=2, candidates=20) == 10
    with pytest.raises(UsageError, match=r"has 156 for them.*largest k that fits is 9"):
        resolved(200, k=10, rows_per_prototype=2, candidates=22)
