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
from odedm.selection.dac import Dac, closest_subset
from odedm.selection.distance import DISTANCES, L2


def spread_start(x, k):
    """Starting centroids that do not depend on the order of the rows."""
    order = x.sum(1).argsort()
    return x[order[torch.linspace(0, len(x) - 1, k).long()]]


@pytest.fixture
def spread(monkeypatch):
    def batched_kmeans(sets, k, *, rngs, exact=False):
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
    far = {(0, 1): 9.0, (0, 2): 1.0, (0, 3): 4.0, (1, 2): 9.0, (1, 3): 9.0, (2, 3): 3.0}
    assert closest_subset(far, [5, 5, 5, 5], 1) == (0, 2)
    assert closest_subset(far, [5, 5, 5, 5], 11) == (0, 2, 3)
    assert closest_subset(far, [5, 5, 5, 5], 20) == (0, 1, 2, 3)
    assert closest_subset(far, [5, 5, 5, 5], 21) == ()
    assert closest_subset({}, [9], 1) == ()


def test_ties_go_to_fewer_and_lower():
    level = dict.fromkeys([(0, 1), (0, 2), (1, 2)], 0.0)
    assert closest_subset(level, [4, 4, 4], 1) == (0, 1)


@pytest.mark.parametrize(("clusters", "depth"), [(1, 2), (13, 2), (3, -1)])
def test_refusals(clusters, depth):
    with pytest.raises(UsageError, match="was given"):
        Dac(clusters, depth)


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


def test_rows_are_clustered_and_compared_by_a_seeded_sample(monkeypatch):
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


def test_rows_that_were_not_drawn_join_the_nearest_cluster(monkeypatch):
    x, clustered, true = blobs(900, 8, modes=3, spread=0.05), [], kmeans.batched_kmeans
    monkeypatch.setattr(
        module,
        "batched_kmeans",
        lambda sets, *args, **words: clustered.append(len(sets[0])) or true(sets, *args, **words),
    )
    sampled, whole = (Dac(3, 1, L2(), sample=most).reduce(x, smallest=10, rng=rng(1)) for most in (50, None))
    assert clustered == [150, 900]
    assert sampled.equal(whole), "clusters so far apart are the same by any sample"


def test_a_sample_of_no_rows_is_refused():
    with pytest.raises(UsageError, match="1 row or more"):
        Dac(3, 2, sample=0)
