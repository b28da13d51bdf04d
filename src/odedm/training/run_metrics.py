"""What loggers are told of a run under way: its last loss and learning rate, and what was measured after a task."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from odedm.methods.base import Method
    from odedm.training.run import Run

PAUSE_ON_GPU = 1.0
"""Seconds between two looks at a loss on a GPU: each waits for all steps that are queued there."""


class LossClock:
    """Says when a loss is looked at: after every step on a CPU, now and then on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._pause = PAUSE_ON_GPU if device.type == "cuda" else 0.0
        self._next = -math.inf

    def due(self) -> bool:
        """Whether it is time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True


def step_metrics(method: Method) -> dict[str, float]:
    """The loss of a method's last step, where it is a finite number, and its learning rate."""
    loss = float(method.last_loss)
    found = {"loss": loss} if math.isfinite(loss) else {}
    groups = getattr(getattr(method, "optimizer", None), "param_groups", None)
    rate = float(groups[0]["lr"]) if groups else float(getattr(method, "lr", math.nan))
    return found | ({"learning rate": rate} if math.isfinite(rate) else {})


def task_metrics(run: Run, task: int) -> dict[str, float]:
    """What was measured after a task, in per cent."""
    row = run.progress.class_il[task]
    accuracy = math.fsum(row) / len(row)
    found = {"ACC": accuracy, "forgetting rate": 100 - accuracy}
    return found | {f"task {number}": value for number, value in enumerate(row)}
