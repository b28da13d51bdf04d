"""A line of progress for whoever waits at a prompt or in a notebook: redrawn where that can be, else now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from odedm.core.text import printable
from odedm.core.validators import Bool
from odedm.results.metrics import average_accuracy
from odedm.training.callbacks import Reporter
from odedm.training.run import Run

REDRAWN, PRINTED = 0.1, 10.0
"""Seconds between two looks of a line that is redrawn, and between two lines where none can be."""


def wanted(progress: bool | None) -> bool:
    """Return whether a line is to be shown: as it was said, or where nothing was, if the error stream is a terminal.

    >>> wanted(True), wanted(False)
    (True, False)
    """
    return sys.stderr.isatty() if progress is None else Bool().validate("progress", progress)


class ProgressLine(Reporter):
    """One line for all runs of a call, inside a `with` block; `finished` are over.

    Args:
        runs: how many there will be.
        hidden: shows nothing, ever.
        console: where to; the error stream unless given.
        now: seconds of a clock.
    """

    def __init__(
        self,
        runs: int,
        *,
        hidden: bool = False,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.finished, self.hidden, self._now = runs, 0, hidden, now
        self.console = console or Console(stderr=True)
        screen = self.console.is_terminal and not self.console.is_dumb_terminal
        self.redrawn = screen or (self.console.is_jupyter and find_spec("ipywidgets") is not None)
        self._next = now() + (0 if self.redrawn else PRINTED / 2)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=sys.stdout.isatty(),  # what goes into a file is not drawn on a screen
            disable=hidden or not self.redrawn,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> ProgressLine:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def after_step(self, run: Run) -> None:
        """Show how far a run is, where it is time to."""
        now, done, total = self._now(), run.progress.rows, run.total_rows
        if self.hidden or (now < self._next and done < total):
            return
        self._next = now + (REDRAWN if self.redrawn else PRINTED)
        done, total, words = done + self.finished * total, self.runs * total, self.words(run)
        if self.redrawn:
            self._bar.update(self._task, description=words, completed=done, total=total)
        else:
            self.console.print(f"{words}, {done / total:.0%}", markup=False, highlight=False, soft_wrap=True)

    def words(self, run: Run) -> str:
        """Return where a run stands; its accuracy is that of the last task that is over."""
        several = f" ({self.finished + 1} of {self.runs})" if self.runs > 1 else ""
        tested = run.progress.class_il[-1:]
        accuracy = f", ACC {average_accuracy(tested)[0]:.1f} %" if tested else ""
        where = f"task {run.progress.task + 1} of {len(run.stream.tasks)}"
        return printable(f"{run.experiment.method} · seed {run.experiment.seed}{several} · {where}{accuracy}", 100)
