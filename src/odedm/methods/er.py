"""ER: experience replay, the base of them all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from odedm.methods.base import Method, Replay
from odedm.rows import Rows


@dataclass(kw_only=True, eq=False)
class ER(Method):
    """One forward and one cross-entropy over the stream batch and a replay draw together.

    BatchNorm sees both as one batch, and the plain mean gives the stream the weight B / (B + m).
    """

    lr: float = 0.1

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE over stream and replay jointly."""
        x, y = batch["input"], batch["label"]
        if replay:
            past = replay(self.draw)
            x, y = torch.cat([x, past["input"]]), torch.cat([y, past["label"]])
        self.descend(F.cross_entropy(self.net(x), y), replay)
        return {}
