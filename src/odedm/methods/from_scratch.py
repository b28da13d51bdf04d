"""What methods share that learn nothing from the stream itself, and train a fresh network when a task ends."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from odedm.core.rows import Rows
from odedm.methods.base import Method, Replay


class FromScratch(Method):
    """Begins with the first network again for each fit; with `every_task=False` only after the last task."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "it learns nothing from the stream's batches themselves",
        "schedule": "it learns nothing from the stream's batches themselves",
        "views": "it fits a network to many rows at once, in views of its own",
        "weight_average": "it trains a network anew when a task ends, not batch by batch",
        "retrieval": "it draws no rows from a memory",
    }

    every_task: bool = True
    start: dict[str, Tensor]
    """The network as it was built."""
    order: torch.Generator

    def __post_init__(self) -> None:
        super().__post_init__()
        self.start, self.order = copy.deepcopy(self.net.state_dict()), self.rng("fitting")

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Learn nothing; the memory takes what it wants."""
        return {}

    def restart(self) -> None:
        """Put the network back to where it started, with a new optimizer."""
        self.net.load_state_dict(self.start)
        self.net.train()
        self.optimizer = self.new_optimizer()
