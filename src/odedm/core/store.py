"""The store of a memory: a fixed number of slots, each row with a key; the largest keys stay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.key_index import EMPTY, PINNED, KeyIndex
from odedm.core.rows import ColumnSpec, Rows, count, take
from odedm.core.stored_names import stored

__all__ = ["EMPTY", "LARGE_CAPACITY", "PINNED", "Store", "as_int64_view"]


def as_int64_view(column: Tensor) -> Tensor:
    """Return the same memory as rows of 64-bit words, where it divides: on a CPU, rows of bytes are copied one by one.

    >>> as_int64_view(torch.zeros(2, 4, 4, dtype=torch.uint8)).shape
    torch.Size([2, 2])
    """
    size = column.shape[1:].numel() * column.element_size()
    if not column.is_cpu or column.dim() == 1 or size == 0 or size % 8 or not _is_aligned(column):
        return column
    return column.flatten(1).view(torch.int64)


def _is_aligned(column: Tensor) -> bool:
    return column.is_contiguous() and column.storage_offset() * column.element_size() % 8 == 0


def as_array(column: Tensor) -> NDArray[Any]:
    """Return the same memory as an array; of types that numpy has not, such as bfloat16, the bits.

    >>> as_array(torch.ones(2, dtype=torch.bfloat16)).dtype
    dtype('int16')
    """
    column = column.detach() if column.requires_grad else column
    try:
        return column.numpy()
    except TypeError:
        return column.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[column.element_size()]).numpy()


class Accepted(NamedTuple):
    """Offered rows [m], best first, and the slots [m] they take."""

    row: NDArray[np.int64]
    slot: NDArray[np.int64]


NOBODY = Accepted(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

LARGE_BATCH = 4096
"""Beyond so many offered rows a look at all slots is no great matter."""

SMALL_WRITE = 4
"""Up to so many rows are copied one by one, which takes less time than arrays of indices do."""

LARGE_CAPACITY = 8_192
"""Beyond so many slots equal keys count in the order of slots, and a few rows are drawn without a look at all slots."""


@stored("store")
class Store:
    """A fixed number of slots, each with one value per column and a key; the largest keys stay.

    A key of -inf marks an empty slot, a number in [0, 1) a short-term row, +inf a pinned one. When every
    short-term key is an independent uniform number, keeping the largest keys is exactly reservoir sampling,
    and overwriting the smallest ones (`pin`) leaves a uniform sample of the stream at the smaller capacity.
    Everything happens in place with shapes that depend on sizes alone, so a captured step can hold it.

    >>> store = Store(2, [ColumnSpec("label", dtype=torch.int64)])
    >>> store.insert({"label": torch.tensor([7, 8, 9])}, torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64))
    >>> sorted(store.columns["label"].tolist())
    [8, 9]
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_index", "_kept"})

    _index: KeyIndex | None = None  # of the class, for stores that are put together from a checkpoint
    _kept: dict[str, tuple[Tensor, NDArray[Any]]] | None = None

    def __init__(self, capacity: int, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        if capacity < 0:
            raise UsageError(f"A memory's capacity must be 0 or more rows; {capacity} was given.")
        self.capacity = capacity
        self._check_room(fields, torch.device(device))
        self.columns: Rows = {
            field.name: torch.zeros((capacity, *field.shape), dtype=field.dtype, device=device) for field in fields
        }
        # float64: in float32 the largest keys of a stream of 10^7 rows begin to tie, and ties favour residents
        self.key = torch.full((capacity,), EMPTY, dtype=torch.float64, device=device)

    @property
    def large(self) -> bool:
        """Return whether there are so many slots on a CPU that nothing may look at all of them again and again."""
        return self.capacity > LARGE_CAPACITY and self.key.is_cpu

    def __getstate__(self) -> dict[str, Any]:
        # a copy has memory of its own, and writes to it are counted anew
        return {**vars(self), "_index": None, "_kept": None}

    def _check_room(self, fields: Sequence[ColumnSpec], device: torch.device) -> None:
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

    def insert(self, rows: Rows, key: Tensor, *, groups: int = 1) -> None:
        """Keep the largest keys among what is stored and what is offered.

        `key` is [n], or [groups, n] when the slots are `groups` equal compartments that each keep their own
        largest keys. The i-th best newcomer displaces the i-th worst resident exactly when its key is larger.
        """
        won = self.accepted(key) if groups == 1 else None
        if won is not None:
            self.put(won, rows, key)
            return
        size = self.capacity // groups
        amount = min(key.shape[-1], size)
        if amount == 0:
            return
        newcomer, best = key.view(groups, -1).topk(amount)
        resident, worst = self.key.view(groups, size).topk(amount, largest=False)
        if groups > 1:
            worst = worst + torch.arange(groups, device=key.device)[:, None] * size
        wins = (newcomer > resident).view(-1)
        slot, best, key = worst.view(-1), best.view(-1), torch.maximum(newcomer, resident).view(-1)
        if slot.is_cpu and not wins.all():  # there a look at the winners stalls nothing, and most may have lost
            winner = wins.nonzero().view(-1)
            slot, best, key = slot[winner], best[winner], key[winner]
        self.write(slot, take(rows, best), None if slot.is_cpu else wins)
        self.key.index_copy_(0, slot, key)

    def accepted(self, key: Tensor) -> Accepted | None:
        """Return which of the rows with these keys [n] win a slot, and which slots, to be `put` there.

        None where finding out would stall the device.
        """
        if not key.is_cpu:
            return None
        if self._index is None or not self._index.is_current(self.key):
            self._index = self._new_index() if self.large else None
        if self._index is None or len(key) > LARGE_BATCH:
            return self._compared(key)
        offered, low = key.tolist(), self._index.lowest(1)
        least = low[0][0] if low else PINNED
        row = [i for i, value in enumerate(offered) if value > least]
        if not row:
            return NOBODY
        row.sort(key=offered.__getitem__, reverse=True)
        pairs = zip(row, self._index.lowest(len(row)), strict=False)
        slot = [slot for i, (resident, slot) in pairs if offered[i] > resident]
        return Accepted(np.array(row[: len(slot)]), np.array(slot))

    def _compared(self, key: Tensor) -> Accepted:
        """Find the accepted rows by a look at every slot."""
        if not self.capacity:
            return NOBODY
        least = self.key.min()
        row = (key > least).nonzero().view(-1)
        newcomer, best = key.index_select(0, row).topk(min(len(row), self.capacity))
        if self.large:  # equal keys in the order of slots, as the index has them
            resident, worst = (part[: len(best)] for part in self.key.sort(stable=True))
        else:
            resident, worst = self.key.topk(len(best), largest=False)
            # from here on, unless someone writes keys; not before it is full, since topk has its own order of equals
            self._index = self._new_index() if least > EMPTY else None
        won = int((newcomer > resident).sum())  # newcomers fall and residents rise: the first ones
        return Accepted(row[best[:won]].numpy(), worst[:won].numpy())

    def _new_index(self) -> KeyIndex | None:
        return None if self.key.is_inference() else KeyIndex(self.key)  # of such a tensor torch counts no writes

    def put(self, won: Accepted, rows: Rows, key: Tensor, **values: NDArray[Any] | int) -> None:
        """Store those of the offered rows [n] with their keys [n] that have won.

        `values` are the winners' values [m], or one for all, of columns that the offered rows have not.
        """
        if not len(won.row):
            return
        pairs = [*zip(won.slot.tolist(), won.row.tolist(), strict=True)] if len(won.row) <= SMALL_WRITE else []
        for name, column in self.columns.items():  # by numpy, which takes a third of torch's time for so little
            array = self._array(name, column)
            if name in values:
                array[won.slot] = values[name]
                continue
            value = rows.get(name)
            if value is None:
                raise self._lacks(name)
            offered = as_array(value if value.dtype is column.dtype else value.to(column.dtype))
            if pairs:
                for slot, row in pairs:
                    array[slot] = offered[row]
            else:
                array[won.slot] = offered.take(won.row, 0)
        fresh = as_array(key).take(won.row)
        self._array("", self.key)[won.slot] = fresh
        if self._index is not None:
            self._index.replaced(fresh.tolist(), won.slot.tolist())

    def _lacks(self, name: str) -> UsageError:
        return UsageError(
            f"The offered rows lack the column '{name}'; a row here has {', '.join(self.columns)}. A policy hands on "
            "all columns that `add` was given, and offers them by `insert`, which adds prototype and order."
        )

    def _array(self, name: str, column: Tensor) -> NDArray[Any]:
        """Return a column `as_array`, made once: for a few rows that takes longer than writing them."""
        if self._kept is None:
            self._kept = {}
        kept = self._kept.get(name)
        if kept is None or kept[0] is not column:
            kept = self._kept[name] = column, as_array(column)
        return kept[1]

    def index(self) -> KeyIndex:
        """Return what follows from the keys of a store on a CPU, made anew if anything but `put` has changed them."""
        if self._index is None or not self._index.is_current(self.key):
            self._index = KeyIndex(self.key)
        return self._index

    def pin(self, rows: Rows) -> None:
        """Store `rows` for good: empty slots go first, then short-term rows by smallest key."""
        amount, pinned = count(rows), int((self.key == PINNED).sum())
        if amount > self.capacity - pinned:
            raise UsageError(
                f"{amount} rows cannot be pinned: {pinned} of {self.capacity} slots hold pinned rows already. Pin "
                "fewer rows, or give a larger capacity."
            )
        slot = self.key.topk(amount, largest=False).indices
        self.write(slot, rows)
        self.key.index_fill_(0, slot, PINNED)

    def write(self, slot: Tensor, rows: Rows, wins: Tensor | None = None) -> None:
        """Put row i into `slot[i]`, where `wins[i]` if that is given; the slots [n] are distinct."""
        if not len(slot):  # what is empty may be laid out in ways that `as_int64_view` cannot read
            return
        for name, column in self.columns.items():
            if name not in rows:
                raise self._lacks(name)
            value = rows[name].to(column.dtype)
            if wins is not None:
                keep = wins.view(-1, *[1] * (column.dim() - 1))
                value = torch.where(keep, value, column.index_select(0, slot))
            # the view is made anew each time: one that was kept would come apart from its column in a copy or a pickle
            target = as_int64_view(column)
            if target is not column:
                value = as_int64_view(
                    value if _is_aligned(value) else value.clone(memory_format=torch.contiguous_format)
                )
            target.index_copy_(0, slot, value)

    def read(self, slot: Tensor) -> Rows:
        """Return a copy of the rows at `slot` [n]."""
        if not slot.is_cpu:
            return take(self.columns, slot)
        at, rows = slot.numpy(), Rows()
        for name, column in self.columns.items():
            rows[name] = torch.from_numpy(self._array(name, column).take(at, 0))
            if rows[name].dtype is not column.dtype:
                rows[name] = rows[name].view(column.dtype)
        return rows

    def clear(self) -> None:
        """Mark every slot empty."""
        self.key.fill_(EMPTY)
