"""FDR against plain SGD and a slow oracle of its second update, and end to end with every memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from workbench import CLASSES, SHAPE, Bench, batch_of, cnn, flat, mlp, same, sgd, task_of

from odedm import ODEDM, Experiment, MemoryPart, Native, Reservoir, Run, blobs, shapes
from odedm.memory.quota_buffers import TaskQuotaBuffer
from odedm.methods.er import ER
from odedm.methods.fdr import FDR, function_distance
from odedm.methods.hyperparameters import hyperparameters
from odedm.nets.small import MLP

BLOBS, SHAPES = blobs(per_class=30), shapes(per_class=20)
MEMORIES = {
    "reservoir": Reservoir(30),
    "native": Native(30),
    **{reading: ODEDM(30, k=2, replay=reading) for reading in ("auxiliary", "union", "both")},
    "over a reservoir": ODEDM(30, k=2, short_policy="reservoir"),
}


def native(**options):
    return Bench(FDR, policy=TaskQuotaBuffer, **options)


def slow_distance(logits, stored):
    rows = []
    for now, then in zip(logits, stored, strict=True):
        p, q = now.exp() / now.exp().sum(), then.exp() / then.exp().sum()
        rows.append(sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) ** 0.5)
    return sum(rows) / len(rows)


def random_logits(seed, n=5, scale=3.0):
    return scale * torch.randn(n, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("net", [mlp, cnn])
def test_the_first_task_is_plain_sgd(net):
    bench = native(net=net(), lr=0.1)
    for seed in range(5):
        bench.step(batch_of(seed))
    assert bench.memory.size() == 0
    torch.testing.assert_close(bench.weights(), sgd(0.1, map(batch_of, range(5)), net()), rtol=1e-13, atol=1e-15)


def test_a_stream_of_one_task_gives_the_bits_of_er_without_a_memory():
    runs = [("fdr", Native(30)), ("er", Reservoir(0))]
    plans = [
        Experiment(memory, method=name, options={"lr": 0.1}, data="shapes", tasks=1, batch=8, device="cpu")
        for name, memory in runs
    ]
    fdr, er = (Run(plan, SHAPES).finish() for plan in plans)
    assert same(fdr.method.net.state_dict(), er.method.net.state_dict())
    assert fdr.memory.size() == 30


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 0.1, 3.0, 500.0]), shift=st.floats(-50, 50))
def test_the_distance_is_bounded_symmetric_and_blind_to_constants(seed, scale, shift):
    now, then = random_logits(seed, scale=scale), random_logits(seed + 1, scale=scale)
    distance = function_distance(now, then)
    assert 0 <= distance <= math.sqrt(2) * (1 + 1e-12)
    torch.testing.assert_close(function_distance(then, now), distance)
    torch.testing.assert_close(function_distance(now, then + shift), distance, rtol=1e-9, atol=1e-12)
    if scale <= 3:
        torch.testing.assert_close(distance, slow_distance(now, then), rtol=1e-9, atol=1e-12)


def test_equal_predictions_have_distance_zero_and_gradient_zero():
    now = random_logits(0).requires_grad_()
    distance = function_distance(now, now.detach() + 2.0)
    (slope,) = torch.autograd.grad(distance, now)
    assert distance < 1e-15
    exact = function_distance(now, now.detach())
    (slope,) = torch.autograd.grad(exact, now)
    assert exact == 0
    assert slope.equal(torch.zeros_like(slope)), "no NaN from the root of zero"


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_a_batch_after_the_first_task_makes_two_updates(alpha):
    bench = native(capacity=6, lr=0.5, alpha=alpha)
    bench.step(batch_of(0))
    bench.end_task(task_of(0))
    past = bench.memory.rows()
    twin = mlp()
    twin.load_state_dict(bench.net.state_dict())
    sgd(0.5, [batch_of(1)], twin)
    loss = alpha * slow_distance(twin(past["image"]), past["logits"])
    slope = torch.autograd.grad(loss, list(twin.parameters()))
    expected = flat(twin.parameters()) - 0.5 * flat(slope)
    bench.step(batch_of(1))
    torch.testing.assert_close(bench.weights(), expected, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(bench.method.last_loss, loss.detach(), rtol=1e-10, atol=0)
    assert flat(slope).abs().max() > 1e-4, "the second update does move the weights"


def test_alpha_zero_is_sgd_however_much_is_stored():
    bench = native(lr=0.1, alpha=0.0)
    for seed in range(4):
        bench.step(batch_of(seed))
    bench.end_task(task_of(0))
    for seed in range(4, 8):
        bench.step(batch_of(seed))
    torch.testing.assert_close(bench.weights(), sgd(0.1, map(batch_of, range(8))), rtol=1e-13, atol=1e-15)


def test_the_auxiliary_term_belongs_to_the_first_update_alone():
    updates = []

    class Recording(FDR):
        def optimizer_step(self, loss, replay=None):
            updates.append(replay is not None)
            super().optimizer_step(loss, replay)

    bench = Bench(Recording, policy=TaskQuotaBuffer)
    bench.step(batch_of(0))
    bench.end_task(task_of(0))
    bench.step(batch_of(1))
    assert updates == [True, True, False]


def test_stored_logits_are_the_evaluation_outputs_when_the_task_ended():
    bench = native(net=cnn(), capacity=8)
    bench.step(batch_of(0))
    before = bench.state()
    bench.end_task(task_of(0))
    assert same(before, bench.state()), "choosing and annotating rows changes no weight and no statistic"
    assert bench.net.training
    rows = bench.memory.rows()
    bench.net.eval()
    with torch.no_grad():
        expected = bench.net(rows["image"])
    bench.net.train()
    torch.testing.assert_close(rows["logits"], expected, rtol=1e-12, atol=1e-14)
    bench.step(batch_of(1))
    bench.end_task(task_of(1))
    kept = bench.memory.rows()
    assert kept["task"].tolist() == [0] * 4 + [1] * 4
    assert kept["logits"][:4].equal(rows["logits"][:4]), "old rows keep their logits"


def test_with_a_reservoir_the_logits_are_those_before_the_update():
    bench = Bench(FDR, lr=0.5)
    batch = batch_of(0)
    with torch.no_grad():
        expected = bench.net(batch["input"])
    stored = bench.step(batch)
    assert stored["logits"].equal(expected)
    assert not stored["logits"].requires_grad
    assert bench.memory.rows()["logits"].equal(expected)


def test_images_forwarded_per_step():
    class Counting(MLP):
        images = 0

        def features(self, x):
            type(self).images += len(x)
            return super().features(x)

    bench = Bench(FDR, net=Counting(SHAPE, CLASSES).double(), capacity=50, draw=32)
    bench.step(batch_of(0, 40))
    Counting.images = 0
    bench.step(batch_of(1, 32))
    assert Counting.images == 64


def test_other_methods_work_with_a_quota_that_is_empty_at_first():
    bench = Bench(ER, policy=TaskQuotaBuffer, lr=0.1)
    bench.step(batch_of(0))
    assert not bench.replay
    torch.testing.assert_close(bench.weights(), sgd(0.1, [batch_of(0)]), rtol=1e-13, atol=1e-15)
    bench.end_task(task_of(0))
    assert bench.replay
    bench.step(batch_of(1))
    assert bench.memory.size() == 10


def finish(memory, data, seed=0, batch=8, **options):
    plan = Experiment(memory, method="fdr", options=options, data=data.name, batch=batch, seed=seed, device="cpu")
    return Run(plan, data).finish()


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("data", "chance"), [(BLOBS, 10), (SHAPES, 100 / 6)], ids=["blobs", "shapes"])
def test_runs_with_every_memory_and_beats_chance(memory, data, chance):
    outcome = finish(MEMORIES[memory], data, lr=0.1)
    assert outcome.result.acc_last > 1.5 * chance
    assert outcome.method.net.training
    pinned = outcome.memory.size(MemoryPart.LONG)
    tasks = len(outcome.result.acc)
    assert pinned == (0 if memory in ("reservoir", "native") else 4 * (tasks - 1))
    if memory in ("native", "auxiliary", "union", "both"):
        task = outcome.memory.rows(MemoryPart.SHORT)["task"]
        assert torch.bincount(task, minlength=tasks).tolist() == [(30 - pinned) // tasks] * tasks


def test_replay_of_functions_forgets_less_than_no_replay():
    data = blobs(per_class=100)
    with_memory, without = (finish(Native(capacity), data, lr=0.1) for capacity in (100, 0))
    assert without.result.acc_last < 60
    assert with_memory.result.acc_last > 90


@pytest.mark.parametrize("capacity", [0, 1, 3])
@pytest.mark.parametrize("kind", [Native, Reservoir, lambda capacity: ODEDM(capacity, k=0)])
def test_memories_smaller_than_the_number_of_classes(kind, capacity):
    outcome = finish(kind(capacity), BLOBS, batch=16)
    assert outcome.memory.size() == capacity


def test_batches_and_draws_of_one_row():
    outcome = finish(Native(5), shapes(per_class=6), batch=1)
    assert outcome.memory.size() == 3, "a remainder of two stays unused"
    assert all(weight.isfinite().all() for weight in outcome.method.net.parameters())


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not():
    first, second, other = (finish(ODEDM(30, k=2), BLOBS, seed=seed) for seed in (3, 3, 4))
    assert same(first.method.net.state_dict(), second.method.net.state_dict())
    assert same(first.memory.rows(), second.memory.rows())
    assert not same(first.method.net.state_dict(), other.method.net.state_dict())


def test_hyperparameters():
    assert hyperparameters(FDR) == {"lr": 0.03, "momentum": 0.0, "weight_decay": 0.0, "alpha": 1.0}
