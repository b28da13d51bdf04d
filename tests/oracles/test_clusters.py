"""K-means under `ODEDM.paper`: means that are settled, and as good as k-means++ lets them be."""

import numpy as np
import pytest

from oracles.divide_and_conquer import divide_and_conquer
from oracles.kmeans import inertia, lloyd, plus_plus, squared_distances
from oracles.points import lopsided, nested, of_class
from oracles.sinkhorn import cloud_distance
from oracles.watched import long_term, partitions, watch

SETTLED, ENOUGH = 1.002, 1.01
"""How far an inertia may be above that at rest, and a mean inertia above that of the oracle's own starts."""


def check_settled(points, centres):
    _, means = lloyd(points, centres)
    assert inertia(points, centres) <= SETTLED * inertia(points, means)
    label = squared_distances(points, centres).argmin(1)
    means = [points[label == cluster].mean(0) for cluster in range(len(centres))]
    np.testing.assert_allclose(centres, means, atol=0.02 * points.std())


@pytest.mark.parametrize(
    ("points", "k"),
    [(nested(), 6), (lopsided(), 7), (of_class(0), 6), (of_class(0), 19), (of_class(8), 6), (of_class(8), 19)],
    ids=["nested, 6", "lopsided, 7", "class 0, 6", "class 0, 19", "class 8, 6", "class 8, 19"],
)
def test_prototypes_are_settled_means_as_good_as_the_oracles(points, k):
    x, ours, theirs = points.astype(np.float64), [], []
    for seed in range(16):
        settings, classes, _ = watch(200, 0.25, k=k, dac=None)
        long_term(settings, points, seed=seed)
        centres = classes[0].centres
        assert len(centres) == k
        check_settled(x, centres)
        ours.append(inertia(x, centres))
        theirs.append(inertia(x, lloyd(x, plus_plus(x, k, np.random.default_rng(seed)))[1]))
    assert np.mean(ours) <= ENOUGH * np.mean(theirs)


def test_many_rows_have_prototypes_as_good_as_the_oracles():
    rng = np.random.default_rng(0)
    points = (rng.normal(size=(12, 8))[rng.integers(12, size=17_000)] + rng.normal(size=(17_000, 8))).astype(np.float32)
    x, ours, theirs = points.astype(np.float64), [], []
    for seed in range(3):
        settings, classes, _ = watch(200, 0.25, k=12, dac=None)
        long_term(settings, points, seed=seed)
        ours.append(inertia(x, classes[0].centres))
        theirs.append(inertia(x, lloyd(x, plus_plus(x, 12, np.random.default_rng(seed)))[1]))
    assert np.mean(ours) <= ENOUGH * np.mean(theirs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("clusters", "depth"), [(3, 4), (5, 3)])
def test_each_round_of_divide_and_conquer_starts_with_settled_clusters(clusters, depth, seed):
    points = of_class(seed)
    settings, _, classes = watch(200, 0.25, clusters=True, k=6, dac=(clusters, depth))
    long_term(settings, points, seed=seed)
    x, rounds = points.astype(np.float64), []
    as_watched = partitions(x, classes[0].compared)

    def partition(left, amount):
        label = as_watched(left, amount)
        assert set(label) == set(range(clusters))
        check_settled(left, np.array([left[label == cluster].mean(0) for cluster in range(clusters)]))
        rounds.append(len(left))
        return label

    divide_and_conquer(x, clusters, 6, depth, partition, cloud_distance)
    assert 1 <= len(rounds) <= depth
