"""What a study's file says and none of its runs has: a slip, which would be passed over without a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odedm.core.configuration import default_of, settings_of
from odedm.memory.settings import KINDS
from odedm.studies.grid import OF_RUN, Grid, split_name
from odedm.training.experiment import Experiment

MEMORY = "odedm"
"""The memory of runs where a study names none."""


def unused_keys(grids: Sequence[Grid]) -> str:
    """Return the first key or table that none of the runs has, as a sentence; "" where each is some run's.

    >>> unused_keys([Grid({"memory": ("reservoir",), "rho": (0.5,)})])
    "'rho' is of the memory odedm, which none of its runs has; they have reservoir. Leave it out, or name odedm \
among those of 'memory'."
    >>> unused_keys([Grid({"memory": ("reservoir", "odedm"), "rho": (0.5,)})])
    ''
    """
    named = {axis: _named(grids, axis) for axis in ("method", "retrieval", "optimizer", "policy", "short_policy")}
    policies = [*named["policy"], *named["short_policy"]]
    tables = {table: (axis, named[axis]) for table, axis in OF_RUN.items()}
    for table, (axis, known) in {**tables, "policy_options": ("policy", policies)}.items():
        owners = [owner for grid in grids for at, owner, _ in map(split_name, grid.axes) if at == table]
        unused = next((owner for owner in owners if owner not in known), None)
        if unused is not None:
            key = f"'{axis}' or 'short_policy'" if axis == "policy" else f"'{axis}'"
            return (
                f"[{table}.{_quoted(unused)}] is of a {axis} that the study has not; it has "
                f"{', '.join(known) or 'none'}. Leave the table out, or name the {axis} among those of {key}."
            )
    return _of_other_memories(grids)


def _named(grids: Sequence[Grid], axis: str) -> list[str]:
    """Return the values of an axis in all grids; of methods and retrievals also the one that runs have by default."""
    usual = (default_of(Experiment, axis),) if axis in settings_of(Experiment) else ()
    return list(dict.fromkeys(str(name) for grid in grids for name in grid.axes.get(axis, usual)))


def _of_other_memories(grids: Sequence[Grid]) -> str:
    """Return the first setting of a memory that no run has of those that it is given for."""
    used = {
        setting
        for grid in grids
        for name in _memories(grid)
        for setting in grid.axes
        if setting in settings_of(KINDS[name])
    }
    owners = {setting: name for name in reversed(KINDS) for setting in settings_of(KINDS[name])}
    unused = next(
        (setting for grid in grids for setting in grid.axes if setting in owners and setting not in used), None
    )
    if unused is None:
        return ""
    known = ", ".join(dict.fromkeys(name for grid in grids if unused in grid.axes for name in _memories(grid)))
    owner = owners[unused]
    return (
        f"'{unused}' is of the memory {owner}, which none of its runs has; they have {known}. Leave it out, or name "
        f"{owner} among those of 'memory'."
    )


def _memories(grid: Grid) -> Iterable[str]:
    return map(str, grid.axes.get("memory", (MEMORY,)))


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name
