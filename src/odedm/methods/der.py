"""DER: dark experience replay, which keeps the logits of stored rows where they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch.nn import functional as F

from odedm.core.rows import ColumnSpec, Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/der")
@dataclass(kw_only=True, eq=False)
class DER(Method):
    """Cross-entropy on the stream plus α times the squared distance of replayed logits to the stored ones.

    Stored are the logits of the training view by the network before the step's own update. The square is averaged
    over rows and classes, so the same α weighs ten times less with 100 classes than with 10.
    """

    capturable: ClassVar[bool] = True
    reading_rule: ClassVar[str] = "share"
    no_stream_loss: ClassVar[str] = ""
    draws_at_once: ClassVar[int] = 1
    spare_networks: ClassVar[float] = 1

    alpha: float = 0.1

    def fields(self) -> tuple[ColumnSpec, ...]:
        """Logits of all C classes."""
        return (ColumnSpec("logits", (self.net.classes,)),)

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y) + α · mean (h(x') - z')²."""
        if replay:
            past = replay(self.draw)
            logits, recalled = self.forwards(batch["input"], past["input"], replay=replay)
            loss = self.stream_loss(logits, batch["label"]) + self.alpha * F.mse_loss(recalled, past["logits"])
        else:
            (logits,) = self.forwards(batch["input"])
            loss = self.stream_loss(logits, batch["label"])
        self.descend(loss, replay)
        return {"logits": logits.detach()}

    def annotate(self, rows: Rows) -> Rows:
        """Logits by the current network in evaluation mode, for rows that are pinned at a task's end."""
        return {"logits": self.predict(rows["input"])}
