"""K-means: as good as scikit-learn's, repeatable, exact about duplicates."""

import pytest
import torch
from clouds import blobs, relu_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from odedm.consolidate import kmeans as module
from odedm.consolidate.kmeans import kmeans, plus_plus
from odedm.core.errors import UsageError


@pytest.mark.parametrize("k", [3, 20, 90])
@pytest.mark.parametrize(
    "x",
    [
        blobs(600, d=16, modes=10),
        relu_features(600, d=64),
        torch.rand(600, 2, generator=rng(5)),
        blobs(600, d=4, modes=6, seed=3) + 100.0,
    ],
    ids=["blobs", "relu", "square", "far from the origin"],
)
def test_inertia_is_scikit_learns(x, k):
    # the best of some starts: a single one differs by several per cent from the next, ours and theirs
    ours = min(kmeans(x, k, rng=rng(seed)).inertia for seed in range(12))
    theirs = min(KMeans(k, n_init=1, random_state=seed).fit(x.numpy()).inertia_ for seed in range(12))
    assert ours <= 1.02 * theirs


def test_what_is_reported_is_true():
    x = blobs(300, dtype=torch.float64)
    label, centroid, inertia = kmeans(x, 5, rng=rng())
    square = torch.cdist(x, centroid) ** 2
    assert torch.equal(label, square.argmin(1))
    assert inertia == pytest.approx(float(square.min(1).values.sum()), rel=1e-9)


def test_converged_centroids_are_means():
    x = blobs(300, dtype=torch.float64)
    label, centroid, _ = kmeans(x, 5, rng=rng(), tolerance=0.0)
    for cluster in range(5):
        torch.testing.assert_close(centroid[cluster], x[label == cluster].mean(0))


def test_same_seed_same_clusters_other_seed_other_clusters():
    x = torch.rand(400, 3, generator=rng(1))
    one, same, other = (kmeans(x, 12, rng=rng(seed)) for seed in (4, 4, 5))
    assert torch.equal(one.label, same.label)
    assert torch.equal(one.centroid, same.centroid)
    assert not torch.equal(one.centroid, other.centroid)


@settings(max_examples=40, deadline=None)
@given(distinct=st.integers(1, 9), copies=st.integers(1, 6), k=st.integers(1, 12), double=st.booleans())
def test_exactly_as_many_clusters_as_distinct_points(distinct, copies, k, double):
    dtype = torch.float64 if double else torch.float32
    base = torch.randn(distinct, 3, generator=rng(distinct), dtype=dtype)
    x = base.repeat(copies, 1)[torch.randperm(distinct * copies, generator=rng(k))]
    label, centroid, inertia = kmeans(x, k, rng=rng())
    assert len(centroid) == min(k, distinct)
    assert centroid.dtype == dtype
    assert sorted(label.unique().tolist()) == list(range(min(k, distinct)))
    if k >= distinct:
        assert torch.equal(centroid[label], x)
        assert inertia == 0.0


def test_zero_and_minus_zero_are_one_point():
    assert len(kmeans(torch.tensor([[0.0], [-0.0], [0.0]]), 2, rng=rng()).centroid) == 1


@pytest.mark.parametrize("n", [1, 2, 7])
def test_constant_points_make_one_cluster(n):
    label, centroid, inertia = kmeans(torch.full((n, 4), 3.0), 5, rng=rng())
    assert centroid.tolist() == [[3.0] * 4]
    assert label.tolist() == [0] * n
    assert inertia == 0.0


def test_an_empty_cluster_moves_to_the_farthest_point():
    x = torch.tensor([[0.0], [1.0], [2.0], [50.0]])
    fixed = torch.tensor([[1.0], [1000.0]])
    label, centroid, _ = kmeans(x, 2, rng=rng(), start=lambda *_: fixed)
    assert label.tolist() == [0, 0, 0, 1]
    assert centroid.tolist() == [[1.0], [50.0]]


def test_all_but_one_centroid_empty_at_first():
    x = blobs(80, modes=6)
    clusters = kmeans(x, 6, rng=rng(), start=lambda *_: torch.full((6, 8), 1e3))
    assert clusters.label.unique().tolist() == list(range(6))


def test_order_of_rows_does_not_matter_given_the_start():
    x = blobs(200, dtype=torch.float64)
    order = torch.randperm(200, generator=rng(9))
    first = x[:6].clone()
    one = kmeans(x, 6, rng=rng(), start=lambda *_: first)
    two = kmeans(x[order], 6, rng=rng(), start=lambda *_: first)
    assert torch.equal(one.label[order], two.label)
    torch.testing.assert_close(one.centroid, two.centroid)


def test_plus_plus_takes_rows_and_each_blob_once():
    x = blobs(200, modes=4, spread=0.01)
    start = plus_plus(x, 4, rng(2))
    assert all(bool((row == x).all(1).any()) for row in start)
    assert kmeans(x, 4, rng=rng(2)).inertia < 1.0


def test_plus_plus_is_the_same_with_and_without_the_gram_matrix(monkeypatch):
    x = blobs(150, dtype=torch.float64)
    whole = plus_plus(x, 30, rng(1))
    monkeypatch.setattr(module, "TABLE_BYTES", 0)
    assert torch.equal(plus_plus(x, 30, rng(1)), whole)


def test_plus_plus_never_takes_a_row_twice():
    x = torch.rand(40, 2, generator=rng()) + 1000.0
    assert len(plus_plus(x, 40, rng(1)).unique(dim=0)) == 40


@pytest.mark.parametrize(
    ("x", "k", "said"),
    [
        (torch.zeros(0, 3), 2, "no points"),
        (torch.zeros(3), 2, r"\[n, d\]"),
        (torch.zeros(3, 2, dtype=torch.int64), 2, "float"),
        (torch.zeros(3, 2), 0, "1 or more"),
    ],
)
def test_refusals(x, k, said):
    with pytest.raises(UsageError, match=said):
        kmeans(x, k, rng=rng())


def test_a_tolerance_of_zero_ends_at_the_fixed_point(monkeypatch):
    steps = []
    step = module._Lloyd._step
    monkeypatch.setattr(module._Lloyd, "_step", lambda *given: steps.append(1) or step(*given))
    x = relu_features(500, 64)
    loose = kmeans(x, 12, rng=rng(0))
    before = len(steps)
    exact = kmeans(x, 12, rng=rng(0), tolerance=0.0)
    assert len(steps) - before < 60
    assert exact.inertia <= loose.inertia * (1 + 1e-6)
