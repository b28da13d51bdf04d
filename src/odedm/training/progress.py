"""How far a run has come, and the batches of its task: plain data and tensors, so that a checkpoint can hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from odedm.core.rows import Rows, Task, count, take
from odedm.core.stored_names import stored


@stored("batches")
@dataclass(frozen=True)
class TaskBatches:
    """A task's rows and the order in which they come; the first `new` rows are the task's own, the others stored ones.

    `order` [n] is on the CPU: how many rows of a batch are new is then known without asking the device. None: as they
    are. A batch's new rows come first in it.

    >>> task = TaskBatches({"label": torch.arange(6)}, new=4, size=4, order=torch.tensor([5, 0, 3, 2, 1, 4]))
    >>> [(rows["label"].tolist(), new) for rows, new in task.from_batch(0)]
    [([0, 3, 2, 5], 3), ([1, 4], 1)]
    """

    rows: Rows
    new: int
    size: int
    order: Tensor | None = None

    def from_batch(self, first: int) -> Iterator[tuple[Rows, int]]:
        """Yield every batch from number `first` on, with how many of its rows are new; the last may be smaller."""
        starts = range(first * self.size, count(self.rows), self.size)
        if self.order is None:
            for start in starts:
                rows = {name: column[start : start + self.size] for name, column in self.rows.items()}
                yield rows, count(rows)
            return
        stored = (self.order >= self.new).long()
        batch = torch.arange(len(self.order)) // self.size
        amounts = torch.bincount(batch, 1 - stored).long().tolist()
        # moved once for the whole task: to wait for the device at every batch would cost half of a step
        order = self.order[(2 * batch + stored).argsort(stable=True)].to(self.rows["label"].device)
        for start in starts:
            yield take(self.rows, order[start : start + self.size]), amounts[start // self.size]

    def next_epoch(self, rng: torch.Generator, *, shuffle: bool) -> TaskBatches:
        """Return the same rows once more: in a new random order, unless they are a task's own and stay as they came."""
        if not shuffle and self.order is None:
            return self
        return replace(self, order=torch.randperm(count(self.rows), generator=rng))


def task_batches(task: Task, size: int, *, stored: Rows | None, rng: torch.Generator) -> TaskBatches:
    """Return a task's batches; with `stored` rows all of them once, in random order."""
    if stored is None:
        return TaskBatches(task.rows, len(task), size)
    both = {name: torch.cat([column, stored[name]]) for name, column in task.rows.items()}
    return TaskBatches(both, len(task), size, torch.randperm(count(both), generator=rng))


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

    def remaining(self, epochs: int, rng: torch.Generator, *, shuffle: bool) -> Iterator[tuple[Rows, int]]:
        """Yield the running task's batches that are to come, in so many passes in all, each with how many rows are new.

        Every pass but the first is in a new order by the generator; without `shuffle` only where stored rows are mixed
        in, which come in random order always.
        """
        while self.batches is not None:
            yield from self.batches.from_batch(self.batch)
            if self.epoch + 1 >= epochs:
                return
            self.epoch, self.batch, self.batches = self.epoch + 1, 0, self.batches.next_epoch(rng, shuffle=shuffle)
