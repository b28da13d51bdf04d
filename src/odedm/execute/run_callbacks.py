"""Callbacks: who is told how jobs get on, in the process that runs them."""

from __future__ import annotations

from odedm.execute.job import Job, ProgressReport
from odedm.results.result import Result
from odedm.training.loggers import Loggers


class RunCallback:
    """Is told how jobs get on, always from the same thread; every method may be left as it is."""

    def on_start(self, job: Job) -> None:
        """Hear that a job has begun, or goes on after a loss."""

    def on_progress(self, job: Job, report: ProgressReport) -> None:
        """Hear that it has seen more of its rows."""

    def on_task(self, job: Job, task: int, metrics: dict[str, float]) -> None:
        """Hear that it has learned a task, and how it was tested."""

    def on_finish(self, job: Job, result: Result) -> None:
        """Hear that a run is over."""

    def on_lost(self, job: Job, reason: str) -> None:
        """Hear that its worker died; it will be tried again."""

    def on_fail(self, job: Job, reason: str) -> None:
        """Hear that it failed for good."""

    def on_message(self, line: str) -> None:
        """Take a line for the user."""

    def on_tick(self, seconds_left: float | None) -> None:
        """Hear that time has passed; about so many seconds are left, as far as is known."""


class LogRuns(RunCallback):
    """Tells loggers of every run."""

    def __init__(self, loggers: Loggers) -> None:
        self.loggers = loggers
        self._under_way: dict[str, Job] = {}

    def on_progress(self, job: Job, report: ProgressReport) -> None:
        self._begin(job)
        self.loggers.on_step(job.name, report.done, {**report.metrics, "progress": report.done / max(1, report.total)})

    def on_task(self, job: Job, task: int, metrics: dict[str, float]) -> None:
        self._begin(job)
        self.loggers.on_task(job.name, task, metrics)

    def on_finish(self, job: Job, result: Result) -> None:
        self._begin(job)
        del self._under_way[job.key]
        self.loggers.on_end(job.name, result)

    def on_lost(self, job: Job, reason: str) -> None:
        self.loggers.on_stop(job.name, "lost", reason)

    def on_fail(self, job: Job, reason: str) -> None:
        self._under_way.pop(job.key, None)
        self.loggers.on_stop(job.name, "failed", reason)

    def close(self) -> None:
        """Log which runs were stopped."""
        for job in self._under_way.values():
            self.loggers.on_stop(job.name, "stopped", "")
        self._under_way.clear()

    def _begin(self, job: Job) -> None:
        if job.key not in self._under_way:
            self._under_way[job.key] = job
            self.loggers.on_start(job.name, job.experiment.describe())
