"""How far a run has come: plain data, so that a checkpoint can hold it."""

from __future__ import annotations

from dataclasses import dataclass, field

from odedm.core.rows import Rows
from odedm.training.batches import TaskBatches


@dataclass
class Progress:
    """How far a run has come, and what it has found out so far."""

    task: int = 0
    step: int = 0
    """Steps of the whole run that are done, and of them `captured` by a recording."""
    captured: int = 0
    batch: int = 0
    """Batches of the running task that are done."""
    rows: int = 0
    batches: TaskBatches | None = None
    """The running task's batches; None between tasks."""
    arrived: list[Rows] = field(default_factory=list)
    """The running task's rows with the fields they had, where the memory is to keep those."""
    class_il: list[list[float]] = field(default_factory=list)
    task_il: list[list[float]] = field(default_factory=list)
    census: list[dict[str, list[int]]] = field(default_factory=list)
    anytime: list[list[float]] = field(default_factory=list)
    """Rows seen and accuracy, where the run is to measure it also in between."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the result must know: parts of it were computed by another version."""

    def count(self, new: int, *, captured: int) -> None:
        """A step on so many new rows is done."""
        self.step, self.batch, self.rows, self.captured = self.step + 1, self.batch + 1, self.rows + new, captured

    def begin(self, task: int) -> None:
        """The task before this one is over."""
        self.task, self.batch, self.batches, self.arrived = task, 0, None, []
