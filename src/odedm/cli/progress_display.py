"""The progress display: what people see on the error stream while jobs go on, in a terminal or in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TimeElapsedColumn

from odedm.cli.console import bars, err, say
from odedm.core.text import printable
from odedm.execute.durations import format_duration
from odedm.execute.job import Job, ProgressReport
from odedm.execute.run_callbacks import LogRuns, RunCallback
from odedm.results.result import Result
from odedm.training.loggers import open_loggers, table_row

EVERY = 10.0
"""Seconds between two lines where there is no terminal to redraw."""
LONGEST = 2000


@dataclass
class Best:
    """The configuration with the largest mean accuracy over the seeds that are done."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, job: Job, result: Result) -> None:
        """Count a finished run."""
        slug = job.experiment.slug()
        self.scores.setdefault(slug, []).append(result.acc_last)
        self.titles[slug] = job.title.rpartition(" · seed")[0]

    def words(self) -> str:
        """The best so far in words; empty before the first run.

        >>> Best().words()
        ''
        """
        if not self.scores:
            return ""
        slug = max(self.scores, key=lambda each: sum(self.scores[each]) / len(self.scores[each]))
        scores = self.scores[slug]
        seeds = f"{len(scores)} seed{'s' if len(scores) > 1 else ''}"
        return f"best so far {self.titles[slug]}: ACC {sum(scores) / len(scores):.1f} % ({seeds})"


def say_if_pointless(jobs: Iterable[Job]) -> None:
    """Say where ODEDM has nothing to do, for its numbers would look like a finding."""
    if any(job.experiment.tasks == 1 and job.experiment.memory.name == "odedm" for job in jobs):
        say(
            "Note: with one task nothing is ever consolidated, so ODEDM has no long-term row (k = 0) and is its "
            "short-term policy alone. Give --tasks 2 or more to try it."
        )


@contextmanager
def shown(
    total: int, done: Sequence[tuple[Job, Result]], logs: Sequence[str], *, quiet: bool = False
) -> Iterator[list[RunCallback]]:
    """Who is told of the jobs in the block: a display on the error stream, and the loggers that were asked for.

    In the end these get a table of all that is finished, the runs that were before included.
    """
    loggers = open_loggers(logs)
    log, table = LogRuns(loggers), _Table(done)
    try:
        with ProgressDisplay(err, total, done, quiet=quiet) as display:
            yield [display, log, table]
        loggers.on_table(table.rows)
    finally:
        log.close()
        loggers.close()


class _Table(RunCallback):
    """Collects a row for each finished run."""

    def __init__(self, done: Sequence[tuple[Job, Result]]) -> None:
        self.rows = [table_row(job.name, result) for job, result in done]

    def on_finish(self, job: Job, result: Result) -> None:
        """Add a row."""
        self.rows.append(table_row(job.name, result))


class ProgressDisplay(RunCallback):
    """Bars in a terminal, else a line now and then: what is done, running and failed, time left, the best so far."""

    def __init__(
        self,
        console: Console,
        total: int,
        done: Sequence[tuple[Job, Result]] = (),
        *,
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.quiet, self._now = console, quiet, now
        self.total, self.done, self.failures = total, len(done), 0
        self.best = Best()
        for job, result in done:
            self.best.add(job, result)
        self._running: dict[str, str] = {}
        self._bars: dict[str, TaskID] = {}
        self._line_at = now() + EVERY / 2
        self._left: float | None = None
        self.bar = bars(console, 24, MofNCompleteColumn(), TimeElapsedColumn(), hidden=quiet)
        self.overall = self.bar.add_task("", total=total, completed=self.done)

    def __enter__(self) -> ProgressDisplay:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_start(self, job: Job) -> None:
        """Count a job as running."""
        self._running[job.key] = job.title

    def on_progress(self, job: Job, report: ProgressReport) -> None:
        """Move the bar of one job."""
        if job.key not in self._bars:
            self._bars[job.key] = self.bar.add_task(f"  {job.title}", total=report.total)
        self.bar.update(self._bars[job.key], completed=report.done)

    def on_finish(self, job: Job, result: Result) -> None:
        """Count a run."""
        self.done += 1
        self.best.add(job, result)
        self._over(job)

    def on_lost(self, job: Job, reason: str) -> None:
        """Say what happened to a worker."""
        self._over(job)
        self.on_message(f"{job.title}: {reason}. It goes on from its last checkpoint.")

    def on_fail(self, job: Job, reason: str) -> None:
        """Say what failed, and count it; the command says it of a single job."""
        self.on_taken(job, reason)
        if self.total > 1:
            self.on_message(f"Failed: {job.title}: {reason}")

    def on_taken(self, job: Job, reason: str) -> None:  # noqa: ARG002 - the command says it of all at once
        """Count what another process is at."""
        self.failures += 1
        self._over(job)

    def on_message(self, line: str) -> None:
        """Print a line."""
        self.console.print(printable(line, LONGEST), highlight=False, soft_wrap=True)

    def on_tick(self, seconds_left: float | None) -> None:
        """Redraw the first line, or print it if it is time."""
        self._left = seconds_left
        self.bar.update(self.overall, description=self.words(), completed=self.done)
        if self._now() >= self._line_at and not self.console.is_terminal and not self.quiet:
            self._line_at = self._now() + EVERY
            self.on_message(self.words())

    def words(self) -> str:
        """Where the jobs stand, in one line."""
        parts = [f"{self.done} of {self.total} done", f"{len(self._running)} running"]
        parts += [f"{self.failures} failed"] if self.failures else []
        parts += [f"about {format_duration(self._left)} left"] if self._left is not None else []
        best = self.best.words()
        return " · ".join([*parts, *([best] if best else [])])

    def _over(self, job: Job) -> None:
        self._running.pop(job.key, None)
        if job.key in self._bars:
            self.bar.remove_task(self._bars.pop(job.key))
        self.bar.update(self.overall, description=self.words(), completed=self.done)
