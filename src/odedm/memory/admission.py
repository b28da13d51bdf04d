"""Which classes may have prototypes: a class is admitted if those before it leave room for its quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from odedm.core.errors import UsageError
from odedm.core.rows import MemoryPart, Rows

if TYPE_CHECKING:
    from odedm.memory.dual import DualBuffer


@dataclass
class ConsolidationOutcome:
    """What came of the wish to keep prototypes of some classes."""

    pinned: list[int] = field(default_factory=list)
    """Prototypes of these were chosen and are long-term now."""
    refused: list[int] = field(default_factory=list)
    """Prototypes of these do not fit."""
    missing: list[int] = field(default_factory=list)
    """No row of these is there to choose from."""
    error: UsageError | None = None
    """Why classes were refused."""


class Demand(NamedTuple):
    """Rows that classes would pin, rows that others would keep, and how many classes that are."""

    wanted: int
    kept: int
    classes: int


def admit(memory: DualBuffer, classes: Sequence[int], rows: Rows) -> ConsolidationOutcome:
    """Return which of these classes are to have prototypes; none of them where all or nothing is pinned."""
    available = amounts(rows)
    outcome = ConsolidationOutcome(missing=[label for label in classes if label not in available])
    if outcome.missing and memory.all_or_nothing:
        return outcome
    room, quota = _most_room(memory, classes), memory.quota
    for label in [label for label in classes if label in available]:
        demand = _demand(memory, [*outcome.pinned, label], available, room)
        fits = demand.wanted + demand.kept <= room and quota.of(label, classes=demand.classes, room=room)
        (outcome.pinned if fits else outcome.refused).append(label)
    if outcome.refused:
        demand = _demand(memory, [*outcome.pinned, *outcome.refused], available, room)
        how = {"classes": demand.classes, "capacity": memory.capacity, "room": room}
        outcome.error = quota.refusal(demand.wanted, demand.kept, **how)
        outcome.pinned = [] if memory.all_or_nothing else outcome.pinned
    return outcome


def classes_that_give_way(memory: DualBuffer, classes: Sequence[int], rows: Rows) -> list[int]:
    """Return the classes whose candidates end: these, and the oldest of others where prototypes need their room."""
    closing = list(classes)
    if memory.pool is None or memory.all_or_nothing:
        return closing
    demand = _demand(memory, classes, amounts(rows), _most_room(memory, classes))
    others = [label for label in memory.pool.classes() if label not in classes]
    while others and memory.capacity - memory.reserved(leaving=closing) < demand.wanted + demand.kept:
        closing.append(others.pop(0))
    return closing


def amounts(rows: Rows) -> dict[int, int]:
    """Return how many rows each class has.

    >>> import torch
    >>> amounts({"label": torch.tensor([4, 4, 5])})
    {4: 2, 5: 1}
    """
    labels, counts = rows["label"].unique(return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def _most_room(memory: DualBuffer, classes: Sequence[int]) -> int:
    """Return how many rows could be pinned when candidates of these classes, or of all, have given way."""
    leaving = memory.pool.classes() if memory.pool and not memory.all_or_nothing else classes
    return memory.capacity - memory.reserved(leaving=leaving)


def _demand(memory: DualBuffer, classes: Sequence[int], available: dict[int, int], room: int) -> Demand:
    """Return the rows that are asked for when these classes are pinned.

    A class that has fewer rows than its quota claims the quota all the same, unless all or nothing is pinned.
    """
    held = amounts(memory.rows(MemoryPart.LONG))
    amount = len({*held, *classes})

    def claim(label: int, rows: int) -> int:
        quota = memory.quota.of(label, classes=amount, room=room) * memory.quota.rows_per_prototype
        return min(rows, quota) if memory.all_or_nothing else quota

    kept = sum(claim(label, rows) for label, rows in held.items() if label not in classes)
    return Demand(sum(claim(label, available[label]) for label in classes), kept, amount)
