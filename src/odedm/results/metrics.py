"""Computes the metrics of a run from its accuracy matrices."""

from __future__ import annotations

import math
from typing import Any

TITLES = {
    "acc_last": "ACC_T",
    "acc_mean": "mean ACC",
    "task_il_last": "Task-IL",
    "forgetting": "Forgetting",
    "backward_transfer": "BWT",
    "seconds": "Seconds",
    "sample_gradients": "Gradients/row",
    "kilobytes": "kB",
}
"""What the metrics of a run are called, in the order in which they are shown."""

Matrix = list[list[float]]
"""Row i holds the accuracy (%) on tasks 0..i after task i."""


def average_accuracy(matrix: Matrix) -> list[float]:
    """Return ACC_i, the mean accuracy over the tasks seen so far, after each task.

    >>> average_accuracy([[90.0], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [math.fsum(row) / len(row) for row in matrix]


def forgetting(matrix: Matrix) -> float | None:
    """Return the mean over the earlier tasks of the best past accuracy minus the final one; None with a single task.

    >>> forgetting([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    42.5
    """
    last = len(matrix) - 1
    drops = [max(row[j] for row in matrix[j:last]) - matrix[last][j] for j in range(last)]
    return math.fsum(drops) / last if last else None


def backward_transfer(matrix: Matrix) -> float | None:
    """Return the mean over the earlier tasks of the final accuracy minus the one right after learning the task.

    >>> backward_transfer([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    -40.0
    """
    last = len(matrix) - 1
    changes = [matrix[last][j] - matrix[j][j] for j in range(last)]
    return math.fsum(changes) / last if last else None


def compute_metrics(class_il: Matrix, task_il: Matrix | None) -> dict[str, Any]:
    """Return every metric that follows from the two matrices; None where one is not defined.

    >>> compute_metrics([[90.0], [50.0, 80.0]], [[95.0], [85.0, 90.0]])["task_il_last"]
    87.5
    """
    acc = average_accuracy(class_il)
    return {
        "acc": acc,
        "acc_last": acc[-1],
        "acc_mean": math.fsum(acc) / len(acc),
        "task_il_last": None if task_il is None else average_accuracy(task_il)[-1],
        "forgetting_rate": [100.0 - value for value in acc],
        "forgetting": forgetting(class_il),
        "backward_transfer": backward_transfer(class_il),
    }
