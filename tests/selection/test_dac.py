"""Divide-and-conquer against a slow recursive oracle, and its invariants."""

import numpy as np
import pytest
import torch
from clouds import blobs, relu_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm.core.errors import UsageError
from odedm.selection import dac as module
from odedm.selection import kmeans
from odedm.selection.dac import Dac, closest_by_bounds, closest_subset
from odedm.selection.distance import DISTANCES, L2, Sinkhorn


def spread_start(x, k):
    """Starting centroids that do not depend on the order of the rows."""
    order = x.sum(1).argsort()
    return x[order[torch.linspace(0, len(x) - 1, k).long()]]


@pytest.fixture
def spread(monkeypatch):
    def batched_kmeans(sets, k, *, rngs):
        return kmeans.batched_kmeans(sets, k, rngs=rngs, inits=[spread_start(x, k) for x in sets])

    monkeypatch.setattr(module, "batched_kmeans", batched_kmeans)


def slow_kmeans(points, k):
    order = np.argsort(points.sum(1), kind="stable")
    centre = points[order[np.linspace(0, len(points) - 1, k).astype(int)]]
    for _ in range(100):
        label = np.array([np.argmin([((p - c) ** 2).sum() for c in centre]) for p in points])
        moved = np.array([points[label == c].mean(0) if (label == c).any() else centre[c] for c in range(k)])
        if np.array_equal(moved, centre):
            break
        centre = moved
    return label


def oracle(points, index, k, smallest, depth):
    """The recursive definition, for the mean Euclidean distance between clouds."""
    if depth == 0 or len(index) <= k:
        return sorted(index)
    label = slow_kmeans(points[index], k)
    parts = [[i for i, c in zip(index, label, strict=True) if c == cluster] for cluster in range(k)]
    parts = [part for part in parts if part]
    best = None
    for bits in range(2 ** len(parts)):
        chosen = [part for c, part in enumerate(parts) if bits >> c & 1]
        merged = [i for part in chosen for i in part]
        if len(chosen) < 2 or len(merged) < smallest:
            continue
        total = 0.0
        for p in range(len(chosen)):
            for q in range(p):
                gaps = [np.sqrt(((points[i] - points[j]) ** 2).sum()) for i in chosen[p] for j in chosen[q]]
                total += sum(gaps) / len(gaps)
        if best is None or total < best[0] - 1e-12:
            best = (total, merged)
    return sorted(index) if best is None else oracle(points, sorted(best[1]), k, smallest, depth - 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("clusters", "depth", "smallest"), [(3, 1, 2), (3, 3, 5), (4, 2, 25), (5, 3, 38), (2, 4, 3)])
def test_equals_the_recursive_oracle(seed, clusters, depth, smallest, spread):
    x = blobs(40, d=3, modes=6, seed=seed, dtype=torch.float64)
    got = Dac(clusters, depth, L2()).reduce(x, smallest=smallest, rng=rng())
    assert got.tolist() == oracle(x.numpy(), list(range(40)), clusters, smallest, depth)


@pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))
@pytest.mark.parametrize("smallest", [1, 10, 59, 60, 200])
def test_a_large_enough_subset_in_ascending_order(distance, smallest):
    x = blobs(60, modes=5)
    keep = Dac(4, 3, distance).reduce(x, smallest=smallest, rng=rng())
    assert len(keep) >= min(smallest, 60)
    assert keep.tolist() == sorted(set(keep.tolist()))
    assert int(keep[0]) >= 0
    assert int(keep[-1]) < 60


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 30),
    clusters=st.integers(2, 5),
    depth=st.integers(0, 4),
    smallest=st.integers(1, 40),
    copies=st.integers(1, 4),
)
def test_any_points_with_copies(n, clusters, depth, smallest, copies):
    x = blobs(n, d=2, seed=n).repeat(copies, 1)
    keep = Dac(clusters, depth).reduce(x, smallest=smallest, rng=rng())
    assert min(smallest, len(x)) <= len(keep) <= len(x)
    assert len(keep.unique()) == len(keep)


def test_it_does_reduce():
    x = blobs(200, modes=5)
    assert len(Dac(5, 3).reduce(x, smallest=5, rng=rng())) < 100


def test_depth_zero_and_few_rows_are_the_identity():
    x = blobs(20)
    assert Dac(3, 0).reduce(x, smallest=2, rng=rng()).tolist() == list(range(20))
    assert Dac(5, 4).reduce(x[:5], smallest=2, rng=rng()).tolist() == list(range(5))


def test_equal_points_stay_together():
    assert Dac(3, 4).reduce(torch.ones(9, 2), smallest=2, rng=rng()).tolist() == list(range(9))


@pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))
def test_order_of_rows_does_not_matter_given_the_start(distance, spread):
    x = blobs(80, modes=6, dtype=torch.float64)
    order = torch.randperm(80, generator=rng(3))
    dac = Dac(4, 2, distance)
    one = dac.reduce(x, smallest=8, rng=rng())
    two = dac.reduce(x[order], smallest=8, rng=rng())
    assert sorted(order[two].tolist()) == one.tolist()


def test_same_seed_same_rows():
    x = torch.rand(300, 4, generator=rng(1))
    one, same = (Dac(5, 3).reduce(x, smallest=6, rng=rng(2)) for _ in range(2))
    assert torch.equal(one, same)


def test_subsets_by_hand():
    far = [[0.0, 9.0, 1.0, 4.0], [9.0, 0.0, 9.0, 9.0], [1.0, 9.0, 0.0, 3.0], [4.0, 9.0, 3.0, 0.0]]
    assert closest_subset(far, [5, 5, 5, 5], 1) == (0, 2)
    assert closest_subset(far, [5, 5, 5, 5], 11) == (0, 2, 3)
    assert closest_subset(far, [5, 5, 5, 5], 20) == (0, 1, 2, 3)
    assert closest_subset(far, [5, 5, 5, 5], 21) == ()
    assert closest_subset([[0.0]], [9], 1) == ()


def test_ties_go_to_fewer_and_lower():
    level = [[0.0] * 3 for _ in range(3)]
    assert closest_subset(level, [4, 4, 4], 1) == (0, 1)


@pytest.mark.parametrize(("clusters", "depth"), [(1, 2), (13, 2), (3, -1)])
def test_refusals(clusters, depth):
    with pytest.raises(UsageError, match="was given"):
        Dac(clusters, depth)


@given(st.integers(2, 6), st.integers(1, 40), st.booleans(), st.integers(0, 1000))
def test_by_bounds_the_same_subset_is_found_with_fewer_distances(k, smallest, equal, seed):
    draw = np.random.default_rng(seed)
    far = draw.integers(0, 4, (k, k)).astype(float) if equal else draw.random((k, k))
    far = np.triu(far, 1) + np.triu(far, 1).T
    sizes, asked = draw.integers(1, 12, k).tolist(), []

    def solve(p, q):
        asked.append((p, q))
        return far[p, q]

    found = closest_by_bounds((far * draw.random((k, k))).tolist(), sizes, smallest, solve)
    assert found == closest_subset(far.tolist(), sizes, smallest)
    assert len(asked) == len(set(asked)) <= k * (k - 1) // 2
    if found:
        bound = far * 0.95
        asked.clear()
        closest_by_bounds(bound.tolist(), sizes, smallest, solve)
        assert set(asked) >= {(p, q) for p in found for q in found if p < q}


@pytest.mark.parametrize("settings", [Sinkhorn(), Sinkhorn(epsilon=0.5, iterations=1), Sinkhorn(epsilon=0.005)])
def test_the_bound_on_transport_between_clouds_holds(settings):
    for seed in range(4):
        for x in (relu_features(90, 24, seed), blobs(90, 3, seed=seed), 1e4 + blobs(90, 5, seed=seed)):
            clouds = x[x[:, 0].argsort()].split([30, 7, 52, 1])
            least = settings.between_sets_at_least(clouds)
            for p in range(4):
                for q in range(p):
                    assert least[p, q] <= settings.between_sets(clouds[p], clouds[q]) * (1 + 1e-5)


def test_most_pairs_of_clouds_need_not_be_solved(monkeypatch):
    x, solved, true = blobs(400, 16, modes=9, seed=2), [], Sinkhorn.between_sets
    monkeypatch.setattr(Sinkhorn, "between_sets", lambda self, a, b: solved.append(1) or true(self, a, b))
    quick = Dac(5, 2).reduce(x, smallest=10, rng=rng())
    amount = len(solved)
    monkeypatch.delattr(Sinkhorn, "between_sets_at_least")
    assert quick.equal(Dac(5, 2).reduce(x, smallest=10, rng=rng()))
    assert amount < (len(solved) - amount) / 2


def test_the_number_of_threads_changes_nothing():
    sets = [relu_features(300, seed=seed) for seed in range(3)]
    one = Dac(5, 2).reduce_all(sets, smallest=20, rngs=[rng(i) for i in range(3)])
    try:
        torch.set_num_threads(3)
        three = Dac(5, 2).reduce_all(sets, smallest=20, rngs=[rng(i) for i in range(3)])
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert all(a.equal(b) for a, b in zip(one, three, strict=True))


def test_clusters_are_compared_by_a_seeded_sample_of_their_rows(monkeypatch):
    x, sizes, true = blobs(900, 8, modes=5), [], L2.between_sets
    monkeypatch.setattr(L2, "between_sets", lambda self, a, b: sizes.extend((len(a), len(b))) or true(self, a, b))
    one, same, other = (Dac(3, 2, L2(), sample=40).reduce(x, smallest=10, rng=rng(seed)) for seed in (1, 1, 2))
    assert max(sizes) == 40
    assert one.equal(same)
    assert len(one) < 900
    assert len(other) >= 10
    sizes.clear()
    whole = Dac(3, 2, L2(), sample=None).reduce(x, smallest=10, rng=rng(1))
    assert max(sizes) > 200
    assert whole.equal(Dac(3, 2, L2(), sample=900).reduce(x, smallest=10, rng=rng(1))), "nothing is drawn for it"


def test_a_sample_of_no_rows_is_refused():
    with pytest.raises(UsageError, match="1 row or more"):
        Dac(3, 2, sample=0)
