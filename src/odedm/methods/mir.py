"""MIR: maximally interfered retrieval as a method, experience replay of the rows that a step would hurt most."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/mir")
class MIRReplay(Method):
    """One cross-entropy on the stream, one on a draw by the retrieval `mir`, each a mean of its own; both count alike.

    ER takes one mean over both. How many rows are candidates is the retrieval's option.
    """

    retrieval: ClassVar[str] = "mir"
    capturable: ClassVar[bool] = True

    lr: float = 0.1

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y) + CE(h(x'), y') on the most interfered rows x'."""
        past = replay()
        logits, recalled = self.logits(batch, past)
        loss = self.stream_loss(logits, batch["label"])
        if past:
            loss = loss + F.cross_entropy(recalled, past["label"])
        return loss, {}
