"""Runs that differ by seed alone, put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from odedm.core.configuration import settings_of
from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.core.registry import METHODS
from odedm.report.labels import Label, Settings, belongs_to_memory, labels
from odedm.report.wording import canonical
from odedm.results.folder import FinishedRun
from odedm.training.experiment import Experiment

BASELINES = ("native", "reservoir")
"""Memories without a long-term part, the nearer partner of ODEDM first: it hosts the method's own policy."""

# What sets the pace of a run is not what is tried: seeds may be spread over machines.
SEED_ONLY = frozenset({"seed", *(name for name, own in settings_of(Experiment).items() if own.pace)})

DISTANCE = frozenset({"memory.distance", "memory.epsilon", "memory.pair_epsilon", "memory.ground", "memory.screen"})
"""The distance that rows are chosen by, and the settings that belong to one distance alone."""


@dataclass(frozen=True)
class Group:
    """Runs that share everything but the seed, ordered by seed."""

    runs: tuple[FinishedRun, ...]
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
    def plain(self) -> bool:
        """Whether its memory has no long-term part."""
        return self.memory in BASELINES

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


def group(runs: Sequence[FinishedRun]) -> list[Group]:
    """The runs by everything but the seed: by data, method and capacity, reservoir before the other memories.

    The same seed twice in a group is an error: counted twice it would make the standard error too small, and picking
    one of two would hide which one is reported.
    """
    found: dict[str, list[FinishedRun]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(canonical(_settings(run)), []).append(run)
    for members in found.values():
        _refuse_twins(members)
    ordered = sorted(((_settings(members[0]), members) for members in found.values()), key=lambda pair: _place(pair[0]))
    names = labels([settings for settings, _ in ordered])
    return [Group(tuple(members), own, name) for (own, members), name in zip(ordered, names, strict=True)]


def alike(groups: Sequence[Group], free: Callable[[str], bool]) -> list[list[Group]]:
    """The groups by every setting that is not free, each set in the order in which they came."""
    found: dict[str, list[Group]] = {}
    for each in groups:
        rest = {key: value for key, value in each.settings.items() if not free(key)}
        found.setdefault(canonical(rest), []).append(each)
    return list(found.values())


def by_distance(groups: Sequence[Group]) -> list[dict[str, Group]]:
    """Groups with ODEDM that differ in the distance alone, by its name, at least two; the first one of each."""
    found = []
    for own in alike([each for each in groups if not each.plain], lambda key: key in DISTANCE):
        first: dict[str, Group] = {}
        for each in own:
            if "memory.distance" in each.settings:
                first.setdefault(str(each.settings["memory.distance"]), each)
        found += [first] if len(first) > 1 else []
    return found


def _refuse_twins(members: Sequence[FinishedRun]) -> None:
    for first, second in pairwise(members):
        if first.seed == second.seed:
            raise UsageError(
                f"Seed {first.seed} of one experiment was given twice: '{first.folder}' and '{second.folder}'. "
                "Seeds are averaged and paired, so each may count once: leave one of the two folders out."
            )


def _settings(run: FinishedRun) -> Settings:
    plan = {key: value for key, value in run.result.experiment.items() if key not in SEED_ONLY}
    return flatten(plan) | {"tasks": len(run.result.acc), "class names": sorted(run.classes)}


def _place(settings: Settings) -> tuple[object, ...]:
    """Where a group stands in the table."""
    method, memory = str(settings.get("method")), str(settings.get("memory.name"))
    rank = list(METHODS).index(method) if method in METHODS else len(METHODS)
    return (
        str(settings.get("data")),
        str(settings.get("setting")),
        rank,
        method,
        settings["tasks"],
        _size(settings.get("memory.capacity")),
        canonical({key: value for key, value in settings.items() if key.startswith("options.")}),
        memory not in BASELINES,
        memory,
        *(_size(settings.get(key)) for key in ("memory.k", "memory.rho")),
        canonical(settings),
    )


def _size(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.inf
