"""Runs that differ by seed alone, put together and named by what tells each group from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from odedm.core.configuration import settings_of
from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.core.plugins import is_built_in
from odedm.core.registry import METHODS, WITHOUT_CLUSTERS
from odedm.core.text import printable
from odedm.report.labels import Settings, belongs_to_memory, group_names, title_key
from odedm.report.wording import canonical
from odedm.results.comparison import STREAM
from odedm.results.folder import FinishedRun
from odedm.results.schema import is_numbers
from odedm.training.experiment import Experiment

BASELINES = ("native", "reservoir")
"""Memories without a long-term part, the nearer partner of ODEDM first: it hosts the method's own policy."""
# What sets the pace of a run is not what is tried: seeds may be spread over machines.
SEED_ONLY = frozenset({"seed", *(name for name, setting in settings_of(Experiment).items() if setting.speed_only)})
DISTANCE = frozenset(
    f"memory.{name}" for name in ("distance", "epsilon", "pair_epsilon", "ground", "screen", "bandwidth")
)
"""The distance that rows are chosen by, and the settings that belong to one distance alone."""
CHOICE = DISTANCE | {"memory.space", "memory.dac", "memory.dac_distance", "memory.dac_sample"}
"""What a choice without clusters has otherwise than one by a distance: that, where rows are points, and DAC."""
FOLLOWS = {"memory.capacity": ("memory.capacity", "memory.k"), "memory.rho": ("memory.rho", "memory.k", "memory.dac")}
"""What may change along with the setting of a sweep: k follows λ and ρ, and in the paper DAC follows ρ."""

PROBLEM = ("data", *STREAM, "class_order", "eval_classes", "class names")
"""Settings that make the problem: with another one a difference is no one's merit."""

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Runs that share everything but the seed, ordered by seed.

    `family` names what they have in common with their reservoir partner, `member` the memory, `label` both.
    """

    runs: tuple[FinishedRun, ...]
    settings: Settings
    family: str
    member: str
    label: str

    @property
    def memory(self) -> str:
        """The memory's name as configured."""
        return str(self.settings["memory.name"])

    @property
    def plain(self) -> bool:
        """Whether its memory has no long-term part."""
        return self.memory in BASELINES

    @property
    def bound(self) -> bool:
        """Whether its method is no contender, but what others are measured against."""
        return bool(getattr(METHODS.get(str(self.settings["method"])), "bound", False))

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
    def direct_choice(self) -> bool:
        """Whether long-term rows were chosen without clusters."""
        return self.settings.get("memory.distance") in WITHOUT_CLUSTERS

    @property
    def same_but_memory(self) -> str:
        """What a reservoir partner must share, as one comparable text."""
        return canonical({key: value for key, value in self.settings.items() if not belongs_to_memory(key)})


def group_runs(runs: Sequence[FinishedRun]) -> list[Group]:
    """Return the runs by everything but the seed: by data, method and capacity, reservoir before the other memories.

    The same seed twice in a group is an error: counted twice it would make the standard error too small, and picking
    one of two would hide which one is reported.
    """
    groups = _together(sorted(runs, key=lambda run: run.seed), _settings)
    for first, second in (pair for members in groups for pair in pairwise(members)):
        if first.seed == second.seed:
            raise UsageError(
                f"Seed {first.seed} of one experiment was given twice: '{first.folder}' and '{second.folder}'. "
                "Seeds are averaged and paired, so each may count once: leave one of the two folders out."
            )
    groups.sort(key=lambda members: _order(_settings(members[0])))
    settings = [_settings(members[0]) for members in groups]
    named = zip(groups, settings, group_names(settings), strict=True)
    return [Group(tuple(members), shared, *_with_choice(members, names)) for members, shared, names in named]


def _with_choice(members: Sequence[FinishedRun], names: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return a group's names with how its constants were chosen, where they were."""
    family, member, label = names
    chosen = {str(run.result.provenance.get("chosen", ""))[:80] for run in members}
    (words,) = chosen if len(chosen) == 1 else ("",)
    return (family, member, f"{label} · tuned {printable(words)}") if words else names


def group_by_settings(groups: Sequence[Group], free: Callable[[str], bool]) -> list[list[Group]]:
    """Return the groups by every setting that is not free, each set in the order in which they came."""
    return _together(groups, lambda group: {key: value for key, value in group.settings.items() if not free(key)})


def sweeps(groups: Sequence[Group], setting: str, value: Callable[[Group], object]) -> list[list[Group]]:
    """Return the groups that differ in a setting alone, and in what follows it; `value` is that of a group in it.

    With DAC and without it are two. Where several have one value, what follows is a sweep of its own, and only k may
    go along.
    """
    sets: list[list[Group]] = []
    for without_dac in (True, False):
        side = [group for group in groups if (group.settings.get("memory.dac") is None) is without_dac]
        for members in group_by_settings(side, lambda key: key in FOLLOWS[setting]):
            distinct = len({value(group) for group in members}) == len(members)
            sets += [members] if distinct else group_by_settings(members, lambda key: key in (setting, "memory.k"))
    return sets


def by_distance(groups: Sequence[Group]) -> list[dict[str, Group]]:
    """Return groups with ODEDM that differ in the distance alone, by its name, at least two; the first one of each.

    Choices without clusters, which have no DAC, stand beside distances with any.
    """
    compared = []
    dual = [group for group in groups if not group.plain]
    direct = [group for group in dual if group.direct_choice]
    for members in group_by_settings([group for group in dual if not group.direct_choice], DISTANCE.__contains__):
        beside = group_by_settings([members[0], *direct], CHOICE.__contains__)[0][1:]
        first: dict[str, Group] = {}
        for group in (*members, *beside):
            if "memory.distance" in group.settings:
                first.setdefault(str(group.settings["memory.distance"]), group)
        compared += [first] if len(first) > 1 else []
    return compared


def other_problem(one: Group, other: Group) -> list[str]:
    """Return the settings by which two groups are not about the same problem, so that no difference says anything."""
    return [key for key in PROBLEM if one.settings.get(key) != other.settings.get(key)]


def _together(items: Sequence[T], key: Callable[[T], Settings]) -> list[list[T]]:
    by_key: dict[str, list[T]] = {}
    for item in items:
        by_key.setdefault(canonical(key(item)), []).append(item)
    return list(by_key.values())


def _settings(run: FinishedRun) -> Settings:
    plan = {key: value for key, value in run.result.experiment.items() if key not in SEED_ONLY}
    settings = flatten(plan) | {"tasks": len(run.result.acc), "class names": sorted(run.classes)}
    titles = {key: title for key, title in run.result.titles().items() if not is_built_in(str(settings.get(key)))}
    return settings | {title_key(key): title for key, title in titles.items() if settings.get(key) != title}


def _order(settings: Settings) -> tuple[object, ...]:
    """Return where a group stands in the table; methods from outside come last, by name, loaded or not."""
    method, memory = settings["method"], settings["memory.name"]
    sizes: list[Any] = [settings.get(f"memory.{name}") for name in ("capacity", "k", "rho")]
    capacity, *share = (float(size) if is_numbers([size]) else math.inf for size in sizes)
    known = list(METHODS).index(method) if method in METHODS and is_built_in(method) else math.inf
    options = canonical({key: value for key, value in settings.items() if key.startswith("options.")})
    stream = settings["data"], str(settings.get("imbalance"))
    partners = known, method, settings["tasks"], capacity, options
    return (*stream, *partners, memory not in BASELINES, memory, *share, canonical(settings))
