"""ER-ACE: experience replay with an asymmetric cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/er-ace")
class ERACE(Method):
    """The stream's cross-entropy runs among the classes of its own batch, the replay's among all classes seen so far.

    So a new class does not push the features of old ones away while it has none of its own yet; what tells it from
    them is the replay. BatchNorm sees stream and replay each by itself. With `unseen` classes that are still to come
    compete in both, as in common releases: then a batch of one class teaches by its own term too.
    """

    capturable: ClassVar[bool] = True
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "its own stream loss is asymmetric: among the classes of the batch"
    }

    lr: float = 0.03
    unseen: bool = False
    seen: Tensor
    """Which classes [C] the stream has shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = torch.zeros(self.net.classes, dtype=torch.bool, device=self.last_loss.device)

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y) among the batch's classes + CE(h(x'), y') among the seen ones."""
        present = torch.zeros_like(self.seen).index_fill_(0, batch["label"], True)
        self.seen |= present  # in place: a captured step holds on to the tensor
        past = replay()
        logits, recalled = self.logits(batch, past)
        loss = cross_entropy_among(present | ~self.seen if self.unseen else present, logits, batch["label"])
        if past:
            loss = loss + self.replay_loss(recalled, past["label"])
        return loss, {}

    def long_term_loss(self, rows: Rows, replay: Replay) -> Tensor:
        (logits,) = self.logits(rows)
        return self.replay_loss(logits, rows["label"])

    def replay_loss(self, logits: Tensor, label: Tensor) -> Tensor:
        """Return CE(h(x'), y') among the seen classes, or among all."""
        return F.cross_entropy(logits, label) if self.unseen else cross_entropy_among(self.seen, logits, label)

    def on_classes_added(self, classes: int) -> None:
        self.seen = torch.cat([self.seen, self.seen.new_zeros(classes - len(self.seen))])


def cross_entropy_among(classes: Tensor, logits: Tensor, label: Tensor) -> Tensor:
    """The mean cross-entropy of logits [n, C] for labels [n] where only the marked `classes` [C] can be answered.

    >>> cross_entropy_among(torch.tensor([True, True, False]), torch.zeros(1, 3), torch.tensor([1])).exp().item()
    2.0
    """
    return F.cross_entropy(logits.masked_fill(~classes, -torch.inf), label)
