"""Lists of choices, and the experiments that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odedm.core.configuration import Kind, OneOf, default_of, settings_of
from odedm.core.errors import UsageError, choose, unknown
from odedm.core.registry import MEMORIES, METHODS
from odedm.memory.settings import DEFAULT_RHO, KINDS, ODEDM, MemorySettings, Native
from odedm.study.paper_numbers import DAC, plain
from odedm.training.experiment import Experiment

Values = tuple[Any, ...]

PLAIN = "plain"
"""A memory by this name is what the method has without ODEDM: its own policy."""
PAPER = "paper"
"""A DAC by this name is the one that the paper has for a ρ and a λ."""
TABLES = ("options", "net_options")
MOST = 1_000_000


def axes() -> dict[str, Kind]:
    """What a study can vary: the settings of an experiment and of its memory, as these describe themselves."""
    run = {name: own.kind for name, own in settings_of(Experiment).items() if own.axis}
    memory = {name: own.kind for kind in KINDS.values() for name, own in settings_of(kind).items() if own.axis}
    return {**run, "memory": OneOf("memory", MEMORIES, also=(PLAIN,)), **memory}


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of `axes`, with those of each method's own `options` and of the net's.

    What belongs to one memory alone does not multiply the runs of others.

    >>> grid = Grid({"method": ("er", "derpp"), "memory": ("plain", "odedm"), "capacity": (50,), "rho": (0.25, 0.5)})
    >>> len(grid.experiments())
    6
    """

    axes: Mapping[str, Values] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    net_options: Mapping[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            check_values(name, values, choose("key of a study", name, axes()))
        for method, table in self.options.items():
            choose("method", method, METHODS)
            for name, values in table.items():
                check_values(f"options.{method}.{name}", values)
        for name, values in self.net_options.items():
            check_values(f"net_options.{name}", values)

    def experiments(self) -> list[Experiment]:
        """One experiment for each combination, each once, all with seed 0."""
        self._check_size()
        found: dict[str, Experiment] = {}
        for chosen in _product(self._own(Experiment)):
            method = chosen.get("method", default_of(Experiment, "method"))
            for own in _product(self.options.get(method, {})):
                for net in _product(self.net_options):
                    for memory in self._memories():
                        plan = Experiment(memory, **chosen, options=own, net_options=net)
                        found.setdefault(plan.slug(), plan)
        return list(found.values())

    def _own(self, kind: Any) -> dict[str, Values]:
        """The axes that are settings of a kind."""
        return {name: self.axes[name] for name in settings_of(kind) if name in self.axes}

    def _check_size(self) -> None:
        """Refuse a grid so large that listing it would never end."""
        lists = [*self.axes.values(), *self.net_options.values()]
        lists += [values for table in self.options.values() for values in table.values()]
        if math.prod(len(values) for values in lists) > MOST:
            raise UsageError(f"The lists multiply to more than {MOST} combinations; cut them.")

    def _memories(self) -> Iterator[MemorySettings]:
        for name in self.axes.get("memory", ("odedm",)):
            kind = Native if name == PLAIN else KINDS[name]
            own = self._own(kind)
            if name == PLAIN:
                own.pop("policy", None)
            for chosen in _product(own):
                if chosen.get("dac") == PAPER:
                    capacity = chosen.get("capacity", default_of(ODEDM, "capacity"))
                    chosen["dac"] = paper_dac(capacity, chosen.get("rho", None if "k" in chosen else DEFAULT_RHO))
                yield kind(**chosen)


def paper_dac(capacity: int, rho: float | None) -> tuple[int, int]:
    """The paper's clusters and depth for a share and a capacity; for one it does not have, those of the nearest share.

    >>> paper_dac(200, 0.25), paper_dac(5120, 0.25), paper_dac(200, 1.0)
    ((3, 4), (5, 3), (5, 3))
    """
    if rho is None:
        raise UsageError("dac = 'paper' goes by ρ: give rho beside it, also where k sets the size.")
    return (5, 3) if capacity >= 5120 else DAC[min(DAC, key=lambda known: abs(known - rho))]


def _product(axes: Mapping[str, Values]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def check_values(name: str, values: Sequence[Any], kind: Kind | None = None) -> None:
    """Refuse an empty list, the same value twice, and a value that the key does not take."""
    if not values:
        raise UsageError(f"'{name}' is an empty list, so there is nothing to run; give a value, or leave it out.")
    seen: list[Any] = []
    for value in values:
        if kind is not None and not (name == "dac" and value == PAPER):
            kind.read(f"'{name}'", value)
        if any(type(value) is type(other) and value == other for other in seen):
            raise UsageError(f"'{name}' has {value!r} twice; give it once.")
        seen.append(value)


def matches(plan: Experiment, wishes: Sequence[str]) -> bool:
    """Whether an experiment has every wished value: `name=value`, several values separated by commas.

    Names alone are methods, spelled as in the registry or as in the paper.

    >>> plan = Experiment(ODEDM(50), method="derpp")
    >>> matches(plan, ["DER,DER++", "capacity=50"]), matches(plan, ["memory=plain"])
    (True, False)
    """
    flat = _flat(plan)
    for wish in wishes:
        name, sign, values = wish.partition("=")
        if not sign:
            name, values = "method", ",".join(_method(each) for each in wish.split(","))
        if not name or not values:
            raise UsageError(
                "--only takes methods, e.g. --only DER,DER++, or NAME=VALUE[,VALUE…], e.g. --only capacity=200; "
                f"'{wish}' was given."
            )
        if name not in flat and name not in axes() and not name.startswith(TABLES):
            raise unknown("name in --only", name, [*axes(), "seed"])
        wanted = values.split(",")
        plain_memory = name == "memory" and PLAIN in wanted and not isinstance(plan.memory, ODEDM)
        if str(flat.get(name)) not in wanted and not plain_memory:
            return False
    return True


def _method(word: str) -> str:
    """The registry's name of a method, however it is spelled."""
    known = {plain(name): name for name in METHODS}
    if plain(word.strip()) not in known:
        raise UsageError(f"{unknown('method in --only', word, METHODS)} It also takes NAME=VALUE, e.g. capacity=200.")
    return known[plain(word.strip())]


def _flat(plan: Experiment) -> dict[str, Any]:
    """An experiment's choices by the names that a study has for them."""
    plain = plan.describe()
    memory = plain.pop("memory")
    memory["memory"] = memory.pop("name")
    if memory.get("dac") is not None:
        memory["dac"] = "x".join(str(each) for each in memory["dac"])
    tables = {f"{name}.{key}": value for name in TABLES for key, value in plain.pop(name).items()}
    return {**plain, **memory, **tables}


def many(value: Any, *, pair: bool = False) -> tuple[Any, ...]:
    """A list as it is, a single value as a list of one; `dac = [3, 4]` is one pair."""
    if not isinstance(value, list) or (pair and len(value) == 2 and all(isinstance(each, int) for each in value)):
        value = [value]
    return tuple(tuple(each) if isinstance(each, list) else each for each in value)
