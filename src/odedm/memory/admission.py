"""Which classes may have prototypes: a class is admitted if those before it leave room for its quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    quota: dict[int, int] = field(default_factory=dict)
    """How many prototypes each class may have now, those that had some before among them."""
    rows: int = 0
    """How many rows are long-term then, at most."""


def admit(memory: DualBuffer, classes: Sequence[int], rows: Rows) -> ConsolidationOutcome:
    """Return which of these classes are to have prototypes, chosen among `rows`: each claims its whole quota."""
    available, held = amounts(rows), amounts(memory.rows(MemoryPart.LONG))
    room = memory.capacity - memory.reserved(memory.candidate_classes())  # once all candidates have given way
    outcome = ConsolidationOutcome(missing=[label for label in classes if label not in available])

    def quotas(new: Sequence[int]) -> dict[int, int]:
        """Return each class's prototypes when `new` ones are admitted."""
        known = {*held, *new}
        return {label: memory.quota.of(label, classes=len(known), room=room) for label in known}

    per = memory.quota.rows_per_prototype
    for label in [label for label in classes if label in available]:
        quota = quotas([*outcome.pinned, label])
        if quota[label] and sum(quota.values()) * per <= room:
            outcome.pinned.append(label)
            outcome.quota, outcome.rows = quota, sum(quota.values()) * per
        else:
            outcome.refused.append(label)
    if outcome.refused:
        quota = quotas([*outcome.pinned, *outcome.refused])
        new = sum(quota[label] for label in classes if label in quota) * per
        how = {"classes": len(quota), "capacity": memory.capacity, "room": room}
        outcome.error = memory.quota.refusal(new, sum(quota.values()) * per - new, **how)
    return outcome


def amounts(rows: Rows) -> dict[int, int]:
    """Return how many rows each class has.

    >>> import torch
    >>> amounts({"label": torch.tensor([4, 4, 5])})
    {4: 2, 5: 1}
    """
    labels, counts = rows["label"].unique(return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))
