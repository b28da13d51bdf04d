"""FDR: function distance regularisation, which keeps the predictions on stored rows where they were."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.der import StoresLogits


@stored("method/fdr")
class FDR(StoresLogits):
    """Two updates a batch: cross-entropy on the stream, then α times how far replayed predictions are from stored ones.

    The native memory is empty until the first task ends, so the first task is plain SGD. From then on every batch
    makes two optimizer steps. The auxiliary long-term term belongs to the first, the method's main update. The release
    reads α and never uses it; the default of 1 is what it computes.
    """

    policy: ClassVar[str] = "task-quota"
    capturable: ClassVar[bool] = True

    alpha: float = 1.0

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y)."""
        (logits,) = self.logits(batch)
        return self.stream_loss(logits, batch["label"]), {"logits": logits.detach()}

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Make an update by the loss, then one by α · mean ‖softmax h(x') - softmax z'‖."""
        columns = super().observe(batch, replay)
        if past := replay():
            (recalled,) = self.logits(past)
            self.optimizer_step(self.alpha * function_distance(recalled, past["logits"]))
        return columns


def function_distance(logits: Tensor, stored: Tensor) -> Tensor:
    """Return the mean over rows of the Euclidean distance, not squared, between two predictions given as logits [n, C].

    Between 0 and √2, and blind to a constant added to all logits of a row. The norm's gradient at 0 is 0.

    >>> certain = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    >>> function_distance(certain, certain).item(), round(function_distance(certain, certain.flip(0)).item(), 4)
    (0.0, 1.4142)
    """
    distance: Tensor = torch.linalg.vector_norm(logits.softmax(1) - stored.softmax(1), dim=1)
    return distance.mean()
