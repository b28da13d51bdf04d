"""What people see in a terminal while runs go on: progress on the error stream, so that results can be piped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from odedm.execute.lanes import Job
from odedm.results.result import Result

PLAIN_STEPS = 5
"""Without a terminal to redraw, say something this many times."""


class Board:
    """A bar for all runs together and one for every run under way."""

    def __init__(self, jobs: Sequence[Job], console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.names = [f"{_title(job)} · seed {job.experiment.seed}" for job in jobs]
        self.finished_jobs = 0
        self.bars: dict[int, TaskID] = {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.overall = self.bar.add_task(f"{len(jobs)} runs", total=len(jobs))

    def __enter__(self) -> Board:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def progress(self, job: int, done: int, total: int) -> None:
        """Move the bar of one run."""
        if job not in self.bars:
            self.bars[job] = self.bar.add_task(f"  {self.names[job]}", total=total)
        self.bar.update(self.bars[job], completed=done)

    def finished(self, job: int, result: Result) -> None:
        """Take the run's bar away and count it; without a terminal, print a line now and then."""
        self.finished_jobs += 1
        if job in self.bars:
            self.bar.remove_task(self.bars.pop(job))
        self.bar.update(self.overall, completed=self.finished_jobs)
        every = max(1, len(self.names) // PLAIN_STEPS)
        if not self.quiet and not self.console.is_terminal and self.finished_jobs % every == 0:
            self.console.print(
                f"{self.finished_jobs} of {len(self.names)} runs: {self.names[job]}, ACC {result.acc_last:.1f} %"
            )


def _title(job: Job) -> str:
    plan = job.experiment
    return f"{plan.method} · {plan.memory.name}"
