"""The dual buffer of a live memory: what does not fit is refused in a sentence, and nothing has changed then."""

from __future__ import annotations

from dataclasses import replace

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import POLICIES
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec, MemoryPart
from odedm.memory.buffer import TaskEndBuffer
from odedm.memory.candidate_pool import TaskPool
from odedm.memory.dual import DualBuffer
from odedm.memory.live_parts import CallbackModelView, Generators, build_dual, pins, policy_name
from odedm.memory.settings import MemorySettings

TASK = ColumnSpec("task", dtype=torch.int64)


def live_buffer(
    settings: MemorySettings,
    schema: RowSchema,
    device: torch.device,
    rngs: Generators,
    *,
    capacity: int | None = None,
) -> DualBuffer:
    """Return an empty buffer for rows of this schema, which collects candidates where any are chosen from them."""
    policy = policy_name(settings)
    at_borders = issubclass(POLICIES[policy].load(), TaskEndBuffer)
    fields = (*schema.columns, TASK) if at_borders else schema.columns
    dual = build_dual(settings, policy, fields, device, rngs, capacity=capacity, all_or_nothing=True)
    if dual.pool is None and (at_borders or pins(settings)):
        dual.pool = TaskPool(fields, device)
    return dual


def make_room(dual: DualBuffer, joining: list[int]) -> None:
    """Give new classes candidates of their own, or refuse them before anything is written."""
    if dual.pool is None:
        return
    reserved, pinned = dual.pool.reserved(joining), dual.size(MemoryPart.LONG)
    if reserved + pinned > dual.capacity:
        raise UsageError(
            f"The candidates of {len({*dual.pool.classes(), *joining})} classes need {reserved} rows, and of "
            f"{dual.capacity} rows {pinned} are long-term. Consolidate the classes that are over, lower "
            "candidates, or raise the capacity by resize; nothing was added."
        )
    dual.join(joining, dual.capacity - pinned)


def pin_all(dual: DualBuffer, classes: list[int], view: CallbackModelView) -> None:
    """Pin prototypes of all these classes, or of none and say why."""
    outcome = dual.consolidate(classes, replace(view, annotation=None), annotate=view.annotate)
    if outcome.missing:
        collected = dual.pool.rows()["label"].tolist() if dual.pool else []
        came = f"Since the last call came: {', '.join(map(str, dict.fromkeys(collected)))}."
        raise UsageError(
            f"There are no rows of class {outcome.missing[0]} to choose from"
            + (f". {came}" if collected else ": none came since the last call. Add some first.")
        )
    if outcome.error:
        raise outcome.error
