"""Quotas: as many rows of every finished task, or of every class, chosen at random when a task ends."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from odedm.core.rows import MemoryPart, ModelView, Task, rank_within, take
from odedm.core.stored_names import stored
from odedm.memory.buffer import TaskEndBuffer


@stored("memory/task-quota")
@final
class TaskQuotaBuffer(TaskEndBuffer):
    """⌊capacity / (t + 1)⌋ rows of each of the tasks 0..t, exactly balanced; empty until the first task ends.

    A task gives a random choice of its rows, ranked. As quotas shrink the lowest ranks leave, so what is kept of a
    task is always a prefix of what was kept before. Pinned rows count against the capacity and lie outside the
    quotas; pins displace the lowest ranks, task by task in turn.
    The rows are read when the task is over: a second visit, which the strictly online setting does not allow.

    >>> from odedm.core.rows import ColumnSpec
    >>> class NoFields:
    ...     def annotate(self, rows):
    ...         return {}
    >>> memory = TaskQuotaBuffer(5, [ColumnSpec("label", dtype=torch.int64), ColumnSpec("task", dtype=torch.int64)])
    >>> for t in range(2):
    ...     label = torch.full((9,), t)
    ...     memory.end_task(Task(t, 2, (t,), {"label": label, "task": label}), NoFields(), rng=torch.Generator())
    >>> memory.rows()["task"].tolist()
    [0, 0, 1, 1]
    """

    def end_task(self, task: Task, view: ModelView, *, rng: torch.Generator) -> None:
        """Cut the rows of old tasks down to the new quota and fill up with rows of the finished one."""
        device, quota = self.store.priority.device, quotas(self.short_capacity, task.index + 1)
        old = self.rows(MemoryPart.SHORT)
        within = rank_within(old["task"]) < torch.tensor(quota, device=device)[old["task"]]
        old = take(old, within.nonzero().flatten())
        order = torch.randperm(len(task), generator=rng)[: quota[-1]]  # on the CPU: one seed, one choice anywhere
        new = take(task.rows, order.to(device))
        new |= view.annotate(new)
        rows = {name: torch.cat([old[name], column]) for name, column in new.items()}
        self.reset_short_term(rows, rank_priorities(rank_within(rows["task"])))


@stored("memory/class-quota")
@final
class ClassQuotaBuffer(TaskEndBuffer):
    """⌊capacity / classes seen⌋ rows of every class, a random choice made when its task ends; empty until then (GEM).

    As quotas shrink the last ranks of old classes leave. A class that returns keeps the rows it has, and is filled up.
    With fewer slots than classes the newest classes keep one row each. Pinned rows lie outside the quotas.

    >>> from odedm.core.rows import ColumnSpec
    >>> class NoFields:
    ...     def annotate(self, rows):
    ...         return {}
    >>> memory = ClassQuotaBuffer(6, [ColumnSpec("label", dtype=torch.int64)])
    >>> for t in range(2):
    ...     rows = {"label": torch.arange(2 * t, 2 * t + 2).repeat(9)}
    ...     memory.end_task(Task(t, 2, (2 * t, 2 * t + 1), rows), NoFields(), rng=torch.Generator())
    >>> memory.class_counts(4)["short"]
    [1, 1, 1, 1]
    """

    def end_task(self, task: Task, view: ModelView, *, rng: torch.Generator) -> None:
        """Cut old classes down to the new quota and fill up with rows of the finished task's."""
        device, old = self.store.priority.device, self.rows(MemoryPart.SHORT)
        seen = torch.cat([old["label"], task.rows["label"]]).unique()  # a blurry task has rows of any class
        quota = torch.tensor(quotas(self.short_capacity, len(seen)), device=device)  # by the places in `seen`
        order = torch.randperm(len(task), generator=rng).to(device)  # on the CPU: one seed, one choice anywhere
        label = task.rows["label"][order]
        new = take(task.rows, order[rank_within(label) < quota[torch.searchsorted(seen, label)]])
        new |= view.annotate(new)
        rows = {name: torch.cat([old[name], column]) for name, column in new.items()}
        kept = rank_within(rows["label"]) < quota[torch.searchsorted(seen, rows["label"])]
        rows = take(rows, kept.nonzero().flatten())
        self.reset_short_term(rows, rank_priorities(rank_within(rows["label"])))


def quotas(capacity: int, tasks: int) -> list[int]:
    """Return how many rows each of the tasks 0..t may keep: all the same number; a remainder stays unused.

    With fewer slots than tasks that number is 0, and the newest tasks keep one row each instead.

    >>> quotas(200, 3), quotas(2, 4), quotas(0, 2)
    ([66, 66, 66], [0, 0, 1, 1], [0, 0])
    """
    if capacity < tasks:
        return [0] * (tasks - capacity) + [1] * capacity
    return [capacity // tasks] * tasks


def rank_priorities(rank: Tensor) -> Tensor:
    """Return priorities [n] in (0, 1), all different: low ranks have the largest, and of equal ranks the newer task's.

    >>> rank_priorities(torch.tensor([0, 1, 0])).argsort(descending=True).tolist()
    [2, 0, 1]
    """
    place = rank.flip(0).argsort(stable=True).argsort().flip(0)
    return 1 - (place + 1).double() / (len(rank) + 1)
