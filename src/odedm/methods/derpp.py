"""DER++: dark experience replay with labels as well."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from odedm.methods.base import Method, Replay
from odedm.nets import Net
from odedm.rows import Field, Rows


@dataclass(kw_only=True, eq=False)
class DERpp(Method):
    """DER plus β times the cross-entropy on a second, independent replay draw.

    Three separate forwards: BatchNorm must see the stream and each draw by itself.
    """

    alpha: float = 0.1
    beta: float = 0.5

    def fields(self) -> tuple[Field, ...]:
        """Logits of all C classes."""
        return (Field("logits", (self.net.classes,)),)

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y) + α · mean (h(x') - z')² + β · CE(h(x''), y'')."""
        logits, loss = rehearse(self.net, batch, replay, draw=self.draw, alpha=self.alpha, beta=self.beta)
        self.descend(loss, replay)
        return {"logits": logits.detach()}

    def annotate(self, rows: Rows) -> Rows:
        """Logits by the current network in evaluation mode, for rows that are pinned at a task's end."""
        return {"logits": self.predict(rows["input"])}


def rehearse(net: Net, batch: Rows, replay: Replay, *, draw: int, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """The stream's logits [B, C] and the loss of DER++, with two independent draws once something is stored."""
    logits = net(batch["input"])
    loss = F.cross_entropy(logits, batch["label"])
    if replay:
        past = replay(draw)
        loss = loss + alpha * F.mse_loss(net(past["input"]), past["logits"])
        past = replay(draw)
        loss = loss + beta * F.cross_entropy(net(past["input"]), past["label"])
    return logits, loss
