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
from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import printable
from odedm.report.wording import canonical
from odedm.results.folder import FinishedRun
from odedm.training.experiment import Experiment

BASELINES = ("native", "reservoir")
"""Memories without a long-term part, the nearer partner of ODEDM first: it hosts the method's own policy."""
# What sets the pace of a run is not what is tried: seeds may be spread over machines.
SEED_ONLY = frozenset({"seed", *(name for name, own in settings_of(Experiment).items() if own.pace)})
DISTANCE = frozenset(
    f"memory.{name}" for name in ("distance", "epsilon", "pair_epsilon", "ground", "screen", "bandwidth")
)
"""The distance that rows are chosen by, and the settings that belong to one distance alone."""
FOLLOWS = {"memory.capacity": ("memory.capacity", "memory.k"), "memory.rho": ("memory.rho", "memory.k", "memory.dac")}
"""What may change along with the setting of a sweep: k follows λ and ρ, and in the paper DAC follows ρ."""

NAMED = ("method", "memory.name", "memory.policy")
"""What every name of a group starts with."""
# Named in every group as soon as two groups differ in them; other settings only where they tell two groups apart.
LOUD = ("data", "setting", "memory.capacity")
OF_MEMORY = ("replay", "k", "rho", "dac", "distance", "space", "candidates", "rows_per_prototype", "mixup", "gamma")
QUIET = ("tasks", "blur", "noise", *(f"memory.{name}" for name in OF_MEMORY), "options.lr", "net")
SYMBOLS = {
    "memory.capacity": "λ",
    "memory.rho": "ρ",
    "memory.rows_per_prototype": "rows",
    "memory.gamma": "γ",
    "options.alpha": "α",
    "options.beta": "β",
}
BARE = frozenset({"data", "setting", "memory.distance", "memory.space", "net"})

T = TypeVar("T")
Settings = dict[str, Any]
"""A configuration without the seed, flat: {"method": "der", "options.lr": 0.03, …}."""


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
    found = _together(sorted(runs, key=lambda run: run.seed), _settings)
    for first, second in (pair for members in found for pair in pairwise(members)):
        if first.seed == second.seed:
            raise UsageError(
                f"Seed {first.seed} of one experiment was given twice: '{first.folder}' and '{second.folder}'. "
                "Seeds are averaged and paired, so each may count once: leave one of the two folders out."
            )
    found.sort(key=lambda members: _place(_settings(members[0])))
    settings = [_settings(members[0]) for members in found]
    named = zip(found, settings, telling(settings), strict=True)
    return [Group(tuple(members), own, *_names(own, keys)) for members, own, keys in named]


def alike(groups: Sequence[Group], free: Callable[[str], bool]) -> list[list[Group]]:
    """The groups by every setting that is not free, each set in the order in which they came."""
    return _together(groups, lambda each: {key: value for key, value in each.settings.items() if not free(key)})


def sweeps(groups: Sequence[Group], setting: str, value: Callable[[Group], object]) -> list[list[Group]]:
    """The groups that differ in a setting alone, and in what follows it; `value` is that of a group in it.

    Where several have one value, what follows is a sweep of its own, and only k may go along.
    """
    found: list[list[Group]] = []
    for own in alike(groups, lambda key: key in FOLLOWS[setting]):
        apart = len({value(each) for each in own}) == len(own)
        found += [own] if apart else alike(own, lambda key: key in (setting, "memory.k"))
    return found


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


def _together(items: Sequence[T], key: Callable[[T], Settings]) -> list[list[T]]:
    found: dict[str, list[T]] = {}
    for each in items:
        found.setdefault(canonical(key(each)), []).append(each)
    return list(found.values())


def _settings(run: FinishedRun) -> Settings:
    plan = {key: value for key, value in run.result.experiment.items() if key not in SEED_ONLY}
    return flatten(plan) | {"tasks": len(run.result.acc), "class names": sorted(run.classes)}


def _place(settings: Settings) -> tuple[object, ...]:
    """Where a group stands in the table."""
    method, memory = settings["method"], settings["memory.name"]
    sizes = [settings.get(f"memory.{name}") for name in ("capacity", "k", "rho")]
    capacity, *share = (float(size) if isinstance(size, int | float) else math.inf for size in sizes)
    known = list(METHODS).index(method) if method in METHODS else len(METHODS)
    options = canonical({key: value for key, value in settings.items() if key.startswith("options.")})
    stream = settings["data"], str(settings.get("setting"))
    partners = known, method, settings["tasks"], capacity, options
    return (*stream, *partners, memory not in BASELINES, memory, *share, canonical(settings))


def belongs_to_memory(key: str) -> bool:
    """Whether a setting may differ between a run and its reservoir partner; not the capacity, they have the same room.

    >>> [belongs_to_memory(key) for key in ("memory.k", "memory.capacity", "options.lr")]
    [True, False, False]
    """
    return key.startswith("memory.") and key != "memory.capacity"


def method_name(settings: Settings) -> str:
    """The method as people write it.

    >>> method_name({"method": "derpp"})
    'DER++'
    """
    return printable(title(METHODS, settings["method"]), 24)


def memory_name(settings: Settings) -> str:
    """The memory as people write it: a policy by its own name.

    >>> memory_name({"memory.name": "odedm"}), memory_name({"memory.name": "native", "memory.policy": "herded"})
    ('ODEDM', 'herded')
    """
    name = settings["memory.name"]
    policy = settings.get("memory.policy") if name == "native" else None
    return printable(policy or title(MEMORIES, name), 24)


def telling(groups: Sequence[Settings]) -> list[list[str]]:
    """For each group the settings that its name needs beside method and memory: those that tell it from the others.

    >>> small = {"method": "der", "memory.name": "reservoir", "memory.capacity": 100, "net": "mlp"}
    >>> telling([small, small | {"memory.name": "odedm"}]), telling([small, small | {"memory.capacity": 200}])
    ([[], []], [['memory.capacity'], ['memory.capacity']])
    """
    told = [[canonical(own.get(key)) for key in NAMED] for own in groups]
    named: list[list[str]] = [[] for _ in groups]
    rest = sorted({key for own in groups for key in own} - {*LOUD, *QUIET, *NAMED, "class names"})
    for key in (*LOUD, *QUIET, *rest, "class names"):
        values = [canonical(own.get(key)) for own in groups]
        if len(set(values)) == 1:
            continue
        for place, own in enumerate(groups):
            alike = {value for value, other in zip(values, told, strict=True) if other == told[place]}
            if key in own and (len(alike) > 1 or (key in LOUD and own[key] is not None)):
                named[place].append(key)
        told = [[*known, value] for known, value in zip(told, values, strict=True)]
    return named


def _names(own: Settings, keys: Sequence[str]) -> tuple[str, str, str]:
    """Family, member and label of a group whose name needs these settings.

    >>> _names({"method": "der", "memory.name": "odedm", "memory.capacity": 100, "memory.k": 3},
    ...        ["memory.capacity", "memory.k"])
    ('DER · λ=100', 'ODEDM · k=3', 'DER · ODEDM · λ=100 · k=3')
    """
    phrases = {key: _phrase(key, own[key]) for key in keys}
    family = [method_name(own), *(phrase for key, phrase in phrases.items() if not belongs_to_memory(key))]
    member = [memory_name(own), *(phrase for key, phrase in phrases.items() if belongs_to_memory(key))]
    return " · ".join(family), " · ".join(member), " · ".join([family[0], member[0], *phrases.values()])


def _phrase(key: str, value: object) -> str:
    """A setting in a label.

    >>> _phrase("memory.capacity", 200), _phrase("memory.dac", [3, 4]), _phrase("memory.dac", None)
    ('λ=200', 'DAC 3×4', 'no DAC')
    >>> _phrase("memory.replay", "union"), _phrase("memory.mixup", True), _phrase("options.lr", 0.03)
    ('union replay', 'mixup', 'lr=0.03')
    """
    name = key.rpartition(".")[2]
    if key == "memory.dac":
        text = "DAC " + "×".join(str(part) for part in value) if isinstance(value, list) and value else "no DAC"
    elif key == "memory.replay":
        text = f"{value} replay" if value else "no replay"
    elif key == "class names":
        text = f"{len(value)} classes" if isinstance(value, list) else "other classes"
    elif isinstance(value, bool):
        text = ("" if value else "no ") + name
    elif key in BARE:
        text = str(value)
    else:
        text = f"{SYMBOLS.get(key, name)}={value if isinstance(value, str) else canonical(value)}"
    return printable(text, 32)
