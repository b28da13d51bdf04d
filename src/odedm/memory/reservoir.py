"""The reservoir: a uniform sample of the whole stream."""

from __future__ import annotations

from typing import final

import torch

from odedm.core.rows import ModelView, Rows, count
from odedm.core.stored_names import stored
from odedm.memory.buffer import Buffer


@stored("memory/reservoir")
@final
class ReservoirMemory(Buffer):
    """Every streamed row is here with equal probability; without pins, plain reservoir sampling.

    >>> from odedm.core.rows import ColumnSpec, MemoryPart
    >>> memory = ReservoirMemory(2, [ColumnSpec("label", dtype=torch.int64)])
    >>> memory.see({"label": torch.tensor([3, 4, 5])}, rng=torch.Generator().manual_seed(0))
    >>> memory.size(), memory.size(MemoryPart.LONG)
    (2, 0)
    """

    def add(self, rows: Rows, probe: ModelView, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch to the reservoir."""
        self.see(rows, rng=rng)

    def see(self, rows: Rows, *, rng: torch.Generator) -> None:
        """Offer rows with fresh uniform priorities; the largest priorities of the whole stream stay."""
        self.insert(
            rows, torch.rand(count(rows), dtype=torch.float64, generator=rng, device=self.store.priority.device)
        )
