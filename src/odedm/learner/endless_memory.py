"""The dual memory of a stream that may never end: prototypes of classes as they rest, in shares that shrink and fit.

Everything is inside λ: short-term rows, prototypes, and candidates where they are bounded. Nothing here is refused in
mid-stream by an error; a class for which there is no room is left out, and the learner is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import POLICIES
from odedm.core.rows import ColumnSpec, MemoryPart, Rows, take
from odedm.core.store import Store
from odedm.memory.buffer import TaskEndBuffer
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.dual import DualBuffer
from odedm.memory.live_parts import Generators, build_dual, filled, pins, quota_of
from odedm.memory.prototype_quotas import EqualShare
from odedm.memory.settings import ODEDM, MemorySettings, Native, Reservoir

RAW = ("image", "label", "index")
"""The columns of a row that are not the method's: `index` is its place in the stream."""


@dataclass(frozen=True)
class LearnerEvent:
    """Something that happened to a learner's memory.

    Args:
        row: after how many rows.
        what: "pinned": prototypes of these classes were chosen and are long-term now. "refused": there are prototypes
            of so many classes already that not one row is left for these. "without rows": the memory had no row of
            these to choose from. "no room for candidates": these are chosen among short-term rows. "nothing rests": in
            ten times `patience` rows no class was away for so long, and nothing is long-term.
        labels: of the classes; none where nothing rests.
    """

    row: int
    what: str
    labels: tuple[Any, ...]


def settle_memory(given: Any, native: str) -> tuple[MemorySettings, str]:
    """A memory's settings with defaults filled in and its short-term policy, or a sentence on what cannot be kept.

    A number of rows stands for an ODEDM with a twentieth as many candidates of each class: in a long stream few rows of
    a class that joins late are among a uniform sample of everything.

    >>> found, _ = settle_memory(200, native="reservoir")
    >>> found.rho, found.candidates
    (0.25, 10)
    """
    found = given
    if isinstance(given, int) and not isinstance(given, bool):
        found = ODEDM(given, candidates=given // 20 if given >= 20 else "task")
    if not isinstance(found, Reservoir | Native | ODEDM):
        raise UsageError(
            f"memory must be a number of rows, or an ODEDM, Reservoir or Native, e.g. ODEDM(200, rho=0.25); "
            f"{short_repr(given)} was given."
        )
    policy = "reservoir"
    if isinstance(found, ODEDM):
        policy = native if found.short_policy == "native" else found.short_policy
    elif isinstance(found, Native):
        policy = found.policy or native
    if issubclass(POLICIES[policy].load(), TaskEndBuffer):
        raise UsageError(
            f"The memory policy '{policy}' chooses rows when a task ends, and a learner's stream has no tasks. Give "
            f"memory=ODEDM({found.capacity}, short_policy='reservoir'), or Reservoir({found.capacity})."
        )
    found = filled(found, policy)
    if isinstance(found, ODEDM) and pins(found) and isinstance(found.candidates, int):
        quota = quota_of(found)
        share = quota.rows if isinstance(quota, EqualShare) else 0
        most = (found.capacity - share) // 2
        if found.candidates > most:
            raise UsageError(
                f"candidates={found.candidates} of a class are more than {most}, half of the rows that are not "
                "long-term; the other half is to learn from. Lower candidates or rho, or raise the capacity."
            )
    return found, policy


def learner_buffer(
    settings: MemorySettings,
    policy: str,
    method_columns: Sequence[ColumnSpec],
    image: ColumnSpec,
    device: torch.device,
    rngs: Generators,
) -> DualBuffer:
    """The dual memory of a learner: what does not fit is left out, and a row that becomes a prototype moves.

    A class's prototypes are chosen among its old ones and its candidates, or, where it has none, its short-term rows.
    The method's columns of what is chosen are taken anew unless they are to be the stream's.
    """
    fields = (image, *(ColumnSpec(name, dtype=torch.int64) for name in RAW[1:]), *method_columns)
    columns = [each.name for each in fields] if settings.keeps_stream_fields else RAW
    return build_dual(settings, policy, fields, device, rngs, columns=columns, from_short_term=True)


def open_candidates(dual: DualBuffer, classes: Iterable[int]) -> list[int]:
    """Give new classes candidates, in up to half of the rows that are not long-term; return those that find no room."""
    if dual.pool is None:
        return []
    known = dual.pool.classes()
    classes = [label for label in dict.fromkeys(classes) if label not in known]
    if not classes:
        return []
    return dual.join(classes, (dual.capacity - dual.size(MemoryPart.LONG)) // 2)


def stores(dual: DualBuffer) -> list[Store]:
    """All that holds rows."""
    return [dual.buffer.store, *([dual.pool.store] if isinstance(dual.pool, ClassReservoirPool) else [])]


def lengthen(dual: DualBuffer, method_columns: Sequence[ColumnSpec], annotate: Callable[[Rows], Rows]) -> None:
    """The method's columns have become longer: what stored rows lack is what the network says of them now."""
    for store in stores(dual):
        shapes = {name: tuple(column.shape[1:]) for name, column in store.columns.items()}
        longer = [each.name for each in method_columns if shapes.get(each.name, each.shape) != each.shape]
        if not longer:
            continue
        now = annotate({name: column for name, column in store.columns.items() if name in RAW})
        for name in longer:
            old = store.columns[name]
            store.columns[name] = torch.cat([old, now[name][:, old.shape[1] :].to(old.dtype)], 1)


def candidate_rows(dual: DualBuffer) -> Rows:
    """The rows that classes have for themselves until they are consolidated, of which none is a prototype yet."""
    rows = dual.pool.rows() if dual.pool else take(dual.rows(MemoryPart.SHORT), torch.arange(0))
    return {**rows, "prototype": torch.full_like(rows["label"], -1)}


def every_row(dual: DualBuffer) -> Rows:
    """All stored rows, also those that wait for a choice: class means are taken of them."""
    held, waiting = dual.rows(), candidate_rows(dual)
    return {name: torch.cat([held[name], waiting[name]]) for name in ("image", "label", "index")}
