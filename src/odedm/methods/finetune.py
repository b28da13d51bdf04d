"""Finetuning: the stream alone, as if nothing could be forgotten. The lower bound of methods with a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/finetune")
@dataclass(kw_only=True, eq=False)
class Finetune(Method):
    """One cross-entropy over each stream batch, and nothing stored: what a memory must at least be worth."""

    no_stream_loss: ClassVar[str] = ""
    keeps_nothing: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    draws_at_once: ClassVar[int] = 0
    spare_networks: ClassVar[float] = 1

    lr: float = 0.1

    def step(self, batch: Rows, replay: Replay) -> Rows:  # noqa: ARG002
        """CE(h(x), y)."""
        (logits,) = self.forwards(batch["input"])
        self.descend(self.stream_loss(logits, batch["label"]))
        return {}
