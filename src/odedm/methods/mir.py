"""MIR: maximally interfered retrieval as a method, experience replay of the rows that a step would hurt most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/mir")
@dataclass(kw_only=True, eq=False)
class MIRReplay(Method):
    """One cross-entropy on the stream, one on a draw by the retrieval `mir`, each a mean of its own; both count alike.

    ER takes one mean over both. How many rows are candidates is the retrieval's option.
    """

    no_stream_loss: ClassVar[str] = ""
    own_retrieval: ClassVar[str] = "mir"
    capturable: ClassVar[bool] = True
    draws_at_once: ClassVar[int] = 1
    spare_networks: ClassVar[float] = 1

    lr: float = 0.1

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y) + CE(h(x'), y') on the most interfered rows x'."""
        x, y = batch["input"], batch["label"]
        if replay:
            past = replay(self.draw)
            logits, recalled = self.forwards(x, past["input"], replay=replay)
            loss = self.stream_loss(logits, y) + F.cross_entropy(recalled, past["label"])
        else:
            (logits,) = self.forwards(x)
            loss = self.stream_loss(logits, y)
        self.descend(loss, replay)
        return {}
