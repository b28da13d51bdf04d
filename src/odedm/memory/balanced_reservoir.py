"""The class-balanced reservoir: as many rows of every class as of any other, each class a uniform sample (CBRS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from odedm.core.rows import Field, Part, Probe, Rows, Task, count
from odedm.core.store import EMPTY
from odedm.memory.keyed import KeyedMemory


@final
class BalancedReservoir(KeyedMemory):
    """Keeps all rows while there is room. Then a row of a new class takes the place of one of the largest class.

    A class that is, or once was, the largest in a filled memory is *full*: it grows no more, and its new rows compete
    with its old ones as in a reservoir of that size. So rare classes are kept whole, and of every other class there is
    a uniform sample of all its rows, whatever the stream's shares are.

    Within a class the largest of uniform keys stay: a class that gives up a row gives up its smallest key. Pinned rows
    are not counted, and take the places of rows of the largest classes.

    `classes` is how many the stream has, its labels then being 0 to `classes` - 1; where nobody knows, new labels are
    noted as they come, which reads them back from a device.

    >>> from odedm.core.rows import Field
    >>> memory = BalancedReservoir(4, [Field("label", dtype=torch.int64)])
    >>> memory.see({"label": torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0])}, rng=torch.Generator().manual_seed(0))
    >>> memory.census(2)["short"]
    [2, 2]
    """

    def __init__(
        self,
        capacity: int,
        fields: Sequence[Field],
        device: torch.device | str = "cpu",
        *,
        classes: int | None = None,
    ) -> None:
        super().__init__(capacity, fields, device)
        self.growing = classes is None
        self.known = torch.arange(classes or 0, device=device)
        """The labels [C] of all classes so far."""
        self.full = torch.zeros(classes or 0, dtype=torch.bool, device=device)
        """Which classes [C] are, or once were, the largest in a filled memory."""

    def add(self, rows: Rows, probe: Probe, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch, row by row."""
        self.see(rows, rng=rng)

    def see(self, rows: Rows, *, rng: torch.Generator) -> None:
        """Offer rows with fresh uniform keys; what they take the place of is decided one row at a time."""
        amount, device, room = count(rows), self.store.key.device, self.short_capacity
        fresh = torch.rand(amount, dtype=torch.float64, generator=rng, device=device)
        # which of equally large classes gives way is left to chance
        chance = torch.rand(max(0, self._short + amount - room), dtype=torch.float64, generator=rng, device=device)
        if room == 0:
            return
        if self.growing:
            self._note(rows["label"])
        key = torch.cat([self.store.key.where(self._belongs(Part.SHORT), EMPTY), fresh])
        which = self._class_of(torch.cat([self.store.columns["label"], rows["label"]]))
        arriving = self.capacity + torch.arange(amount, device=device)[amount - len(chance) :]
        key, full = make_room(key, which, self.full, arriving, chance)
        self.full.copy_(full)
        self._rewrite(key[: self.capacity])
        self.offer_short(rows, key[self.capacity :])

    def pin(self, rows: Rows) -> None:
        """Keep rows for good, in the place of empty slots and then of rows of the largest classes."""
        self._shrink(self.short_capacity - count(rows))
        super().pin(rows)

    def resize(self, capacity: int) -> None:
        """Another number of rows in all: what there is no room for goes from the largest classes."""
        self._shrink(capacity - self._long)
        super().resize(capacity)

    def frozen(self, n: int) -> tuple[int, ...]:
        """Classes are counted over all rows, so every number of them counts."""
        return (*super().frozen(n), self._short, self._long)

    def end_task(self, task: Task, probe: Probe, *, rng: torch.Generator) -> None:
        """Nothing changes at a border."""

    def _note(self, label: Tensor) -> None:
        """Add labels [n] that were not met before to the known ones."""
        new = label.unique()
        new = new[~torch.isin(new, self.known)]
        self.known = torch.cat([self.known, new])
        self.full = torch.cat([self.full, torch.zeros_like(new, dtype=torch.bool)])

    def _class_of(self, label: Tensor) -> Tensor:
        """Which of the known classes [n] the labels [n] are; of an empty slot any."""
        return (label[:, None] == self.known).int().argmax(1) if self.growing else label

    def _shrink(self, room: int) -> None:
        """Let short-term rows go until so many are left, one at a time from the largest class."""
        excess = self._short - max(0, room)
        if excess <= 0:
            return
        key = self.store.key.where(self._belongs(Part.SHORT), EMPTY)
        chance = torch.zeros(excess, dtype=torch.float64, device=key.device)  # at a border the lowest label gives way
        key, full = make_room(key, self._class_of(self.store.columns["label"]), self.full, None, chance)
        self.full.copy_(full)
        self._rewrite(key)
        self._short -= excess

    def _rewrite(self, key: Tensor) -> None:
        """Take other keys [capacity] for short-term rows; EMPTY frees a slot, and pinned rows keep theirs."""
        self.store.key.copy_(self.store.key.where(self._belongs(Part.LONG), key))


def make_room(
    key: Tensor, which: Tensor, full: Tensor, arriving: Tensor | None, chance: Tensor
) -> tuple[Tensor, Tensor]:
    """Let a row go for each that arrives in a filled memory: keys [n], EMPTY for those that went, and `full` [C] after.

    `key` [n] and `which` [n], the class, are those of all rows, EMPTY keys where there is none; `arriving` [m] are the positions of the
    rows for which there is no room, in their order: each finds the memory as the one before left it. None: m rows go
    from the largest class. `chance` [m], in [0, 1), decides between equally large classes.

    >>> key = torch.tensor([0.25, 0.5, 0.75, 0.125], dtype=torch.float64)
    >>> key, full = make_room(key, torch.tensor([0, 0, 0, 1]), torch.zeros(2).bool(), torch.tensor([3]), torch.zeros(1))
    >>> key.tolist(), full.tolist()
    ([-inf, 0.5, 0.75, 0.125], [True, False])
    """
    classes = torch.arange(len(full), device=key.device)
    key, full, waiting = key.clone(), full.clone(), EMPTY * torch.ones_like(key)
    if arriving is not None:
        waiting.index_copy_(0, arriving, key.index_select(0, arriving))
        key.index_fill_(0, arriving, EMPTY)
    counts = ((which[:, None] == classes) & (key >= 0)[:, None]).sum(0)
    for place, luck in enumerate(chance.split(1)):
        largest = counts == counts.amax()
        full |= largest
        # the i-th of the largest classes, where i is a fair die of as many faces
        victim = ((largest.cumsum(0) > luck * largest.sum()) & largest).int().argmax(keepdim=True)
        if arriving is not None:
            new = arriving[place : place + 1]
            own = which[new]
            key.index_copy_(0, new, waiting[new])
            counts.index_add_(0, own, torch.ones_like(own))
            victim = torch.where(full[own], own, victim)
        gone = key.where((which == victim) & (key >= 0), torch.inf).argmin(keepdim=True)
        key.index_fill_(0, gone, EMPTY)
        counts.index_add_(0, victim, -torch.ones_like(victim))
    return key, full
