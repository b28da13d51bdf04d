"""The numbers that a table of runs has a column for."""

from __future__ import annotations

from dataclasses import dataclass

from odedm.report.groups import Group
from odedm.results.folder import FinishedRun
from odedm.results.metrics import TITLES


@dataclass(frozen=True)
class Metric:
    """A column: the number's name in a result, what it is called and what it means."""

    key: str
    meaning: str

    @property
    def title(self) -> str:
        """What it is called."""
        return TITLES[self.key]

    def of(self, run: FinishedRun) -> float | None:
        """Return the number of a run; None where its stream has no such number."""
        number: float | None = run.seconds if self.key == "seconds" else getattr(run.result, self.key)
        return number

    def by_seed(self, group: Group) -> dict[int, float]:
        """Return the number of each run of a group that has one."""
        numbers = {run.seed: self.of(run) for run in group.runs}
        return {seed: number for seed, number in numbers.items() if number is not None}


ACC_LAST = Metric("acc_last", "accuracy over all tasks after the last one, in %")
ACC_MEAN = Metric("acc_mean", "mean over i of the accuracy after task i, in %")
TASK_IL = Metric(
    "task_il_last", "ACC_T when the task is told at test time, in %; there is none where tasks share classes"
)
FORGETTING = Metric("forgetting", "best past accuracy minus the final one, in points; there is none with one task")
TRANSFER = Metric("backward_transfer", "final accuracy minus that right after learning")
SECONDS = Metric("seconds", "wall seconds per run, all phases")
GRADIENTS = Metric("sample_gradients", "rows passed forward and back for each row of the stream")
KILOBYTES = Metric("kilobytes", "1000 bytes kept of the stream: rows with all columns, and what the method holds")
METRICS = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING, TRANSFER, SECONDS, GRADIENTS, KILOBYTES)
NARROW = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
"""Those of a narrow table: backward transfer all but repeats forgetting, and seconds are no result."""
COMPARED = (ACC_LAST, ACC_MEAN, TASK_IL)
"""The metrics whose differences are taken: those the paper prints."""
CHANGES = (ACC_LAST, TASK_IL)
"""Of these, the ones that get a column; the mean over tasks follows the final accuracy."""
