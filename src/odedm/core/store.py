"""The store of a memory: a fixed number of slots, each row with a key; the largest keys stay."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import Field, Rows, count, take


def words(column: Tensor) -> Tensor:
    """The same memory as rows of 64-bit words, where it divides: on a CPU, rows of bytes are copied one by one.

    >>> words(torch.zeros(2, 4, 4, dtype=torch.uint8)).shape
    torch.Size([2, 2])
    """
    size = column.shape[1:].numel() * column.element_size()
    if not column.is_cpu or column.dim() == 1 or size == 0 or size % 8:
        return column
    return column.contiguous().flatten(1).view(torch.int64)


EMPTY, PINNED = -torch.inf, torch.inf


class Store:
    """A fixed number of slots, each with one value per column and a key; the largest keys stay.

    A key of -inf marks an empty slot, a number in [0, 1) a short-term row, +inf a pinned one. When every
    short-term key is an independent uniform number, keeping the largest keys is exactly reservoir sampling,
    and overwriting the smallest ones (`pin`) leaves a uniform sample of the stream at the smaller capacity.
    Everything happens in place with shapes that depend on sizes alone, so a captured step can hold it.

    >>> store = Store(2, [Field("label", dtype=torch.int64)])
    >>> store.offer({"label": torch.tensor([7, 8, 9])}, torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64))
    >>> sorted(store.columns["label"].tolist())
    [8, 9]
    """

    def __init__(self, capacity: int, fields: Sequence[Field], device: torch.device | str = "cpu") -> None:
        if capacity < 0:
            raise UsageError(f"A memory's capacity must be 0 or more rows; {capacity} was given.")
        self.capacity = capacity
        self._check_room(fields, torch.device(device))
        self.columns: Rows = {
            field.name: torch.zeros((capacity, *field.shape), dtype=field.dtype, device=device) for field in fields
        }
        # float64: in float32 the largest keys of a stream of 10^7 rows begin to tie, and ties favour residents
        self.key = torch.full((capacity,), EMPTY, dtype=torch.float64, device=device)

    def _check_room(self, fields: Sequence[Field], device: torch.device) -> None:
        """Refuse what would not fit, instead of being killed for it later."""
        per_row = 8 + sum(torch.Size(field.shape).numel() * field.dtype.itemsize for field in fields)
        if device.type == "cuda":
            room = torch.cuda.mem_get_info(device)[1]
        else:
            room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63
        if self.capacity * per_row > room:
            raise UsageError(
                f"A memory of {self.capacity} rows of {per_row} bytes needs {self.capacity * per_row / 2**30:.0f} GiB, "
                f"and this machine has {room / 2**30:.0f}. Give a smaller capacity."
            )

    def offer(self, rows: Rows, key: Tensor, *, groups: int = 1) -> None:
        """Keep the largest keys among what is stored and what is offered.

        `key` is [n], or [groups, n] when the slots are `groups` equal compartments that each keep their own
        largest keys. The i-th best newcomer displaces the i-th worst resident exactly when its key is larger.
        """
        size = self.capacity // groups
        most = min(key.shape[-1], size)
        if most == 0:
            return
        newcomer, best = key.view(groups, -1).topk(most)
        resident, worst = self.key.view(groups, size).topk(most, largest=False)
        if groups > 1:
            worst = worst + torch.arange(groups, device=key.device)[:, None] * size
        wins = (newcomer > resident).view(-1)
        slot, best, key = worst.view(-1), best.view(-1), torch.maximum(newcomer, resident).view(-1)
        if slot.is_cpu and not wins.all():  # there a look at the winners stalls nothing, and most may have lost
            winner = wins.nonzero().view(-1)
            slot, best, key = slot[winner], best[winner], key[winner]
        self.write(slot, take(rows, best), None if slot.is_cpu else wins)
        self.key.index_copy_(0, slot, key)

    def contenders(self, key: Tensor) -> Tensor | None:
        """The offered rows [m] whose key [n] could win a slot, or None where finding out would stall the device."""
        if not key.is_cpu or self.capacity == 0:
            return None
        return (key > self.key.min()).nonzero().view(-1)

    def pin(self, rows: Rows) -> None:
        """Store `rows` for good: empty slots go first, then short-term rows by smallest key."""
        amount = count(rows)
        slot = self.key.topk(amount, largest=False).indices
        self.write(slot, rows)
        self.key.index_fill_(0, slot, PINNED)

    def write(self, slot: Tensor, rows: Rows, wins: Tensor | None = None) -> None:
        """Put row i into `slot[i]`, where `wins[i]` if that is given; the slots [n] are distinct."""
        for name, column in self.columns.items():
            value = rows[name].to(column.dtype)
            if wins is not None:
                keep = wins.view(-1, *[1] * (column.dim() - 1))
                value = torch.where(keep, value, column.index_select(0, slot))
            # the view is made anew each time: one that was kept would come apart from its column in a copy or a pickle
            words(column).index_copy_(0, slot, words(value))

    def read(self, slot: Tensor) -> Rows:
        """A copy of the rows at `slot` [n]."""
        return take(self.columns, slot)

    def clear(self) -> None:
        """Mark every slot empty."""
        self.key.fill_(EMPTY)
