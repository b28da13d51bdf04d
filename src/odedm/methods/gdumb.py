"""GDumb: a balanced memory, and a network trained from scratch on it alone whenever it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError
from odedm.core.rows import Rows, Task, count, distinct, take
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.cutmix import cutmix, mixed_cross_entropy
from odedm.methods.from_scratch import FromScratch
from odedm.methods.noisy_labels import restarting_rate, shuffled

WARM = 0.1
"""The share of the rate in the first pass."""


@stored("method/gdumb")
class GDumb(FromScratch):
    """Learns nothing from the stream: rows are kept, and before each test a fresh network is fitted to them.

    `fit_epochs` passes over all stored rows, `fit_batch` at a time, in training views under CutMix with the probability
    `cutmix`: the first at a tenth of `lr`, then from `lr` to a hundredth of it in cycles of 1, 2, 4, … passes.
    Gradients are cut to the norm `clip`. With `every_task=False` only the last task is fitted, and tests before that
    see an untrained network.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"memory", "borders"})
    unsupported: ClassVar[Mapping[str, str]] = {
        **FromScratch.unsupported,
        "gamma": "it fits a network to all stored rows alike",
    }
    policy: ClassVar[str] = "greedy-balanced"

    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-6
    fit_epochs: int = 256
    fit_batch: int = 16
    cutmix: float = 0.5
    clip: float = 10.0
    boxes: torch.Generator

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.cutmix <= 1:
            raise UsageError(f"gdumb's cutmix is a probability between 0 and 1; {self.cutmix} was given.")
        if self.fit_epochs < 1 or self.fit_batch < 2 or not self.clip > 0:
            raise UsageError("gdumb needs 1 or more fit_epochs, a fit_batch of 2 or more, and a clip above 0.")
        self.boxes = self.rng("cutmix")

    def end_task(self, task: Task, replay: Replay) -> None:
        if replay and (self.every_task or task.last):
            rows = replay.rows()
            self.fit(take(rows, distinct(rows["index"])), replay)

    def fit(self, rows: Rows, replay: Replay) -> None:
        """All passes over rows, from the start."""
        self.restart()
        every = torch.arange(count(rows), device=rows["label"].device)
        for epoch in range(self.fit_epochs):
            for group in self.optimizer.param_groups:
                group["lr"] = restarting_rate(epoch - 1, self.lr) if epoch else WARM * self.lr
            for part in shuffled(every, self.fit_batch, self.order):
                if len(part) > 1 or len(every) == 1:  # one row alone has no batch statistics
                    self.fit_step(replay.augment(rows["image"][part]), rows["label"][part])

    def fit_step(self, x: Tensor, y: Tensor) -> None:
        """CE under CutMix of inputs [n, ...] with labels [n]."""
        x, other, share = cutmix(x, y, self.cutmix, self.boxes)
        self.optimizer_step(mixed_cross_entropy(self.net(x), y, other, share))

    def on_after_backward(self, replay: Replay | None) -> None:
        nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
