"""ER: experience replay, the base of them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/er")
@dataclass(kw_only=True, eq=False)
class ER(Method):
    """One forward and one cross-entropy over the stream batch and a replay draw together.

    BatchNorm sees both as one batch, and the plain mean gives the stream the weight B / (B + m).
    """

    capturable: ClassVar[bool] = True
    reading: ClassVar[str] = "union"
    no_stream_loss: ClassVar[str] = ""
    draws_at_once: ClassVar[int] = 1
    spare_networks: ClassVar[float] = 1

    lr: float = 0.1

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE over stream and replay jointly."""
        x, y = batch["input"], batch["label"]
        if replay:
            past = replay(self.draw)
            x, y = torch.cat([x, past["input"]]), torch.cat([y, past["label"]])
        (logits,) = self.forwards(x, replay=replay)
        self.descend(self.stream_loss(logits, y, replayed=len(y) - len(batch["label"])), replay)
        return {}
