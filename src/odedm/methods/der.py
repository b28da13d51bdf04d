"""DER: dark experience replay, which keeps the logits of stored rows where they were."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import ColumnSpec, Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


class StoresLogits(Method):
    """Keeps with each row the logits of its training view by the network before the step's own update."""

    def fields(self) -> tuple[ColumnSpec, ...]:
        return (ColumnSpec("logits", (self.net.classes,)),)

    def annotate(self, rows: Rows) -> Rows:
        """Return logits by the current network in evaluation mode, for rows that are pinned at a task's end."""
        return {"logits": self.predict(rows["input"])}


@stored("method/der")
class DER(StoresLogits):
    """Cross-entropy on the stream plus α times the squared distance of replayed logits to the stored ones.

    Stored are the logits of the training view by the network before the step's own update. The square is averaged
    over rows and classes, so the same α weighs ten times less with 100 classes than with 10.
    """

    capturable: ClassVar[bool] = True

    alpha: float = 0.1

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y) + α · mean (h(x') - z')²."""
        past = replay()
        logits, recalled = self.logits(batch, past)
        loss = self.stream_loss(logits, batch["label"])
        if past:
            loss = loss + self.alpha * F.mse_loss(recalled, past["logits"])
        return loss, {"logits": logits.detach()}
