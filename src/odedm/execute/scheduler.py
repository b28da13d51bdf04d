"""The scheduler: starts jobs where there is room and time, tries again what was lost, goes on whatever fails."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odedm.checkpoint.stop import stop_on_signal
from odedm.core.errors import InfrastructureError, UsageError
from odedm.core.files import no_empty_folders
from odedm.execute.backend import Backend, ExecutionConfig, open_backend
from odedm.execute.job import CheckpointSaved, Done, Event, Failed, Job, Message, ProgressReport, WorkerLost
from odedm.execute.observers import Observer
from odedm.execute.run_job import remove_stale_workdir
from odedm.execute.time_estimate import TimeEstimate, UnderWay
from odedm.results.folder import FILE
from odedm.results.result import Result

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

TICK = 0.2
PAUSE = 2.0
"""Seconds between two looks at the time that is left: a study may have thousands of runs."""
EARLY = 1.25
"""A job goes first when all that is left takes less than so many times as long as it does: times are estimates."""
LOOKED_AT = 32
"""Jobs for each lane that are left when their times begin to matter: to look at thousands takes time of its own."""
TRIES = 3
"""How often a job whose worker dies is tried from the same checkpoint."""


@dataclass
class Summary:
    """What came of jobs: results by key, scores of trials, what failed and why, what was left for lack of time.

    `taken` are those of the failed at which another process is.
    """

    results: dict[str, Result] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    left: list[Job] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many jobs came to their end."""
        return len(self.results) + len(self.scores)


@dataclass
class _Running:
    job: Job
    since: float
    share: float = 0.0
    process: int = 0


def in_order(times: TimeEstimate, running: Sequence[UnderWay], waiting: Sequence[Job], workers: int) -> list[Job]:
    """Jobs as they were given, but for those that would end last of all if they began any later: the longest first.

    So what is done is whole seeds for as long as that costs no time, and no lane works long after all others.
    """
    expected = times.expect_all(running, waiting) if workers > 1 and len(waiting) <= LOOKED_AT * workers else None
    if expected is None:
        return list(waiting)
    rest, seconds = expected
    left = (sum(rest) + sum(seconds)) / workers
    places = sorted(range(len(waiting)), key=lambda at: -seconds[at] if EARLY * seconds[at] >= left else 0.0)
    return [waiting[at] for at in places]


class Scheduler:
    """Brings jobs to their end on a backend, and tells observers of every step before it goes on.

    A job whose worker dies goes on from its last checkpoint, three times from the same one. `check` says why a
    run that came back is not one that was asked for, if so; `until` is on the clock `now`: what is not expected to end
    before is not started.
    """

    def __init__(
        self,
        backend: Backend,
        observers: Sequence[Observer],
        times: TimeEstimate,
        *,
        until: float | None = None,
        check: Callable[[Job, Result], str | None] = lambda _job, _result: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend, self.observers, self.times = backend, observers, times
        self.until, self._check, self._now = until, check, now
        self._looked = -math.inf
        self._left: float | None = None
        self._running: dict[str, _Running] = {}
        self._tries: Counter[str] = Counter()

    def run(self, jobs: Sequence[Job]) -> Summary:
        """Do all of it, as far as the time allows; at SIGINT or SIGTERM what is under way is stored."""
        summary = Summary()
        waiting = {job.key: job for job in jobs}
        with stop_on_signal(at_once=True):
            while waiting or self._running:
                self._start(waiting, summary)
                for event in self.backend.events(TICK):
                    self._take(event, waiting, summary)
                for each in self.observers:
                    each.tick(self._time_left(waiting))
        return summary

    def _start(self, waiting: dict[str, Job], summary: Summary) -> None:
        if self.until is None and not self.backend.has_room():
            return
        for job in self._in_order(list(waiting.values())):
            if self._late(job):
                summary.left.append(waiting.pop(job.key))
            elif self.backend.has_room():
                del waiting[job.key]
                self._running[job.key] = _Running(job, self._now())
                for each in self.observers:
                    each.started(job)
                self.backend.start(job)
            else:
                return

    def _in_order(self, waiting: list[Job]) -> list[Job]:
        """Whole seeds, and at the end the longest first; just seeds where the time may be too short for all of them."""
        if self.until is not None:
            return waiting
        return in_order(self.times, self._under_way(), waiting, self.backend.workers)

    def _under_way(self) -> list[UnderWay]:
        now = self._now()
        return [(each.job, now - each.since, each.share) for each in self._running.values()]

    def _late(self, job: Job) -> bool:
        """Whether a job is not expected to be over in time; of what nothing is known the first may start."""
        if self.until is None:
            return False
        rest = self.until - self._now()
        return rest <= 0 or (self.times.expect(job) or 0.0) > rest

    def _take(self, event: Event, waiting: dict[str, Job], summary: Summary) -> None:
        if isinstance(event, Message):
            for each in self.observers:
                each.said(event.line)
            return
        running = self._running.get(event.key)
        if running is None:
            return
        job = running.job
        if isinstance(event, ProgressReport):
            if running.process != event.process:
                running.process = event.process
                for each in self.observers:
                    each.taken_up(job, event.process)
            running.share = event.done / max(1, event.total)
            for each in self.observers:
                each.progress(job, event.done, event.total)
        elif isinstance(event, CheckpointSaved):
            self._tries[event.key] = 0
        elif isinstance(event, WorkerLost):
            del self._running[event.key]
            self._lose(job, event, waiting, summary)
        else:
            del self._running[event.key]
            self._end(job, event, summary)

    def _lose(self, job: Job, event: WorkerLost, waiting: dict[str, Job], summary: Summary) -> None:
        if not job.is_trial and not job.options.overwrite and (job.folder / FILE).is_file():
            remove_stale_workdir(job.folder)  # its process died after the result was written, before it could say so
            self._end(job, Done(job.key), summary)
            return
        self._tries[job.key] += 1
        if self._tries[job.key] >= TRIES:
            self._fail(job, f"In {TRIES} tries {event.error}. The last checkpoint, if any, is kept.", summary)
            return
        for each in self.observers:
            each.lost(job, event.error)
        rest = dict(waiting)
        waiting.clear()
        waiting.update({job.key: job.retry(), **rest})  # the first to go on

    def _end(self, job: Job, event: Done | Failed, summary: Summary) -> None:
        if isinstance(event, Failed):
            if event.full:  # the rest would fail like this, and is not to blame: it goes on when that is mended
                raise InfrastructureError(event.error)
            self._fail(job, event.error, summary, taken=event.taken)
            return
        if event.score is not None:
            summary.scores[job.key] = event.score
            for each in self.observers:
                each.scored(job, event.score)
            return
        try:
            result = self._result(job)
        except InfrastructureError:
            raise
        except UsageError as error:
            self._fail(job, str(error), summary)
            return
        summary.results[job.key] = result
        for each in self.observers:
            each.finished(job, result)

    def _fail(self, job: Job, error: str, summary: Summary, *, taken: bool = False) -> None:
        summary.failed[job.key] = error
        if taken:
            summary.taken.add(job.key)
        for each in self.observers:
            (each.taken if taken else each.failed)(job, error)

    def _result(self, job: Job) -> Result:
        if job.is_trial:
            raise UsageError("A trial came back without a score.")
        result = Result.load(job.folder / FILE)
        made_on = result.provenance.get("data_checksum")
        if job.checksum is not None and made_on != job.checksum:
            raise UsageError(
                f"The run in '{job.folder}' was made on other data than here: '{job.experiment.data}' has "
                f"the checksum {made_on} where it ran, and {job.checksum} here. Import it anew there."
            )
        fault = self._check(job, result)
        if fault is not None:
            raise UsageError(fault)
        self.times.learn(result.experiment, job.rows, result.total_seconds)
        return result

    def _time_left(self, waiting: dict[str, Job]) -> float | None:
        """Seconds until all is done; None where nothing is known."""
        now = self._now()
        if now - self._looked >= PAUSE or not self._running:
            self._looked = now
            order = self._in_order(list(waiting.values()))
            self._left = self.times.left(self._under_way(), order, self.backend.workers)
        return self._left


def run_jobs(
    jobs: Sequence[Job],
    data: Mapping[str, Dataset],
    execution: ExecutionConfig,
    observers: Sequence[Observer] = (),
    times: TimeEstimate | None = None,
    *,
    until: float | None = None,
    check: Callable[[Job, Result], str | None] = lambda _job, _result: None,
) -> Summary:
    """Do jobs on the backend that was asked for: what `run`, `demo`, `resume`, `tune` and `study` all come down to.

    `data` has the data sets of the jobs by name, `until` is on the monotonic clock. Where all runs of a folder failed,
    no empty folder stays.
    """
    if not jobs:
        return Summary()
    with no_empty_folders(job.folder.parent for job in jobs):
        backend = open_backend(jobs, execution, data)
        try:
            return Scheduler(backend, observers, times or TimeEstimate(), until=until, check=check).run(jobs)
        finally:
            backend.close()
