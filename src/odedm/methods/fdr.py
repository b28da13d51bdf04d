"""FDR: function distance regularisation, which keeps the predictions on stored rows where they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from odedm.core.rows import ColumnSpec, Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/fdr")
@dataclass(kw_only=True, eq=False)
class FDR(Method):
    """Two updates a batch: cross-entropy on the stream, then α times how far replayed predictions are from stored ones.

    The native memory is empty until the first task ends, so the first task is plain SGD. From then on every batch
    makes two optimiser steps. The auxiliary long-term term belongs to the first, the method's main update. The release
    reads α and never uses it; the default of 1 is what it computes.
    """

    native: ClassVar[str] = "task-quota"
    capturable: ClassVar[bool] = True
    no_stream_loss: ClassVar[str] = ""
    draws_at_once: ClassVar[int] = 1
    spare_networks: ClassVar[float] = 1

    alpha: float = 1.0

    def fields(self) -> tuple[ColumnSpec, ...]:
        """Logits of all C classes."""
        return (ColumnSpec("logits", (self.net.classes,)),)

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y); then α · mean ‖softmax h(x') - softmax z'‖."""
        (logits,) = self.forwards(batch["input"], replay=replay)
        self.descend(self.stream_loss(logits, batch["label"]), replay)
        if replay:
            past = replay(self.draw)
            (recalled,) = self.forwards(past["input"])
            self.descend(self.alpha * function_distance(recalled, past["logits"]))
        return {"logits": logits.detach()}

    def annotate(self, rows: Rows) -> Rows:
        """Logits by the current network in evaluation mode, for rows that are stored when a task ends."""
        return {"logits": self.predict(rows["input"])}


def function_distance(logits: Tensor, stored: Tensor) -> Tensor:
    """The mean over rows of the Euclidean distance, not squared, between two predictions given as logits [n, C].

    Between 0 and √2, and blind to a constant added to all logits of a row. The norm's gradient at 0 is 0.

    >>> certain = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    >>> function_distance(certain, certain).item(), round(function_distance(certain, certain.flip(0)).item(), 4)
    (0.0, 1.4142)
    """
    distance: Tensor = torch.linalg.vector_norm(logits.softmax(1) - stored.softmax(1), dim=1)
    return distance.mean()
