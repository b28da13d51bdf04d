"""The dual memory of a stream that may never end: prototypes of classes as they rest, in shares that shrink and fit.

Everything is inside λ: short-term rows, prototypes, and candidates where they are bounded. Nothing here is refused in
mid-stream by an error; a class for which there is no room is left out, and the learner is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from odedm.core.errors import UsageError, short_repr
from odedm.core.rows import ColumnSpec, MemoryPart, Rows, take
from odedm.core.store import Store
from odedm.core.validators import as_bytes
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.dual import DualBuffer
from odedm.memory.open_stream import Generators, build_dual, filled, reads_tasks, short_term_policy
from odedm.memory.settings import ODEDM, MemorySettings, Native, NoMemory, Reservoir

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
    """Return a memory's settings with defaults filled in and its short-term policy; refuse what cannot be kept.

    A number of rows stands for an ODEDM, which by default has as many short-term rows of every class: in a long stream
    few rows of a class that joins late would be among a uniform sample of everything. A method's own policy stays.

    >>> settings, policy = settle_memory(200, native="reservoir")
    >>> settings.rho, policy
    (0.25, 'balanced-reservoir')
    """
    settings = ODEDM(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if isinstance(given, NoMemory):
        settings = Reservoir(0)
    if not isinstance(settings, Reservoir | Native | ODEDM):
        raise UsageError(
            f"memory must be a number of rows, or an ODEDM, Reservoir or Native, e.g. ODEDM(200, rho=0.25); "
            f"{short_repr(given)} was given."
        )
    if as_bytes(settings.capacity) is not None:
        raise UsageError(
            "A learner's memory is a number of rows, as stored logits grow with its classes; "
            f"{settings.capacity!r} was given. learner.bytes says what it holds."
        )
    if isinstance(settings, ODEDM):
        settings = settings.for_rows_per_class(None, native)
        settings = replace(settings, candidates=settings.candidates or "task")
    policy = short_term_policy(settings, native)
    if reads_tasks(policy):
        raise UsageError(
            f"The memory policy '{policy}' chooses rows when a task ends, and a learner's stream has no tasks. Give "
            f"memory=ODEDM({settings.capacity}, short_policy='reservoir'), or Reservoir({settings.capacity})."
        )
    return filled(settings, policy), policy


def learner_buffer(
    settings: MemorySettings,
    policy: str,
    method_columns: Sequence[ColumnSpec],
    image: ColumnSpec,
    device: torch.device,
    rngs: Generators,
) -> DualBuffer:
    """Return the dual memory of a learner, whose rows have their place in the stream as `index`.

    The method's columns of what is chosen are taken anew unless they are to be the stream's.
    """
    fields = (image, *(ColumnSpec(name, dtype=torch.int64) for name in RAW[1:]), *method_columns)
    columns = [field.name for field in fields] if settings.keeps_stream_fields else RAW
    return build_dual(settings, policy, fields, device, rngs, columns=columns)


def stores(dual: DualBuffer) -> list[Store]:
    """Return everything that holds rows."""
    return [dual.buffer.store, *([dual.pool.store] if isinstance(dual.pool, ClassReservoirPool) else [])]


def lengthen(dual: DualBuffer, method_columns: Sequence[ColumnSpec], annotate: Callable[[Rows], Rows]) -> None:
    """Make the method's columns longer: what stored rows lack is what the network says of them now."""
    for store in stores(dual):
        shapes = {name: tuple(column.shape[1:]) for name, column in store.columns.items()}
        longer = [column.name for column in method_columns if shapes.get(column.name, column.shape) != column.shape]
        if not longer:
            continue
        now = annotate({name: column for name, column in store.columns.items() if name in RAW})
        for name in longer:
            old = store.columns[name]
            store.columns[name] = torch.cat([old, now[name][:, old.shape[1] :].to(old.dtype)], 1)


def candidate_rows(dual: DualBuffer) -> Rows:
    """Return the rows that classes have for themselves until they are consolidated; none is a prototype yet."""
    rows = dual.pool.rows() if dual.pool else take(dual.rows(MemoryPart.SHORT), torch.arange(0))
    return {**rows, "prototype": torch.full_like(rows["label"], -1)}


def every_row(dual: DualBuffer) -> Rows:
    """Return all stored rows, also those that wait for a choice: class means are taken of them."""
    held, waiting = dual.rows(), candidate_rows(dual)
    return {name: torch.cat([held[name], waiting[name]]) for name in ("image", "label", "index")}
