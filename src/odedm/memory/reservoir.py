"""The reservoir: a uniform sample of the whole stream."""

from __future__ import annotations

from typing import final

import torch

from odedm.core.rows import ModelView, Rows, count
from odedm.core.stored_names import stored
from odedm.memory.buffer import Buffer


@stored("memory/reservoir")
@final
class ReservoirBuffer(Buffer):
    """Every streamed row is here with equal probability; without pins, plain reservoir sampling.

    >>> from odedm.core.rows import ColumnSpec, MemoryPart
    >>> memory = ReservoirBuffer(2, [ColumnSpec("label", dtype=torch.int64)])
    >>> memory.add({"label": torch.tensor([3, 4, 5])}, None, rng=torch.Generator().manual_seed(0))
    >>> memory.size(), memory.size(MemoryPart.LONG)
    (2, 0)
    """

    def add(self, rows: Rows, view: ModelView | None, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch with fresh uniform priorities; the largest of the whole stream stay."""
        device = self.store.priority.device
        self.insert(rows, torch.rand(count(rows), dtype=torch.float64, generator=rng, device=device))
