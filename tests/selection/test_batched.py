"""Classes side by side, as a GPU takes them, against one class at a time, as a processor does."""

import pytest
import torch
from clouds import blobs, network_features, relu_features, rng
from counting import Counting
from sampling import EVERYTHING

from odedm.core.accel import device
from odedm.core.timer import Timer
from odedm.selection.dac import Dac
from odedm.selection.distance import DISTANCES, L2, Sinkhorn
from odedm.selection.kmeans import batched_kmeans, kmeans
from odedm.selection.nearest import greedy_nearest
from odedm.selection.select import nearest
from odedm.selection.selector import PrototypeSelector
from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn import transport

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


class Given:
    """A probe whose network is the identity."""

    def embed(self, image):
        return image

    def annotate(self, rows):
        del rows
        return {}


@pytest.fixture
def batched(monkeypatch):
    monkeypatch.setattr(device, "launch_bound", lambda _: True)


def task(sizes, d=16):
    image = torch.cat([relu_features(n, d, seed=c) for c, n in enumerate(sizes)])
    label = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return {"image": image, "label": label, "index": torch.arange(len(label))}


def chosen(selector, rows, classes, seed=0):
    result = selector(rows, classes, Given(), rng=rng(seed), timer=Timer())
    return {c: result["index"][result["label"] == c].tolist() for c in classes}


@DTYPES
def test_kmeans_of_many_is_kmeans_of_each(dtype, monkeypatch):
    sets = [blobs(n, modes=9, seed=n, dtype=dtype) for n in (60, 61, 13, 12, 3, 1, 200)] + [torch.ones(40, 8).to(dtype)]
    alone = [kmeans(x, 12, rng=rng(i)) for i, x in enumerate(sets)]
    monkeypatch.setattr(device, "launch_bound", lambda _: True)
    together, sizes = batched_kmeans(sets, 12, rngs=[rng(i) for i in range(len(sets))])
    for one, same, size in zip(alone, together, sizes, strict=True):
        assert torch.equal(one.labels, same.labels)
        assert size == torch.bincount(one.labels).tolist()
        torch.testing.assert_close(one.centers, same.centers)
        assert same.inertia == pytest.approx(one.inertia, rel=1e-4, abs=1e-6)


def test_empty_clusters_are_filled_in_a_batch_too(batched):
    sets = [blobs(80, modes=6, seed=s) for s in range(3)]
    found = batched_kmeans(sets, 6, rngs=[rng()] * 3, inits=[torch.full((6, 8), 1e3)] * 3)[0]
    assert all(one.labels.unique().tolist() == list(range(6)) for one in found)


@DTYPES
@pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))
def test_reducing_many_is_reducing_each(distance, dtype, monkeypatch):
    sets = [blobs(n, modes=6, seed=n, dtype=dtype) for n in (90, 140, 2, 5)] + [torch.ones(9, 8, dtype=dtype)]
    dac = Dac(4, 3, distance)
    alone = [dac.reduce(x, smallest=6, rng=rng(i)).tolist() for i, x in enumerate(sets)]
    monkeypatch.setattr(device, "launch_bound", lambda _: True)
    together = dac.reduce_all(sets, smallest=6, rngs=[rng(i) for i in range(len(sets))])
    assert [keep.tolist() for keep in together] == alone


@DTYPES
def test_many_clouds_are_the_clouds_one_by_one(dtype, batched, monkeypatch):
    sizes = [(10, 40), (25, 5), (1, 30), (1, 1), (33, 33)]
    pairs = [(blobs(n, seed=n, dtype=dtype), blobs(m, seed=m + 1, dtype=dtype)) for n, m in sizes]
    alone = torch.stack([Sinkhorn().between_sets(x, y) for x, y in pairs])
    torch.testing.assert_close(torch.stack(Sinkhorn().between_many_sets(pairs)), alone, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(transport, "CLOUD_BYTES", 2 * 33 * 40 * 8)  # two or more pairs at a time
    torch.testing.assert_close(torch.stack(Sinkhorn().between_many_sets(pairs)), alone, rtol=1e-4, atol=1e-6)


def test_a_problem_is_solved_as_far_whatever_its_company():
    def problem(seed, shift):
        x, y = blobs(30, seed=seed, dtype=torch.float64), blobs(30, seed=seed + 1, dtype=torch.float64) + shift
        return torch.cdist(x, y)[None] ** 2

    weight = torch.full((1, 30), 1 / 30, dtype=torch.float64)
    quick, slow = problem(0, 0.0), problem(2, 9.0)
    alone, other = (sinkhorn.clouds(cost, weight, weight, epsilon=0.02) for cost in (quick, slow))
    assert alone.iterations != other.iterations
    both = sinkhorn.clouds(torch.cat([quick, slow]), weight.expand(2, -1), weight.expand(2, -1), epsilon=0.02)
    torch.testing.assert_close(both.marginal_error, torch.cat([alone.marginal_error, other.marginal_error]))
    torch.testing.assert_close(both.cost, torch.cat([alone.cost, other.cost]), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))
@pytest.mark.parametrize("dac", [None, Dac(3, 2)])
@pytest.mark.parametrize("sizes", [(50, 50), (70, 0, 31, 1, 5, 4)])
def test_a_task_on_either_kind_of_device(distance, dac, sizes, monkeypatch):
    selector, rows = PrototypeSelector(5, distance, dac), task(sizes)
    one = chosen(selector, rows, range(len(sizes)))
    assert [len(one[c]) for c in one] == [min(5, n) for n in sizes]
    monkeypatch.setattr(device, "launch_bound", lambda _: True)
    assert chosen(selector, rows, range(len(sizes))) == one


@pytest.mark.parametrize("bound", [False, True])
def test_a_class_is_chosen_alike_whatever_the_others_are(bound, monkeypatch):
    monkeypatch.setattr(device, "launch_bound", lambda _: bound)
    rows = task((60, 45, 80))
    selector = PrototypeSelector(5, dac=Dac(3, 2))
    whole = chosen(selector, rows, (0, 1, 2))
    assert chosen(selector, rows, (0,))[0] == whole[0]
    assert chosen(selector, rows, (2, 1))[1] == whole[1]
    assert chosen(selector, rows, (9, 0, 2))[2] == whole[2]


def test_a_distance_with_three_methods_is_enough(batched):
    class Own:
        def fit(self, candidates, image_shape):
            return self

        def pairwise(self, x, y):
            return L2().pairwise(x, y)

        def between_sets(self, x, y):
            return L2().between_sets(x, y)

    rows = task((50, 40))
    own, ours = (chosen(PrototypeSelector(5, each, Dac(3, 2, each)), rows, (0, 1)) for each in (Own(), L2()))
    assert own == ours


# (prototypes, operations, reads) of a task of two classes of 600 rows: somewhat above what it takes, well below what
# a loop over classes or clouds, or a look at every iteration, would take
BUDGET = [(6, 4400, 90), (60, 9600, 160)]


@pytest.mark.parametrize(("k", "operations", "reads"), BUDGET)
def test_a_gpu_is_asked_for_little(k, operations, reads, batched, monkeypatch):
    monkeypatch.setattr(sinkhorn, "CHUNK_BYTES", {"cpu": 1 << 28})
    image = torch.cat([network_features(600, seed=c) for c in (0, 1)])
    rows = {"image": image, "label": torch.arange(2).repeat_interleave(600)}
    with Counting() as counting:
        PrototypeSelector(k, dac=Dac(3, 2))(rows, (0, 1), Given(), rng=rng(), timer=Timer())
    assert counting.operations < operations
    assert counting.reads < reads


@pytest.mark.parametrize("k", [5, 40])
@pytest.mark.parametrize("per", [1, 3])
@pytest.mark.parametrize("seed", range(3 if EVERYTHING else 1))
@pytest.mark.parametrize("make", [relu_features, blobs])
def test_solving_what_can_decide_chooses_as_solving_all(k, per, seed, make, monkeypatch):
    monkeypatch.setattr(transport, "SMALL", 0)
    # solved so far that the order in which pairs are solved cannot turn a near tie
    x = make(300, 96, seed=seed, dtype=torch.float64)
    y = kmeans(x, k, rng=rng(seed))
    few = [0]
    matched = sinkhorn.matched
    fitted, every = (Sinkhorn(margin=m, tolerance=1e-8).fit(x, None) for m in (0.8, float("inf")))
    want = nearest(every, x, y, per)

    def counted(source, target, row, column, kernel, **limits):
        few[0] += len(row)
        return matched(source, target, row, column, kernel, **limits)

    monkeypatch.setattr(sinkhorn, "matched", counted)
    got = nearest(fitted, x, y, per)
    assert torch.equal(got.row, want.row)
    assert torch.equal(got.center, want.center)
    assert few[0] < len(x) * k


def test_a_slow_set_takes_no_iterations_from_its_company(batched):
    slow, poor = torch.randn(600, 8, generator=torch.Generator().manual_seed(1)), torch.randn(60, 8) * 9

    inits = [slow[:6].clone(), poor[:1].expand(6, -1).clone() + 1e4]
    words = {"iterations": 40, "tolerance": 1e-12}
    rngs = [torch.Generator(), torch.Generator()]
    (_, beside), _ = batched_kmeans([slow, poor], 6, rngs=rngs, inits=inits, **words)
    (alone,), _ = batched_kmeans([poor], 6, rngs=rngs[:1], inits=inits[1:], **words)
    assert len(beside.centers) == len(alone.centers) == 6
    assert beside.inertia == pytest.approx(alone.inertia)


def clumps(n, d, seed):
    """Features as of a young network, whose dimensions fall into a few clumps, so that transport converges slowly."""
    own = torch.Generator().manual_seed(seed)
    clump = torch.randn(n, 3, generator=own, dtype=torch.float64).repeat_interleave(d // 3, 1)
    return (clump + 0.5 * torch.randn(n, d // 3 * 3, generator=own, dtype=torch.float64) + 1).relu()


@pytest.mark.parametrize("k", [5, 40])
@pytest.mark.parametrize("seed", range(2 if EVERYTHING else 1))
def test_where_transport_converges_slowly_the_choice_is_that_of_all_costs(k, seed, monkeypatch):
    monkeypatch.setattr(transport, "SMALL", 0)
    x = clumps(300, 96, seed)
    y = kmeans(x, k, rng=rng(seed)).centers
    fitted = Sinkhorn(tolerance=1e-8).fit(x, None)
    mass = fitted._histograms(x)[:, 0]
    assert sinkhorn.histograms(mass[:20], mass[20:40], fitted._kernel).iterations > 20
    want = greedy_nearest(fitted.pairwise(x, y))
    assert fitted.nearest(x, y).row.equal(want.row)


@pytest.mark.parametrize("seed", range(4 if EVERYTHING else 1))
@pytest.mark.parametrize(("n", "d", "k", "per"), [(150, 70, 1, 3), (400, 64, 10, 1), (300, 128, 3, 2)])
def test_features_of_either_sign_are_chosen_as_solving_all_does(n, d, k, per, seed, monkeypatch):
    """Histograms of signed noise are all nearly alike, so estimates that are a little off would decide."""
    monkeypatch.setattr(transport, "SMALL", 0)
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)
    y = kmeans(x, k, rng=rng(seed)).centers
    fitted = Sinkhorn(tolerance=1e-7).fit(x, None)
    cost = fitted.pairwise(x, y)
    got, want = fitted.nearest(x, y, per), greedy_nearest(cost, per)
    for one, other, centroid in zip(got.row, want.row, want.center, strict=True):
        assert cost[one, centroid] <= cost[other, centroid] * (1 + 1e-4)


def test_either_kind_of_device_solves_the_same_pairs(monkeypatch):
    monkeypatch.setattr(transport, "SMALL", 0)
    x = relu_features(300, 96)
    y, asked, matched = kmeans(x, 20, rng=rng()).centers, [], sinkhorn.matched

    def seen(source, target, row, column, *rest, **words):
        asked.append((row.tolist(), column.tolist()))
        return matched(source, target, row, column, *rest, **words)

    monkeypatch.setattr(sinkhorn, "matched", seen)
    Sinkhorn().fit(x, None).nearest(x, y)
    on_cpu = list(asked)
    asked.clear()
    monkeypatch.setattr(device, "launch_bound", lambda _: True)
    Sinkhorn().fit(x, None).nearest(x, y)
    assert asked == on_cpu
