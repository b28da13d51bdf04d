"""The progress display: what people see on the error stream while jobs go on, in a terminal or in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from odedm.cli.console import err, log
from odedm.core.text import printable
from odedm.execute.durations import format_duration
from odedm.execute.job import Job, ProgressReport
from odedm.execute.run_callbacks import LogRuns, RunCallback
from odedm.results.result import Result
from odedm.training.loggers import open_loggers, table_row

EVERY = 10.0
"""Seconds between two lines where there is no terminal to redraw."""
LONGEST = 2000


def log_idle_odedm(jobs: Iterable[Job]) -> None:
    """Say where ODEDM has nothing to do, for its numbers would look like a finding."""
    if any(job.experiment.tasks == 1 and job.experiment.memory.name == "odedm" for job in jobs):
        log(
            "Note: with one task nothing is ever consolidated, so ODEDM has no long-term row (k = 0) and is its "
            "short-term policy alone. Give --tasks 2 or more to try it."
        )


@contextmanager
def shown(
    total: int, done: Sequence[tuple[Job, Result]], logs: Sequence[str], *, quiet: bool = False
) -> Iterator[list[RunCallback]]:
    """Show the jobs in the block on the error stream, and tell the loggers that were asked for.

    In the end these get a table of all that is finished, the runs that were before included.
    """
    loggers = open_loggers(logs)
    log_runs, table = LogRuns(loggers), _Table(done)
    try:
        with ProgressDisplay(err, total, len(done), quiet=quiet) as display:
            yield [display, log_runs, table]
        loggers.on_table(table.rows)
    finally:
        log_runs.close()
        loggers.close()


class _Table(RunCallback):
    """Collects a row for each finished run."""

    def __init__(self, done: Sequence[tuple[Job, Result]]) -> None:
        self.rows = [table_row(job.name, result) for job, result in done]

    def on_finish(self, job: Job, result: Result) -> None:
        self.rows.append(table_row(job.name, result))


class ProgressDisplay(RunCallback):
    """Bars in a terminal, else a line now and then: what is done, running and failed, and the time left."""

    def __init__(
        self,
        console: Console,
        total: int,
        done: int = 0,
        *,
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.total, self.done, self.failures = console, total, done, 0
        self._prints_lines, self._now, self._line_at = not (quiet or console.is_terminal), now, now() + EVERY / 2
        self._running: dict[str, TaskID] = {}
        self._left = ""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn())
        hidden = quiet or not console.is_terminal
        self.bars = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden)
        self.overall = self.bars.add_task("", total=total, completed=done)

    def __enter__(self) -> ProgressDisplay:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def on_start(self, job: Job) -> None:
        self._running[job.key] = self.bars.add_task(f"  {job.title}", total=None)

    def on_progress(self, job: Job, report: ProgressReport) -> None:
        self.bars.update(self._running[job.key], completed=report.done, total=report.total)

    def on_finish(self, job: Job, result: Result) -> None:  # noqa: ARG002 - its table comes in the end
        self.done += 1
        self._remove(job)

    def on_lost(self, job: Job, reason: str) -> None:
        self._remove(job)
        self.on_message(f"{job.title}: {reason}. It goes on from its last checkpoint.")

    def on_fail(self, job: Job, reason: str) -> None:
        self.failures += 1
        self._remove(job)
        if self.total > 1:
            self.on_message(f"Failed: {job.title}: {reason}")

    def on_message(self, line: str) -> None:
        self.console.print(printable(line, LONGEST), highlight=False, soft_wrap=True)

    def on_tick(self, seconds_left: float | None) -> None:
        self._left = "" if seconds_left is None else f" · about {format_duration(seconds_left)} left"
        self._redraw()
        if self._prints_lines and self._now() >= self._line_at:
            self._line_at = self._now() + EVERY
            self.on_message(self._words())

    def _words(self) -> str:
        failed = f" · {self.failures} failed" if self.failures else ""
        return f"{self.done} of {self.total} done · {len(self._running)} running{failed}{self._left}"

    def _redraw(self) -> None:
        self.bars.update(self.overall, description=self._words(), completed=self.done)

    def _remove(self, job: Job) -> None:
        self.bars.remove_task(self._running.pop(job.key))
        self._redraw()
