"""DER++: dark experience replay with labels as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import ColumnSpec, Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/derpp")
@dataclass(kw_only=True, eq=False)
class DERpp(Method):
    """DER plus β times the cross-entropy on a second, independent replay draw.

    BatchNorm sees the stream and each draw by itself, as in three forwards.
    """

    capturable: ClassVar[bool] = True
    no_stream_loss: ClassVar[str] = ""
    draws_at_once: ClassVar[int] = 2
    spare_networks: ClassVar[float] = 1

    alpha: float = 0.1
    beta: float = 0.5

    def fields(self) -> tuple[ColumnSpec, ...]:
        """Logits of all C classes."""
        return (ColumnSpec("logits", (self.net.classes,)),)

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y) + α · mean (h(x') - z')² + β · CE(h(x''), y'')."""
        logits, loss = rehearse(self, batch, replay, alpha=self.alpha, beta=self.beta)
        self.descend(loss, replay)
        return {"logits": logits.detach()}

    def annotate(self, rows: Rows) -> Rows:
        """Logits by the current network in evaluation mode, for rows that are pinned at a task's end."""
        return {"logits": self.predict(rows["input"])}


def rehearse(method: Method, batch: Rows, replay: Replay, *, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """The stream's logits [B, C] and the loss of DER++, with two independent draws once something is stored."""
    x, label = batch["input"], batch["label"]
    if not replay:
        (logits,) = method.forwards(x)
        return logits, method.stream_loss(logits, label)
    dark, named = replay(method.draw), replay(method.draw)
    logits, recalled, guess = method.forwards(x, dark["input"], named["input"], replay=replay)
    loss = method.stream_loss(logits, label) + alpha * F.mse_loss(recalled, dark["logits"])
    return logits, loss + beta * F.cross_entropy(guess, named["label"])
