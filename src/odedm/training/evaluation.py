"""Accuracy on the tasks seen so far, among all seen classes (Class-IL) and within each task (Task-IL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import Rows
from odedm.stream.class_schedule import Labels, classes_return

BATCH = {"cpu": 512, "cuda": 4096}
"""Rows at once: enough to keep the device busy, few enough for its memory."""


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of rows to x [n, ...] a few hundred rows at a time, so that memory stays bounded.

    >>> in_chunks(lambda x: 2 * x, torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """
    size = BATCH.get(x.device.type, 512)
    if len(x) <= size:
        return function(x)
    return torch.cat([function(part) for part in x.split(size)])


def evaluate(
    predict: Callable[[Tensor], Tensor], tests: Sequence[Rows], *, labels: Labels, columns: str = "seen"
) -> tuple[list[float], list[float] | None]:
    """Class-IL and Task-IL accuracy (%) on each of the given tests, which are those of tasks 0..i.

    `predict` maps raw images [n, ...] to scores [n, ≥ seen classes], and `labels` are those of each task's own classes.
    Class-IL looks at the columns of the classes that tasks 0..i have (`columns="seen"`) or at all of them; Task-IL at
    the columns of the test's own task. That is for classes that belong to one task each: where any class of the stream
    belongs to two, there is no Task-IL accuracy.
    """
    seen = sorted({label for task_labels in labels[: len(tests)] for label in task_labels})
    disjoint = not classes_return(labels)
    class_il: list[float] = []
    task_il: list[float] = []
    for index, test in enumerate(tests):
        before = next((j for j, other in enumerate(tests[:index]) if other is test), None)
        if before is not None:  # classes that returned: the same rows, the same network
            class_il.append(class_il[before])
            continue
        scores = in_chunks(predict, test["image"])
        if scores.isnan().any():
            raise UsageError(
                f"The network's outputs for test rows are not numbers, in task {len(tests)}: training diverged. "
                "Lower the learning rate (--lr)."
            )
        class_il.append(_accuracy(scores, test["label"], range(scores.shape[1]) if columns == "all" else seen))
        if disjoint:
            task_il.append(_accuracy(scores, test["label"], sorted(labels[index])))
    return class_il, task_il if disjoint else None


def _accuracy(scores: Tensor, label: Tensor, among: Sequence[int]) -> float:
    """How many rows (%) have their largest score [n, C] among some columns, in rising order, at their label [n]."""
    column = torch.tensor(among, device=scores.device)
    right = column[scores[:, column].argmax(1)] == label
    return 100.0 * int(right.sum()) / len(right)
