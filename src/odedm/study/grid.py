"""Lists of choices, and the experiments that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odedm.core.errors import UsageError, choose, unknown
from odedm.core.registry import MEMORIES, METHODS
from odedm.study.paper_numbers import DAC, OWN_MEMORY, plain
from odedm.training.experiment import ODEDM, Experiment, Native, Reservoir

Values = tuple[Any, ...]
Memory = Reservoir | Native | ODEDM

WORD, WHOLE, NUMBER, FLAG, PAIR, ROWS = "a name", "a whole number", "a number", "true or false", "a pair", "rows"
DAC_LEGAL = "[clusters, depth], 'paper' (by ρ and λ) or 'none'"

RUN_AXES = {
    "data": WORD, "setting": WORD, "tasks": WHOLE, "factor": NUMBER, "blur": NUMBER, "noise": NUMBER,
    "class_order": WORD, "method": WORD, "net": WORD, "batch": WHOLE, "draw": WHOLE, "columns": WORD,
    "precision": WORD,
}  # fmt: skip
"""What an experiment is made of beside its memory; a key that is absent takes the experiment's default."""
MEMORY_AXES = {"memory": WORD, "capacity": WHOLE, "policy": WORD}
ODEDM_AXES = {
    "rho": NUMBER, "k": WHOLE, "replay": WORD, "gamma": NUMBER, "distance": WORD, "dac": PAIR, "space": WORD,
    "candidates": ROWS, "rows_per_prototype": WHOLE, "mixup": FLAG, "screen": WHOLE, "short": WORD, "annotate": WORD,
    "epsilon": NUMBER, "pair_epsilon": NUMBER, "ground": WORD,
}  # fmt: skip
AXES = {**RUN_AXES, **MEMORY_AXES, **ODEDM_AXES}
TABLES = ("options", "net_options")
MOST = 1_000_000
PLAIN = "plain"
"""A memory by this name is what the method has without ODEDM: its own policy, or a reservoir."""


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of `axes`, with those of each method's own `options` and of the net's.

    What belongs to ODEDM alone does not multiply the runs of other memories.

    >>> grid = Grid({"method": ("er", "derpp"), "memory": ("plain", "odedm"), "capacity": (50,), "rho": (0.25, 0.5)})
    >>> len(grid.experiments())
    6
    """

    axes: Mapping[str, Values] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    net_options: Mapping[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            check_values(name, values, choose("key of a study", name, AXES))
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
        for chosen in _product({name: self.axes[name] for name in RUN_AXES if name in self.axes}):
            method = chosen.get("method", "derpp")
            for own in _product(self.options.get(method, {})):
                for net in _product(self.net_options):
                    for memory in self._memories(method):
                        plan = Experiment(memory, **chosen, options=own, net_options=net)
                        found.setdefault(plan.slug(), plan)
        return list(found.values())

    def _check_size(self) -> None:
        """Refuse a grid so large that listing it would never end."""
        lists = [*self.axes.values(), *self.net_options.values()]
        lists += [values for table in self.options.values() for values in table.values()]
        if math.prod(len(values) for values in lists) > MOST:
            raise UsageError(f"The lists multiply to more than {MOST} combinations; cut them.")

    def _memories(self, method: str) -> Iterator[Memory]:
        axes = self.axes
        own = {name: axes[name] for name in ODEDM_AXES if name in axes}
        for name, capacity in itertools.product(axes.get("memory", ("odedm",)), axes.get("capacity", (100,))):
            if name == PLAIN:
                name = "native" if method in OWN_MEMORY else "reservoir"  # noqa: PLW2901 - a name for a name
            choose("memory", name, {**MEMORIES, PLAIN: None})
            if name == "reservoir":
                yield Reservoir(capacity)
            elif name == "native":
                yield from (Native(capacity, policy) for policy in axes.get("policy", (None,)))
            else:
                yield from _duals(capacity, own)


def _duals(capacity: int, own: Mapping[str, Values]) -> Iterator[ODEDM]:
    axes = own if "rho" in own or "k" in own else {"rho": (0.25,), **own}
    for chosen in _product(axes):
        dac = chosen.get("dac")
        if dac == "none":
            chosen["dac"] = None
        elif dac == "paper":
            chosen["dac"] = paper_dac(capacity, chosen.get("rho"))
        elif dac is not None:
            chosen["dac"] = tuple(dac)
        yield ODEDM(capacity, **chosen)


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


def check_values(name: str, values: Sequence[Any], kind: str | None = None) -> None:
    """Refuse an empty list, the same value twice, and a value of another type than the key's."""
    if not values:
        raise UsageError(f"'{name}' is an empty list, so there is nothing to run; give a value, or leave it out.")
    seen: list[Any] = []
    for value in values:
        if kind is not None and not _fits(value, kind):
            legal = {PAIR: DAC_LEGAL, ROWS: "'task' or a whole number"}.get(kind, kind)
            raise UsageError(f"'{name}' takes {legal}, or a list of such; {value!r} was given.")
        if any(type(value) is type(other) and value == other for other in seen):
            raise UsageError(f"'{name}' has {value!r} twice; give it once.")
        seen.append(value)


def _fits(value: Any, kind: str) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == PAIR:
        pair = isinstance(value, list | tuple) and len(value) == 2 and all(_fits(each, WHOLE) for each in value)
        return pair or value in ("paper", "none")
    return {
        WORD: isinstance(value, str),
        WHOLE: whole,
        NUMBER: whole or isinstance(value, float),
        FLAG: isinstance(value, bool),
        ROWS: whole or value == "task",
    }[kind]


def matches(plan: Experiment, wishes: Sequence[str]) -> bool:
    """Whether an experiment has every wished value: `name=value`, several values separated by commas.

    Names alone are methods, spelled as in the catalogue or as in the paper.

    >>> plan = Experiment(Reservoir(50), method="derpp")
    >>> matches(plan, ["DER,DER++", "capacity=50"]), matches(plan, ["memory=odedm"])
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
        if name not in flat and name not in AXES and not name.startswith(TABLES):
            raise unknown("name in --only", name, [*AXES, "seed"])
        if str(flat.get(name)) not in values.split(","):
            return False
    return True


def _method(word: str) -> str:
    """The catalogue's name of a method, however it is spelled."""
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
