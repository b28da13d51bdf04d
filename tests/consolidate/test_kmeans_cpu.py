"""What k-means leaves out on a processor changes nothing, to the bit."""

import weakref
from threading import get_ident

import pytest
import torch
from clouds import blobs, relu_features, rng

from odedm.consolidate import kmeans as module
from odedm.consolidate import kmeans_cpu
from odedm.consolidate.kmeans import kmeans, kmeans_all, plus_plus
from odedm.consolidate.kmeans_cpu import Nearest, Sums, directions, repeatable, scores, square_lengths

SETS = {
    "relu": relu_features(1500, 96),
    "blobs": blobs(1500, 40, modes=9),
    "far apart": 50 * blobs(1500, 24, modes=20),
    "noise": torch.randn(1500, 64, generator=rng(3)),
    "double": blobs(1500, 30, modes=9, dtype=torch.float64),
    "one column": torch.randn(1500, 1, generator=rng(4)),
    "far from the origin": blobs(1500, 40, modes=9) + 1000,
    "copies": blobs(50, 20).repeat(30, 1),
}


@pytest.fixture(params=SETS)
def x(request):
    return SETS[request.param]


def centred(x):
    y = x - x.mean(0)
    return y, square_lengths(y)


@pytest.mark.parametrize("k", [2, 7, 60])
def test_the_nearest_centroid_is_found_wherever_centroids_move(x, k):
    if not repeatable(x):
        pytest.skip("products of this machine have other bits with other rows: k-means leaves nothing out here")
    y, square = centred(x)
    nearest, draw = Nearest(y, square), rng(1)
    centroid = y[torch.randperm(len(y), generator=draw)[:k]]
    for step in range(30):
        assert nearest(centroid).equal(scores(y, centroid).min(1).indices)
        far = 3.0 if step % 10 == 9 else 0.3 * 0.7**step  # now and then one jumps
        noise = torch.randn(centroid.shape, generator=draw, dtype=torch.float64).to(y.dtype)
        centroid = centroid + far * y.std() * noise * (torch.arange(k) % 3 == step % 3)[:, None]


def test_points_that_surely_keep_their_centroid_are_not_compared():
    y, square = centred(SETS["blobs"])
    nearest, centroid = Nearest(y, square), kmeans(y, 9, rng=rng()).centroid
    nearest(centroid)
    for step in range(20):
        nearest(centroid + 1e-3 * step)
    assert nearest.compared < 1.1 * len(y)


def test_points_of_which_nothing_is_known_are_compared():
    y = 1e30 * SETS["blobs"]
    nearest, centroid = Nearest(y, square_lengths(y)), y[:5]
    for _ in range(3):
        assert nearest(centroid).equal(scores(y, centroid).min(1).indices)


@pytest.mark.parametrize("k", [3, 70])
def test_sums_are_those_of_all_points_added_in_turn(x, k):
    sums, draw = Sums(x, k), rng(2)
    label = torch.randint(k, (len(x),), generator=draw)
    for _ in range(6):
        size, total = sums(label)
        assert size[:, 0].tolist() == torch.bincount(label, minlength=k).tolist()
        assert total.equal(x.new_zeros(k, x.shape[1]).index_add_(0, label, x))
        label = label.clone()
        label[:5] = torch.randint(k, (5,), generator=draw)


@pytest.mark.parametrize("k", [2, 6, 40, 300])
def test_clusters_are_the_same_with_and_without_bounds(x, k, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    quick = kmeans(x, k, rng=rng(5))
    monkeypatch.setattr(module, "LARGE", float("inf"))
    plain = kmeans(x, k, rng=rng(5))
    assert quick.label.equal(plain.label)
    assert quick.centroid.equal(plain.centroid)
    assert quick.inertia == plain.inertia


@pytest.mark.parametrize("table", [1 << 28, 0])
@pytest.mark.parametrize("k", [25, 90, 150])
def test_seeds_are_the_same_whether_foreseen_or_not(x, k, table, monkeypatch):
    monkeypatch.setattr(module, "TABLE_BYTES", table)
    quick = plus_plus(x, k, rng(6))
    monkeypatch.setattr(module, "LEAST_DRAWS", 1000)
    assert quick.equal(plus_plus(x, k, rng(6)))


def test_the_first_seed_is_as_far_from_points_as_by_a_table(monkeypatch):
    for seed, d in [(19, 3), (20, 3), (33, 3), (20, 4), (72, 4), (143, 8)]:
        x = torch.randn(100 + seed * 7 % 300, d, generator=rng(seed)).round()  # many are equally far
        monkeypatch.setattr(module, "LEAST_DRAWS", kmeans_cpu.LEAST_DRAWS)
        quick = plus_plus(x, 40, rng(seed))
        monkeypatch.setattr(module, "LEAST_DRAWS", 1000)
        assert quick.equal(plus_plus(x, 40, rng(seed)))


def test_where_rows_of_a_product_depend_on_others_nothing_is_left_out(monkeypatch):
    def refused(*_):
        raise AssertionError

    for name in ("Nearest", "Sums", "Foreseen"):
        monkeypatch.setattr(module, name, refused)
    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "repeatable", lambda *_: False)
    assert len(kmeans(SETS["relu"], 40, rng=rng()).centroid) == 40


@pytest.mark.skipif(
    not repeatable(torch.zeros(1, 32)), reason="products of this machine have other bits with other rows"
)
def test_seeds_are_foreseen_by_few_products(monkeypatch):
    made, make = [], kmeans_cpu.Foreseen._make
    monkeypatch.setattr(kmeans_cpu.Foreseen, "_make", lambda self, point: made.append(len(point)) or make(self, point))
    plus_plus(relu_features(4000, 32), 100, rng())
    assert 0 < len(made) < 40
    assert sum(made) < 4000


def test_points_that_differ_in_one_column_alone_are_distinct():
    x = torch.zeros(40, 64)
    x[:, 33] = torch.arange(40)
    assert len(kmeans(x, 12, rng=rng()).centroid) == 12
    assert len(kmeans(x[:10], 12, rng=rng()).centroid) == 10


def test_few_points_are_looked_at_for_being_distinct(monkeypatch):
    looked, bits = [], module._bits
    monkeypatch.setattr(module, "_bits", lambda x: looked.append(x.numel()) or bits(x))
    x = SETS["relu"]
    kmeans(x, 6, rng=rng())
    assert sum(looked) < x.numel() / 50
    copies_first = torch.cat([x[:1].expand(200, -1), x[:20]])
    assert len(kmeans(copies_first, 6, rng=rng()).centroid) == 6
    assert len(kmeans(copies_first[:203], 6, rng=rng()).centroid) == 3


def test_centred_points_of_a_set_are_gone_when_those_of_the_next_are_made(monkeypatch):
    made, alive, make = [], [], module._Lloyd.__init__

    def init(self, *given):
        alive.append(sum(each() is not None for each in made))
        made.append(weakref.ref(self))
        make(self, *given)

    monkeypatch.setattr(module._Lloyd, "__init__", init)
    kmeans_all([SETS["relu"]] * 3, 6, rngs=[rng(), rng(), rng()])
    assert alive == [0, 0, 0]


def test_squared_lengths_are_those_of_all_at_once(x):
    assert square_lengths(x).equal((x * x).sum(1))
    assert square_lengths(x[None]).equal((x * x).sum(1)[None])


def test_directions_are_orthonormal_and_those_of_the_spread():
    y = blobs(900, 50, modes=3)
    y = y - y.mean(0)
    axes = directions(y)
    assert torch.allclose(axes.T @ axes, torch.eye(16), atol=1e-5)
    assert (y @ axes).square().sum() > 0.8 * y.square().sum()


def bisected(n, d, k):
    """Centroids, and points that are equally near to two of them but for rounding; in float64."""
    centroid = torch.randn(k, d, generator=rng(7), dtype=torch.float64)
    point = torch.randn(n, d, generator=rng(8), dtype=torch.float64)
    one = torch.randint(k, (n,), generator=rng(9))
    other, middle = centroid[(one + 1) % k], centroid[one] / 2 + centroid[(one + 1) % k] / 2
    apart = other - centroid[one]
    off = ((point - middle) * apart).sum(1, keepdim=True) / apart.square().sum(1, keepdim=True)
    return point - off * apart, centroid


@pytest.mark.parametrize("scale", [1e-23, 1e-21, 1e-20, 1e-18, 1.0, 1e17, 1e18, 1e20])
@pytest.mark.parametrize("d", [1, 4, 16])
def test_points_as_near_to_another_centroid_are_compared_at_every_scale(scale, d, monkeypatch):
    monkeypatch.setattr(kmeans_cpu, "MANY", 2)  # never all, however many are unsure
    if not repeatable(torch.zeros(1, d)):
        pytest.skip("products of this machine have other bits with other rows: k-means leaves nothing out here")
    point, centroid = ((scale * each).float() for each in bisected(1500, d, 5))
    nearest, draw = Nearest(point, square_lengths(point)), rng(1)
    for step in range(24):
        assert nearest(centroid).equal(scores(point, centroid).min(1).indices)
        few = torch.randint(-2, 3, centroid.shape, generator=draw) * torch.finfo(torch.float32).eps
        far = 0.3 * torch.randn(centroid.shape, generator=draw) * (torch.arange(5) % 2 == step % 2)[:, None]
        centroid = centroid * (1 + (few if step % 3 else far))


def test_a_centroid_that_was_nearest_by_overflow_is_compared():
    point = torch.ones(5000, 1)
    point[-1] = 1.8e19  # none of those that the directions are made of
    nearest = Nearest(point, square_lengths(point))
    for first in (1.2e19, 0.6e19):
        centroid = torch.tensor([[first], [0.9e19], [1.0]])
        assert nearest(centroid).equal(scores(point, centroid).min(1).indices)


def test_a_product_of_few_points_is_never_made_of_more(monkeypatch):
    made, make = [], kmeans_cpu.scores
    monkeypatch.setattr(kmeans_cpu, "scores", lambda x, centroid: made.append(len(x)) or make(x, centroid))
    point = torch.linspace(-1, 1, 15)[:, None]
    nearest = Nearest(point, square_lengths(point))
    for step in range(9):
        nearest(torch.tensor([[-0.5 - 0.01 * step], [0.5]]))
    assert max(made) == len(point)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("d", [2, 8, 64])
def test_distances_are_foreseen_only_where_those_of_few_points_are_the_same(threads, d, monkeypatch):
    used = []
    monkeypatch.setattr(module, "Foreseen", lambda *given: used.append(1) or kmeans_cpu.Foreseen(*given))
    x, few = torch.randn(2000, d, generator=rng()), torch.arange(5)
    square, before = square_lengths(x), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        plus_plus(x, 21, rng())
        rows = kmeans_cpu.Foreseen(x, square, 5, 1 << 28)(few, torch.ones(2000), torch.rand(3, 2000, generator=rng()))
        alone = module._squares(x[None, :5], square[None, :5], x[None], square[None])[0]
    finally:
        torch.set_num_threads(before)
    assert not used or rows.equal(alone)


def test_nothing_is_left_out_of_points_that_lie_otherwise_or_have_gradients():
    x = SETS["relu"]
    assert not repeatable(x.T)
    assert len(kmeans(x.clone().requires_grad_(), 30, rng=rng()).centroid) == 30


@pytest.mark.parametrize("d", [1, 2, 5, 16, 600])
def test_the_slack_has_room_for_all_roundings(d):
    x = torch.ones(40, d)
    nearest, unit = Nearest(x, square_lengths(x)), torch.finfo(x.dtype).eps / 2
    # of 2⟨x, c⟩ in the old and the new score, and as part of the old one in the sum that follows the move
    scores_of_both, followed = 2 * 2 * (d + 1), 2 * (nearest.parts.shape[0] + 1)
    # the centroid's length counts twice, as it was and as it is
    assert 2 * nearest.slack >= (scores_of_both + followed) * unit


def test_a_set_has_one_thread_and_the_same_clusters_for_any_number_of_them(monkeypatch):
    seen, step = [], module._Lloyd._step
    monkeypatch.setattr(
        module._Lloyd, "_step", lambda *given: seen.append((get_ident(), torch.get_num_threads())) or step(*given)
    )
    sets = [SETS["relu"], SETS["relu"] + 1, SETS["relu"][:900]]
    alone = kmeans_all(sets, 30, rngs=[rng(i) for i in range(3)])[0]
    seen.clear()
    try:
        torch.set_num_threads(3)
        side_by_side = kmeans_all(sets, 30, rngs=[rng(i) for i in range(3)])[0]
        assert {amount for _, amount in seen} == {1}
        assert len({thread for thread, _ in seen}) > 1
        assert torch.get_num_threads() == 3
        seen.clear()
        monkeypatch.setattr(module, "WIDE", 0)  # as of large sets, which all threads work at
        kmeans_all(sets, 30, rngs=[rng(i) for i in range(3)])
        assert {amount for _, amount in seen} == {3}
    finally:
        torch.set_num_threads(1)
    for one, other in zip(alone, side_by_side, strict=True):
        assert one.label.equal(other.label)
        assert one.centroid.equal(other.centroid)
