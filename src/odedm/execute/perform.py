"""Doing one piece of work, wherever that is: in this process, in a lane, on another machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odedm.checkpoint.stop import Stopped
from odedm.execute.attempt import Job, attempt
from odedm.execute.job import Wishes, Work
from odedm.execute.lanes import throttled

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset


def perform(
    work: Work,
    report: Callable[[int, int], None] = lambda *_: None,
    *,
    data: Dataset | None = None,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> float | None:
    """Do it: a run writes its folder, a trial gives its score, in per cent."""
    if work.kind == "trial":
        return _trial(work, throttled(report), data, stop)
    wishes = Wishes(overwrite=work.overwrite, looks=work.looks)
    attempt(Job(work.experiment, work.folder), throttled(report), wishes, data=data, stop=stop, say=say)
    return None


def _trial(
    work: Work, report: Callable[[int, int], None], data: Dataset | None, stop: Callable[[], bool]
) -> float | None:
    from odedm.training.hold_out import held_out
    from odedm.training.loop import Run
    from odedm.training.resolve import load_data

    def watch(_task: int, done: int, total: int) -> None:
        if stop():
            raise Stopped
        report(done, total)

    if work.select is None:
        raise ValueError("A trial needs to know which rows it holds out.")
    plan, part = held_out(data or load_data(work.experiment.data), work.experiment, work.select)
    return Run(plan, part).finish(watch).result.acc_last
