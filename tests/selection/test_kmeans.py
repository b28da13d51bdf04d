"""K-means: as good as scikit-learn's, repeatable, exact about duplicates."""

import weakref
from threading import get_ident

import pytest
import torch
from clouds import blobs, relu_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from odedm.core.errors import UsageError
from odedm.selection import kmeans as module
from odedm.selection.kmeans import batched_kmeans, kmeans


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
    assert torch.equal(one.labels, same.labels)
    assert torch.equal(one.centers, same.centers)
    assert not torch.equal(one.centers, other.centers)


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
    assert len(kmeans(torch.tensor([[0.0], [-0.0], [0.0]]), 2, rng=rng()).centers) == 1


@pytest.mark.parametrize("n", [1, 2, 7])
def test_constant_points_make_one_cluster(n):
    label, centroid, inertia = kmeans(torch.full((n, 4), 3.0), 5, rng=rng())
    assert centroid.tolist() == [[3.0] * 4]
    assert label.tolist() == [0] * n
    assert inertia == 0.0


def test_an_empty_cluster_moves_to_the_farthest_point():
    x = torch.tensor([[0.0], [1.0], [2.0], [50.0]])
    fixed = torch.tensor([[1.0], [1000.0]])
    label, centroid, _ = kmeans(x, 2, rng=rng(), init=fixed)
    assert label.tolist() == [0, 0, 0, 1]
    assert centroid.tolist() == [[1.0], [50.0]]


def test_all_but_one_centroid_empty_at_first():
    x = blobs(80, modes=6)
    clusters = kmeans(x, 6, rng=rng(), init=torch.full((6, 8), 1e3))
    assert clusters.labels.unique().tolist() == list(range(6))


def test_order_of_rows_does_not_matter_given_the_start():
    x = blobs(200, dtype=torch.float64)
    order = torch.randperm(200, generator=rng(9))
    first = x[:6].clone()
    one = kmeans(x, 6, rng=rng(), init=first)
    two = kmeans(x[order], 6, rng=rng(), init=first)
    assert torch.equal(one.labels[order], two.labels)
    torch.testing.assert_close(one.centers, two.centers)


def seeds(x, k, seed):
    """The points from which clustering starts."""
    points = (x - x.mean(0))[None]
    square = points.square().sum(2)
    return module._seeds(points, square, torch.ones_like(square), [len(x)], k, [rng(seed)])[0]


def test_each_blob_has_one_seed():
    x = blobs(200, modes=4, spread=0.01)
    assert torch.cdist(x[seeds(x, 4, 2)], x).amin(0).max() < 0.2
    assert kmeans(x, 4, rng=rng(2)).inertia < 1.0


def test_no_row_is_a_seed_twice():
    x = torch.rand(40, 2, generator=rng()) + 1000.0
    assert len(seeds(x, 40, 1).unique()) == 40


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


def test_a_large_set_starts_from_a_sample_and_is_as_good(monkeypatch):
    x = relu_features(3000, d=24)
    plain = [kmeans(x, 20, rng=rng(seed)).inertia for seed in range(6)]
    sizes, init = [], module._Lloyd.__init__
    monkeypatch.setattr(
        module._Lloyd, "__init__", lambda self, sets, *a: sizes.append(len(sets[0])) or init(self, sets, *a)
    )
    monkeypatch.setattr(module, "SAMPLE", 1400)
    sampled = [kmeans(x, 20, rng=rng(seed)).inertia for seed in range(6)]
    assert sizes == [1400, 3000] * 6
    assert sum(sampled) <= 1.01 * sum(plain)
    assert kmeans(x, 20, rng=rng(3)).inertia == sampled[3]
    sizes.clear()
    (exact,), _ = batched_kmeans([x], 20, rngs=[rng(3)], exact=True)
    assert sizes == [3000]
    assert exact.inertia == plain[3]


def test_a_sample_of_few_distinct_points_is_no_start(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 64)
    monkeypatch.setattr(module, "SAMPLE_PER_CLUSTER", 1)
    x = torch.cat([torch.ones(2000, 2), torch.arange(24.0).view(12, 2) * 7])
    assert len(kmeans(x, 12, rng=rng()).centers) == 12


def test_points_that_differ_in_one_column_alone_are_distinct():
    x = torch.zeros(40, 64)
    x[:, 33] = torch.arange(40)
    assert len(kmeans(x, 12, rng=rng()).centers) == 12
    assert len(kmeans(x[:10], 12, rng=rng()).centers) == 10
    copies_first = torch.cat([x[:1].expand(200, -1), x[:20]])
    assert len(kmeans(copies_first, 6, rng=rng()).centers) == 6
    assert len(kmeans(copies_first[:203], 6, rng=rng()).centers) == 3


def test_centred_points_of_a_set_are_gone_when_those_of_the_next_are_made(monkeypatch):
    made, alive, make = [], [], module._Lloyd.__init__

    def init(self, *given):
        alive.append(sum(each() is not None for each in made))
        made.append(weakref.ref(self))
        make(self, *given)

    monkeypatch.setattr(module._Lloyd, "__init__", init)
    batched_kmeans([relu_features(500)] * 3, 6, rngs=[rng(), rng(), rng()])
    assert alive == [0, 0, 0]


def test_a_set_has_one_thread_and_the_same_clusters_for_any_number_of_them(monkeypatch):
    seen, step = [], module._Lloyd._step
    monkeypatch.setattr(
        module._Lloyd, "_step", lambda *given: seen.append((get_ident(), torch.get_num_threads())) or step(*given)
    )
    sets = [relu_features(1500, 96), relu_features(1500, 96) + 1, relu_features(900, 96)]
    alone = batched_kmeans(sets, 30, rngs=[rng(i) for i in range(3)])[0]
    seen.clear()
    try:
        torch.set_num_threads(3)
        side_by_side = batched_kmeans(sets, 30, rngs=[rng(i) for i in range(3)])[0]
        assert {amount for _, amount in seen} == {1}
        assert len({thread for thread, _ in seen}) > 1
        assert torch.get_num_threads() == 3
        seen.clear()
        monkeypatch.setattr(module, "WIDE", 0)  # as of large sets, which all threads work at
        batched_kmeans(sets, 30, rngs=[rng(i) for i in range(3)])
        assert {amount for _, amount in seen} == {3}
    finally:
        torch.set_num_threads(1)
    for one, other in zip(alone, side_by_side, strict=True):
        assert one.labels.equal(other.labels)
        assert one.centers.equal(other.centers)
