"""How far a run has come: plain data, so that a checkpoint can hold it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.training.batches import TaskBatches


@stored("progress")
@dataclass
class Progress:
    """How far a run has come, and what it has found out so far."""

    task: int = 0
    step: int = 0
    """Steps of the whole run that are done, and of them `captured` by a recording."""
    captured: int = 0
    epoch: int = 0
    """Passes over the running task's rows that are done."""
    batch: int = 0
    """Batches of the running pass that are done."""
    rows: int = 0
    batches: TaskBatches | None = None
    """The running task's batches; None between tasks."""
    arrived: list[Rows] = field(default_factory=list)
    """The running task's rows with the fields they had, where the memory is to keep those."""
    class_il: list[list[float]] = field(default_factory=list)
    task_il: list[list[float]] = field(default_factory=list)
    class_counts: list[dict[str, list[int]]] = field(default_factory=list)
    anytime: list[list[float]] = field(default_factory=list)
    """Rows seen and accuracy, where the run is to measure it also in between."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the result must know: parts of it were computed by another version."""

    def count(self, new: int, *, captured: int) -> None:
        """A step on so many new rows is done."""
        self.step, self.batch, self.rows, self.captured = self.step + 1, self.batch + 1, self.rows + new, captured

    def begin(self, task: int) -> None:
        """The task before this one is over."""
        self.task, self.epoch, self.batch, self.batches, self.arrived = task, 0, 0, None, []

    def rest(self, epochs: int, rng: torch.Generator, *, shuffle: bool) -> Iterator[tuple[Rows, int]]:
        """Yield the running task's batches that are to come, in so many passes in all, each with how many rows are new.

        Every pass but the first is in a new order by the generator; without `shuffle` only where stored rows are mixed
        in, which come in random order always.
        """
        while self.batches is not None:
            yield from self.batches.from_batch(self.batch)
            if self.epoch + 1 >= epochs:
                return
            self.epoch, self.batch, self.batches = self.epoch + 1, 0, self.batches.again(rng, shuffle=shuffle)
