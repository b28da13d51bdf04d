"""DER++refresh against DER++ and slow oracles of the unlearning move and of the Fisher information."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from workbench import CLASSES, PLAIN, SHAPE, Bench, batch_of, cnn, flat, mlp, same, task_of

from odedm import ODEDM, Experiment, MemoryPart, Native, Reservoir, Run, UsageError, blobs, shapes
from odedm.methods import refresh as refresh_module
from odedm.methods import row_squares
from odedm.methods.derpp import DERpp
from odedm.methods.gradients import trained
from odedm.methods.hyperparameters import configure, hyperparameters
from odedm.methods.refresh import (
    Refresh,
    ascent,
    check_single_rows,
    fisher_information,
    statistics_kept,
    stream_gradient,
)
from odedm.methods.row_squares import RowSquares
from odedm.nets import base
from odedm.nets.grouped_batch_norm import Norm2d
from odedm.nets.resnet import ResNet18
from odedm.nets.small import MLP
from odedm.stream.augment import Transform

BLOBS, SHAPES = blobs(per_class=30), shapes(per_class=20)
MEMORIES = {
    "reservoir": Reservoir(30),
    "native": Native(30),
    **{reading: ODEDM(30, k=2, replay=reading) for reading in ("auxiliary", "union", "both")},
}
NETS = [mlp, cnn]


def slow_gradient(net, batch):
    """The gradient of the stream's loss, on a copy with statistics of its own."""
    twin = cnn() if hasattr(net, "norm1") else mlp()
    twin.load_state_dict(net.state_dict())
    twin.train()
    loss = F.cross_entropy(twin(batch["input"]), batch["label"])
    return dict(zip(trained(twin), torch.autograd.grad(loss, list(twin.parameters())), strict=True))


def slow_fisher(net, x, y, training):
    """One backward pass per row, as the definition has it."""
    twin = cnn() if hasattr(net, "norm1") else mlp()
    twin.load_state_dict(net.state_dict())
    twin.train(training)
    fisher = {name: torch.zeros_like(weight) for name, weight in twin.named_parameters()}
    for image, label in zip(x, y, strict=True):
        twin.zero_grad()
        log_p = twin(image[None]).log_softmax(1)[0, label]
        log_p.backward()
        for name, weight in twin.named_parameters():
            fisher[name] += log_p.detach().exp() * weight.grad**2
    return {name: total / len(y) for name, total in fisher.items()}


def moves(bench, batch):
    """What one unlearning move adds to every weight."""
    before = {name: weight.detach().clone() for name, weight in trained(bench.net).items()}
    bench.method.unlearn(batch)
    return {name: weight.detach() - before[name] for name, weight in trained(bench.net).items()}


# -- the move ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("options", [{"delta": 0.0}, {"unlearn_steps": 0}])
def test_without_a_move_it_is_derpp_bit_for_bit(net, options):
    refresh = Bench(Refresh, net=net(), lr=0.1, sigma=0.5, **options)
    derpp = Bench(DERpp, net=net(), lr=0.1, weight_decay=1e-4)
    for bench in (refresh, derpp):
        for task in range(2):
            bench.method.begin_task(task_of(task))
            for seed in range(4):
                bench.step(batch_of(4 * task + seed))
            bench.end_task(task_of(task))
    assert same(refresh.state(), derpp.state())
    assert same(refresh.memory.rows(), derpp.memory.rows())


def test_without_a_move_whole_runs_with_views_and_prototypes_equal_those_of_derpp():
    plans = [("refresh", {"delta": 0.0}), ("derpp", {"weight_decay": 1e-4})]
    refresh, derpp = (finish(ODEDM(20, k=2), SHAPES, method=name, **options) for name, options in plans)
    assert same(refresh.method.net.state_dict(), derpp.method.net.state_dict())
    assert same(refresh.memory.rows(), derpp.memory.rows())
    assert refresh.result.class_il == derpp.result.class_il


@pytest.mark.parametrize("net", NETS)
def test_every_tensor_moves_a_relative_length_delta_up_the_streams_loss(net):
    bench, batch = Bench(Refresh, net=net(), sigma=0.0, delta=1e-3), batch_of(3)
    gradient = slow_gradient(bench.net, batch)
    length = {name: weight.detach().norm() for name, weight in trained(bench.net).items()}
    moved = moves(bench, batch)
    for name, move in moved.items():
        assert gradient[name].norm() > 0
        torch.testing.assert_close(move.norm(), 1e-3 * length[name], rtol=1e-9, atol=0)
        cosine = (move * gradient[name]).sum() / move.norm() / gradient[name].norm()
        torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=1e-9, atol=0)


def test_the_length_of_the_gradient_does_not_matter_unless_it_is_zero():
    weight, slope = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def step(weight, slope):
        return ascent((weight,), (slope,), 1e-20)[0]

    torch.testing.assert_close(step(weight, 100 * slope), step(weight, slope), rtol=1e-14, atol=0)
    assert step(weight, 0 * slope).equal(torch.zeros_like(slope))
    assert step(weight.float(), 0 * slope.float()).equal(torch.zeros(5, 3)), "epsilon survives float32"
    assert step(0 * weight, slope).equal(torch.zeros_like(slope)), "a zero tensor is moved by noise alone"


def test_the_whole_move_by_its_formula():
    options = {"delta": 0.1, "kappa": 2.0, "sigma": 0.3, "epsilon": 0.5}
    bench, batch = Bench(Refresh, net=cnn(), **options), batch_of(3)
    rng = torch.Generator().manual_seed(1)
    bench.method.fisher = {
        name: torch.rand(weight.shape, generator=rng, dtype=torch.float64)
        for name, weight in trained(bench.net).items()
    }
    noise = bench.method.noise.clone_state()
    gradient = slow_gradient(bench.net, batch)
    expected = {}
    for name, weight in trained(bench.net).items():
        xi = torch.randn(weight.shape, generator=noise, dtype=torch.float64)
        u = weight.detach().norm() / (gradient[name].norm() + 0.5) * gradient[name]
        expected[name] = 0.1 * (u + 0.3 * xi) / (1 + 2.0 * bench.method.fisher[name])
    for name, move in moves(bench, batch).items():
        torch.testing.assert_close(move, expected[name], rtol=1e-9, atol=1e-14)


def test_larger_fisher_entries_strictly_shrink_the_move():
    plain, damped = (Bench(Refresh, net=cnn(), delta=1e-2, kappa=0.5) for _ in range(2))
    for name, fisher in damped.method.fisher.items():
        fisher.fill_(3.0 if name == "conv2.weight" else 0.0)
    free, held = moves(plain, batch_of(3)), moves(damped, batch_of(3))
    for name in free:
        if name == "conv2.weight":
            assert (held[name].abs() < free[name].abs()).all()
            torch.testing.assert_close(held[name], free[name] / 2.5, rtol=1e-9, atol=1e-15)
        else:
            assert held[name].equal(free[name])


@pytest.mark.parametrize(("training", "joined"), [(True, False), (False, False), (True, True)])
def test_unlearning_leaves_buffers_gradients_optimiser_and_mode_alone(training, joined, monkeypatch):
    monkeypatch.setattr(base, "joins", lambda _: joined)  # as on a GPU
    bench = Bench(Refresh, net=cnn(), momentum=0.9, delta=0.1)
    bench.step(batch_of(0))
    bench.step(batch_of(1))
    bench.net.train(training)
    state = bench.state()
    slopes = [weight.grad.clone() for weight in bench.net.parameters()]
    momenta = [entry["momentum_buffer"].clone() for entry in bench.method.optimizer.state.values()]
    bench.method.unlearn(batch_of(2))
    after = bench.state()
    for name, _ in bench.net.named_buffers():
        assert after[name].equal(state[name])
    assert not any(after[name].equal(state[name]) for name, _ in bench.net.named_parameters())
    assert all(old.equal(weight.grad) for old, weight in zip(slopes, bench.net.parameters(), strict=True))
    now = [entry["momentum_buffer"] for entry in bench.method.optimizer.state.values()]
    assert momenta
    assert all(old.equal(new) for old, new in zip(momenta, now, strict=True))
    assert all(module.training is training for module in bench.net.modules())
    assert all(module.momentum == 0.1 for module in bench.net.modules() if isinstance(module, Norm2d))


def test_the_gradient_of_a_move_is_the_same_by_a_pass_as_on_a_gpu(monkeypatch):
    net, batch = cnn().train(), batch_of(3)
    alone = stream_gradient(net, batch["input"], batch["label"])
    monkeypatch.setattr(base, "joins", lambda _: True)
    joined = stream_gradient(net, batch["input"], batch["label"])
    for one, other in zip(alone, joined, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_moves_are_repeated_from_where_the_last_one_ended():
    thrice, by_hand = (Bench(Refresh, net=cnn(), delta=1e-2, unlearn_steps=steps, lr=0.0) for steps in (3, 0))
    thrice.step(batch_of(0))
    for _ in range(3):
        by_hand.method.unlearn(batch_of(0))
    by_hand.step(batch_of(0))
    assert thrice.weights().equal(by_hand.weights())


def test_stored_logits_are_those_after_unlearning_and_before_relearning():
    bench, twin = (Bench(Refresh, net=cnn(), delta=0.1, lr=0.5) for _ in range(2))
    stored = bench.step(batch_of(0))
    twin.method.unlearn(batch_of(0))
    with torch.no_grad():
        expected = twin.net(batch_of(0)["input"])
    assert stored["logits"].equal(expected)
    assert not stored["logits"].requires_grad


def test_the_relearning_step_is_that_of_derpp_on_the_moved_weights():
    bench = Bench(Refresh, net=cnn(), delta=0.05, lr=0.3)
    bench.step(batch_of(0))
    twin = Bench(DERpp, net=cnn(), lr=0.3, weight_decay=1e-4)
    twin.memory.add(bench.memory.rows(), twin.probe, rng=twin.keys)
    twin.net.load_state_dict(bench.state())
    mover = Bench(Refresh, net=twin.net, delta=0.05)
    mover.method.noise.set_state(bench.method.noise.get_state())
    mover.method.unlearn(batch_of(1))
    bench.step(batch_of(1))
    twin.step(batch_of(1))
    torch.testing.assert_close(bench.weights(), twin.weights(), rtol=1e-12, atol=1e-14)


class Tied(MLP):
    """Two layers that are one, and one that is frozen."""

    def __init__(self):
        super().__init__(SHAPE, CLASSES, width=8)
        self.again = self.hidden[3]
        self.hidden[1].weight.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))

    def features(self, x):
        return self.again(super().features(x)).relu()


def test_shared_weights_move_once_and_frozen_ones_not_at_all():
    torch.manual_seed(0)
    bench = Bench(Refresh, net=Tied().double(), delta=1e-2, sigma=0.0)
    shared, frozen = bench.net.again.weight, bench.net.hidden[1].weight.clone()
    length = shared.detach().norm()
    moved = moves(bench, batch_of(0))
    assert sorted(moved) == sorted(
        ["hidden.1.bias", "hidden.3.weight", "hidden.3.bias", "head.weight", "head.bias", "unused"]
    )
    torch.testing.assert_close(moved["hidden.3.weight"].norm(), 1e-2 * length, rtol=1e-9, atol=0)
    assert bench.net.hidden[1].weight.equal(frozen)
    assert moved["unused"].equal(torch.zeros(3)), "no gradient, no direction"
    bench.end_task(task_of(0))
    assert bench.method.fisher["hidden.3.weight"].sum() > 0
    assert bench.method.fisher["unused"].sum() == 0


def test_images_forwarded_per_step():
    class Counting(MLP):
        images = 0

        def features(self, x):
            type(self).images += len(x)
            return super().features(x)

    bench = Bench(Refresh, net=Counting(SHAPE, CLASSES).double(), capacity=50, draw=32)
    bench.step(batch_of(0, 40))
    Counting.images = 0
    bench.step(batch_of(1, 32))
    assert Counting.images == 128


def test_the_move_is_small_beside_the_update_with_the_published_constants():
    bench = Bench(Refresh, net=cnn())
    bench.step(batch_of(0))
    size = flat(moves(bench, batch_of(1)).values()).norm() / bench.weights().norm()
    before = bench.weights()
    bench.method.unlearn_steps = 0
    bench.step(batch_of(1))
    assert size < 2e-5
    assert (bench.weights() - before).norm() / before.norm() > 50 * size


# -- the Fisher information -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("chunk", "way"), [(1, "rows"), (4, "rows"), (20, "rows"), (1, "squares"), (4, "squares")])
def test_fisher_equals_one_backward_pass_per_row(net, training, chunk, way, monkeypatch):
    monkeypatch.setattr(refresh_module, "launch_bound", lambda _device: way == "squares")  # as on a GPU
    monkeypatch.setattr(row_squares, "MOST_ROWS", 3)
    bench = Bench(DERpp, net=net())
    for seed in range(3):
        bench.step(batch_of(seed))  # running statistics that differ from the first ones
    rows = batch_of(9, 10)
    before = bench.state()
    parts = zip(rows["input"].split(chunk), rows["label"].split(chunk), strict=True)
    fisher = fisher_information(bench.net, parts, total=10, training=training)
    expected = slow_fisher(bench.net, rows["input"], rows["label"], training)
    assert fisher.keys() == expected.keys()
    for name, value in fisher.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-18)
        assert (value >= 0).all()
        assert value.max() > 0
        assert not value.requires_grad
    assert same(before, bench.state()), "no weight and no statistic has changed"
    assert bench.net.training
    assert all(module.track_running_stats for module in bench.net.modules() if isinstance(module, nn.BatchNorm2d))


def test_squares_of_strides_and_ways_around_equal_those_of_rows(monkeypatch):
    torch.manual_seed(0)
    net = ResNet18((3, 8, 8), CLASSES, width=2).double()  # its last maps have one place, which has no spread
    monkeypatch.setattr(row_squares, "ENTRIES", 4 * 16 * 16 * 9)  # four rows of the largest layer at a time
    net.stem.bias = nn.Parameter(torch.randn(2, dtype=torch.float64))
    net.norm.weight.requires_grad_(False)
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.arange(6) % CLASSES
    expected = fisher_information(net, [(x, y)], total=1, training=True)
    squares = RowSquares(net, training=True)
    squares.add(x[:5], y[:5])
    squares.add(x[5:], y[5:])
    assert squares.total.keys() == expected.keys()
    for name, value in squares.total.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-18)


def test_squares_are_made_of_layers_alone_that_do_not_mix_rows():
    net, shared = ResNet18((3, 8, 8), 2, width=2), MLP((4,), 3, width=4)
    assert row_squares.knows_squares(net)
    assert row_squares.knows_squares(shared)
    shared.hidden[3].weight = shared.hidden[1].weight
    net.blocks[0].around = nn.BatchNorm2d(2)
    assert not row_squares.knows_squares(shared), "a weight of two layers"
    assert not row_squares.knows_squares(net), "a BatchNorm that is not ours"
    net.blocks[0].around = nn.Conv2d(2, 2, 1, groups=2)
    assert not row_squares.knows_squares(net), "a convolution by group"


def test_fisher_is_zero_throughout_the_first_task_and_then_forgets_by_tau():
    bench = Bench(Refresh, net=cnn(), tau=0.25)
    first, second = task_of(0, total=3), task_of(1, total=3)
    for seed in range(3):
        bench.step(batch_of(seed))
        assert all(fisher.abs().max() == 0 for fisher in bench.method.fisher.values())
    bench.end_task(first)
    one = slow_fisher(bench.net, first.rows["image"], first.rows["label"], training=True)
    for name, value in bench.method.fisher.items():
        torch.testing.assert_close(value, one[name], rtol=1e-10, atol=1e-18)
    bench.step(batch_of(3))
    bench.end_task(second)
    two = slow_fisher(bench.net, second.rows["image"], second.rows["label"], training=True)
    for name, value in bench.method.fisher.items():
        torch.testing.assert_close(value, 0.25 * one[name] + two[name], rtol=1e-10, atol=1e-18)


def recorded_views(bench):
    """Every raw image that is asked for as a view."""
    seen, weak = [], bench.replay.augment
    bench.replay.augment = lambda image: (seen.append(image), weak(image))[1]
    return lambda: torch.cat(seen) if seen else torch.empty(0)


def test_fisher_reads_training_views_of_all_rows_once():
    shifted = Transform(PLAIN.shift + 0.5, PLAIN.scale)
    bench, task = Bench(Refresh, net=cnn(), transform=shifted), task_of(0)
    seen = recorded_views(bench)
    bench.end_task(task)
    assert seen().equal(task.rows["image"])
    expected = slow_fisher(bench.net, task.rows["image"] - 0.5, task.rows["label"], training=True)
    torch.testing.assert_close(bench.method.fisher["conv1.weight"], expected["conv1.weight"], rtol=1e-10, atol=1e-18)


def test_fisher_of_some_rows_is_the_same_mean_over_distinct_rows():
    bench, task = Bench(Refresh, net=cnn(), fisher_samples=4), task_of(0)
    seen = recorded_views(bench)
    bench.end_task(task)
    at = [(task.rows["image"] == image).flatten(1).all(1).nonzero().item() for image in seen()]
    assert len(set(at)) == 4
    assert sorted(at) != [0, 1, 2, 3], "a random choice, not the first ones"
    expected = slow_fisher(bench.net, task.rows["image"][at], task.rows["label"][at], training=True)
    for name, value in bench.method.fisher.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-18)
    every = Bench(Refresh, net=cnn(), fisher_samples=99)
    seen = recorded_views(every)
    every.end_task(task)
    assert seen().equal(task.rows["image"])


def test_fisher_in_evaluation_mode():
    bench, task = Bench(Refresh, net=cnn(), fisher_mode="eval"), task_of(0)
    bench.step(batch_of(0))
    bench.end_task(task)
    expected = slow_fisher(bench.net, task.rows["image"], task.rows["label"], training=False)
    other = slow_fisher(bench.net, task.rows["image"], task.rows["label"], training=True)
    fisher = bench.method.fisher["conv1.weight"]
    torch.testing.assert_close(fisher, expected["conv1.weight"], rtol=1e-10, atol=1e-18)
    assert not torch.allclose(fisher, other["conv1.weight"], rtol=1e-2)
    assert bench.net.training


@pytest.mark.parametrize("options", [{"kappa": 0.0}, {"delta": 0.0}, {"unlearn_steps": 0}, {"last": True}])
def test_no_pass_where_nobody_would_read_it(options):
    last = options.pop("last", False)
    bench = Bench(Refresh, net=cnn(), **options)
    seen = recorded_views(bench)
    bench.end_task(task_of(0, total=1 if last else 2))
    assert len(seen()) == 0
    assert all(fisher.abs().max() == 0 for fisher in bench.method.fisher.values())


def fail_inside(net, *, training):
    seen = None
    try:
        with statistics_kept(net, training=training):
            seen = net.training, net.norm1.track_running_stats
            raise KeyError
    except KeyError:
        return seen


def test_mode_and_tracking_come_back_after_an_error_too():
    for training in (True, False):
        for inner in (True, False):
            net = cnn().train(training)
            inside = fail_inside(net, training=inner)
            assert inside == (inner, not inner), "in training mode nothing is tracked"
            assert all(module.training is training for module in net.modules())
            assert net.norm1.track_running_stats


def test_stream_gradient_is_the_gradient_and_changes_nothing():
    net = cnn().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    own, batch = trained(net), batch_of(0)
    gradient = dict(zip(own, stream_gradient(net, batch["input"], batch["label"]), strict=True))
    expected = slow_gradient(net, batch)
    for name, value in gradient.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-15)
    assert same(before, net.state_dict())
    assert all(weight.grad is None for weight in net.parameters())


# -- what cannot be done ----------------------------------------------------------------------------------------------


def test_maps_of_one_place_are_judged_by_running_statistics():
    outcome = finish(Native(10), shapes(per_class=20, side=8), net="resnet18-slim")
    assert all(value.isfinite().all() for value in outcome.method.net.parameters())


def test_a_plain_batchnorm_on_maps_of_one_place_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(Norm2d, "_norm", torch.nn.BatchNorm2d.forward)
    data = shapes(per_class=20, side=8)
    with pytest.raises(UsageError, match=r"single rows of shape \(3, 8, 8\).*fisher_mode='eval' .--set fisher"):
        finish(Native(10), data, net="resnet18")
    for options in ({"fisher_mode": "eval"}, {"kappa": 0.0}):
        net = ResNet18(SHAPE, CLASSES, width=2).double()
        bench = Bench(Refresh, net=net, **options)
        bench.method.begin_task(task_of(0))
        bench.step(batch_of(0))
        bench.end_task(task_of(0))
        assert bench.net.training
    assert bench.net.norm.track_running_stats


def test_other_errors_of_a_network_are_not_reworded():
    class Broken(MLP):
        def features(self, x):
            raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        check_single_rows(Broken(SHAPE, CLASSES), torch.zeros(1, *SHAPE))


def test_hyperparameters_and_what_is_refused():
    assert hyperparameters(Refresh) == {
        "lr": 0.03, "momentum": 0.0, "weight_decay": 1e-4, "alpha": 0.1, "beta": 0.5, "delta": 1e-5, "kappa": 1e-3,
        "sigma": 1e-3, "tau": 1e-5, "epsilon": 1e-20, "unlearn_steps": 1, "fisher_samples": 0, "fisher_mode": "train",
    }  # fmt: skip
    assert configure("refresh", Refresh, {"fisher_samples": "7"})["fisher_samples"] == 7
    for options, sentence in [
        ({"fisher_mode": "evaluate"}, "Unknown Fisher mode 'evaluate': did you mean 'eval'"),
        ({"delta": -1.0}, "refresh's delta must be 0 or more; -1.0"),
        ({"fisher_samples": -1}, "refresh's fisher_samples must be 0 or more; -1"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            Bench(Refresh, **options)


# -- whole runs -------------------------------------------------------------------------------------------------------


def finish(memory, data, method="refresh", net="auto", seed=0, batch=8, **options):
    plan = Experiment(
        memory, method=method, options=options, data=data.name, net=net, batch=batch, seed=seed, device="cpu"
    )
    return Run(plan, data).finish()


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("data", "chance"), [(BLOBS, 10), (SHAPES, 100 / 6)], ids=["blobs", "shapes"])
def test_runs_with_every_memory_and_beats_chance(memory, data, chance):
    outcome = finish(MEMORIES[memory], data)
    assert outcome.result.acc_last > 2 * chance
    assert outcome.method.net.training
    assert outcome.memory.size(MemoryPart.LONG) == (0 if memory in ("reservoir", "native") else 4 * (data.tasks - 1))
    assert all(fisher.max() > 0 for fisher in outcome.method.fisher.values())


@pytest.mark.parametrize("capacity", [0, 1, 3])
@pytest.mark.parametrize("kind", [Native, lambda capacity: ODEDM(capacity, k=0)])
def test_memories_smaller_than_the_number_of_classes(kind, capacity):
    assert finish(kind(capacity), BLOBS, batch=16).memory.size() == capacity


def test_batches_and_draws_of_one_row():
    outcome = finish(Native(5), shapes(per_class=6), batch=1)
    assert outcome.memory.size() == 5
    assert all(weight.isfinite().all() for weight in outcome.method.net.parameters())


@pytest.mark.parametrize("options", [{}, {"fisher_samples": 9, "fisher_mode": "eval", "delta": 1e-2}])
def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(options):
    first, second, other = (finish(ODEDM(20, k=2), SHAPES, seed=seed, **options) for seed in (3, 3, 4))
    assert same(first.method.net.state_dict(), second.method.net.state_dict())
    assert same(first.method.fisher, second.method.fisher)
    assert same(first.memory.rows(), second.memory.rows())
    assert not same(first.method.net.state_dict(), other.method.net.state_dict())


def test_the_noise_has_a_generator_of_its_own():
    quiet, loud = (finish(Native(30), SHAPES, sigma=sigma, delta=1e-2) for sigma in (0.0, 1.0))
    assert quiet.memory.rows()["index"].equal(loud.memory.rows()["index"]), "the reservoir drew the same keys"
    assert not same(quiet.method.net.state_dict(), loud.method.net.state_dict())
