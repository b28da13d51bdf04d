"""Checks of methods and of memory policies: the matrix of methods, memories and readings, on whole small runs."""

from __future__ import annotations

from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS, POLICIES, REPLAYS
from odedm.core.rows import MemoryPart
from odedm.core.validators import Choice
from odedm.memory.build_context import check_policy_options
from odedm.memory.settings import ODEDM, Native, Reservoir
from odedm.methods.base import Method
from odedm.testing.contracts import (
    CAPACITY,
    CheckFailed,
    check,
    check_exact,
    check_run,
    finish,
    same_rows,
    same_weights,
)
from odedm.training.replay import resolve_replay_mode
from odedm.training.run import Run

CAPACITIES = (0, 1, 3, 500)
"""From no memory at all to more than the stream has rows."""


def check_method(method: str | type[Method], **options: Any) -> None:
    """Whether a method works with every memory: in bounds, reproducible, resumable, and with no prototypes unchanged.

    Args:
        method: the class, or a name.
        options: its hyper-parameters for the check, where the defaults would not do on a small stream.

    >>> from odedm.methods.er import ER
    >>> check_method(ER)  # doctest: +SKIP
    """
    name = Choice("method", METHODS).validate("method", method)
    how: dict[str, Any] = {"method": name, "options": options}
    resolve_replay_mode(ODEDM(CAPACITY), METHODS[name].load())  # refuses a reading of its own that there is not
    check_exact(ODEDM(CAPACITY, k=2, replay="both"), **how)
    for reading in REPLAYS:
        run, outcome = finish(ODEDM(CAPACITY, k=2, replay=reading), **how)
        check_run(run, outcome)
        check(
            outcome.memory.size(MemoryPart.LONG) == 16,
            "The long-term part holds two rows of each class of a past task.",
        )
        check(outcome.result.acc_last > 15, f"With {reading} replay it is no better than chance, 10 per cent.")
    _check_fields(run)
    _, plain = finish(Native(CAPACITY), **how)
    for reading in REPLAYS:
        _, dual = finish(ODEDM(CAPACITY, k=0, replay=reading), **how)
        check(
            same_weights(plain, dual) and same_rows(plain, dual),
            "Without prototypes a dual memory must be its short-term policy bit for bit: draw what is replayed by "
            "replay(), and make the main update by optimizer_step(loss, replay).",
        )
    needs_rows = "memory" in METHODS[name].load().requires
    for capacity in CAPACITIES[1:] if needs_rows else CAPACITIES:
        run, outcome = finish(Reservoir(capacity), **how)
        check_run(run, outcome)
    run, outcome = finish(ODEDM(CAPACITY, k=2, candidates=5, annotate="stream"), **how)
    check_run(run, outcome)


def _check_fields(run: Run) -> None:
    """Whether `annotate` gives what `fields` declares."""
    declared = run.method.fields()
    rows = {name: column[:4] for name, column in run.stream.tasks[0].rows.items()}
    given = run.engine.view.annotate(rows)
    names = sorted(each.name for each in declared)
    check(sorted(given) == names, f"`fields` declares {names}, and `annotate` gives {sorted(given)}.")
    for each in declared:
        column = given[each.name]
        fine = column.shape == (4, *each.shape) and column.dtype == each.dtype
        check(fine, f"The field '{each.name}' is declared as {each}; `annotate` gave {list(column.shape)}.")


def check_memory(policy: str | type[Any], **options: Any) -> None:
    """Whether a policy can fill the short-term part of a memory: in bounds, with raw rows, hosted and alone, resumable.

    Args:
        policy: a subclass of `odedm.Memory`, or a name in `odedm list policies`.
        options: its options for the check.

    >>> check_memory("reservoir")  # doctest: +SKIP
    """
    name = Choice("memory policy", POLICIES).validate("policy", policy)
    check_policy_options(name, options)
    _check_keys(Native(CAPACITY, name, options))
    for method in ("er", "derpp"):
        for plan in (
            Native(CAPACITY, name, options),
            ODEDM(CAPACITY, k=2, short_policy=name, policy_options=options),
        ):
            run, outcome = finish(plan, method=method)
            check_run(run, outcome)
            check(outcome.memory.size(), "It keeps no row at all.")
    for capacity in CAPACITIES:
        run, outcome = finish(Native(capacity, name, options), method="er")
        check_run(run, outcome)
    _, alone = finish(Native(CAPACITY, name, options), method="derpp")
    _, again = finish(Native(CAPACITY, name, options), method="derpp")
    check(
        same_weights(alone, again) and same_rows(alone, again),
        "The same seed does not keep the same rows: draw from the `rng` that `add` and `end_task` are given, not from "
        "torch's own generator: torch.rand(n, generator=rng).",
    )
    _, hosted = finish(ODEDM(CAPACITY, k=0, short_policy=name, policy_options=options), method="derpp")
    check(
        same_weights(alone, hosted) and same_rows(alone, hosted),
        "Hosted by a dual memory without prototypes it is not what it is alone.",
    )
    _check_draws(alone.memory)
    check_exact(ODEDM(CAPACITY, k=2, short_policy=name, policy_options=options, replay="both"), method="derpp")


def _check_keys(plan: Native) -> None:
    """A run in which every key that the policy offers is looked at, as those of code from outside are in any run."""
    try:
        finish(plan, method="er")
    except Exception as error:  # whatever the policy's own code raises
        if isinstance(error, UsageError) and str(error).startswith("Keys are"):
            raise CheckFailed(str(error)) from error
        raise CheckFailed(f"A run with this policy fails. {type(error).__name__}: {error}") from error


def _check_draws(memory: Any) -> None:
    """Whether draws are distinct rows of the memory, as many as were asked for or there are."""
    rng, stored = torch.Generator().manual_seed(0), memory.rows()["index"].tolist()
    check(len(set(stored)) == len(stored), "A policy keeps no row twice.")
    for amount in (1, memory.size(), memory.size() + 5):
        drawn = memory.sample(amount, rng=rng)["index"].tolist()
        fine = len(set(drawn)) == min(amount, memory.size()) and set(drawn) <= set(stored)
        check(fine, "A draw gives distinct rows of the memory, as many as there are.")
