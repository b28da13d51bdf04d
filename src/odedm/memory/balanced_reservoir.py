"""The class-balanced reservoir: as many rows of every class as of any other, each class a uniform sample (CBRS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, count
from odedm.core.store import EMPTY, Accepted
from odedm.core.stored_names import stored
from odedm.memory.buffer import Buffer
from odedm.memory.class_index import ClassIndex

FULL = ColumnSpec("full", dtype=torch.bool)


@stored("memory/balanced-reservoir")
@final
class CBRSBuffer(Buffer):
    """Keeps all rows while there is room. Then a row of a new class takes the place of one of the largest class.

    A class that is, or once was, the largest in a filled memory is *full*: it grows no more, and its new rows compete
    with its old ones as in a reservoir of that size. So rare classes are kept whole, and of every other class there is
    a uniform sample of all its rows, whatever the stream's shares are. With fewer rows than classes a class may lose
    its last row; it is then no longer full and can return.

    Within a class the largest of uniform priorities stay: a class that gives up a row gives up that of the smallest.
    Pinned rows are not counted, and take the places of rows of the largest classes. A further column, `full`, tells
    which rows are of a full class.

    `classes` is how many the stream has, its labels being 0 to `classes` - 1. Where nobody knows, any labels will do,
    and they are read back from a device.

    >>> memory = CBRSBuffer(4, [ColumnSpec("label", dtype=torch.int64)])
    >>> label = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0])
    >>> memory.add({"label": label}, None, rng=torch.Generator().manual_seed(0))
    >>> memory.class_counts(2)["short"]
    [2, 2]
    """

    looks_at_all_rows = True
    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_index"})

    _index: ClassIndex | None = None

    def __init__(
        self,
        capacity: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        classes: int | None = None,
    ) -> None:
        super().__init__(capacity, [*fields, FULL], device)
        self.classes = classes

    def add(self, rows: Rows, view: ModelView | None, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch with fresh uniform priorities; whose place a row takes is decided one at a time."""
        amount, device, room = count(rows), self.store.priority.device, self.short_capacity
        fresh = torch.rand(amount, dtype=torch.float64, generator=rng, device=device)
        excess = min(amount, max(0, self._short + amount - room))
        chance = torch.rand(excess, dtype=torch.float64, generator=rng, device=device)
        if room == 0:
            return
        if self.store.priority.is_cpu:
            self._add_on_host(rows, fresh, chance)
        else:
            self._add_on_device(rows, fresh, chance)

    def _add_on_host(self, rows: Rows, fresh: Tensor, chance: Tensor) -> None:
        """Offer rows [n] with priorities [n], and m chances for those that find no room, by an index of the classes."""
        index = self._index = self._current_index()
        labels, priorities, lucks = rows["label"].tolist(), fresh.tolist(), chance.tolist()
        fitting = len(priorities) - len(lucks)
        winners = {index.add(labels[i], priorities[i]): i for i in range(fitting)}
        for i, luck in enumerate(lucks, fitting):
            slot = index.offer(labels[i], priorities[i], luck)
            if slot is not None:
                winners[slot] = i
        if winners:
            won, seen = Accepted([*winners.values()], [*winners]), int(self.num_seen)
            full = [labels[row] in index.full for row in won.row]
            order = [seen + row for row in won.row]
            self.store.put(won, rows, fresh, prototype=[-1] * len(order), order=order, full=full)
            index.is_written()
        marked = index.newly_full()
        if marked:
            self.store.columns["full"][marked] = True
        self.num_seen += len(priorities)
        self._short = min(self._short + len(priorities), self.short_capacity)

    def _add_on_device(self, rows: Rows, fresh: Tensor, chance: Tensor) -> None:
        """Do the same without a look at a value, so that a step can be recorded."""
        amount, device = len(fresh), fresh.device
        which, classes = self._classes(rows["label"])
        arriving = self.capacity + torch.arange(amount - len(chance), amount, device=device)
        priority = torch.cat([self._short_priorities(), fresh])
        priority, full = make_room(priority, which, self._full(which, classes), arriving, chance)
        self._rewrite(priority[: self.capacity], full[which[: self.capacity]])
        self.insert({**rows, "full": full[which[self.capacity :]]}, priority[self.capacity :])

    def _current_index(self) -> ClassIndex:
        store = self.store
        if self._index is not None and self._index.is_current(store.priority):
            return self._index
        return ClassIndex(store.priority, store.columns["label"], store.columns["full"])

    def pin(self, rows: Rows) -> None:
        """Keep rows for good, in the place of empty slots and then of rows of the largest classes."""
        self._shrink(self.short_capacity - count(rows))
        super().pin({**rows, "full": torch.zeros_like(rows["label"], dtype=torch.bool)})

    def resize(self, capacity: int) -> None:
        """Change the number of rows in all: what there is no room for goes from the largest classes."""
        self._shrink(capacity - self._long)
        super().resize(capacity)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_index": None}  # a copy has memory of its own, and writes to it are counted anew

    def _shrink(self, room: int) -> None:
        """Let short-term rows go until so many are left, one at a time from the largest class."""
        excess = self._short - room
        if excess <= 0 or room < 0:  # what cannot be is refused by whoever asked for it
            return
        if self.store.priority.is_cpu:
            index = self._current_index()
            gone = [index.evict(luck=0.0) for _ in range(excess)]
            self.store.columns["full"][index.newly_full()] = True
            self.store.columns["full"][gone] = False
            self.store.priority[gone] = EMPTY
            self._short -= excess
            return
        which, classes = self._classes()
        chance = torch.zeros(excess, dtype=torch.float64, device=which.device)  # of equal classes the first gives way
        priority, full = make_room(self._short_priorities(), which, self._full(which, classes), None, chance)
        self._rewrite(priority, full[which])
        self._short -= excess

    def _short_priorities(self) -> Tensor:
        return self.store.priority.where(self._belongs(MemoryPart.SHORT), EMPTY)

    def _rewrite(self, priority: Tensor, full: Tensor) -> None:
        """Take other priorities [capacity], EMPTY for none, and marks for short-term rows; pinned rows keep theirs."""
        pinned = self._belongs(MemoryPart.LONG)
        self.store.priority.copy_(self.store.priority.where(pinned, priority))
        self.store.columns["full"].copy_(full & ~pinned)

    def _classes(self, arriving: Tensor | None = None) -> tuple[Tensor, int]:
        """Return which class each slot is of, and each arriving row: numbers [n] below the second value."""
        label = self.store.columns["label"]
        label = label if arriving is None else torch.cat([label, arriving])
        if self.classes is not None:
            return label, self.classes
        names, which = label.unique(return_inverse=True)
        return which, len(names)

    def _full(self, which: Tensor, classes: int) -> Tensor:
        """Return which classes [C] are full: their stored rows say so."""
        marked = self.store.columns["full"] & self._belongs(MemoryPart.SHORT)
        return class_sizes(which[: self.capacity], marked, classes) > 0


def class_sizes(which: Tensor, counts: Tensor, classes: int) -> Tensor:
    """Return how many of the rows that count [n] are of each class [C], for the rows' classes [n].

    >>> class_sizes(torch.tensor([0, 2, 2]), torch.tensor([True, True, False]), 3).tolist()
    [1, 0, 1]
    """
    return torch.zeros(classes, dtype=torch.int64, device=which.device).index_add_(0, which, counts.long())


def make_room(
    priority: Tensor, which: Tensor, full: Tensor, arriving: Tensor | None, chance: Tensor
) -> tuple[Tensor, Tensor]:
    """Let a row go for each that arrives in a filled memory: priorities [n], EMPTY where it went, and `full` [C] then.

    `priority` [n] and `which` [n], the class, are those of all rows; a priority is EMPTY where none is. `arriving` [m]
    are the positions of the rows for which there is no room, in their order: each finds the memory as the one
    before left it. None: m rows go from the largest class. `chance` [m] in [0, 1) decides between equally large ones.

    >>> priority = torch.tensor([0.25, 0.5, 0.75, 0.125], dtype=torch.float64)
    >>> which, arriving = torch.tensor([0, 0, 0, 1]), torch.tensor([3])
    >>> priority, full = make_room(priority, which, torch.zeros(2).bool(), arriving, torch.zeros(1))
    >>> priority.tolist(), full.tolist()
    ([-inf, 0.5, 0.75, 0.125], [True, False])
    """
    offered, priority = priority, priority.clone()
    if arriving is not None:
        priority.index_fill_(0, arriving, EMPTY)
    counts = class_sizes(which, priority >= 0, len(full))
    for turn in range(len(chance)):
        luck, largest = chance[turn], counts == counts.amax()
        full = (full & (counts > 0)) | largest
        # the i-th of the largest classes, where i is a fair die of as many faces
        victim = ((largest.cumsum(0) > luck * largest.sum()) & largest).int().argmax(keepdim=True)
        if arriving is not None:
            new = arriving[turn : turn + 1]
            arrived = which[new]
            priority.index_copy_(0, new, offered[new])
            counts.index_add_(0, arrived, torch.ones_like(arrived))
            victim = torch.where(full[arrived], arrived, victim)
        gone = priority.where((which == victim) & (priority >= 0), torch.inf).argmin(keepdim=True)
        priority.index_fill_(0, gone, EMPTY)
        counts.index_add_(0, victim, -torch.ones_like(victim))
    return priority, full
