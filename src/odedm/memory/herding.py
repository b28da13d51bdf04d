"""Herding: exemplars whose running mean stays near the mean of their class, equally many of every class."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, Task, count, rank_within, take
from odedm.core.store import EMPTY
from odedm.core.stored_names import stored
from odedm.memory.buffer import TaskEndBuffer
from odedm.selection.row_selector import herd

GOLDEN = (5**0.5 - 1) / 2

log = logging.getLogger(__name__)


def exemplar_priority(label: Tensor, rank: Tensor, pinned: Tensor) -> Tensor:
    """Return priorities [n] in (0, 1/2] for exemplars of classes `label` [n] that were picked `rank`-th [n] by herding.

    Early picks are worth more than late ones, whatever their class. At the same rank a class that has no long-term
    row (`pinned`, the labels of those) comes first, and then a lot decides that is fixed for each class: multiples of
    the golden ratio, which leave classes from all over the stream where not all can stay.

    >>> priority = exemplar_priority(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), pinned=torch.tensor([0]))
    >>> priority.argsort(descending=True).tolist()
    [2, 0, 3, 1]
    """
    lot = ((label + 1).to(torch.float64) * GOLDEN).frac()
    later = (torch.isin(label, pinned) + lot) / 2
    return 1 / (2 + rank + later)


@stored("memory/herded")
@final
class HerdingBuffer(TaskEndBuffer):
    """As many exemplars of every class seen so far, chosen by herding when a task ends (iCaRL).

    The quota of a class is ⌊short-term capacity / classes seen⌋; old classes keep their first picks, and rows of a
    class stay in herding order. A class that returns is herded anew, among its exemplars and the rows that came since.
    Where the quota is less than one row, the first pick of as many classes stays as fit, those without long-term rows
    before others. Herding reads all rows of the finished task, a second store beyond the capacity while the task lasts.

    >>> class Pixels:
    ...     def embed(self, image): return image
    ...     def annotate(self, rows): return {}
    >>> rows = {"image": torch.eye(4), "label": torch.tensor([0, 0, 1, 1])}
    >>> memory = HerdingBuffer(3, [ColumnSpec("image", (4,)), ColumnSpec("label", dtype=torch.int64)])
    >>> memory.end_task(Task(0, 1, (0, 1), rows), Pixels(), rng=torch.Generator())
    >>> memory.rows()["label"].tolist()
    [0, 1]
    """

    needs_method = True

    def __init__(self, capacity: int, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        super().__init__(capacity, fields, device)
        self._told = False

    def end_task(self, task: Task, view: ModelView, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Cut old classes to the new quota and herd as many rows of each class of the task."""
        if self.short_capacity == 0:
            return
        classes = (
            max([*task.classes, *self.rows()["label"].tolist()]) + 1
        )  # seen so far: labels are numbered by arrival
        quota = self.short_capacity // classes
        if quota == 0:
            self._tell(classes)
        per_class = max(quota, 1)
        new = self._herded(task.classes, self._with_exemplars(task), per_class, view)
        old = self.rows(MemoryPart.SHORT)
        old = take(old, (~torch.isin(old["label"], new["label"])).nonzero().flatten())
        rows = {name: torch.cat([old[name], column.to(old[name].dtype)]) for name, column in new.items()}
        rank = rank_within(rows["label"])
        priority = exemplar_priority(rows["label"], rank, self.rows(MemoryPart.LONG)["label"])
        room = min(int((rank < per_class).sum()), self.short_capacity)
        keep = priority.where(rank < per_class, EMPTY).topk(room).indices.sort().values
        self.reset_short_term(take(rows, keep), priority[keep])

    def _with_exemplars(self, task: Task) -> Rows:
        """Return the task's rows, behind the exemplars that its classes have from earlier tasks, if any."""
        old = self.rows(MemoryPart.SHORT)
        returning = torch.isin(old["label"], torch.tensor(task.classes, device=old["label"].device))
        if not bool(returning.any()):
            return task.rows
        before = take(old, returning.nonzero().flatten())
        return {name: torch.cat([before[name], column]) for name, column in task.rows.items()}

    def _herded(self, classes: Sequence[int], rows: Rows, per_class: int, view: ModelView) -> Rows:
        """Return up to `most` rows of each of the classes with all fields, class by class in herding order."""
        feature = F.normalize(view.embed(rows["image"]).flatten(1).to(torch.float64))
        label = rows["label"]
        members = [(label == name).nonzero().flatten() for name in classes]
        # the network may live on another device than the rows
        picks = [herd(feature[member.to(feature.device)], per_class).to(member.device) for member in members]
        rows = take(rows, torch.cat([member[pick] for member, pick in zip(members, picks, strict=True)]))
        return rows | view.annotate(rows) if count(rows) else rows

    def _tell(self, classes: int) -> None:
        if not self._told:
            log.warning(
                "%d short-term rows cannot hold an exemplar of each of %d classes: some go without.",
                self.short_capacity,
                classes,
            )
            self._told = True
