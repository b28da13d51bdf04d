"""Algorithm 2 under `ODEDM.paper`: which clusters stay in each round, by the package's own partitions."""

import numpy as np
import pytest

from oracles.divide_and_conquer import closest_clusters, divide_and_conquer
from oracles.points import nested, of_class
from oracles.sinkhorn import cloud_distance
from oracles.watched import long_term, numbers_of, partitions, watch

SETTINGS = [(3, 4, 6), (3, 2, 13), (5, 3, 19), (4, 3, 60), (3, 3, 149)]
"""K, depth and k: the paper's for λ of 200, and a k that only larger subsets hold."""


@pytest.mark.parametrize(("clusters", "depth", "k"), SETTINGS)
@pytest.mark.parametrize("label", [1, 5, 9])
def test_the_rows_that_stay_are_those_of_the_oracle(label, clusters, depth, k):
    """By the distance of the oracle, so that nothing is a matter of rounding."""
    points = of_class(label)
    settings, rows, classes = watch(200, 0.25, clusters=True, k=k, dac=(clusters, depth))
    long_term(settings, points, seed=label)
    x = points.astype(np.float64)
    assert (classes[0].candidates == x).all()
    partition = partitions(x, classes[0].compared)
    kept = divide_and_conquer(x, clusters, k, depth, partition, cloud_distance)
    assert k <= len(kept) < len(x) or k == 149
    assert numbers_of(x, rows[0].kept) == kept.tolist()


@pytest.mark.parametrize("label", range(10))
def test_sinkhorns_distance_keeps_the_same_rows(label):
    """The package's distance between clusters decides as the oracle's, wherever the next best subset is 1 % worse."""
    points, clear = of_class(label), []
    by_oracle, rows, classes = watch(200, 0.25, clusters=True, k=6, dac=(3, 4))
    long_term(by_oracle, points, seed=label)
    x = points.astype(np.float64)
    as_watched = partitions(x, classes[0].compared)

    def partition(left, amount):
        labels = as_watched(left, amount)
        _, least, next_best = closest_clusters([left[labels == c] for c in np.unique(labels)], cloud_distance, 6)
        clear.append(next_best > 1.01 * least)
        return labels

    divide_and_conquer(x, 3, 6, 4, partition, cloud_distance)
    by_package, kept, _ = watch(200, 0.25, k=6, dac=(3, 4))
    long_term(by_package, points, seed=label)
    assert all(clear), "an unclear round: take other rows for this test"
    assert numbers_of(x, kept[0].kept) == numbers_of(x, rows[0].kept)


def test_few_rows_and_no_depth_are_left_alone():
    points = nested()
    for rows, dac in ((points, (3, 0)), (points[:5], (5, 4)), (points[:3], (3, 4))):
        settings, kept, _ = watch(200, 0.25, k=2, dac=dac)
        long_term(settings, rows)
        assert len(kept[0].kept) == len(rows)
