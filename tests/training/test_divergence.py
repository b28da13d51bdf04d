"""A loss or a weight that is no number ends the run, and never goes into a checkpoint."""

import math
from dataclasses import replace

import pytest
import torch
from jobs import job_of

from odedm import Experiment, Reservoir, Run, UsageError, blobs
from odedm.checkpoint.checkpoint import checkpoint_paths, load, look_at, working_folder
from odedm.checkpoint.schedule import Schedule
from odedm.execute.run_job import run_job
from odedm.methods.er import ER
from odedm.training.divergence import DivergenceGuard

DATA = blobs(per_class=20)
PLAN = Experiment(Reservoir(10), method="er", data="blobs", batch=8, device="cpu")


def spoil(monkeypatch, at, how):
    """A method that goes wrong in one of its steps."""
    original, steps = ER.observe, []

    def observe(self, batch, replay):
        fields = original(self, batch, replay)
        steps.append(None)
        if len(steps) == at:
            how(self)
        return fields

    monkeypatch.setattr(ER, "observe", observe)


def nan_weights(method):
    with torch.no_grad():
        next(method.net.parameters()).fill_(math.nan)


LOSSES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_no_number_is_named_where_it_is(name, monkeypatch):
    spoil(monkeypatch, 6, lambda method: method.last_loss.fill_(LOSSES[name]))
    with pytest.raises(UsageError, match=f"At step 6, in task 2 of 5, the loss is {name}: training diverged. Lower"):
        Run(PLAN, DATA).finish()


def test_a_first_step_that_is_no_number_is_not_blamed_on_the_rate(monkeypatch):
    spoil(monkeypatch, 1, lambda method: method.last_loss.fill_(math.nan))
    with pytest.raises(UsageError, match="before any update: look for huge values in the data"):
        Run(PLAN, DATA).finish()


def test_weights_that_are_no_numbers_are_never_stored(tmp_path, monkeypatch):
    spoil(monkeypatch, 7, nan_weights)
    job = job_of(PLAN, tmp_path / "run", schedule=Schedule.parse("1 steps"))
    with pytest.raises(UsageError, match=r"At step 7, in task 2 of 5, the weights '.+' are not finite") as error:
        run_job(job, data=DATA)
    kept = checkpoint_paths(working_folder(job.folder))
    assert f"The last good checkpoint is '{kept[0]}'" in str(error.value)
    assert [path.stem for path in kept] == ["step-00000006", "step-00000005"]
    for folder in kept:
        assert all(
            value.isfinite().all()
            for name, value in load(folder, look_at(folder)[1]).state.tensors.items()
            if ".net." in name
        )


def test_weights_that_break_in_the_last_step_of_a_task_stop_it_there(monkeypatch):
    spoil(monkeypatch, 8, nan_weights)
    with pytest.raises(UsageError, match="At step 8, in task 2 of 5, the weights"):
        Run(PLAN, DATA).finish()


class Event:
    """A mark that a device has not reached yet when it is set."""

    def __init__(self, blocking):
        self.waited = False

    def record(self):
        pass

    def synchronize(self):
        self.waited = True


def test_a_gpu_is_looked_at_late_and_without_waiting(monkeypatch):
    """The logic on a processor: which steps are named, and that the last ones are not waited for."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(DivergenceGuard, "_new_mark", lambda _: (Event(blocking=True), torch.zeros(())))
    run = Run(PLAN, DATA)
    guard = run.guard
    guard.on_gpu = True
    for step in range(1, 22):
        run.method.last_loss.fill_(math.inf if step == 20 else 1.0)
        guard.note()
        guard.after_step(step, 0)
    with pytest.raises(UsageError, match="At one of the steps 19 to 20, in task 1 of 5, the loss is not a finite"):
        guard.after_step(22, 0)  # a mark after the one that showed it


@pytest.mark.parametrize("heavy", [{"updates": 3}, {"method": "vrmcl"}], ids=str)
def test_a_gpu_is_waited_for_after_each_long_step(monkeypatch, heavy):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(DivergenceGuard, "_new_mark", lambda _: (Event(blocking=True), torch.zeros(())))
    run = Run(replace(PLAN, **heavy), DATA)
    run.guard.on_gpu = True
    run.guard.after_step(1, 0)
    run.method.last_loss.fill_(math.inf)
    run.guard.note()
    with pytest.raises(UsageError, match="At step 2, in task 1 of 5, the loss is not a finite"):
        run.guard.after_step(2, 0)


def test_what_a_gpu_has_not_shown_yet_is_looked_at_before_a_checkpoint(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(DivergenceGuard, "_new_mark", lambda _: (Event(blocking=True), torch.zeros(())))
    run = Run(PLAN, DATA)
    run.guard.on_gpu = True
    for step in range(1, 14):
        run.method.last_loss.fill_(math.nan if step == 11 else 1.0)
        run.guard.note()
        run.guard.after_step(step, 2)
    with pytest.raises(UsageError, match="one of the steps 11 to 12, in task 3 of 5"):
        run.guard.check_all(13, 2)
