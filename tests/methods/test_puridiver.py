"""PuriDivER against what its definition promises: the net, the step, CutMix, the mixture, and the fit to the memory."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from beside import imported
from counted import RowForwards
from driver import EachStep
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

from odedm import ODEDM, ColumnSpec, Experiment, MemoryPart, Native, Reservoir, Run, Task, UsageError, blobs, shapes
from odedm.core.rng import generator
from odedm.memory.reservoir import ReservoirBuffer
from odedm.methods import noisy_labels as fitting
from odedm.methods.cutmix import cutmix, mixed_cross_entropy
from odedm.methods.hyperparameters import configure
from odedm.methods.noisy_labels import (
    Mixture,
    combined_loss,
    corrected_loss,
    fit_mixture,
    restarting_rate,
    split,
    two_means,
)
from odedm.methods.puridiver import HeadNorm, PuriDivER
from odedm.nets.build import build
from odedm.nets.resnet import ResNet18
from odedm.nets.small import MLP, SmallCNN
from odedm.stream.augment import Transform
from odedm.stream.dataset import constants
from odedm.training.replay import MemoryReplay

arithmetic = imported("benchmarks", "arithmetic")

CLASSES = 4
PLAIN = Transform(torch.zeros(1), torch.ones(1))


def seeds(purpose):
    return generator(0, purpose)


def vectors(seed, n=6):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=rng, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (n,), generator=rng)
    return {"image": x, "input": x + 100, "label": y, "task": y * 0, "index": torch.arange(n) + 100 * seed}


def images(seed, n=6):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, 3, 8, 8), generator=rng, dtype=torch.uint8)
    y = torch.randint(0, CLASSES, (n,), generator=rng)
    return {"image": x, "input": x.float() + 1000, "label": y, "task": y * 0, "index": torch.arange(n)}


def mlp():
    return build("mlp", (5,), CLASSES, seed=0).double()


def cnn():
    torch.manual_seed(0)
    return SmallCNN((3, 8, 8), CLASSES, width=4)


def task(index):
    return Task(index, 3, (0, 1), {"label": torch.zeros(0)})


class Bench:
    """A method, a reservoir and a replay, stepped by hand as the loop does."""

    def __init__(
        self, net=None, *, capacity=12, transform=None, draw=6, reading="auxiliary", kind=PuriDivER, **options
    ):
        self.net = net or mlp()
        picture = isinstance(self.net, SmallCNN)
        self.method = kind(net=self.net, draw=draw, rng=seeds, **options)
        image = ColumnSpec("image", (3, 8, 8), torch.uint8) if picture else ColumnSpec("image", (5,), torch.float64)
        fields = [image, *[ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]]
        self.memory = ReservoirBuffer(capacity, fields)
        if transform is None:
            rows = torch.zeros((1, 3, 8, 8), dtype=torch.uint8)
            transform = constants(rows, torch.full((3,), 0.5), torch.full((3,), 0.25), pad=1) if picture else PLAIN
        self.replay = MemoryReplay(self.memory, transform, mode=reading, draw=draw, gamma=1.0, rng=seeds)
        self.keys = seeds("memory")
        self.method.begin_task(task(0))

    def see(self, batch):
        self.memory.add({name: batch[name] for name in batch if name != "input"}, None, rng=self.keys)

    def step(self, batch):
        self.replay.begin_step()
        assert self.method.observe(batch, self.replay) == {}
        self.see(batch)

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])


def record_inputs(net):
    seen = []
    net.register_forward_pre_hook(lambda _, x: seen.append(x[0].detach().clone()))
    return seen


# the net and the optimizer


def test_the_head_is_linear_without_bias_and_a_batchnorm():
    net = ResNet18((3, 32, 32), 10)
    PuriDivER(net=net, draw=4)
    assert sum(p.numel() for p in net.parameters()) == 11_173_972
    linear, norm = net.head
    assert linear.bias is None
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.eps == 1e-6
    assert net.head_weight() is linear.weight
    assert {module.eps for module in net.modules() if isinstance(module, nn.BatchNorm2d)} == {1e-6}
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            spread = module.weight.std() / math.sqrt(2 / fan_out)
            assert abs(spread - 1) < 5 / math.sqrt(2 * module.weight.numel())


def test_the_seed_alone_decides_the_net_and_nobody_else_is_disturbed():
    state = torch.get_rng_state()
    nets = []
    for seed in (0, 0, 1):
        net = build("cnn", (3, 8, 8), CLASSES, seed=0)
        PuriDivER(net=net, draw=4, rng=lambda name, seed=seed: generator(seed, name))
        nets.append(net.conv2.weight)
    assert nets[0].equal(nets[1])
    assert not nets[0].equal(nets[2])
    assert torch.get_rng_state().equal(state)


def test_a_single_row_is_judged_by_the_running_statistics():
    norm = HeadNorm(3)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.randn(1, 3)
    expected = norm.eval()(x)
    assert norm.train()(x).equal(expected)
    assert norm.running_mean.tolist() == [1, 2, 3]
    assert norm(torch.randn(4, 3)).mean(0).abs().max() < 1e-6


def test_the_optimiser_is_nesterov_at_the_stream_rate_and_new_in_every_task():
    bench = Bench()
    group = bench.method.optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.05, 0.9, True, 1e-4)
    assert len(group["params"]) == len(list(bench.net.parameters())), "of the new head, not of the old one"
    bench.step(vectors(0))
    assert bench.method.optimizer.state
    bench.method.begin_task(task(1))
    assert not bench.method.optimizer.state
    assert Bench(online_lr=0.001).method.optimizer.param_groups[0]["lr"] == 0.001
    assert not Bench(momentum=0.0).method.optimizer.param_groups[0]["nesterov"]


# the step


def test_the_first_updates_are_nesterov_on_the_cross_entropy_of_the_plain_stream():
    bench = Bench(lr=0.1, weight_decay=0.01)
    twin = Bench().net
    twin.load_state_dict(bench.net.state_dict())
    velocity = [torch.zeros_like(p) for p in twin.parameters()]
    for seed in range(4):
        bench.step(vectors(seed))
        batch = vectors(seed)
        loss = F.cross_entropy(twin(batch["image"]), batch["label"])
        gradient = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for p, v, slope in zip(twin.parameters(), velocity, gradient, strict=True):
                g = slope + 0.01 * p
                v.mul_(0.9).add_(g)
                p.sub_(0.1 * (g + 0.9 * v))
        torch.testing.assert_close(bench.method.last_loss, loss.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        bench.weights(), torch.cat([p.detach().flatten() for p in twin.parameters()]), rtol=1e-12, atol=1e-12
    )


def test_replay_starts_with_the_second_task_under_strong_views():
    bench = Bench(cnn(), cutmix=0.0)
    seen = record_inputs(bench.net)
    for seed in range(3):
        bench.step(images(seed))
    assert [len(x) for x in seen] == [6, 6, 6], "task 0 replays nothing, though there are rows"
    for seed, x in enumerate(seen):
        assert x.equal(bench.replay.normalize(images(seed)["image"])), "the stream is normalised, not augmented"
    strong = []
    original = bench.replay.strong_augment
    bench.replay.strong_augment = lambda image: strong.append((image, original(image))) or strong[-1][1]
    bench.method.begin_task(task(1))
    bench.step(images(3))
    assert len(seen[-1]) == 12
    assert seen[-1][:6].equal(bench.replay.normalize(images(3)["image"]))
    assert seen[-1][6:].equal(strong[0][1])
    stored = torch.cat([images(seed)["image"] for seed in range(3)])
    assert all((row == stored).flatten(1).all(1).any() for row in strong[0][0]), "views of raw stored rows"


@pytest.mark.parametrize(("index", "cost"), [(0, 32), (1, 64)])
def test_images_forwarded_per_step(index, cost):
    bench = Bench(capacity=50, draw=32)
    bench.see(vectors(0, 40))
    bench.method.begin_task(task(index))
    seen = record_inputs(bench.net)
    bench.step(vectors(1, 32))
    assert sum(len(x) for x in seen) == cost


def test_a_step_and_its_memory_compute_what_they_are_counted_for():
    """The second task's steps of a run: a third of its rows fills the memory, so each of them makes room for others."""
    run = Run(Experiment(Native(20), "puridiver", data="shapes", net="cnn", batch=8, tasks=2, limit=16), shapes())
    rows = []

    def look(run):
        rows.append((run.progress.task, count.rows))

    with RowForwards(run.method.net.conv2.weight) as count:
        run.finish(EachStep(look))
    second = [each for index, each in rows if index == 1]
    assert {now - before for before, now in pairwise(second)} == {
        arithmetic.ROW_FORWARDS["puridiver"](arithmetic.Step(8, 8, 20, 2))
    }


def test_a_batch_of_one_row_trains_only_together_with_replay():
    bench = Bench(cnn())
    before = bench.weights()
    bench.step(images(0, 1))
    assert bench.weights().equal(before)
    assert bench.memory.size() == 1, "the memory sees it all the same"
    bench.method.begin_task(task(1))
    bench.step(images(1, 1))
    assert not bench.weights().equal(before)
    assert bench.weights().isfinite().all()


@pytest.mark.parametrize("reading", ["auxiliary", "union", "both"])
def test_the_auxiliary_term_adds_one_cross_entropy_and_the_memory_weighs_by_the_own_loss(reading):
    bench = Bench(cnn(), reading=reading, draw=1)  # a long-term draw of one row
    bench.step(images(0))
    bench.memory.pin({**{k: v for k, v in images(7, 2).items() if k != "input"}, "prototype": torch.arange(2)})
    bench.method.begin_task(task(1))
    seen, totals = record_inputs(bench.net), []
    step = bench.method.optimizer.step
    bench.method.optimizer.step = lambda: totals.append(None) or step()
    bench.step(images(1))
    assert [len(x) for x in seen] == [7] + [1] * (reading != "union")
    assert len(totals) == 1, "one update"
    assert bench.method.last_loss.isfinite()


def test_the_own_loss_is_what_the_memory_hears_of():
    bench = Bench(cutmix=0.0)
    bench.step(vectors(0))
    bench.memory.pin({**{k: v for k, v in vectors(7, 3).items() if k != "input"}, "prototype": torch.arange(3)})
    with torch.no_grad():
        expected = F.cross_entropy(bench.net(vectors(1)["image"]), vectors(1)["label"])
    bench.step(vectors(1))  # task 0, so no replay; the long-term term is there already
    torch.testing.assert_close(bench.method.last_loss, expected)


def test_questions_leave_the_network_as_it_was():
    bench = Bench(cnn(), fit=True, fit_epochs=3, warmup=1)
    bench.step(images(0))
    for training in (True, False):
        bench.net.train(training)
        before = {name: value.clone() for name, value in bench.net.state_dict().items()}
        bench.method.predict(bench.replay.normalize(images(1)["image"]))
        bench.method.embed(bench.replay.normalize(images(1)["image"]))
        bench.method.split(bench.replay.rows(), bench.replay)
        assert all(before[name].equal(value) for name, value in bench.net.state_dict().items())
        bench.method.end_task(task(0), bench.replay)
        assert all(module.training is training for module in bench.net.modules())
        moved = bench.net.norm1.running_mean
        assert not moved.equal(before["norm1.running_mean"]), "fitting itself is in training mode"


# CutMix


def slow_cutmix(x, label, probability, draws, order):
    coin, mixing, *centre = draws
    n, _, height, width = x.shape
    x, share = x.clone(), 1.0
    if coin < probability:
        side = math.sqrt(1 - mixing)
        edges = []
        for length, middle in ((height, centre[0]), (width, centre[1])):
            half, at = int(length * side) // 2, int(middle * length)
            edges.append((max(at - half, 0), min(at + half, length)))
        (top, bottom), (left, right) = edges
        x[:, :, top:bottom, left:right] = x[order][:, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (height * width)
    return x, label[order], share


@given(n=st.integers(1, 6), height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 10_000))
def test_cutmix_is_its_definition(n, height, width, seed):
    x, label = torch.randn(n, 2, height, width), torch.arange(n)
    before = x.clone()
    mixed, other, share = cutmix(x, label, 0.7, torch.Generator().manual_seed(seed))
    twin = torch.Generator().manual_seed(seed)
    draws, order = torch.rand(4, generator=twin).tolist(), torch.rand(n, generator=twin).argsort()
    expected = slow_cutmix(x, label, 0.7, draws, order)
    assert mixed.equal(expected[0])
    assert other.equal(expected[1])
    assert share.item() == pytest.approx(expected[2])
    assert x.equal(before), "a copy is mixed"


def test_cutmix_comes_as_often_as_asked_and_boxes_have_half_the_area_on_average():
    rng, x, label = torch.Generator().manual_seed(0), torch.zeros(2, 1, 64, 64), torch.arange(2)
    shares = torch.tensor([cutmix(x, label, 0.5, rng)[2].item() for _ in range(2000)])
    assert abs((shares < 1).float().mean() - 0.5) < 0.06
    # uncut, the mean area is 1/2; a side s is cut to s - s²/4 on average, so the area to E(s - s²/4)² = 37/96
    area = (1 - shares[shares < 1]).mean()
    sides = torch.rand(100_000, generator=rng).sqrt()
    assert abs(area - ((sides - sides**2 / 4) ** 2).mean()) < 0.04
    assert all(cutmix(x, label, 0.0, rng)[2] == 1 for _ in range(50))


def test_mixed_cross_entropy_counts_both_labels_by_area():
    logits, y, other = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 1, 0, 2, 2])
    expected = 0.3 * F.cross_entropy(logits, y) + 0.7 * F.cross_entropy(logits, other)
    torch.testing.assert_close(mixed_cross_entropy(logits, y, other, torch.tensor(0.3)), expected)
    assert mixed_cross_entropy(logits, y, other, torch.tensor(1.0)) == F.cross_entropy(logits, y)


def test_vectors_are_not_mixed():
    x, y = torch.randn(4, 3), torch.arange(4)
    mixed, other, share = cutmix(x, y, 1.0, torch.Generator())
    assert mixed is x
    assert other is y
    assert share == 1


# the mixture


def two_humps(seed, low=0.1, high=0.7, spread=0.05, n=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(low, spread, n), rng.normal(high, 2 * spread, n // 2)]).clip(0, 1)


def sklearn_mixture(x, **start):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten iterations are not meant to converge always
        return GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0, **start).fit(x[:, None])


def check_alike(x, theirs, ours, **tolerance):
    order, mine = theirs.means_[:, 0].argsort(), ours.mean.argsort()
    np.testing.assert_allclose(ours.mean[mine], theirs.means_[order, 0], **tolerance)
    np.testing.assert_allclose(ours.weight[mine], theirs.weights_[order], **tolerance)
    np.testing.assert_allclose(ours.variance[mine], theirs.covariances_[order, 0, 0], **tolerance)
    posterior = ours.posterior(torch.from_numpy(x))[:, mine]
    np.testing.assert_allclose(posterior, theirs.predict_proba(x[:, None])[:, order], **tolerance)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("high", [0.4, 0.9])
def test_the_mixture_of_two_humps_is_scikit_learns(seed, high):
    x = two_humps(seed, high=high)
    check_alike(x, sklearn_mixture(x), fit_mixture(torch.from_numpy(x)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_where_humps_overlap_it_is_scikit_learns_from_the_same_start(seed):
    """There scikit-learn's k-means may stop at a worse split than the best one, which ours always starts from."""
    x = two_humps(seed, high=0.25)
    upper = two_means(torch.from_numpy(x)).numpy()
    groups = [x[~upper], x[upper]]
    start = {
        "weights_init": [len(part) / len(x) for part in groups],
        "means_init": [[part.mean()] for part in groups],
        "precisions_init": [[[1 / (part.var() + 5e-4)]] for part in groups],
    }
    ours = fit_mixture(torch.from_numpy(x))
    check_alike(x, sklearn_mixture(x, **start), ours, rtol=1e-9, atol=1e-12)
    order = ours.mean.flip(0)  # the other order of components is the same mixture
    flipped = Mixture(ours.weight.flip(0), order, ours.variance.flip(0))
    assert flipped.posterior(torch.from_numpy(x)).flip(1).equal(ours.posterior(torch.from_numpy(x)))
    assert flipped.lower() == 1 - ours.lower()


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8).filter(lambda x: len(set(x)) > 1))
def test_two_means_is_the_best_of_all_splits(numbers):
    x = torch.tensor(numbers, dtype=torch.float64)

    def cost(upper):
        return sum(float(((part - part.mean()) ** 2).sum()) for part in (x[upper], x[~upper]) if len(part))

    best = min(cost(torch.tensor([bool(code >> i & 1) for i in range(len(x))])) for code in range(1, 2 ** len(x) - 1))
    upper = two_means(x)
    assert upper.any()
    assert not upper.all()
    assert cost(upper) == pytest.approx(best)
    assert x[upper].min() > x[~upper].max()


def test_the_mixture_survives_equal_numbers():
    mixture = fit_mixture(torch.full((5,), 0.4))
    assert mixture.posterior(torch.full((5,), 0.4)).isfinite().all()


# the split


def noisy(seed=0, clean=40, ambiguous=12, incorrect=10):
    rng = torch.Generator().manual_seed(seed)
    n = clean + ambiguous + incorrect
    loss = torch.cat([torch.full((clean,), 0.1), torch.full((n - clean,), 4.0)])
    doubt = torch.cat([torch.full((clean,), 0.2), torch.full((ambiguous,), 0.1), torch.full((incorrect,), 0.8)])
    return loss + 0.05 * torch.rand(n, generator=rng), doubt + 0.02 * torch.rand(n, generator=rng)


def cut(loss, doubt, roles="released", posterior="clean", seed=0):
    return split(loss, doubt, roles=roles, posterior=posterior, rng=torch.Generator().manual_seed(seed))


def test_well_separated_kinds_are_recovered():
    kinds = cut(*noisy())
    assert kinds.clean.tolist() == list(range(40))
    assert kinds.ambiguous.tolist() == list(range(40, 52))
    assert kinds.incorrect.tolist() == list(range(52, 62))
    assert (kinds.trust[:40] > 0.99).all()
    assert (kinds.trust[40:] < 0.01).all()
    swapped = cut(*noisy(), roles="swapped")
    assert swapped.ambiguous.equal(kinds.incorrect)
    assert swapped.incorrect.equal(kinds.ambiguous)


def test_the_split_does_not_know_which_component_came_first(monkeypatch):
    rng = torch.Generator().manual_seed(1)
    loss, doubt = (x + 0.3 * torch.randn(len(x), generator=rng).abs() for x in noisy())
    expected = cut(loss, doubt)

    def flipped(x, **options):
        fitted = fit_mixture(x, **options)
        return Mixture(fitted.weight.flip(0), fitted.mean.flip(0), fitted.variance.flip(0))

    monkeypatch.setattr(fitting, "fit_mixture", flipped)
    found = cut(loss, doubt)
    for name in ("clean", "ambiguous", "incorrect", "trust"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_the_released_posterior_is_that_of_an_arbitrary_component():
    right = cut(*noisy()).trust
    columns = [cut(*noisy(), posterior="released", seed=seed).trust for seed in range(30)]
    clean = [column.equal(right) for column in columns]
    assert all(same or (column + right - 1).abs().max() < 1e-6 for same, column in zip(clean, columns, strict=True))
    assert 12 <= sum(clean) <= 27, "two thirds of the rows are clean"


@pytest.mark.parametrize(
    ("loss", "doubt"),
    [
        (torch.ones(20), torch.rand(20)),
        (torch.tensor([0.0, 1.0]), torch.tensor([0.1, 0.2])),
        (noisy(ambiguous=1, incorrect=1)[0], noisy(ambiguous=1, incorrect=1)[1]),
        (noisy(ambiguous=2)[0], noisy(ambiguous=2)[1]),
        (noisy(incorrect=2)[0], noisy(incorrect=2)[1]),
        (noisy()[0], torch.full((62,), 0.5)),
    ],
    ids=["equal losses", "two rows", "two unclean", "two ambiguous", "two incorrect", "equal doubts"],
)
def test_too_few_rows_of_a_kind_give_no_split(loss, doubt):
    assert cut(loss, doubt) is None


def test_three_rows_of_each_kind_are_enough():
    assert cut(*noisy(ambiguous=3, incorrect=3)) is not None


# fitting


def test_the_rate_is_torchs_cosine_with_warm_restarts():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2, eta_min=0.0005)
    trace = []
    for epoch in range(255):
        trace.append(restarting_rate(epoch, 0.05))
        assert trace[-1] == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert [epoch for epoch, rate in enumerate(trace) if rate == 0.05] == [0, 1, 3, 7, 15, 31, 63, 127]
    assert min(trace) == trace[254]
    assert 0.0005 < trace[254] < 0.00051


def test_full_trust_gives_the_ordinary_cross_entropy_and_none_the_weak_view():
    strong = torch.randn(6, CLASSES, dtype=torch.float64, requires_grad=True)
    weak = torch.randn(6, CLASSES, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(corrected_loss(strong, weak, label, torch.ones(6)), F.cross_entropy(strong, label))
    trust = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = trust[:, None] * torch.eye(CLASSES)[label] + (1 - trust[:, None]) * weak.softmax(1)
    loss = corrected_loss(strong, weak, label, trust)
    torch.testing.assert_close(loss, -(target * strong.log_softmax(1)).sum(1).mean())
    loss.backward()
    assert strong.grad.abs().sum() > 0
    assert weak.grad is None, "the weak view is a target, not a way for gradients"


def test_losses_are_weighed_by_their_rows():
    losses = [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)]
    assert combined_loss(losses, [5, 3, 2]).item() == pytest.approx((5 + 6 + 8) / 10)


def kinds_of(n):
    at = torch.arange(n)
    return at[: n - 6], at[n - 6 : n - 3], at[n - 3 :]


def test_the_three_losses_of_a_batch():
    bench = Bench(cutmix=0.0)
    bench.net.eval()  # statistics of no batch, so that the parts can be computed one by one
    rows = vectors(0, 12)
    clean, ambiguous, incorrect = kinds_of(12)
    trust = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    views = []
    bench.replay.augment = lambda image: views.append(image + 0.1) or views[-1]
    bench.replay.strong_augment = lambda image: views.append(image * 1.5) or views[-1]
    with torch.no_grad():
        loss = bench.method.three_losses(rows, clean, ambiguous, incorrect, trust, bench.replay)
        x, h = rows["image"], bench.net
        label = F.cross_entropy(h(1.5 * x[clean]), rows["label"][clean])
        corrected = corrected_loss(
            h(1.5 * x[incorrect]), h(x[incorrect] + 0.1), rows["label"][incorrect], trust[incorrect]
        )
        alike = ((h(1.5 * x[ambiguous]) - h(x[ambiguous] + 0.1)) ** 2).mean()
    torch.testing.assert_close(loss, (6 * label + 3 * corrected + 3 * alike) / 12)
    assert len(views) == 5
    # with one and the same view the ambiguous rows cost nothing
    bench.replay.augment = bench.replay.strong_augment
    with torch.no_grad():
        same = bench.method.three_losses(rows, clean, ambiguous, incorrect, torch.ones(12).double(), bench.replay)
        known = F.cross_entropy(h(1.5 * x[incorrect]), rows["label"][incorrect])
    torch.testing.assert_close(same, (6 * label + 3 * known) / 12)


def test_a_semi_supervised_epoch_passes_once_over_the_clean_rows_in_one_forward_each():
    bench = Bench(draw=4)
    rows = vectors(0, 16)
    clean, ambiguous, incorrect = kinds_of(16)
    seen, used = record_inputs(bench.net), []
    original = bench.method.three_losses
    bench.method.three_losses = lambda rows, *parts: used.append(parts[:3]) or original(rows, *parts)
    kinds = fitting.Split(clean, ambiguous, incorrect, torch.ones(16, dtype=torch.float64))
    bench.method.semi_supervised_epoch(rows, kinds, bench.replay)
    assert sorted(torch.cat([part[0] for part in used]).tolist()) == clean.tolist()
    assert [len(part[0]) for part in used] == [4, 4, 2]
    assert [(len(u), len(r)) for _, u, r in used] == [(2, 2), (1, 1), (2, 2)], "each a pass of three, then the next"
    assert sorted(torch.cat([used[0][2], used[1][2]]).tolist()) == incorrect.tolist()
    assert [len(x) for x in seen] == [len(g) + 2 * len(u) + 2 * len(r) for g, u, r in used]


def fitted(kinds=None, **options):
    bench = Bench(fit=True, fit_epochs=7, capacity=40, **options)
    for seed in range(4):
        bench.step(vectors(seed, 10))
    if kinds is not None:
        bench.method.split = kinds
    bench.method.end_task(task(0), bench.replay)
    return bench


def test_without_a_split_every_epoch_is_a_base_epoch():
    assert fitted(lambda *_: None, warmup=2).weights().equal(fitted(warmup=7).weights())


def test_two_incorrect_rows_are_exactly_the_base_epoch():
    loss, doubt = noisy(clean=30, ambiguous=8, incorrect=2)
    few = fitted(lambda *_: cut(loss, doubt), warmup=3)
    assert few.weights().equal(fitted(warmup=7).weights())
    loss, doubt = noisy(clean=30, ambiguous=7, incorrect=3)
    enough = fitted(lambda *_: cut(loss, doubt), warmup=3)
    assert not enough.weights().equal(few.weights())


def test_fitting_asks_for_a_split_after_the_warm_up_and_follows_the_rate():
    asked, rates = [], []

    class Watched(PuriDivER):
        def split(self, rows, replay):
            asked.append(len(rows["label"]))
            return super().split(rows, replay)

        def optimizer_step(self, loss, replay=None):
            rates.append(self.optimizer.param_groups[0]["lr"])
            super().optimizer_step(loss, replay)

    bench = Bench(kind=Watched, fit=True, fit_epochs=7, warmup=3, capacity=13, online_lr=0.001, draw=6)
    bench.step(vectors(0, 13))
    rates.clear()
    bench.method.end_task(task(0), bench.replay)
    assert asked == [13] * 4
    assert rates[::2] == [restarting_rate(epoch, 0.05) for epoch in range(7)], "13 rows: two batches and one of one"
    assert len(rates) == 14
    bench.method.begin_task(task(1))
    assert bench.method.optimizer.param_groups[0]["lr"] == 0.001


def test_fitting_covers_long_term_rows_too():
    bench = Bench(fit=True, fit_epochs=1, draw=5)
    bench.step(vectors(0, 8))
    bench.memory.pin({**{k: v for k, v in vectors(7, 2).items() if k != "input"}, "prototype": torch.arange(2)})
    seen = record_inputs(bench.net)
    bench.method.end_task(task(0), bench.replay)
    assert [len(x) for x in seen] == [5, 5]
    shown = {tuple(row.tolist()) for x in seen for row in x}
    assert shown == {tuple(row.tolist()) for row in bench.memory.rows()["image"]}


@pytest.mark.parametrize("stored", [0, 1])
def test_less_than_two_rows_are_not_fitted(stored):
    bench = Bench(fit=True, fit_epochs=3, capacity=stored)
    bench.step(vectors(0))
    before = bench.weights()
    bench.method.end_task(task(0), bench.replay)
    assert bench.weights().equal(before)


def test_no_fitting_unless_asked():
    bench = Bench()
    bench.step(vectors(0))
    before = bench.weights()
    bench.method.end_task(task(0), bench.replay)
    assert bench.weights().equal(before)


# keywords


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"split_roles": "swaped"}, "Unknown split_roles of puridiver 'swaped': did you mean 'swapped'"),
        ({"posterior": "dirty"}, "Unknown posterior of puridiver 'dirty'"),
        ({"online_lr": -1.0}, "online_lr must be 0 or more; -1.0"),
        ({"fit_epochs": -1}, "fit_epochs must be 0 or more"),
        ({"cutmix": 2.0}, "cutmix is a probability between 0 and 1; 2.0"),
    ],
)
def test_keywords_that_mean_nothing_are_refused(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        PuriDivER(net=MLP((5,), 3), draw=2, **options)


def test_keywords_come_from_the_command_line_as_text():
    given = {"fit": "true", "fit_epochs": "31", "online_lr": "0.001", "posterior": "released"}
    values = configure("puridiver", PuriDivER, given)
    assert (values["fit"], values["fit_epochs"], values["online_lr"]) == (True, 31, 0.001)
    assert (values["lr"], values["momentum"], values["weight_decay"], values["warmup"]) == (0.05, 0.9, 1e-4, 10)
    assert set(values) == {
        "lr", "momentum", "weight_decay", "online_lr", "cutmix", "fit", "fit_epochs", "warmup", "split_roles",
        "posterior",
    }  # fmt: skip


# whole runs

BLOBS, SHAPES = blobs(per_class=30), shapes(per_class=20)
MEMORIES = {
    "reservoir": lambda capacity, k: Reservoir(capacity),
    "native": lambda capacity, k: Native(capacity),
    "auxiliary": lambda capacity, k: ODEDM(capacity, k=k),
    "union": lambda capacity, k: ODEDM(capacity, k=k, replay="union"),
    "both": lambda capacity, k: ODEDM(capacity, k=k, replay="both"),
    "beside a reservoir": lambda capacity, k: ODEDM(capacity, k=k, short_policy="reservoir"),
}


def finish(memory, data=BLOBS, batch=8, seed=0, **options):
    plan = Experiment(memory, method="puridiver", data=data.name, batch=batch, seed=seed, options=options, device="cpu")
    return Run(plan, data).finish()


@pytest.mark.parametrize(
    ("data", "fit"), [(BLOBS, False), (BLOBS, True), (SHAPES, False)], ids=["blobs", "fit", "shapes"]
)
@pytest.mark.parametrize("memory", MEMORIES)
def test_it_learns_with_every_memory(memory, data, fit):
    outcome = finish(MEMORIES[memory](30, 2), data, fit=fit, fit_epochs=7, warmup=3)
    chance = 100 / data.classes
    assert outcome.result.acc_last > 2 * chance
    assert outcome.method.net.training
    short = outcome.result.class_counts[-1]["short"]
    if memory == "native":
        assert max(short) - min(short) <= 1, "the purity policy drives the classes to balance"


def test_the_dual_memory_shrinks_its_purity_host():
    outcome = finish(ODEDM(30, k=2))
    assert outcome.memory.size(MemoryPart.LONG) == 16
    assert outcome.memory.size(MemoryPart.SHORT) == 14
    short = outcome.result.class_counts[-1]["short"]
    assert sum(short) == 14


@pytest.mark.parametrize("memory", ["native", "auxiliary"])
@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_memories_smaller_than_the_number_of_classes(memory, capacity):
    outcome = finish(MEMORIES[memory](capacity, 0), batch=16, fit=True, fit_epochs=3, warmup=1)
    assert outcome.memory.size() == capacity
    assert all(p.isfinite().all() for p in outcome.method.net.parameters())


@pytest.mark.parametrize("memory", ["native", "both"])
def test_batches_of_one_row(memory):
    outcome = finish(MEMORIES[memory](12, 1), blobs(per_class=5), batch=1, fit=True, fit_epochs=3, warmup=1)
    assert outcome.memory.size() == 12


@pytest.mark.parametrize("options", [{}, {"fit": True, "fit_epochs": 5, "warmup": 2}], ids=["online", "fit"])
def test_one_seed_one_run(options):
    first, again, other = (finish(ODEDM(24, k=2), SHAPES, seed=seed, **options) for seed in (0, 0, 1))
    a, b, c = (outcome.method.net.state_dict() for outcome in (first, again, other))
    assert all(a[name].equal(b[name]) for name in a)
    assert all(first.memory.rows()[name].equal(column) for name, column in again.memory.rows().items())
    assert not all(a[name].equal(c[name]) for name in a)


def test_without_prototypes_the_dual_memory_is_the_native_one():
    plain, dual = finish(Native(20)), finish(ODEDM(20, k=0))
    a, b = plain.method.net.state_dict(), dual.method.net.state_dict()
    assert all(a[name].equal(b[name]) for name in a)


def test_with_wrong_labels_the_purity_memory_is_purer_than_the_stream():
    data = blobs(per_class=60)
    wrong = torch.rand(len(data.label), generator=torch.Generator().manual_seed(0)) < 0.3
    truth = data.label.clone()
    pair = torch.where(truth % 2 == 0, truth + 1, truth - 1)  # the other class of the same task
    data.label.copy_(torch.where(wrong, pair, truth))
    kept = {kind: finish(memory, data).memory.rows() for kind, memory in
            (("native", Native(100)), ("reservoir", Reservoir(100)))}  # fmt: skip
    share = {kind: wrong[rows["index"]].float().mean().item() for kind, rows in kept.items()}
    assert share["native"] < 0.7 * share["reservoir"], share
