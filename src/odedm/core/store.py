"""The store of a memory: a fixed number of slots, each row with a priority; the largest priorities stay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.core.accel.device import enough_memory
from odedm.core.errors import UsageError
from odedm.core.priority_index import EMPTY, PINNED, PriorityIndex
from odedm.core.row_folder import RowFolder
from odedm.core.rows import ColumnSpec, Rows, count, int_tensor, take
from odedm.core.stored_names import stored

__all__ = ["EMPTY", "LARGE_CAPACITY", "PINNED", "Store"]


FEW = 6
"""So many rows are copied one by one: numpy takes longer to begin with an array of places."""


def _cast(value: Tensor, column: Tensor) -> Tensor:
    """Return values in the type of a column."""
    if value.requires_grad:
        value = value.detach()
    return value if value.dtype is column.dtype else value.to(column.dtype)


def _array(column: Tensor) -> NDArray[Any]:
    """Return the same memory as an array; numpy has no bfloat16."""
    array: NDArray[Any] = (column.view(torch.int16) if column.dtype is torch.bfloat16 else column).numpy()
    return array


def _copy_rows(column: Tensor, slot: Tensor, value: Tensor) -> None:
    """Copy values [n, ...] into a column at `slot` [n], in its type."""
    if column.is_cpu and column.dim() > 1:  # torch copies each number by itself, which takes up to 20 times as long
        _array(column)[slot.numpy()] = _array(_cast(value, column))
    else:
        column.index_copy_(0, slot, _cast(value, column))


def _put(column: Tensor, slot: list[int], values: Sequence[Any] | NDArray[Any], row: Sequence[int]) -> None:
    """Copy those of the values that are at `row` [m] into a column on the CPU at `slot` [m], one by one."""
    target = _array(column)
    for place, source in zip(slot, row, strict=True):
        target[place] = values[source]


class Accepted(NamedTuple):
    """Offered rows [m], best first, and the slots [m] they take."""

    row: list[int]
    slot: list[int]


NOBODY = Accepted([], [])

NO_FILES: nullcontext[None] = nullcontext()
PAGE_BATCH = 8_192
"""So many rows of a store on disk are read before their pages may be given back."""

LARGE_BATCH = 4096
"""Beyond so many offered rows a look at all slots is no great matter."""

LARGE_CAPACITY = 8_192
"""Beyond so many slots equal priorities count in the order of slots, and few rows are drawn without a look at all."""


@stored("store")
class Store:
    """A fixed number of slots, each with one value per column and a priority; the largest priorities stay.

    A priority of -inf marks an empty slot, a number in [0, 1) a short-term row, +inf a pinned one. When every
    short-term priority is an independent uniform number, keeping the largest priorities is exactly reservoir sampling,
    and overwriting the smallest ones (`pin`) leaves a uniform sample of the stream at the smaller capacity.
    Everything happens in place with shapes that depend on sizes alone, so a captured step can hold it.

    >>> store = Store(2, [ColumnSpec("label", dtype=torch.int64)])
    >>> store.insert({"label": torch.tensor([7, 8, 9])}, torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64))
    >>> sorted(store.columns["label"].tolist())
    [8, 9]
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_index", "folder"})

    _index: PriorityIndex | None = None  # of the class, for stores that are put together from a checkpoint
    folder: RowFolder | None = None
    """The files that some of the columns are mapped from, if any."""

    def __init__(self, capacity: int, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        if capacity < 0:
            raise UsageError(f"A memory's capacity must be 0 or more rows; {capacity} was given.")
        self.capacity = capacity
        check_room(capacity, fields, torch.device(device))
        with enough_memory("Give a smaller capacity."):
            self.columns: Rows = {
                field.name: torch.zeros((capacity, *field.shape), dtype=field.dtype, device=device) for field in fields
            }
            # float64: in float32 the largest priorities of a stream of 10^7 rows begin to tie, which favours residents
            self.priority = torch.full((capacity,), EMPTY, dtype=torch.float64, device=device)

    @property
    def large(self) -> bool:
        """Return whether there are so many slots on a CPU that nothing may look at all of them again and again."""
        return self.capacity > LARGE_CAPACITY and self.priority.is_cpu

    def __getstate__(self) -> dict[str, Any]:
        # a copy has memory of its own, and writes to it are counted anew
        return {**vars(self), "_index": None}

    @property
    def fields(self) -> list[ColumnSpec]:
        """Return what its columns are."""
        return [ColumnSpec(name, tuple(column.shape[1:]), column.dtype) for name, column in self.columns.items()]

    def move_to(self, folder: RowFolder, names: Sequence[str]) -> None:
        """Keep these columns of an empty store in the files of a folder from now on."""
        specs = [spec for spec in self.fields if spec.name in names]
        folder.map(specs, self.capacity)
        self.columns |= folder.columns
        self.folder = folder

    def resized(self, capacity: int, kept: Tensor) -> Store:
        """Return a store of so many slots with the rows at the slots `kept` [n], ascending; this one is spent.

        They move together to the first slots. What is mapped from files moves only where it must.
        """
        if self.folder is not None:
            return self._resized_on_disk(capacity, kept)
        store = Store(capacity, self.fields, self.priority.device)
        place = torch.arange(len(kept), device=kept.device)
        store.write(place, self.read(kept))
        store.priority[place] = self.priority[kept]
        return store

    def _resized_on_disk(self, capacity: int, kept: Tensor) -> Store:
        assert self.folder is not None
        folder = self.folder
        if capacity > folder.capacity:
            folder.resize(capacity)
        is_kept = torch.zeros(max(capacity, self.capacity), dtype=torch.bool).index_fill_(0, kept, True)
        source = kept[kept >= capacity]
        place = kept.clone()
        place[kept >= capacity] = (~is_kept[:capacity]).nonzero().view(-1)[: len(source)]
        for part, target in zip(source.split(LARGE_BATCH), place[kept >= capacity].split(LARGE_BATCH), strict=True):
            with folder.writing(target):
                for column in folder.columns.values():
                    column.index_copy_(0, target, column.index_select(0, part))
        folder.resize(capacity)
        store = Store(0, [])
        for name, column in self.columns.items():
            if name in folder.columns:
                store.columns[name] = folder.columns[name]
            else:
                fresh = column.new_zeros((capacity, *column.shape[1:]))
                store.columns[name] = fresh.index_copy_(0, place, column[kept])
        store.priority = torch.full((capacity,), EMPTY, dtype=torch.float64)
        store.priority[place] = self.priority[kept]
        store.capacity, store.folder = capacity, folder
        return store

    def insert(self, rows: Rows, priority: Tensor, *, groups: int = 1) -> None:
        """Keep the largest priorities among what is stored and what is offered.

        `priority` is [n], or [groups, n] when the slots are `groups` equal compartments that each keep their own
        largest priorities. The i-th best newcomer displaces the i-th worst resident if its priority is larger.
        """
        won = self.accepted(priority) if groups == 1 else None
        if won is not None:
            self.put(won, rows, priority)
            return
        size = self.capacity // groups
        amount = min(priority.shape[-1], size)
        if amount == 0:
            return
        newcomer, best = priority.view(groups, -1).topk(amount)
        resident, worst = self.priority.view(groups, size).topk(amount, largest=False)
        if groups > 1:
            worst = worst + torch.arange(groups, device=priority.device)[:, None] * size
        wins = (newcomer > resident).view(-1)
        slot, best, priority = worst.view(-1), best.view(-1), torch.maximum(newcomer, resident).view(-1)
        if slot.is_cpu and not wins.all():  # there a look at the winners stalls nothing, and most may have lost
            winner = wins.nonzero().view(-1)
            slot, best, priority = slot[winner], best[winner], priority[winner]
        self.write(slot, take(rows, best), None if slot.is_cpu else wins)
        self.priority.index_copy_(0, slot, priority)

    def accepted(self, priority: Tensor) -> Accepted | None:
        """Return which of the rows with these priorities [n] win a slot, and which slots, to be `put` there.

        None where finding out would stall the device.
        """
        if not priority.is_cpu:
            return None
        if self._index is None or not self._index.is_current(self.priority):
            self._index = self._new_index() if self.large else None
        if self._index is None:
            return self._compared(priority)
        offered, low = priority.tolist(), self._index.lowest(1)
        least = low[0][0] if low else PINNED
        row = [i for i, value in enumerate(offered) if value > least]
        if not row:
            return NOBODY
        row.sort(key=offered.__getitem__, reverse=True)
        pairs = zip(row, self._index.lowest(len(row)), strict=False)
        slot = [slot for i, (resident, slot) in pairs if offered[i] > resident]
        return Accepted(row[: len(slot)], slot)

    def _compared(self, priority: Tensor) -> Accepted:
        """Find the accepted rows by a look at every slot."""
        if not self.capacity:
            return NOBODY
        least = self.priority.min()
        row = (priority > least).nonzero().view(-1)
        newcomer, best = priority.index_select(0, row).topk(min(len(row), self.capacity))
        if self.large:  # equal priorities in the order of slots, as the index has them
            resident, worst = (part[: len(best)] for part in self.priority.sort(stable=True))
        else:
            resident, worst = self.priority.topk(len(best), largest=False)
            # from here on, unless someone writes there; not before it is full, since topk has its own order of equals
            self._index = self._new_index() if least > EMPTY else None
        won = int((newcomer > resident).sum())  # newcomers fall and residents rise: the first ones
        return Accepted(row[best[:won]].tolist(), worst[:won].tolist())

    def _new_index(self) -> PriorityIndex | None:
        # of a tensor of inference mode torch counts no writes
        return None if self.priority.is_inference() else PriorityIndex(self.priority)

    def put(self, won: Accepted, rows: Rows, priority: Tensor, **values: Sequence[int]) -> None:
        """Store those of the offered rows [n] with their priorities [n] that have won.

        `values` are the winners' values [m] of columns that the offered rows have not.
        """
        row, slot = won
        if not row:
            return
        places, few = int_tensor(slot), len(slot) <= FEW
        slots, sources = (slot, row) if few else (places.numpy(), np.array(row))
        with NO_FILES if self.folder is None else self.folder.writing(places):
            for name, column in self.columns.items():
                if name not in values and name not in rows:
                    raise self._lacks(name)
                if few:
                    given = values[name] if name in values else _array(_cast(rows[name], column))
                    _put(column, slot, given, range(len(slot)) if name in values else row)
                elif name in values:
                    _array(column)[slots] = values[name]
                else:
                    _array(column)[slots] = _array(_cast(rows[name], column))[sources]
        fresh = _array(priority)[row]
        self.priority.index_copy_(0, places, torch.from_numpy(fresh))  # not by numpy: torch counts writes
        if self._index is not None:
            self._index.replaced(fresh.tolist(), slot)

    def _lacks(self, name: str) -> UsageError:
        return UsageError(
            f"The offered rows lack the column '{name}'; a row here has {', '.join(self.columns)}. A policy hands on "
            "all columns that `add` was given, and offers them by `insert`, which adds prototype and order."
        )

    def index(self) -> PriorityIndex:
        """Return what follows from the priorities on a CPU, made anew if anything but `put` has changed them."""
        if self._index is None or not self._index.is_current(self.priority):
            self._index = PriorityIndex(self.priority)
        return self._index

    def pin(self, rows: Rows) -> None:
        """Store `rows` for good: empty slots go first, then short-term rows by smallest priority."""
        amount, pinned = count(rows), int((self.priority == PINNED).sum())
        if amount > self.capacity - pinned:
            raise UsageError(
                f"{amount} rows cannot be pinned: {pinned} of {self.capacity} slots hold pinned rows already. Pin "
                "fewer rows, or give a larger capacity."
            )
        slot = self.priority.topk(amount, largest=False).indices
        self.write(slot, rows)
        self.priority.index_fill_(0, slot, PINNED)

    def write(self, slot: Tensor, rows: Rows, wins: Tensor | None = None) -> None:
        """Put row i into `slot[i]`, where `wins[i]` if that is given; the slots [n] are distinct."""
        with NO_FILES if self.folder is None else self.folder.writing(slot):
            for name, column in self.columns.items():
                if name not in rows:
                    raise self._lacks(name)
                value = rows[name]
                if wins is not None:
                    keep = wins.view(-1, *[1] * (column.dim() - 1))
                    value = torch.where(keep, value.to(column.dtype), column.index_select(0, slot))
                _copy_rows(column, slot, value)

    def read(self, slot: Tensor) -> Rows:
        """Return a copy of the rows at `slot` [n]."""
        if self.folder is None:
            return take(self.columns, slot)
        parts = []
        for part in slot.split(PAGE_BATCH):
            parts.append(take(self.columns, part))
            self.folder.touched(len(part))
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def clear(self) -> None:
        """Mark every slot empty."""
        self.priority.fill_(EMPTY)


def check_room(capacity: int, fields: Sequence[ColumnSpec], device: torch.device) -> None:
    """Refuse a store that would not fit, instead of being killed for it later."""
    per_row = 8 + sum(torch.Size(field.shape).numel() * field.dtype.itemsize for field in fields)
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[1]
    else:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63
    if capacity * per_row > room:
        raise UsageError(
            f"A memory of {capacity} rows of {per_row} bytes needs {capacity * per_row / 2**30:.0f} GiB, and this "
            f"machine has {room / 2**30:.0f}. Give a smaller capacity."
        )
