"""Methods that train a fresh network when a task ends, and the bounds: what they are trained on, and how often."""

import pytest
import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, mlp, sgd, task_of

from odedm import ODEDM, NoMemory, UsageError, blobs, train
from odedm.methods.finetune import Finetune
from odedm.methods.gdumb import GDumb
from odedm.methods.joint import Joint

BLOBS = blobs(per_class=30)


def test_finetuning_is_sgd_whatever_is_stored():
    batches = [batch_of(seed) for seed in range(3)]
    bench = Bench(Finetune, lr=0.1)
    for batch in batches:
        bench.step(batch)
    torch.testing.assert_close(bench.weights(), sgd(0.1, batches))


def test_a_step_of_gdumb_learns_nothing_and_every_fit_begins_anew():
    bench = Bench(GDumb, capacity=8, fit_epochs=3, fit_batch=4, cutmix=0.0)
    start = bench.weights()
    bench.step(batch_of(0))
    assert bench.weights().equal(start)
    bench.end_task(task_of(0))
    first = bench.weights()
    assert not first.equal(start)
    with torch.no_grad():
        for weight in bench.net.parameters():
            weight.add_(1.0)  # whatever became of the network
    bench.method.order.manual_seed(bench.method.rng("fitting").initial_seed())
    bench.end_task(task_of(1))
    torch.testing.assert_close(bench.weights(), first)


def test_a_fit_is_cut_sgd_with_momentum_over_all_stored_rows_in_cycles_of_rates():
    """Two rows a batch of all, so that order does not count: 4 passes at .1, 1, 1 and between 1 and .01 of the rate."""
    bench = Bench(GDumb, capacity=6, fit_epochs=4, fit_batch=6, cutmix=0.0, clip=0.05, lr=0.5, weight_decay=0.01)
    bench.step(batch_of(0))
    rows, twin = bench.memory.rows(), mlp().train()
    velocity = [torch.zeros_like(each) for each in twin.parameters()]
    for rate in (0.05, 0.5, 0.5, 0.005 + 0.495 * (1 + 0.0) / 2):
        slope = torch.autograd.grad(F.cross_entropy(twin(rows["image"]), rows["label"]), list(twin.parameters()))
        norm = torch.cat([each.flatten() for each in slope]).norm()
        assert norm > 0.05, "else nothing is cut"
        with torch.no_grad():
            for weight, each, speed in zip(twin.parameters(), slope, velocity, strict=True):
                speed.mul_(0.9).add_(each * 0.05 / (norm + 1e-6) + 0.01 * weight)
                weight.sub_(rate * speed)
    bench.end_task(task_of(0))
    torch.testing.assert_close(bench.weights(), torch.cat([each.detach().flatten() for each in twin.parameters()]))


def test_gdumb_fits_short_and_long_term_rows_once_each_and_only_when_asked():
    options = {"fit_epochs": 2, "every_task": False}
    outcome = train(BLOBS, method="gdumb", memory=ODEDM(40, k=2), options=options, batch=16, progress=False)
    assert outcome.method.optimizer.param_groups[0]["lr"] == 0.05
    seen = []
    outcome.method.fit = lambda rows, _: seen.append(rows["index"])
    replay = Bench(GDumb).replay
    replay.memory = outcome.memory
    outcome.method.end_task(task_of(0, total=2), replay)
    assert seen == []
    outcome.method.end_task(task_of(1, total=2), replay)
    assert len(seen[0]) == len(seen[0].unique()) <= 40


def test_joint_training_is_sgd_over_all_tasks_with_as_many_updates():
    bench = Bench(Joint, capacity=0, lr=0.1)
    tasks = [task_of(0, n=6), task_of(1, n=6)]
    for task in tasks:
        bench.method.begin_task(task)
        bench.step({**task.rows, "input": task.rows["image"]})
        bench.method.end_task(task, bench.replay)
    rows = {name: torch.cat([task.rows[name] for task in tasks]) for name in ("image", "label")}
    rng = bench.method.rng("fitting")
    torch.randperm(6, generator=rng)
    parts = torch.randperm(12, generator=rng).split(6)
    batches = [{"input": rows["image"][part], "label": rows["label"][part]} for part in parts]
    torch.testing.assert_close(bench.weights(), sgd(0.1, batches))


def test_joint_training_beats_finetuning():
    last = {
        name: train(BLOBS, method=name, memory=NoMemory(), batch=16, progress=False, epochs=3).result.acc_last
        for name in ("finetune", "joint")
    }
    assert last["joint"] > last["finetune"] + 10


@pytest.mark.parametrize("method", ["finetune", "joint"])
def test_a_bound_refuses_a_memory(method):
    with pytest.raises(UsageError, match="keeps no rows, .*'odedm' was given; say 'none' .--memory none"):
        train(BLOBS, method=method, memory=ODEDM(20))


@pytest.mark.parametrize("options", [{"cutmix": 2.0}, {"fit_epochs": 0}, {"fit_batch": 1}, {"clip": 0.0}])
def test_gdumb_refuses_what_cannot_be(options):
    with pytest.raises(UsageError, match="gdumb"):
        Bench(GDumb, **options)
