"""A line of progress for whoever waits at a prompt or in a notebook: redrawn where that can be, else now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from odedm.core.text import printable
from odedm.core.validators import Bool
from odedm.results.metrics import average_accuracy
from odedm.training.run import Run, Watch

REDRAWN, PRINTED = 0.1, 10.0
"""Seconds between two looks of a line that is redrawn, and between two lines where none can be."""


def wanted(progress: bool | None) -> bool:
    """Return whether a line is to be shown: as it was said, or where nothing was, if the error stream is a terminal.

    >>> wanted(True), wanted(False)
    (True, False)
    """
    return sys.stderr.isatty() if progress is None else Bool().validate("progress", progress)


class ProgressLine:
    """One line for all runs of a call, inside a `with` block; a run tells it how far it is by `watch`.

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
        self.runs, self.hidden, self._now = runs, hidden, now
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

    def watch(self, run: Run, number: int) -> Watch:
        """Return what the run with this number, from 0 on, calls after every batch."""

        def told(task: int, done: int, total: int) -> None:
            now = self._now()
            if self.hidden or (now < self._next and done < total):
                return
            self._next = now + (REDRAWN if self.redrawn else PRINTED)
            words = self.words(run, number, task)
            if self.redrawn:
                self._bar.update(
                    self._task, description=words, completed=number * total + done, total=self.runs * total
                )
            else:
                share = (number * total + done) / (self.runs * total)
                self.console.print(f"{words}, {share:.0%}", markup=False, highlight=False, soft_wrap=True)

        return told

    def words(self, run: Any, number: int, task: int) -> str:
        """Return where a run stands; its accuracy is that of the last task that is over."""
        several = f" ({number + 1} of {self.runs})" if self.runs > 1 else ""
        tested = run.progress.class_il[-1:]
        accuracy = f", ACC {average_accuracy(tested)[0]:.1f} %" if tested else ""
        where = f"task {task + 1} of {len(run.stream.tasks)}"
        return printable(f"{run.experiment.method} · seed {run.experiment.seed}{several} · {where}{accuracy}", 100)
