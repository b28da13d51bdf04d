"""Chooses the prototypes of past classes anew as features drift, among the rows that the memory has by then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from odedm.core.rows import MemoryPart, ModelView, Rows, distinct, take
from odedm.core.store import Store
from odedm.core.timer import Timer
from odedm.selection.nearest import Chosen
from odedm.selection.selector import OnSelection, PrototypeSelector


class Exchanging(Protocol):
    """A memory whose rows can change parts."""

    store: Store

    def ordered_slots(self, part: MemoryPart = MemoryPart.ALL) -> Tensor:
        """In which slot each row of a part is."""
        ...

    def exchange(self, short: Tensor, long: Tensor) -> None:
        """Let rows change parts."""
        ...

    def free(self, short: Tensor) -> None:
        """Give up short-term rows."""
        ...


def choose_again(
    host: Exchanging,
    choices: Iterable[tuple[PrototypeSelector, Sequence[int]]],
    probe: ModelView,
    *,
    rng: torch.Generator,
    timer: Timer,
    on_selection: OnSelection | None = None,
) -> None:
    """Choose prototypes of classes anew, by the network as it is now, among their short-term rows and prototypes.

    A prototype that is not chosen again takes the place of a short-term row that is, so no row is lost; only where the
    short-term part has a copy of it already, that place becomes free. Rows keep their columns, logits among them.
    `choices` says how to choose for which classes. A class that would get another number of prototypes than it has is
    left as it is.
    """
    pool, told = _pool(host), list[tuple[Rows, Chosen, Tensor]]()

    def listen(rows: Rows, chosen: Chosen, distance: Tensor) -> None:
        told.append((rows, chosen, distance))

    for choose, classes in choices:
        told.clear()
        chosen = choose(pool, classes, probe, rng=rng, timer=timer, on_selection=listen if on_selection else None)
        for label in classes:
            own, pinned = chosen["label"] == label, _pinned(pool, label)
            slot = chosen["slot"][own]
            if len(slot) != len(pinned):
                continue
            left = pinned[~torch.isin(pinned, slot)]
            host.exchange(slot[~torch.isin(slot, pinned)], left)
            host.free(left[_has_copy(host, left)])
            host.store.columns["prototype"].index_copy_(0, slot, chosen["prototype"][own])
            for what in told:
                if on_selection and int(what[0]["label"][0]) == label:
                    on_selection(*what)


def _pool(host: Exchanging) -> Rows:
    """Every row with the slot it is in, prototypes first; a row that is in both parts counts as a prototype."""
    slot = torch.cat([host.ordered_slots(MemoryPart.LONG), host.ordered_slots(MemoryPart.SHORT)])
    rows = host.store.read(slot) | {"slot": slot}
    return take(rows, distinct(rows["index"]))


def _has_copy(host: Exchanging, slot: Tensor) -> Tensor:
    """Which of the short-term rows at slots [n] are there twice: prototypes are chosen from rows that may be stored."""
    index = host.store.columns["index"]
    same = index[slot][:, None] == index[host.ordered_slots(MemoryPart.SHORT)]
    return same.sum(1) > 1


def _pinned(pool: Rows, label: int) -> Tensor:
    """The slots of a class's prototypes."""
    return pool["slot"][(pool["label"] == label) & (pool["prototype"] >= 0)]
