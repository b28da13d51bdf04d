"""Two memories of two machines become one: a uniform sample of both streams, and the prototypes of both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.rows import MemoryPart, Rows, rank_within, take
from odedm.memory.dual import DualBuffer
from odedm.memory.quotas import EqualShare
from odedm.memory.reservoir import ReservoirBuffer

if TYPE_CHECKING:
    from odedm.memory.live import DualMemory


def check_mergeable(memory: DualMemory, other: DualMemory) -> None:
    """Refuse what would be no uniform sample of both streams, or would not fit."""
    if not isinstance(other, type(memory)):
        raise UsageError(f"Only another DualMemory can be merged; {short_repr(other)} was given.")
    mine, theirs = memory._known()[1], other._known()[1]
    if memory is other or memory.seed == other.seed:
        raise UsageError(
            f"Both memories have the seed {memory.seed}, so their rows were kept by the same draws and the merged part "
            "would be no uniform sample. Give the memories of different machines different seeds."
        )
    if replace(memory.settings, capacity=0) != replace(other.settings, capacity=0):
        raise UsageError(f"Only memories of the same settings can be merged; {memory.settings} and {other.settings}.")
    if memory._known()[0] != other._known()[0]:
        raise UsageError("Only memories with the same columns can be merged; add the same columns to both.")
    if not isinstance(mine.buffer, ReservoirBuffer) or mine.pool or theirs.pool:
        raise UsageError(
            "Only memories whose short-term part is a plain reservoir (short_policy='reservoir'), and which collect no "
            "candidates, can be merged."
        )
    if other.capacity < memory.capacity:
        raise UsageError(
            f"A memory of {other.capacity} rows holds too few for a sample of {memory.capacity}: merge the larger one "
            "into the smaller one."
        )
    if mine.quota.rows_per_prototype > 1:
        raise UsageError("Memories with several rows for each prototype cannot be merged.")
    rows = sum(_quotas(mine, _prototypes(mine, theirs)["label"]).values())
    if not isinstance(mine.quota, EqualShare) and rows > memory.capacity:
        raise UsageError(f"{memory.capacity} rows cannot hold the {rows} prototypes of both. Release classes first.")


def merge_buffers(mine: DualBuffer, theirs: DualBuffer) -> None:
    """Put the rows of one buffer into the other.

    Each short-term row has a uniform random number, and a reservoir keeps the largest: so those of both that are
    largest are what one reservoir would have kept of both streams.
    """
    buffer, seen = mine.buffer, mine.buffer.num_seen.clone()
    prototypes = _prototypes(mine, theirs)
    quotas = _quotas(mine, prototypes["label"])
    most = torch.tensor([quotas[label] for label in prototypes["label"].tolist()], dtype=torch.int64)
    kept = take(prototypes, (prototypes["prototype"] < most).nonzero().view(-1))
    short = theirs.rows(MemoryPart.SHORT)
    short |= {name: short[name] + seen for name in ("index", "order") if name in short}
    priority = theirs.buffer.store.priority[theirs.buffer.ordered_slots(MemoryPart.SHORT)]
    # beyond so many rows the one that is full has dropped some that may belong to a sample of both
    full = [
        part.buffer.short_capacity for part in (mine, theirs) if not part.buffer.short_capacity - part.buffer._short
    ]
    buffer.unpin(buffer.store.priority > 1)
    buffer.pin(kept)
    buffer.store.insert(short, priority)
    buffer.recount()
    if full and min(full) < buffer.size(MemoryPart.SHORT):
        held = buffer.store.priority.where(buffer.store.priority < 1, -torch.inf)
        least = held.topk(min(full)).values[-1] if min(full) else torch.inf
        buffer.forget((held >= 0) & (held < least))
    buffer.num_seen.add_(theirs.buffer.num_seen)


def _prototypes(mine: DualBuffer, theirs: DualBuffer) -> Rows:
    """Return the prototypes of both with their ranks in the merged class: the first of each, then the second."""
    parts = [mine.rows(MemoryPart.LONG), theirs.rows(MemoryPart.LONG)]
    rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    source = torch.cat([torch.full_like(part["label"], number) for number, part in enumerate(parts)])
    order = (2 * rows["prototype"] + source).argsort(stable=True)
    rows = take(rows, order)
    if "index" in rows:
        rows["index"] = rows["index"] + source[order] * mine.buffer.num_seen
    return {**rows, "prototype": rank_within(rows["label"])}


def _quotas(mine: DualBuffer, label: Tensor) -> dict[int, int]:
    """Return how many prototypes each class may have."""
    classes = label.unique().tolist()
    return {name: mine.quota.of(name, classes=len(classes), room=mine.capacity) for name in classes}
