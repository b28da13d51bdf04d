"""Joint training: all rows of all tasks so far at once, with as many updates. The upper bound."""

from __future__ import annotations

import math
from dataclasses import field
from itertools import islice
from typing import ClassVar

import torch
from torch.nn import functional as F

from odedm.core.rows import Rows, Task
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.from_scratch import FromScratch
from odedm.methods.noisy_labels import endless


@stored("method/joint")
class Joint(FromScratch):
    """When a task ends, a fresh network is trained on shuffled rows of all tasks so far, by one update a stream batch.

    So it has seen what every method has seen, as often, and only the order is another. It is no learner of a stream:
    all rows are kept. With `every_task=False` only the last task is trained, and tests before that see an untrained
    network.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"no memory", "borders"})

    lr: float = 0.1
    tasks: list[Task] = field(init=False, default_factory=list)
    updates: int = field(init=False, default=0)
    """Stream batches so far, and how many rows the largest had."""
    largest: int = field(init=False, default=0)

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Nothing is learned yet; the update is counted."""
        self.updates, self.largest = self.updates + 1, max(self.largest, len(batch["label"]))
        return {}

    def end_task(self, task: Task, replay: Replay) -> None:
        self.tasks.append(task)
        if self.every_task or task.last:
            rows = {name: torch.cat([task.rows[name] for task in self.tasks]) for name in ("image", "label")}
            self.train_on(rows, replay)
        if task.last:
            self.tasks.clear()

    def train_on(self, rows: Rows, replay: Replay) -> None:
        """As many updates as the stream had batches, pass after pass over shuffled rows."""
        self.restart()
        every = torch.arange(len(rows["label"]), device=rows["label"].device)
        # of equal parts, so that the last of a pass is no single row
        size = math.ceil(len(every) / math.ceil(len(every) / max(1, self.largest)))
        for part in islice(endless(every, size, self.order), self.updates):
            self.optimizer_step(F.cross_entropy(self.net(replay.augment(rows["image"][part])), rows["label"][part]))
