"""DER++: dark experience replay with labels as well."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.der import StoresLogits


@stored("method/derpp")
class DERpp(StoresLogits):
    """DER plus β times the cross-entropy on a second, independent replay draw.

    BatchNorm sees the stream and each draw by itself, as in three forwards.
    """

    capturable: ClassVar[bool] = True

    alpha: float = 0.1
    beta: float = 0.5

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y) + α · mean (h(x') - z')² + β · CE(h(x''), y'')."""
        dark, labelled = replay(), replay()
        logits, recalled, guess = self.logits(batch, dark, labelled)
        loss = self.stream_loss(logits, batch["label"])
        if dark:
            loss = loss + self.alpha * F.mse_loss(recalled, dark["logits"])
            loss = loss + self.beta * F.cross_entropy(guess, labelled["label"])
        return loss, {"logits": logits.detach()}
