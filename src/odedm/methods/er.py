"""ER: experience replay, the base of them all."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay, join


@stored("method/er")
class ER(Method):
    """One forward and one cross-entropy over the stream batch and a replay draw together.

    BatchNorm sees both as one batch, and the plain mean gives the stream the weight B / (B + m).
    """

    capturable: ClassVar[bool] = True

    lr: float = 0.1

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x ∪ x'), y ∪ y')."""
        rows = join(batch, replay())
        (logits,) = self.logits(rows)
        return self.stream_loss(logits, rows["label"], replayed=len(logits) - len(batch["label"])), {}
