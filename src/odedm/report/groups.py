"""Runs that differ by seed alone, put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from odedm.core.errors import UsageError
from odedm.report.labels import METHODS, Label, Settings, belongs_to_memory, labels
from odedm.report.load import Run
from odedm.report.wording import canonical

BASELINES = ("native", "reservoir")
"""Memories without a long-term part, the nearer partner of ODEDM first: it hosts the method's own policy."""

# Device, threads and capture set the pace and rounding of a run, not what is tried: seeds may be spread over machines.
# The order of the classes may come from the seed; which classes there are is put back in by `_settings`.
SEED_ONLY = frozenset({"seed", "device", "threads", "capture", "classes"})


@dataclass(frozen=True)
class Group:
    """Runs that share everything but the seed, ordered by seed."""

    runs: tuple[Run, ...]
    settings: Settings
    names: Label

    @property
    def label(self) -> str:
        """What tells this group from the others."""
        return self.names.whole

    @property
    def memory(self) -> str:
        """The memory's name as configured."""
        return str(self.settings.get("memory.name", "none"))

    @property
    def tasks(self) -> int:
        """How many tasks each run went through."""
        return len(self.runs[0].result.acc)

    @property
    def classes(self) -> list[str]:
        """Class names in the label order of the first run."""
        return self.runs[0].classes

    @property
    def one_order(self) -> bool:
        """Whether every seed has the classes in the same order, so that classes belong to tasks."""
        return all(run.classes == self.classes for run in self.runs)

    @property
    def same_but_memory(self) -> str:
        """What a reservoir partner must share, as one comparable text."""
        return canonical({key: value for key, value in self.settings.items() if not belongs_to_memory(key)})


def group(runs: Sequence[Run]) -> list[Group]:
    """The runs by everything but the seed: by data, method and capacity, reservoir before the other memories.

    The same seed twice in a group is an error: counted twice it would make the standard error too small, and picking
    one of two would hide which one is reported.
    """
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(canonical(_settings(run)), []).append(run)
    for members in found.values():
        _refuse_twins(members)
    ordered = sorted(((_settings(members[0]), members) for members in found.values()), key=lambda pair: _place(pair[0]))
    names = labels([settings for settings, _ in ordered])
    return [Group(tuple(members), own, name) for (own, members), name in zip(ordered, names, strict=True)]


def _refuse_twins(members: Sequence[Run]) -> None:
    for first, second in pairwise(members):
        if first.seed == second.seed:
            raise UsageError(
                f"Seed {first.seed} of one experiment was given twice: '{first.folder}' and '{second.folder}'. "
                "Seeds are averaged and paired, so each may count once: leave one of the two folders out."
            )


def _settings(run: Run) -> Settings:
    flat: Settings = {}
    for key, value in run.result.experiment.items():
        if key in SEED_ONLY:
            continue
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": inner for name, inner in value.items()})
        elif key in {"method", "memory"}:
            flat[f"{key}.name"] = value
        else:
            flat[key] = value
    return flat | {"tasks": len(run.result.acc), "class names": sorted(run.classes)}


def _place(settings: Settings) -> tuple[object, ...]:
    """Where a group stands in the table."""
    method, memory = str(settings.get("method.name")), str(settings.get("memory.name"))
    rank = list(METHODS).index(method) if method in METHODS else len(METHODS)
    return (
        str(settings.get("data")),
        str(settings.get("setting")),
        rank,
        method,
        settings["tasks"],
        _size(settings.get("memory.capacity")),
        canonical({key: value for key, value in settings.items() if key.startswith("method.")}),
        memory not in BASELINES,
        memory,
        *(_size(settings.get(key)) for key in ("memory.k", "memory.rho")),
        canonical(settings),
    )


def _size(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.inf
