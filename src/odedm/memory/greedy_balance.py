"""The greedy balancing sampler: the first rows of every class, as many of each (GDumb)."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, final

import torch

from odedm.core.rows import MemoryPart, ModelView, Rows, count, take
from odedm.core.store import EMPTY
from odedm.core.stored_names import stored
from odedm.memory.buffer import Buffer


@stored("memory/greedy-balanced")
@final
class GDumbBuffer(Buffer):
    """A row is kept if its class is new, or has fewer rows than ⌊capacity / classes stored⌋; all others are dropped.

    Where there is no room for it, a row of the largest class goes, any of them with equal chance. So a class has its
    first rows, and of those that must go none is preferred. Pinned rows are not counted, and displace any.

    How many rows are stored depends on their labels, which are read back from a device once a batch: steps with this
    memory are not recorded.

    >>> from odedm.core.rows import ColumnSpec
    >>> memory = GDumbBuffer(4, [ColumnSpec("label", dtype=torch.int64)])
    >>> memory.add({"label": torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 1, 2])}, None, rng=torch.Generator().manual_seed(0))
    >>> memory.class_counts(3)["short"]
    [1, 2, 1]
    """

    capturable: ClassVar[bool] = False

    def add(self, rows: Rows, view: ModelView | None, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch; each row finds the memory as the one before left it."""
        room, device = self.short_capacity, self.store.priority.device
        priority, chance = torch.rand(2, count(rows), dtype=torch.float64, generator=rng, device=device)
        if room == 0:
            return
        label = self.store.columns["label"].tolist()
        kept = {slot: label[slot] for slot in self._belongs(MemoryPart.SHORT).nonzero().flatten().tolist()}
        free = (self.store.priority == EMPTY).nonzero().flatten().tolist()
        sizes, taken = Counter(kept.values()), dict[int, int]()
        for place, (new, luck) in enumerate(zip(rows["label"].tolist(), chance.tolist(), strict=True)):
            if new in sizes and sizes[new] >= room // len(sizes):
                continue
            if len(kept) == room:
                largest = min(sizes, key=lambda name: (-sizes[name], name))
                members = [slot for slot, name in kept.items() if name == largest]
                slot = members[int(luck * len(members))]
                sizes -= Counter([largest])  # without those that are down to nothing
            else:
                slot = free.pop()
            kept[slot], taken[slot] = new, place
            sizes[new] += 1
        self._put(rows, taken, priority)
        self._short = len(kept)
        self.num_seen += count(rows)

    def _put(self, rows: Rows, taken: dict[int, int], priority: torch.Tensor) -> None:
        """Write the rows at some places of a batch into slots of their own: `taken` has places by slots."""
        if not taken:
            return
        slot, place = (torch.tensor(numbers, device=priority.device) for numbers in (list(taken), list(taken.values())))
        order = self.num_seen + place
        self.store.write(slot, {**take(rows, place), "prototype": torch.full_like(order, -1), "order": order})
        self.store.priority.index_copy_(0, slot, priority[place])
