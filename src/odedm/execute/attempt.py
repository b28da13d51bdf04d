"""One go at a run: hold its folder, go on from its last checkpoint, write its result, leave nothing else behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.checkpoint.lock import RunLock, hold
from odedm.checkpoint.manifest import Meta, Position, inspect, listed, working_folder
from odedm.core.errors import UsageError
from odedm.core.files import sweep_staging
from odedm.execute.job import Wishes
from odedm.results.result import FILE
from odedm.training.experiment import Experiment
from odedm.training.observation import Looks

if TYPE_CHECKING:
    from odedm.checkpoint.checkpointer import Keeper
    from odedm.stream.dataset import Dataset
    from odedm.training.loop import Outcome, Run


REPLACES = "replaces"
"""A file in the working folder of a run that is to take the place of a finished one."""


@dataclass(frozen=True)
class Job:
    """An experiment and the folder its result goes to."""

    experiment: Experiment
    folder: Path


def attempt(
    job: Job,
    report: Callable[[int, int], None] = lambda *_: None,
    wishes: Wishes | None = None,
    *,
    data: Dataset | None = None,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Bring a job to its end, or to where `stop` says so; only one process at a time can.

    `report` is told of rows done and rows in all, `say` gets lines for the user.
    """
    from torch import OutOfMemoryError  # torch is imported where runs happen, not where they are planned

    from odedm.results.folder import check_free
    from odedm.training.loop import Run

    wishes = wishes or Wishes()
    work = working_folder(job.folder)
    with hold(work) as lock:
        try:
            if lock.takeover:
                say(lock.takeover)
            sweep_staging(job.folder)
            check_free(job.folder, overwrite=wishes.overwrite)
            if (job.folder / FILE).exists():
                (work / REPLACES).touch()
            run = Run(job.experiment, data, _looks(work, wishes, say))
            keeper = keeper_of(run, work, lock, wishes, stop=stop, say=say)
            try:
                outcome = run.finish(lambda _task, done, total: report(done, total), keeper)
            except OutOfMemoryError as error:
                raise UsageError(
                    f"The GPU has no memory left for this run: {str(error).splitlines()[0]} Run fewer at once "
                    "(--lanes), or lower --batch, --draw, --capacity or the net's width. The same command goes on."
                ) from None
            lock.check()
            outcome.save(job.folder, overwrite=wishes.overwrite)
            shutil.rmtree(work, ignore_errors=True)  # while the lock is held: nobody has begun anew in it
        finally:
            if not listed(work):
                _discard(work, lock)
    return outcome


def _looks(work: Path, wishes: Wishes, say: Callable[[str], None]) -> Looks:
    """What a run is to look at: as it began, for what it did not look at then cannot be made up for."""
    asked = wishes.looks
    stored = None if wishes.fresh else _stored(work)
    if stored is None:
        return asked or Looks()
    if asked is not None and asked != stored:
        say(
            f"This run began {stored.words()}, and goes on so. To have it {asked.words()}, start it anew: by --fresh, "
            f"or without its working folder '{work}'."
        )
    return stored


def _stored(work: Path) -> Looks | None:
    """What an unfinished run looks at, as its newest sound manifest says; None where there is none."""
    try:
        return Looks.from_dict(inspect(work).get("looks", {}))
    except (UsageError, TypeError):
        return None


def keeper_of(
    run: Run,
    work: Path,
    lock: RunLock,
    wishes: Wishes,
    *,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> Keeper:
    """Who stores a run's state in a working folder."""
    from odedm.checkpoint.checkpointer import Keeper
    from odedm.results.provenance import versions

    progress = run.progress
    meta = Meta(
        {**run.experiment.describe(), "capture": None},  # which changes no number
        run.data.checksum,
        {**versions(run.device), "precision": run.experiment.precision},
        run.looks.to_dict(),
    )
    return Keeper(
        work,
        lock,
        meta,
        roots=run.roots,
        outside=run.outside(),
        position=lambda: Position(progress.task, progress.step, progress.rows),
        schedule=wishes.schedule,
        fresh=wishes.fresh,
        stop=stop,
        check=lambda: run.guard.settle(progress.step, progress.task),
        timed=partial(run.clock, "checkpoint"),
        say=say,
    )


def discard_leftover(folder: Path) -> None:
    """Beside a finished run: remove what its process left that died before it had cleared up.

    Another go at the same run, which is to replace it, is not touched.
    """
    work = working_folder(folder)
    if work.is_dir() and not work.is_symlink() and not (work / REPLACES).exists():
        with suppress(UsageError), hold(work):
            shutil.rmtree(work, ignore_errors=True)


def _discard(work: Path, lock: RunLock) -> None:
    """Take an empty working folder away, unless it is another's by now."""
    with suppress(UsageError, OSError):
        lock.check()
        shutil.rmtree(work, ignore_errors=True)
