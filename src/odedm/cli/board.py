"""The progress board: what people see on the error stream while jobs go on, in a terminal or in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TimeElapsedColumn

from odedm.cli.console import bars, err, say
from odedm.core.text import printable
from odedm.execute.job import Job
from odedm.execute.observers import Observer, listeners
from odedm.execute.time_estimate import format_duration
from odedm.results.result import Result

EVERY = 10.0
"""Seconds between two lines where there is no terminal to redraw."""
LONGEST = 2000
Listen = tuple[Path | None, Path | None]
"""Where to write what happens, as JSON lines and as TensorBoard's logs."""


@dataclass
class Best:
    """The configuration with the largest mean accuracy over the seeds that are done."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, job: Job, result: Result) -> None:
        """Count a finished run."""
        mark = job.experiment.slug()
        self.scores.setdefault(mark, []).append(result.acc_last)
        self.titles[mark] = job.title.rpartition(" · seed")[0]

    def words(self) -> str:
        """The best so far in words; empty before the first run.

        >>> Best().words()
        ''
        """
        if not self.scores:
            return ""
        mark = max(self.scores, key=lambda each: sum(self.scores[each]) / len(self.scores[each]))
        own = self.scores[mark]
        seeds = f"{len(own)} seed{'s' if len(own) > 1 else ''}"
        return f"best so far {self.titles[mark]}: ACC {sum(own) / len(own):.1f} % ({seeds})"


def say_if_pointless(jobs: Iterable[Job]) -> None:
    """Say where ODEDM has nothing to do, for its numbers would look like a finding."""
    if any(job.experiment.tasks == 1 and job.experiment.memory.name == "odedm" and not job.is_trial for job in jobs):
        say(
            "Note: with one task nothing is ever consolidated, so ODEDM has no long-term row (k = 0) and is its "
            "short-term policy alone. Give --tasks 2 or more to try it."
        )


@contextmanager
def watched(total: int, done: int, listen: Listen, *, quiet: bool = False) -> Iterator[tuple[Board, list[Observer]]]:
    """A board on the error stream, and it with whoever else is to listen to the jobs of the block."""
    with ExitStack() as stack:
        listening = listeners(*listen)
        for each in listening:
            stack.callback(each.close)
        board = stack.enter_context(Board(err, total, done, quiet=quiet))
        yield board, [board, *listening]


class Board(Observer):
    """Bars in a terminal, else a line now and then: what is done, running and failed, time left, the best so far."""

    def __init__(
        self,
        console: Console,
        total: int,
        done: int = 0,
        *,
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.quiet, self._now = console, quiet, now
        self.total, self.done, self.failures = total, done, 0
        self.best = Best()
        self._running: dict[str, str] = {}
        self._bars: dict[str, TaskID] = {}
        self._line_at = now() + EVERY / 2
        self._left: float | None = None
        self.bar = bars(console, 24, MofNCompleteColumn(), TimeElapsedColumn(), hidden=quiet)
        self.overall = self.bar.add_task("", total=total, completed=done)

    def __enter__(self) -> Board:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def started(self, job: Job) -> None:
        """Count a job as running."""
        self._running[job.key] = job.title

    def progress(self, job: Job, done: int, total: int) -> None:
        """Move the bar of one job."""
        if job.key not in self._bars:
            self._bars[job.key] = self.bar.add_task(f"  {job.title}", total=total)
        self.bar.update(self._bars[job.key], completed=done)

    def finished(self, job: Job, result: Result) -> None:
        """Count a run."""
        self.done += 1
        self.best.add(job, result)
        self._over(job)

    def scored(self, job: Job, score: float) -> None:  # noqa: ARG002 - scores are shown in the end
        """Count a trial."""
        self.done += 1
        self._over(job)

    def lost(self, job: Job, reason: str) -> None:
        """Say what happened to a worker."""
        self._over(job)
        self.said(f"{job.title}: {reason}. It goes on from its last checkpoint.")

    def failed(self, job: Job, reason: str) -> None:
        """Say what failed, and count it; the command says it of a single job."""
        self.taken(job, reason)
        if self.total > 1:
            self.said(f"Failed: {job.title}: {reason}")

    def taken(self, job: Job, reason: str) -> None:  # noqa: ARG002 - the command says it of all at once
        """Count what another process is at."""
        self.failures += 1
        self._over(job)

    def said(self, line: str) -> None:
        """Print a line."""
        self.console.print(printable(line, LONGEST), highlight=False, soft_wrap=True)

    def tick(self, left: float | None) -> None:
        """Redraw the first line, or print it if it is time."""
        self._left = left
        self.bar.update(self.overall, description=self.words(), completed=self.done)
        if self._now() >= self._line_at and not self.console.is_terminal and not self.quiet:
            self._line_at = self._now() + EVERY
            self.said(self.words())

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
