"""The dual buffer of a stream whose tasks and classes are not known beforehand, for `DualMemory` and `Learner`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import POLICIES
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec
from odedm.core.validators import as_bytes
from odedm.memory.buffer import Buffer, TaskEndBuffer
from odedm.memory.build_context import build_policy, check_policy_options
from odedm.memory.candidate_pool import CandidatePool, ClassReservoirPool, TaskPool
from odedm.memory.dual import DualBuffer
from odedm.memory.quotas import EqualShare, FixedQuota
from odedm.memory.settings import DEFAULT_RHO, ODEDM, MemorySettings, Native, Reservoir, prototype_selector

Generators = dict[str, torch.Generator]

OF_METHODS = ("replay", "gamma", "gamma_rule", "annotate")
"""Settings of ODEDM for runs alone, above all how a method meets the memory, which is a loop's own matter."""
INDEX = ColumnSpec("index", dtype=torch.int64)
TASK = ColumnSpec("task", dtype=torch.int64)
PURPOSES = {"memory": True, "draw": True, "candidates": True, "memory borders": False, "consolidation": False}
"""What is drawn, and whether on the memory's device."""


def short_term_policy(settings: MemorySettings, native: str = "reservoir") -> str:
    """Return how short-term rows are chosen; `native` is the method's own way, and a loop of one's own has no method.

    >>> short_term_policy(ODEDM(50)), short_term_policy(Native(50, policy="herded"))
    ('balanced-reservoir', 'herded')
    """
    if isinstance(settings, ODEDM):
        return settings.for_rows_per_class(None, native).short_policy
    return "reservoir" if isinstance(settings, Reservoir) else settings.policy or native


def filled(settings: MemorySettings, policy: str) -> MemorySettings:
    """Return settings with their defaults, short-term rows being chosen by this policy; refuse what cannot be kept."""
    check_policy_options(policy, {} if isinstance(settings, Reservoir) else settings.policy_options)
    if not isinstance(settings, ODEDM):
        return settings
    if settings.k is None and settings.rho is None:
        settings = replace(settings, rho=DEFAULT_RHO)
    prototype_selector(replace(settings, k=settings.k or 1))  # refuses what cannot be chosen by
    least = (settings.k or 1) * settings.rows_per_prototype
    if settings.candidates is None and reads_tasks(policy):  # it keeps all rows of a task anyway
        return replace(settings, candidates="task")
    if isinstance(settings.candidates, int) and pins(settings):
        _check_candidates(settings, settings.candidates, least, policy)
    return settings


def _check_candidates(settings: ODEDM, candidates: int, least: int, policy: str) -> None:
    if reads_tasks(policy):
        raise UsageError(f"The policy '{policy}' reads all rows of a task; leave candidates at 'task'.")
    if candidates < least:
        raise UsageError(
            f"{candidates} candidates per class cannot give {least} prototypes; give candidates={least} or more."
        )
    quota = quota_of(settings)
    most = (settings.capacity - (quota.rows if isinstance(quota, EqualShare) else 0)) // 2
    if candidates > most:
        raise UsageError(
            f"candidates={candidates} of a class are more than {most}, half of the rows that are not long-term; the "
            "other half is for the short-term part. Lower candidates or rho, or raise the capacity."
        )


def reads_tasks(policy: str) -> bool:
    """Return whether a policy chooses short-term rows when a task ends."""
    return issubclass(POLICIES[policy].load(), TaskEndBuffer)


def pins(settings: MemorySettings) -> bool:
    """Return whether anything is ever kept for good."""
    if not isinstance(settings, ODEDM) or not settings.capacity:
        return False
    return bool(settings.rho if settings.k is None else settings.k)


def quota_of(settings: MemorySettings) -> FixedQuota | EqualShare:
    """Return how many prototypes a class may have in a stream of which nobody knows the classes."""
    if not isinstance(settings, ODEDM):
        return FixedQuota(0)
    if settings.k is not None:
        return FixedQuota(settings.k, settings.rows_per_prototype)
    return EqualShare(settings.rho or 0.0, settings.capacity, settings.rows_per_prototype)


def build_dual(
    settings: MemorySettings,
    policy: str,
    fields: Sequence[ColumnSpec],
    device: torch.device,
    rngs: Generators,
    *,
    capacity: int | None = None,
    columns: Sequence[str] = (),
    task_pool: bool = False,
) -> DualBuffer:
    """Return an empty memory of a stream of unknown classes.

    Args:
        settings: with their defaults.
        policy: how short-term rows are chosen.
        fields: the columns of a row, `index` among them where rows are pinned: its place in the stream.
        device: where the rows are kept.
        rngs: see `generators`.
        capacity: rows in all, those of the settings unless given.
        columns: those that candidates bring along, all unless given.
        task_pool: collect all rows where candidates="task". Without a pool prototypes are chosen among short-term rows.
    """
    options = {} if isinstance(settings, Reservoir) else settings.policy_options
    room = settings.capacity if capacity is None else capacity
    buffer: Buffer = build_policy(policy, room, fields, device, classes=None, options=options)
    names = tuple(columns) or tuple(column.name for column in fields)
    selector, pool = None, None
    if isinstance(settings, ODEDM) and pins(settings):
        selector = prototype_selector(replace(settings, k=settings.k or 1))
        pool = _pool(settings, [column for column in fields if column.name in names], device, rngs, task_pool)
    elif task_pool and reads_tasks(policy):
        pool = TaskPool(fields, device)
    return DualBuffer(buffer, selector, pool, quota_of(settings), rng=rngs["consolidation"], columns=names)


def _pool(
    settings: ODEDM, columns: Sequence[ColumnSpec], device: torch.device, rngs: Generators, task_pool: bool
) -> CandidatePool | None:
    if isinstance(settings.candidates, int):
        return ClassReservoirPool(settings.candidates, columns, device, rng=rngs["candidates"])
    return TaskPool(columns, device) if task_pool and settings.candidates == "task" else None


def empty_dual(
    settings: MemorySettings,
    schema: RowSchema,
    device: torch.device,
    rngs: Generators,
    capacity: int | None = None,
) -> DualBuffer:
    """Return an empty buffer for rows of this schema, which collects candidates where any are chosen from them."""
    policy, fields = short_term_policy(settings), list(schema.columns)
    if reads_tasks(policy):
        fields.append(TASK)
    elif isinstance(settings, ODEDM) and pins(settings) and settings.candidates != "task":
        fields.append(INDEX)
    return build_dual(settings, policy, fields, device, rngs, capacity=capacity, task_pool=True)


def settle(configuration: Any) -> MemorySettings:
    """Return the settings of a live memory with their defaults filled in, or refuse what it cannot do."""
    settings = ODEDM(configuration) if isinstance(configuration, int) else configuration
    if not isinstance(settings, Reservoir | Native | ODEDM):
        raise UsageError(
            f"A memory is made of ODEDM(…), Reservoir(…) or Native(…); {short_repr(configuration)} was given."
        )
    if as_bytes(settings.capacity) is not None:
        raise UsageError(f"A live memory's capacity is a number of rows; {settings.capacity!r} was given.")
    if not settings.capacity:
        raise UsageError("A live memory needs room: capacity must be 1 row or more; 0 was given.")
    if isinstance(settings, ODEDM):
        settings = settings.for_rows_per_class(None, "reservoir")
    policy = short_term_policy(settings)
    if POLICIES[policy].load().needs_method:
        known = ", ".join(name for name, entry in POLICIES.items() if not entry.load().needs_method)
        raise UsageError(
            f"The policy '{policy}' needs a method's scores or gradients, which a memory alone has not. Use {known}; "
            "or odedm.train."
        )
    return filled(settings, policy)


def generators(seed: int, device: torch.device) -> Generators:
    """Return a generator for each purpose."""
    return {name: generator(seed, name, device if on_device else "cpu") for name, on_device in PURPOSES.items()}
