"""The scheduler: starts jobs where there is room and time, tries again what was lost, goes on whatever fails."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odedm.checkpoint.stop import stop_on_signal
from odedm.core.errors import InfrastructureError, UsageError
from odedm.core.files import no_empty_folders
from odedm.execute.backend import Backend, ExecutionConfig, open_backend
from odedm.execute.durations import seconds_left
from odedm.execute.finished import why_another
from odedm.execute.job import (
    CheckpointSaved,
    Done,
    Event,
    Failed,
    Job,
    Message,
    ProgressReport,
    TaskFinished,
    WorkerLost,
)
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.run_job import remove_stale_workdir
from odedm.results.folder import FILE
from odedm.results.result import Result

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

MOST_LOSSES = 10
"""How often a job is started at most from one checkpoint, whoever ended its workers."""
TICK = 0.2
"""Seconds between two looks at what has happened."""


@dataclass
class Summary:
    """What came of jobs: results by key, what failed and why, what was left for lack of time."""

    results: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[Job] = field(default_factory=list)


@dataclass
class _Running:
    job: Job
    rows: int = 0
    """How many it has seen, as far as is known."""
    total: int = 1
    has_progressed: bool = False
    """Whether a checkpoint was stored since it was started."""

    @property
    def share(self) -> float:
        """Return how much of it is done."""
        return self.rows / self.total


class Scheduler:
    """Brings jobs to their end on a backend, and tells callbacks of every step before it goes on.

    A job whose worker dies goes on from its last checkpoint, as often from the same one as the backend says. Where
    another job on the same GPU may be to blame, it goes on alone.

    Args:
        backend: where jobs are done.
        callbacks: who is told.
        seconds: of finished jobs like these, for estimates.
        until: on the clock `now`: what is under way then is stopped, its state being stored, and nothing more started.
        now: a clock.
    """

    def __init__(
        self,
        backend: Backend,
        callbacks: Sequence[RunCallback] = (),
        seconds: Sequence[float] = (),
        *,
        until: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend, self.callbacks, self.until, self._now = backend, callbacks, until, now
        self.summary = Summary()
        self._seconds = [*seconds]
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, _Running] = {}
        self._losses: Counter[str] = Counter()
        """Losses of each job in a row without a checkpoint between them; `_tries` are those that count against it."""
        self._tries: Counter[str] = Counter()
        self._furthest: Counter[str] = Counter()
        """How many rows a job had seen at most when it was lost, since its last checkpoint."""
        self._alone: set[str] = set()
        """Jobs that were lost together with others, so that nobody knows whose fault it was."""

    def run(self, jobs: Sequence[Job]) -> Summary:
        """Do all of it, as far as the time allows; at SIGINT or SIGTERM what is under way is stored."""
        self._waiting = {job.key: job for job in jobs}
        with stop_on_signal(at_once=True):
            while (self._waiting or self._running) and not self._is_late():
                self._start()
                for event in self.backend.events(TICK):
                    self._take(event)
                self._tell(lambda callback: callback.on_tick(self._time_left()))
        self.summary.left = [*(running.job for running in self._running.values()), *self._waiting.values()]
        return self.summary

    def collect_finished(self) -> Summary:
        """Count what ended while the backend was closed."""
        for job in [*self.summary.left]:
            if job.key in self._running and not job.options.overwrite and (job.folder / FILE).is_file():
                self.summary.left.remove(job)
                self._end(job, Done(job.key))
        return self.summary

    def _is_late(self) -> bool:
        return self.until is not None and self._now() >= self.until

    def _start(self) -> None:
        for job in [*self._waiting.values()]:
            if not self.backend.has_room() or self._alone & self._running.keys():
                return
            if job.key in self._alone and self._running:
                continue
            del self._waiting[job.key]
            self._begin(job)

    def _begin(self, job: Job) -> None:
        self._running[job.key] = _Running(job)
        self._tell(lambda callback: callback.on_start(job))
        self.backend.start(job)

    def _tell(self, moment: Callable[[RunCallback], None]) -> None:
        for callback in self.callbacks:
            moment(callback)

    def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            self._tell(lambda callback: callback.on_message(event.line))
            return
        running = self._running.get(event.key)
        if running is None:
            return
        job = running.job
        if isinstance(event, ProgressReport):
            running.rows, running.total = event.done, max(1, event.total)
            self._tell(lambda callback: callback.on_progress(job, event))
        elif isinstance(event, TaskFinished):
            self._tell(lambda callback: callback.on_task(job, event.task, dict(event.metrics)))
        elif isinstance(event, CheckpointSaved):
            running.has_progressed = True
        else:
            del self._running[event.key]
            if isinstance(event, WorkerLost):
                self._lose(running, event)
            else:
                self._end(job, event)

    def _lose(self, running: _Running, event: WorkerLost) -> None:
        job = running.job
        if not job.options.overwrite and (job.folder / FILE).is_file():
            remove_stale_workdir(job.folder)  # its process died after the result was written, before it could say so
            self._end(job, Done(job.key))
            return
        if event.shared and job.key not in self._alone:
            self._alone.add(job.key)
        else:
            self._count_try(running, event)
        if self._tries[job.key] >= self.backend.tries or self._losses[job.key] >= MOST_LOSSES:
            number = self._losses[job.key]
            self._fail(job, f"In {number} tries {event.error}. The last checkpoint, if any, is kept.")
            return
        self._tell(lambda callback: callback.on_lost(job, event.error))
        self._waiting = {job.key: job.retry(), **self._waiting}  # the first to go on

    def _count_try(self, running: _Running, event: WorkerLost) -> None:
        """Count a loss without a checkpoint since the last one.

        A job that is to blame is lost at the same place each time. So one whose worker someone ended counts only where
        it got no further than before, and not at all before its first row.
        """
        key = running.job.key
        if running.has_progressed:
            self._tries[key] = self._losses[key] = self._furthest[key] = 0
            return
        self._losses[key] += 1
        self._tries[key] += not event.was_killed or 0 < running.rows <= self._furthest[key]
        self._furthest[key] = max(self._furthest[key], running.rows)

    def _end(self, job: Job, event: Done | Failed) -> None:
        if isinstance(event, Failed):
            if event.infrastructure:  # all would fail like this, and none is to blame: they go on when it is mended
                raise InfrastructureError(event.error)
            self._fail(job, event.error)
            return
        try:
            result = self._result(job)
        except InfrastructureError:
            raise
        except UsageError as error:
            self._fail(job, str(error))
            return
        self.summary.results[job.key] = result
        self._seconds.append(result.total_seconds)
        self._tell(lambda callback: callback.on_finish(job, result))

    def _fail(self, job: Job, error: str) -> None:
        self.summary.failed[job.key] = error
        self._tell(lambda callback: callback.on_fail(job, error))

    def _result(self, job: Job) -> Result:
        result = Result.load(job.folder / FILE)
        fault = why_another(job, result)
        if fault is not None:
            raise UsageError(f"The run in '{job.folder}' {fault} Bring the machines to the same data and code.")
        return result

    def _time_left(self) -> float | None:
        rest = [1 - running.share for running in self._running.values()]
        return seconds_left(self._seconds, rest, len(self._waiting), self.backend.workers)


def run_jobs(
    jobs: Sequence[Job],
    data: Mapping[str, Dataset],
    execution: ExecutionConfig,
    callbacks: Sequence[RunCallback] = (),
    seconds: Sequence[float] = (),
    *,
    until: float | None = None,
) -> Summary:
    """Do jobs on the backend that was asked for: what `run`, `demo`, `resume`, `tune` and `study` all come down to.

    `data` has the data sets of the jobs by name, `until` is on the monotonic clock. Where all runs of a folder failed,
    no empty folder stays.
    """
    if not jobs:
        return Summary()
    with no_empty_folders(job.folder.parent for job in jobs):
        backend = open_backend(jobs, execution, data)
        scheduler = Scheduler(backend, callbacks, seconds, until=until)
        try:
            scheduler.run(jobs)
        finally:
            backend.close()
        return scheduler.collect_finished()
