"""What people see while a study goes on: done, running, failed, the time left, the best so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from odedm.execute.eta import in_words
from odedm.execute.job import Work
from odedm.results.result import Result

EVERY = 10.0
"""Seconds between two lines where there is no terminal to redraw."""


@dataclass
class Best:
    """The configuration with the largest mean accuracy over the seeds that are done."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, work: Work, result: Result) -> None:
        """Count a finished run of the study."""
        mark = work.experiment.slug()
        self.scores.setdefault(mark, []).append(result.acc_last)
        self.titles[mark] = work.title.rpartition(" · seed")[0]

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


class StudyBoard:
    """Progress on the error stream: bars in a terminal, else a line now and then."""

    def __init__(
        self,
        console: Console,
        total: int,
        done: int = 0,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.quiet, self._clock = console, quiet, clock
        self.total, self.done, self.failures = total, done, 0
        self.best = Best()
        self._running: dict[int, str] = {}
        self._bars: dict[int, TaskID] = {}
        self._line_at = clock() + EVERY / 2
        self._left: float | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.overall = self.bar.add_task("", total=total, completed=done)

    def __enter__(self) -> StudyBoard:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def started(self, number: int, work: Work) -> None:
        """Count a run as running."""
        self._running[number] = work.title

    def progress(self, number: int, done: int, total: int) -> None:
        """Move the bar of one run."""
        if number not in self._bars:
            self._bars[number] = self.bar.add_task(f"  {self._running.get(number, '')}", total=total)
        self.bar.update(self._bars[number], completed=done)

    def finished(self, number: int, work: Work, result: Result | None, score: float | None) -> None:
        """Count it."""
        del score
        self.done += 1
        if result is not None:
            self.best.add(work, result)
        self._over(number)

    def failed(self, number: int, work: Work, error: str) -> None:
        """Say what failed, and count it."""
        self.failures += 1
        self._over(number)
        if not self.quiet:
            self.console.print(f"Failed: {work.title}: {error}", markup=False, highlight=False, soft_wrap=True)

    def said(self, line: str) -> None:
        """Print a line."""
        if not self.quiet:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def tick(self, left: float | None) -> None:
        """Redraw the first line, or print it if it is time."""
        self._left = left
        self.bar.update(self.overall, description=self.words(), completed=self.done)
        if self._clock() >= self._line_at and not self.quiet and not self.console.is_terminal:
            self._line_at = self._clock() + EVERY
            self.console.print(self.words(), markup=False, highlight=False, soft_wrap=True)

    def words(self) -> str:
        """Where the study stands, in one line."""
        parts = [f"{self.done} of {self.total} done", f"{len(self._running)} running"]
        parts += [f"{self.failures} failed"] if self.failures else []
        parts += [f"about {in_words(self._left)} left"] if self._left is not None else []
        best = self.best.words()
        return " · ".join([*parts, *([best] if best else [])])

    def _over(self, number: int) -> None:
        self._running.pop(number, None)
        if number in self._bars:
            self.bar.remove_task(self._bars.pop(number))
        self.bar.update(self.overall, description=self.words(), completed=self.done)
