"""Finetuning: the stream alone, as if nothing could be forgotten. The lower bound of methods with a memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay


@stored("method/finetune")
class Finetune(Method):
    """One cross-entropy over each stream batch, and nothing stored: what a memory must at least be worth."""

    requires: ClassVar[frozenset[str]] = frozenset({"no memory"})
    unsupported: ClassVar[Mapping[str, str]] = {"retrieval": "there is no memory"}
    capturable: ClassVar[bool] = True

    lr: float = 0.1

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y)."""
        (logits,) = self.logits(batch)
        return self.stream_loss(logits, batch["label"]), {}
