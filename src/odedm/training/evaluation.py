"""Accuracy on the tasks seen so far, among all seen classes (Class-IL) and within each task (Task-IL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import Rows

BATCH = {"cpu": 512, "cuda": 4096}
"""Rows at once: enough to keep the device busy, few enough for its memory."""


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of rows to x [n, ...] a few hundred rows at a time, so that memory stays bounded.

    >>> in_chunks(lambda x: 2 * x, torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """
    return torch.cat([function(part) for part in x.split(BATCH.get(x.device.type, 512))])


def evaluate(
    predict: Callable[[Tensor], Tensor], tests: Sequence[Rows], *, classes_per_task: int, columns: str = "seen"
) -> tuple[list[float], list[float]]:
    """Class-IL and Task-IL accuracy (%) on each of the given tests, which are those of tasks 0..i.

    `predict` maps raw images [n, ...] to scores [n, ≥ seen classes]. Class-IL looks at the columns of seen classes
    (`columns="seen"`) or at all of them; Task-IL at the columns of the test's own task.
    """
    seen = len(tests) * classes_per_task
    class_il, task_il = [], []
    for index, test in enumerate(tests):
        scores = in_chunks(predict, test["image"])
        if scores.isnan().any():
            raise UsageError(
                f"The network's outputs for test rows are not numbers, in task {len(tests)}: training diverged. "
                "Lower the learning rate (--lr)."
            )
        own = slice(index * classes_per_task, (index + 1) * classes_per_task)
        among = scores if columns == "all" else scores[:, :seen]
        class_il.append(_percent(among.argmax(1) == test["label"]))
        task_il.append(_percent(scores[:, own].argmax(1) + own.start == test["label"]))
        if task_il[-1] < class_il[-1]:
            raise AssertionError(f"Task-IL {task_il[-1]} below Class-IL {class_il[-1]} on task {index}: a defect.")
    return class_il, task_il


def _percent(right: Tensor) -> float:
    return 100.0 * int(right.sum()) / len(right)
