"""How many prototypes each class may have, and which classes have room for theirs.

Of a stream whose tasks are known each class gets F_k (`prototypes_per_class`, `class_quotas`), which never changes:
`FixedQuota`. Where nobody knows how many classes will come, all of them share the long-term rows: `EqualShare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.core.text import counted
from odedm.core.validators import LARGEST, Float, Int, validate_params

if TYPE_CHECKING:
    from odedm.memory.build_context import StreamShape
    from odedm.memory.settings import ODEDM


@validate_params(rho=Float(), capacity=Int(), tasks=Int(), classes=Int(), rows_per_prototype=Int())
def prototypes_per_class(rho: float, capacity: int, *, tasks: int, classes: int, rows_per_prototype: int = 1) -> int:
    """Return F_k, the prototypes k of each class of a task that ends: ρλ / ((n − 1) · |C_i|), halves rounded up.

    The last task is never consolidated, hence n − 1. Halves go up because Python's `round` would give 12 where the
    paper has 13.

    Args:
        rho: the share ρ of the memory's rows that the long-term part holds in the end, above 0 and up to 1.
        capacity: rows in all (λ).
        tasks: the n tasks of the stream.
        classes: the |C_i| classes of one task.
        rows_per_prototype: rows that each prototype keeps; the quotient is divided by it.

    Returns:
        k, 1 or more; what rounds to 0 is refused by an error that says which ρ or λ gives 1.

    >>> [prototypes_per_class(rho, 200, tasks=5, classes=2) for rho in (0.25, 0.50, 0.75)]
    [6, 13, 19]
    """
    if not 0.0 < rho <= 1.0:
        raise UsageError(
            f"rho is the long-term share of the memory: it must lie in (0, 1], {rho} was given. "
            "For a memory without a long-term part use the plain reservoir."
        )
    for name, value in (("tasks", tasks), ("classes", classes), ("rows_per_prototype", rows_per_prototype)):
        if value < 1:
            raise UsageError(f"{name} must be 1 or more; {value} was given.")
    if tasks == 1:
        raise UsageError(
            "With a single task nothing is ever consolidated: prototypes are pinned when a task ends and another "
            "follows. Use a plain reservoir, or split the stream into 2 tasks or more."
        )
    slots = (tasks - 1) * classes * rows_per_prototype
    # the half's own float error must not turn 12.5 into 12: 0.3 * 50 is a hair below 15
    k = math.floor(rho * capacity / slots + 0.5 + 1e-9)
    if k < 1:
        least_rho = math.ceil(0.5 * slots / capacity * 1e4) / 1e4 if capacity > 0 else math.inf
        least_capacity = math.ceil(min(0.5 * slots / rho, LARGEST) - 1e-9)
        larger = f"rho of at least {least_rho:g}, or a " if least_rho <= 1 else ""
        raise UsageError(
            f"rho={rho:g} of {capacity} rows, shared by {counted(tasks - 1, 'consolidated task')} of "
            f"{counted(classes, 'class')} with {counted(rows_per_prototype, 'row')} per prototype, "
            f"rounds to 0 prototypes per class. One prototype per class needs a {larger}capacity of at least "
            f"{least_capacity} rows."
        )
    return k


@stored("memory/fixed-quota")
@dataclass(frozen=True)
class FixedQuota:
    """As many prototypes of each class as `k` says: one number for all, or one for each label [C].

    >>> FixedQuota(6).of(3, classes=9, room=200), FixedQuota((2, 0)).of(1, classes=1, room=200)
    (6, 0)
    """

    k: int | tuple[int, ...]
    rows_per_prototype: int = 1

    def of(self, label: int, *, classes: int, room: int) -> int:  # noqa: ARG002 - the same for any
        """Return how many prototypes a class may have."""
        return self.k if isinstance(self.k, int) else self.k[label]

    def refusal(self, wanted: int, pinned: int, *, classes: int, capacity: int, room: int) -> UsageError:  # noqa: ARG002
        """Return the error for `wanted` rows that do not fit beside `pinned` ones."""
        return UsageError(
            f"{wanted} rows cannot be pinned: {pinned} are pinned already, and of {capacity} rows {room} can "
            "be. Raise the capacity by resize, let classes go by release, or lower k."
        )


@stored("memory/equal-share")
@dataclass(frozen=True)
class EqualShare:
    """An equal share of the long-term rows, ρλ, for every class consolidated so far; it shrinks as classes join.

    >>> EqualShare(0.25, 200).of(3, classes=4, room=200)
    12
    """

    rho: float
    capacity: int
    rows_per_prototype: int = 1

    @property
    def rows(self) -> int:
        """Return the most rows that may be pinned: ρλ, a hair more where floats fell short of a whole number."""
        return math.floor(self.rho * self.capacity + 1e-9)

    def of(self, label: int, *, classes: int, room: int) -> int:  # noqa: ARG002 - the same for any
        """Return how many prototypes a class may have when `classes` classes have some, in so much room."""
        return min(self.rows, room) // (max(classes, 1) * self.rows_per_prototype)

    def refusal(self, wanted: int, pinned: int, *, classes: int, capacity: int, room: int) -> UsageError:  # noqa: ARG002
        """Return the error for classes of which some would have no prototype."""
        return UsageError(
            f"rho={self.rho:g} of {self.capacity} rows leaves {min(self.rows, room)} long-term rows, too few for "
            f"{classes} classes with {self.rows_per_prototype} row(s) each. Raise the capacity by resize, or let "
            "classes go by release."
        )


def prototypes(memory: ODEDM, shape: StreamShape) -> int | None:
    """Return k, worked out from rho if not given, where all pins fit; None where classes get different numbers."""
    if shape.task_classes:
        known = {k for k in class_quotas(memory, shape) if k}
        return None if len(known) > 1 else max(known, default=memory.k or 0)
    tasks, classes, per = shape.tasks, shape.classes_per_task, memory.rows_per_prototype
    k, room, consolidated = memory.k or 0, memory.capacity - _reserved(memory, shape), (tasks - 1) * classes
    if memory.k is None and memory.rho and tasks > 1 and memory.capacity:
        k = prototypes_per_class(memory.rho, memory.capacity, tasks=tasks, classes=classes, rows_per_prototype=per)
        # rounding up must not turn a legal share, rho=1 above all, into one that does not fit
        k = min(k, room // (consolidated * per)) or k
    _check_candidates(memory, shape, k)
    _check_room(memory, [k] * consolidated, room)
    return k


def class_quotas(memory: ODEDM, shape: StreamShape) -> tuple[int, ...]:
    """Return the prototypes of each class, by its label [C], in a stream whose tasks are unequal or share classes.

    Each of the n − 1 tasks that are consolidated has the same share of the long-term rows, ρλ / (n − 1), for its |C_i|
    classes: F_k. A class that comes in several of them has the sum of its shares, so that all together have ρλ. It has
    its full quota from its first consolidation on; at later ones its prototypes are chosen again. Where k is given,
    every class has k.

    >>> from odedm.memory.settings import ODEDM
    >>> from odedm.memory.build_context import StreamShape
    >>> class_quotas(ODEDM(100, rho=0.6), StreamShape.of(((0, 1), (2, 3, 4), (5,))))
    (15, 15, 10, 10, 10, 0)
    >>> class_quotas(ODEDM(100, rho=0.6), StreamShape.of(((0, 1), (2,), (0, 1), (2,))))
    (20, 20, 20)
    """
    consolidated, per = shape.task_classes[:-1], memory.rows_per_prototype
    share = [0.0] * (1 + max(label for task in shape.task_classes for label in task))
    for task in consolidated:
        for label in task:
            share[label] += (memory.rho or 0.0) * memory.capacity / len(consolidated) / len(task) / per
    pinned = {label for task in consolidated for label in task}
    if memory.k is not None:
        quota = [memory.k if label in pinned else 0 for label in range(len(share))]
    else:
        quota = [math.floor(rows + 0.5 + 1e-9) for rows in share]  # halves go up, as in F_k
        if any(share) and not all(quota[label] for label in pinned):
            _refuse_none(memory, min(share[label] for label in pinned))
    _check_candidates(memory, shape, max(quota))
    room = memory.capacity - _reserved(memory, shape)
    while memory.k is None and sum(quota) * per > room and max(quota) > 1:
        quota[len(quota) - 1 - quota[::-1].index(max(quota))] -= 1  # rounding up must not make a legal share too large
    _check_room(memory, [quota[label] for label in pinned], room)
    return tuple(quota)


def _check_room(memory: ODEDM, quota: Sequence[int], room: int) -> None:
    """Refuse prototypes of classes that do not fit into the rows that candidates leave."""
    per = memory.rows_per_prototype
    rows = sum(quota) * per
    if rows <= room:
        return
    k, enough = max(quota), memory.capacity - room + rows
    remedy = f"The largest k that fits is {max(0, room) // (len(quota) * per)}; or raise the capacity to {enough}."
    if memory.k is None:  # a share is as small as it can be: a smaller k is no remedy
        remedy = f"Raise the capacity to {enough}, or give rho=0, which pins none."
    raise UsageError(
        f"{counted(k, 'prototype')} of each of {counted(len(quota), 'class')} {'needs' if k == 1 else 'need'} "
        f"{rows} pinned rows, but the memory has {room} for them. {remedy}"
    )


def _reserved(memory: ODEDM, shape: StreamShape) -> int:
    """Return rows that bounded candidates take."""
    return memory.candidates * shape.classes_per_task if isinstance(memory.candidates, int) else 0


def _check_candidates(memory: ODEDM, shape: StreamShape, k: int) -> None:
    bounded, per, reserved = memory.candidates, memory.rows_per_prototype, _reserved(memory, shape)
    if isinstance(bounded, int) and bounded < k * per:
        raise UsageError(
            f"{bounded} candidates per class cannot give {k} prototypes of {per} rows each; "
            f"give candidates={k * per} or more, or lower k or rho."
        )
    if reserved > memory.capacity:
        raise UsageError(
            f"{bounded} candidates for each of {shape.classes_per_task} classes need {reserved} rows, "
            f"but the memory has {memory.capacity}. Lower candidates or raise the capacity."
        )


def _refuse_none(memory: ODEDM, least: float) -> None:
    """Refuse a share of a class that rounds to no prototype."""
    rho, rows = memory.rho or 0.0, math.ceil(memory.capacity * 0.5 / least - 1e-9)
    enough = math.ceil(rho * 0.5 / least * 1e4 - 1e-6) / 1e4
    larger = f"a rho of at least {enough:g}, or " if enough <= 1 else ""
    raise UsageError(
        f"rho={rho:g} of {memory.capacity} rows gives some class {least:.2g} prototypes as its share, which "
        f"rounds to 0. One for each class needs {larger}a capacity of at least {rows} rows."
    )


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


def admit(
    quota: FixedQuota | EqualShare,
    classes: Sequence[int],
    *,
    available: Mapping[int, int],
    held: Mapping[int, int],
    capacity: int,
    room: int,
) -> ConsolidationOutcome:
    """Return which classes are to have prototypes: one after the other, each if there is room for its whole quota.

    Args:
        quota: how many prototypes a class may have.
        classes: that are to be consolidated.
        available: how many rows there are to choose from, of each class.
        held: how many long-term rows classes have already.
        capacity: rows in all, and `room` how many of them can be long-term.

    >>> admit(FixedQuota(2), [7, 8, 9], available={7: 5, 8: 5}, held={}, capacity=4, room=3).pinned
    [7]
    """
    outcome = ConsolidationOutcome(missing=[label for label in classes if label not in available])
    per = quota.rows_per_prototype

    def quotas(new: Sequence[int]) -> dict[int, int]:
        """Return each class's prototypes when `new` ones are admitted."""
        known = {*held, *new}
        return {label: quota.of(label, classes=len(known), room=room) for label in known}

    for label in [label for label in classes if label in available]:
        prototypes_of = quotas([*outcome.pinned, label])
        if prototypes_of[label] and sum(prototypes_of.values()) * per <= room:
            outcome.pinned.append(label)
            outcome.quota, outcome.rows = prototypes_of, sum(prototypes_of.values()) * per
        else:
            outcome.refused.append(label)
    if outcome.refused:
        wanted = quotas([*outcome.pinned, *outcome.refused])
        new = sum(wanted[label] for label in classes if label in wanted) * per
        total = sum(wanted.values()) * per
        outcome.error = quota.refusal(new, total - new, classes=len(wanted), capacity=capacity, room=room)
    return outcome
