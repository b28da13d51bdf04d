"""Does one job: locks its folder, goes on from its last checkpoint, trains, writes its result, clears up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.checkpoint.checkpoint import Meta, Position, checkpoint_paths, latest_look, working_folder
from odedm.checkpoint.lock import RunLock, hold
from odedm.core.errors import UsageError
from odedm.core.files import remove_stale
from odedm.core.plugin_modules import code_hashes
from odedm.execute.job import CheckpointSaved, Emit, Event, Job, Message, ProgressReport, RunOptions, TaskFinished
from odedm.results.folder import FILE, check_free
from odedm.training.callbacks import Reporter
from odedm.training.observation import Observation
from odedm.training.training_log import LossClock, step_metrics, task_metrics

if TYPE_CHECKING:
    from odedm.checkpoint.checkpointer import Checkpointer
    from odedm.stream.dataset import Dataset
    from odedm.training.outcomes import Outcome
    from odedm.training.run import Run

REPLACES = "replaces"
"""A file in the working folder of a run that is to take the place of a finished one."""
TICK = 0.1
"""Seconds between two reports of progress from one job."""


def never() -> bool:
    """Return that nobody wants the job to stop."""
    return False


def ignore(_event: Event) -> None:
    """Do nothing with an event."""


def run_job(job: Job, emit: Emit = ignore, *, data: Dataset | None = None, stop: Callable[[], bool] = never) -> Outcome:
    """Bring a job to its end, or to where `stop` says so, and write its folder; only one process at a time can.

    `emit` is told what happens on the way. `data` is the job's data set where it is open already.
    """
    # torch is imported where runs happen, not where they are planned
    from odedm.core.accel.device import FOR_A_RUN, enough_memory
    from odedm.data.opening import load_dataset
    from odedm.training.preparation import Prepared
    from odedm.training.run import Run

    def say(line: str) -> None:
        emit(Message(job.key, line))

    work, options = working_folder(job.folder), job.options
    with enough_memory(FOR_A_RUN), hold(work) as lock:
        try:
            if lock.takeover:
                say(lock.takeover)
            remove_stale(job.folder)
            check_free(job.folder, overwrite=options.overwrite)
            if (job.folder / FILE).exists():
                with suppress(FileExistsError):  # what is there is not written through, were it a link
                    (work / REPLACES).touch(exist_ok=False)
            code = _code(job.experiment.code_hashes())
            if not options.resumed and _made_by_other_code(work, code):
                say(
                    "What there is of this run was made by another version of your code or weights, so it starts anew; "
                    "`odedm resume` would have gone on with it."
                )
                options = replace(options, restart=True)
            prepared = Prepared(job.experiment, data or load_dataset(job.experiment.data))
            run = Run(prepared, observation=_observation(work, options, say))
            checkpointer = checkpointer_of(run, work, lock, options, stop=stop, say=say)
            checkpointer.on_store = lambda: emit(CheckpointSaved(job.key))
            outcome = run.finish(_JobReport(run, job.key, emit), checkpointer=checkpointer)
            if options.chosen:
                made = outcome.result.provenance | {"chosen": options.chosen}
                outcome = replace(outcome, result=replace(outcome.result, provenance=made))
            lock.check()
            outcome.save(job.folder, overwrite=options.overwrite, keep_model=run.observation.keep_model)
            lock.clear()
        finally:
            if not checkpoint_paths(work):
                with suppress(UsageError, OSError):  # it may be another's by now
                    lock.clear()
    return outcome


class _JobReport(Reporter):
    """Emits what a run has measured, and its progress not more often than every `TICK`; the last time always."""

    def __init__(self, run: Run, key: str, emit: Emit) -> None:
        self._key, self._emit, self._clock, self._last = key, emit, LossClock(run.device), 0.0

    def after_step(self, run: Run) -> None:
        now, done, total = time.monotonic(), run.progress.rows, run.total_rows
        if now - self._last >= TICK or done == total:
            self._last = now
            self._emit(ProgressReport(self._key, done, total, step_metrics(run.method) if self._clock.due() else {}))

    def after_task(self, run: Run) -> None:
        self._emit(TaskFinished(self._key, run.progress.task - 1, task_metrics(run)))


def _observation(work: Path, options: RunOptions, say: Callable[[str], None]) -> Observation:
    """Return what a run is to look at: as it began, for what it did not look at then cannot be made up for.

    Its model can be kept all the same: that is written when the run ends.
    """
    asked, stored = options.observation, None
    if not options.restart:
        with suppress(UsageError, TypeError):
            stored = Observation.from_dict(latest_look(work)[1].observation)
    if stored is None:
        return asked or Observation()
    if asked is not None and asked.keep_model:
        stored = replace(stored, keep_model=True)
    if asked is not None and replace(asked, keep_model=stored.keep_model) != stored:
        say(f"This run began {stored.words()}, and goes on so. To have it {asked.words()}, start it anew (--restart).")
    return stored


def checkpointer_of(
    run: Run,
    work: Path,
    lock: RunLock,
    options: RunOptions,
    *,
    stop: Callable[[], bool] = never,
    say: Callable[[str], None] = lambda _: None,
) -> Checkpointer:
    """Return who stores a run's state in a working folder."""
    from odedm.checkpoint.checkpointer import Checkpointer
    from odedm.results.provenance import versions

    progress = run.progress
    meta = Meta(
        {**run.experiment.describe(), "cuda_graph": None},  # which changes no number
        run.data.checksum,
        {**versions(run.device), "precision": run.experiment.precision, **_code(code_hashes(run.origins))},
        run.observation.to_dict(),
    )
    return Checkpointer(
        work,
        lock,
        meta,
        roots=run.roots,
        external_tensors=run.external_tensors(),
        position=lambda: Position(progress.task, progress.step, progress.rows),
        schedule=options.schedule,
        fresh=options.restart,
        stop=stop,
        check=lambda: run.guard.check_all(progress.step, progress.task),
        timed=partial(run.timer, "checkpoint"),
        say=say,
    )


def _code(marks: Mapping[str, str]) -> dict[str, str]:
    """Return which code from outside a run is made by, as a checkpoint names it."""
    return {f"code of the {setting}": mark for setting, mark in marks.items()}


def _made_by_other_code(work: Path, code: Mapping[str, str]) -> bool:
    """Return whether the last checkpoint is of other code from outside than there is now."""
    with suppress(UsageError):
        versions = latest_look(work)[1].versions
        return any(name in versions and versions[name] != mark for name, mark in code.items())
    return False


def remove_stale_workdir(folder: Path) -> None:
    """Remove beside a finished run what its process left that died before it had cleared up.

    Another go at the same run, which is to replace it, is not touched.
    """
    work = working_folder(folder)
    if work.is_dir() and not work.is_symlink() and not (work / REPLACES).exists():
        with suppress(UsageError), hold(work) as lock:
            lock.clear()
