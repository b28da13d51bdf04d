"""Lists of choices, and the experiments that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odedm.core.configuration import Setting, default_of, settings_of
from odedm.core.errors import UsageError, choose, unknown_name_error
from odedm.core.plugins import check_name, discover
from odedm.core.registry import (
    MEMORIES,
    METHODS,
    OPTIMIZERS,
    POLICIES,
    RETRIEVALS,
    WITHOUT_CLUSTERS,
    normalize_name,
)
from odedm.core.text import LONGEST, printable
from odedm.core.validators import LARGEST, Choice, Pair, Validator, is_scalar, refused
from odedm.memory.paper_preset import paper_dac
from odedm.memory.settings import DEFAULT_RHO, KINDS, ODEDM, AnyMemory, memory_from_flat
from odedm.selection.flat_settings import of_clusters_there_are
from odedm.training.experiment import Experiment

Values = tuple[Any, ...]

PAPER = "paper"
"""A DAC by this name is the one that the paper has for a ρ and a λ."""
NONE = "none"
OWNERS = {
    "options": METHODS,
    "retrieval_options": RETRIEVALS,
    "policy_options": POLICIES,
    "optimizer_options": OPTIMIZERS,
}
"""Tables of options by the names of what has them, and where these names are."""
OF_RUN = {"options": "method", "retrieval_options": "retrieval", "optimizer_options": "optimizer"}
"""Those that an experiment's own setting names the owner of."""
TABLES = (*OWNERS, "net_options")
MOST = 1_000_000
MOST_RUNS = 100_000


def split_name(name: str) -> tuple[str, str, str]:
    """Return the table of a list's name, whose options these are, and the option; of a setting the last alone.

    >>> split_name("options.er.lr"), split_name("net_options.width"), split_name("rho")
    (('options', 'er', 'lr'), ('net_options', '', 'width'), ('', '', 'rho'))
    """
    table, _, rest = name.partition(".")
    if table not in TABLES:
        return "", "", name
    owner, _, option = rest.rpartition(".")
    return table, owner, option


def check_values(name: str, values: Sequence[Any], kind: Validator | None = None) -> None:
    """Refuse an empty list, a value that is not of the kind, and the same value twice.

    >>> from odedm.core.validators import Int
    >>> check_values("seeds", (3, 1, 3), Int())
    Traceback (most recent call last):
    odedm.UsageError: 'seeds' has 3 twice; give it once.
    """
    if not values:
        raise UsageError(f"'{name}' is an empty list, so there is nothing to run; give a value, or leave it out.")
    seen: set[str] = set()
    for value in values:
        if kind is not None:
            kind.validate(f"'{name}'", value)
        elif not is_scalar(value) or (isinstance(value, int) and abs(value) > LARGEST):
            legal = f"a number, whole ones up to {LARGEST}, or a word, true or false, or a list of these"
            raise refused(f"'{name}'", legal, value)
        if repr(value) in seen:
            raise UsageError(f"'{name}' has {value!r} twice; give it once.")
        seen.add(repr(value))


class DacChoice(Pair):
    """Clusters and depth, none, or the paper's."""

    expected = "a pair of whole numbers such as 3,4, or none, or paper"

    def validate(self, name: str, value: Any) -> Any:
        return PAPER if value == PAPER else super().validate(name, value)


@dataclass(frozen=True)
class OrNone(Validator):
    """A kind of values, or the word none, for what need not be there: TOML has no word of its own for it."""

    validator: Validator

    @property
    def expected(self) -> str:
        return f"{self.validator.expected}, or {NONE}"

    def validate(self, name: str, value: Any) -> Any:
        return None if value == NONE else self.validator.validate(name, value)


def _kind(setting: Setting) -> Validator:
    return OrNone(setting.validator) if setting.optional else setting.validator


def _given(setting: Setting) -> Callable[[Any], Any]:
    """Return what a study's value stands for: none is None where nothing need be given."""
    return lambda value: None if setting.optional and value == NONE else value


def axes() -> dict[str, Validator]:
    """Return what a study can vary: the settings of an experiment and of its memory, as these describe themselves."""
    run = {name: _kind(setting) for name, setting in settings_of(Experiment).items() if setting.axis}
    memory = {
        name: _kind(setting) for kind in KINDS.values() for name, setting in settings_of(kind).items() if setting.axis
    }
    return {**run, "memory": Choice("memory", MEMORIES), **memory, "dac": DacChoice()}


@dataclass(frozen=True)
class Grid:
    """Every combination of lists of values, each by the name of its setting.

    Options of a method, a retrieval, a memory policy or an optimizer are named with it, as `options.er.lr`, and count
    where it is named; those of the net as `net_options.width`. What belongs to one memory alone does not multiply the
    runs of others.

    >>> grid = Grid({"method": ("er", "derpp"), "memory": ("native", "odedm"), "capacity": (50,), "rho": (0.25, 0.5)})
    >>> len(grid.experiments())
    6
    """

    axes: Mapping[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            table, owner, _ = split_name(name)
            if table in OWNERS:
                check_name(OWNERS[table].what, owner, OWNERS[table])
            check_values(name, values, None if table else choose("key of a study", name, axes()))

    def experiments(self) -> list[Experiment]:
        """Return one experiment for each combination, each once, all with seed 0."""
        self._check_size()
        by_slug: dict[str, Experiment] = {}
        made = itertools.count(1)
        for chosen in _product(self._axes_of(Experiment)):
            owners = {table: chosen.get(part, default_of(Experiment, part)) for table, part in OF_RUN.items()}
            parts = [_product(self.options_of(table, owner)) for table, owner in owners.items()]
            for (options, draw, step, net), memory in itertools.product(
                itertools.product(*parts, _product(self.options_of("net_options"))), self._memories()
            ):
                if next(made) > MOST_RUNS:  # each takes time and memory
                    raise UsageError(f"The lists stand for more than {MOST_RUNS} experiments; cut them.")
                plan = Experiment(
                    memory,
                    **chosen,
                    options=options,
                    net_options=net,
                    retrieval_options=draw,
                    optimizer_options=step or None,
                )
                by_slug.setdefault(plan.slug(), plan)
        return list(by_slug.values())

    def expand(self) -> list[Grid]:
        """Return the same experiments in the same order, each as a grid that has one value of everything.

        >>> grid = Grid({"method": ("er", "der"), "options.er.lr": (0.03, 0.1), "options.der.alpha": (0.5,)})
        >>> [one.axes["method"] + one.options_of("options", "er").get("lr", ()) for one in grid.expand()]
        [('er', 0.03), ('er', 0.1), ('der',)]
        """
        plans = self.experiments()
        by_slug: dict[str, Grid] = {}
        for method in self.axes.get("method", (default_of(Experiment, "method"),)):
            others = {name for name in self.axes if name.startswith("options.") and split_name(name)[1] != method}
            lists = {name: values for name, values in self.axes.items() if name not in others}
            for chosen in _product({**lists, "method": (method,)}):
                one = Grid({name: (value,) for name, value in chosen.items()})
                (plan,) = one.experiments()
                by_slug.setdefault(plan.slug(), one)
        return [by_slug[plan.slug()] for plan in plans]

    def options_of(self, table: str, owner: str = "") -> dict[str, Values]:
        """Return the lists of a table of options, for a table by names those of one owner.

        >>> Grid({"method": ("er",), "options.er.lr": (0.03, 0.1)}).options_of("options", "er")
        {'lr': (0.03, 0.1)}
        """
        return {
            option: values
            for name, values in self.axes.items()
            for at, by, option in [split_name(name)]
            if (at, by) == (table, owner)
        }

    def _check_size(self) -> None:
        """Refuse lists that multiply to more than anyone could list; methods' own do not multiply each other."""
        shared = [len(values) for name, values in self.axes.items() if not name.startswith("options.")]
        methods = {split_name(name)[1] for name in self.axes if name.startswith("options.")}
        sizes = [math.prod(map(len, self.options_of("options", method).values())) for method in methods]
        if math.prod(shared) * max(sizes, default=1) > MOST:
            raise UsageError(f"The lists multiply to more than {MOST} combinations; cut them.")

    def _axes_of(self, kind: Any) -> dict[str, Values]:
        """Return the axes that are settings of a kind."""
        varied = {name: setting for name, setting in settings_of(kind).items() if name in self.axes}
        return {name: tuple(map(_given(setting), self.axes[name])) for name, setting in varied.items()}

    def _memories(self) -> Iterator[AnyMemory]:
        for name in self.axes.get("memory", ("odedm",)):
            kind = KINDS[name]
            memory_axes = self._axes_of(kind)
            distances = memory_axes.get("distance", ("sinkhorn",))
            has_clusters = not set(WITHOUT_CLUSTERS).issuperset(distances)
            for chosen in _product(memory_axes):
                if chosen.get("dac") == PAPER:
                    capacity = chosen.get("capacity", default_of(ODEDM, "capacity"))
                    chosen["dac"] = paper_dac(capacity, chosen.get("rho", None if "k" in chosen else DEFAULT_RHO))
                policy = chosen.get("policy") or chosen.get("short_policy")
                for options in _product(self.options_of("policy_options", str(policy))):
                    settings = chosen | {"policy_options": options} if options else chosen
                    yield memory_from_flat(kind, of_clusters_there_are(settings) if has_clusters else settings)


def _product(axes: Mapping[str, Values]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def matches_filters(plan: Experiment, wishes: Sequence[str]) -> bool:
    """Return whether an experiment has every wished value: `name=value`, several values separated by commas.

    Names alone are methods, spelled as in the registry or as in the paper.

    >>> plan = Experiment(ODEDM(50), method="derpp")
    >>> matches_filters(plan, ["DER,DER++", "capacity=50"]), matches_filters(plan, ["memory=native"])
    (True, False)
    """
    flat = _flat(plan)
    return all(_values_of(flat, name) & {*values} for name, values in map(_filter, wishes))


def check_filters(study: str, wishes: Sequence[str], plans: Sequence[Experiment]) -> None:
    """Refuse a wished value that none of a study's experiments has: a slip, which would leave it out without a word."""
    flats = [_flat(plan) for plan in plans]
    for wish in wishes:
        name, values = _filter(wish)
        known: set[str] = set()
        for flat in flats:
            if name not in flat and name not in axes() and not name.startswith(TABLES):
                raise unknown_name_error("name in --only", name, [*axes(), "seed"])
            known |= _values_of(flat, name)
        if any(value not in known for value in values):
            raise nobody_has(study, wishes, plans)


def _filter(wish: str) -> tuple[str, list[str]]:
    """Return the name and the values of a wish in words."""
    name, sign, values = wish.partition("=")
    if not sign:
        return "method", [_method(word) for word in wish.split(",")]
    if not name or not values:
        raise UsageError(
            "--only takes methods, e.g. --only DER,DER++, or NAME=VALUE[,VALUE…], e.g. --only capacity=200; "
            f"'{wish}' was given."
        )
    return name, values.split(",")


def _values_of(flat: Mapping[str, Any], name: str) -> set[str]:
    """Return an experiment's value by a name, in every way in which it is written."""
    value = flat.get(name)
    return {_spelled(value), str(value)}


def nobody_has(study: str, wishes: Sequence[str], plans: Iterable[Experiment]) -> UsageError:
    """Return the error that experiments of a study lack a wished value, with the values that there are."""
    names = dict.fromkeys(_filter(wish)[0] for wish in wishes)
    known = {name: dict[str, None]() for name in names}
    for plan in plans:
        flat = _flat(plan)
        for name, values in known.items():
            values[_spelled(flat.get(name))] = None
    words = "; ".join(f"{name}={printable(','.join(values), LONGEST)}" for name, values in known.items())
    return UsageError(f"No experiment of the study '{study}' has {' and '.join(wishes)}. There are: {words}.")


def _spelled(value: object) -> str:
    """Return a value as a study's file has it."""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return "none" if value is None else str(value)


def _method(word: str) -> str:
    """Return the registry's name of a method, however it is spelled."""
    known = next((name for name in METHODS if normalize_name(name) == normalize_name(word.strip())), None)
    if known is None:
        discover()
        if word.strip() in METHODS:
            return word.strip()
        raise UsageError(
            f"{unknown_name_error('method in --only', word, METHODS)} It also takes NAME=VALUE, e.g. capacity=200."
        )
    return known


def _flat(plan: Experiment) -> dict[str, Any]:
    """Return an experiment's choices by the names that a study has for them."""
    plain = plan.describe()
    memory = plain.pop("memory")
    memory["memory"] = memory.pop("name")
    if memory.get("dac") is not None:
        memory["dac"] = "x".join(str(item) for item in memory["dac"])
    flat = {**plain, **memory}
    tables = {f"{name}.{key}": value for name in TABLES for key, value in flat.pop(name, {}).items()}
    return flat | tables


def as_tuple(value: Any, *, pair: bool = False) -> tuple[Any, ...]:
    """Return a list as it is, a single value as a list of one; `dac = [3, 4]` is one pair."""
    if not isinstance(value, list) or (pair and len(value) == 2 and all(isinstance(item, int) for item in value)):
        value = [value]
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)
