"""Lists of choices, and the experiments that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from odedm.memory.settings import DEFAULT_RHO, KINDS, ODEDM, AnyMemory, Native, memory_from_flat
from odedm.selection.flat_settings import of_clusters_there_are
from odedm.training.experiment import Experiment

Values = tuple[Any, ...]

PLAIN = "plain"
"""A memory by this name is what the method has without ODEDM: its own policy."""
PAPER = "paper"
"""A DAC by this name is the one that the paper has for a ρ and a λ."""
NONE = "none"
BY_NAME = ("retrieval_options", "policy_options", "optimizer_options")
"""Tables of options by the names of what has them."""
TABLES = ("options", "net_options", *BY_NAME)
MOST = 1_000_000
MOST_RUNS = 100_000


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
        """A tuple of two, None, or the word."""
        return PAPER if value == PAPER else super().validate(name, value)


@dataclass(frozen=True)
class OrNone(Validator):
    """A kind of values, or the word none, for what need not be there: TOML has no word of its own for it."""

    validator: Validator

    @property
    def expected(self) -> str:
        """In words."""
        return f"{self.validator.expected}, or {NONE}"

    def validate(self, name: str, value: Any) -> Any:
        """The value in its own type, or None."""
        return None if value == NONE else self.validator.validate(name, value)


def _kind(setting: Setting) -> Validator:
    return OrNone(setting.validator) if setting.optional else setting.validator


def _given(setting: Setting) -> Callable[[Any], Any]:
    """What a study's value stands for: none is None where nothing need be given."""
    return lambda value: None if setting.optional and value == NONE else value


def axes() -> dict[str, Validator]:
    """What a study can vary: the settings of an experiment and of its memory, as these describe themselves."""
    run = {name: _kind(setting) for name, setting in settings_of(Experiment).items() if setting.axis}
    memory = {
        name: _kind(setting) for kind in KINDS.values() for name, setting in settings_of(kind).items() if setting.axis
    }
    return {**run, "memory": Choice("memory", MEMORIES, also=(PLAIN,)), **memory, "dac": DacChoice()}


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of `axes`, with those of each method's own `options` and of the net's.

    `retrieval_options`, `policy_options` and `optimizer_options` are by the names of retrievals, memory policies and
    optimizers, and count where these are named. What belongs to one memory alone does not multiply the runs of others.

    >>> grid = Grid({"method": ("er", "derpp"), "memory": ("plain", "odedm"), "capacity": (50,), "rho": (0.25, 0.5)})
    >>> len(grid.experiments())
    6
    """

    axes: Mapping[str, Values] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    net_options: Mapping[str, Values] = field(default_factory=dict)
    retrieval_options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    policy_options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    optimizer_options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, (tables, registry) in {
            "method": (self.options, METHODS),
            "retrieval": (self.retrieval_options, RETRIEVALS),
            "memory policy": (self.policy_options, POLICIES),
            "optimizer": (self.optimizer_options, OPTIMIZERS),
        }.items():
            for name in tables:
                check_name(kind, name, registry)
        for name, values in self.lists().items():
            check_values(name, values, choose("key of a study", name, axes()) if name in self.axes else None)

    def experiments(self) -> list[Experiment]:
        """One experiment for each combination, each once, all with seed 0."""
        self._check_size()
        by_slug: dict[str, Experiment] = {}
        made = itertools.count(1)
        for chosen in _product(self._own(Experiment)):
            options = self.options.get(chosen.get("method", default_of(Experiment, "method")), {})
            drawn = self.retrieval_options.get(chosen.get("retrieval", default_of(Experiment, "retrieval")), {})
            stepped = self.optimizer_options.get(chosen.get("optimizer", default_of(Experiment, "optimizer")), {})
            parts = (_product(options), _product(self.net_options), _product(drawn), _product(stepped))
            for (chosen_options, net, draw, step), memory in itertools.product(
                itertools.product(*parts), self._memories()
            ):
                if next(made) > MOST_RUNS:  # each takes time and memory
                    raise UsageError(f"The lists stand for more than {MOST_RUNS} experiments; cut them.")
                plan = Experiment(
                    memory,
                    **chosen,
                    options=chosen_options,
                    net_options=net,
                    retrieval_options=draw,
                    optimizer_options=step or None,
                )
                by_slug.setdefault(plan.slug(), plan)
        return list(by_slug.values())

    def expand(self) -> list[Grid]:
        """The same experiments in the same order, each as a grid of its own that has one value of everything.

        >>> rates = {"er": {"lr": (0.03, 0.1)}, "der": {"alpha": (0.5,)}}
        >>> [each.options for each in Grid({"method": ("er", "der")}, rates).expand()]
        [{'er': {'lr': (0.03,)}}, {'er': {'lr': (0.1,)}}, {'der': {'alpha': (0.5,)}}]
        """
        plans = self.experiments()
        by_slug: dict[str, Grid] = {}
        for method in self.axes.get("method", (default_of(Experiment, "method"),)):
            options = {method: self.options[method]} if method in self.options else {}
            whole = replace(self, axes={**self.axes, "method": (method,)}, options=options)
            for chosen in _product(whole.lists()):
                one = whole._narrowed(chosen)
                (plan,) = one.experiments()
                by_slug.setdefault(plan.slug(), one)
        return [by_slug[plan.slug()] for plan in plans]

    def lists(self) -> dict[str, Values]:
        """Every list by its whole name.

        >>> Grid({"method": ("er",)}, {"er": {"lr": (0.03, 0.1)}}).lists()
        {'method': ('er',), 'options.er.lr': (0.03, 0.1)}
        """
        tables = {f"options.{method}": lists for method, lists in self.options.items()} | {
            "net_options": self.net_options
        }
        for table in BY_NAME:
            tables |= {f"{table}.{name}": lists for name, lists in getattr(self, table).items()}
        return {**self.axes, **{f"{table}.{name}": lists[name] for table, lists in tables.items() for name in lists}}

    def _check_size(self) -> None:
        """Refuse lists that multiply to more than anyone could list; methods' own do not multiply each other."""
        shared = [len(values) for name, values in self.lists().items() if not name.startswith("options.")]
        sizes = [math.prod(map(len, lists.values())) for lists in self.options.values()]
        if math.prod(shared) * max(sizes, default=1) > MOST:
            raise UsageError(f"The lists multiply to more than {MOST} combinations; cut them.")

    def _narrowed(self, chosen: Mapping[str, Any]) -> Grid:
        """The grid with one value of each list, by its whole name."""

        def first_values(table: str, lists: Mapping[str, Values]) -> dict[str, Values]:
            return {name: (chosen[f"{table}.{name}"],) for name in lists}

        return Grid(
            {name: (chosen[name],) for name in self.axes},
            {name: first_values(f"options.{name}", lists) for name, lists in self.options.items()},
            first_values("net_options", self.net_options),
            {name: first_values(f"retrieval_options.{name}", lists) for name, lists in self.retrieval_options.items()},
            {name: first_values(f"policy_options.{name}", lists) for name, lists in self.policy_options.items()},
            {name: first_values(f"optimizer_options.{name}", lists) for name, lists in self.optimizer_options.items()},
        )

    def _own(self, kind: Any) -> dict[str, Values]:
        """The axes that are settings of a kind."""
        varied = {name: setting for name, setting in settings_of(kind).items() if name in self.axes}
        return {name: tuple(map(_given(setting), self.axes[name])) for name, setting in varied.items()}

    def _memories(self) -> Iterator[AnyMemory]:
        for name in self.axes.get("memory", ("odedm",)):
            kind = Native if name == PLAIN else KINDS[name]
            memory_axes = self._own(kind)
            if name == PLAIN:
                memory_axes.pop("policy", None)
            distances = memory_axes.get("distance", ("sinkhorn",))
            has_clusters = not set(WITHOUT_CLUSTERS).issuperset(distances)
            for chosen in _product(memory_axes):
                if chosen.get("dac") == PAPER:
                    capacity = chosen.get("capacity", default_of(ODEDM, "capacity"))
                    chosen["dac"] = paper_dac(capacity, chosen.get("rho", None if "k" in chosen else DEFAULT_RHO))
                policy = chosen.get("policy") or chosen.get("short_policy")
                for options in _product(self.policy_options.get(str(policy), {})):
                    settings = chosen | {"policy_options": options} if options else chosen
                    yield memory_from_flat(kind, of_clusters_there_are(settings) if has_clusters else settings)


def _product(axes: Mapping[str, Values]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def matches_filters(plan: Experiment, wishes: Sequence[str]) -> bool:
    """Whether an experiment has every wished value: `name=value`, several values separated by commas.

    Names alone are methods, spelled as in the registry or as in the paper.

    >>> plan = Experiment(ODEDM(50), method="derpp")
    >>> matches_filters(plan, ["DER,DER++", "capacity=50"]), matches_filters(plan, ["memory=plain"])
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
    """The name and the values of a wish in words."""
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
    """An experiment's value by a name, in every way in which it is written."""
    value = flat.get(name)
    words = {_spelled(value), str(value)}
    return words | {PLAIN} if name == "memory" and value != ODEDM.name else words


def nobody_has(study: str, wishes: Sequence[str], plans: Iterable[Experiment]) -> UsageError:
    """That experiments of a study lack a wished value, and which values there are."""
    names = dict.fromkeys(_filter(wish)[0] for wish in wishes)
    known = {name: dict[str, None]() for name in names}
    for plan in plans:
        flat = _flat(plan)
        for name, values in known.items():
            values[_spelled(flat.get(name))] = None
    words = "; ".join(f"{name}={printable(','.join(values), LONGEST)}" for name, values in known.items())
    return UsageError(f"No experiment of the study '{study}' has {' and '.join(wishes)}. There are: {words}.")


def _spelled(value: object) -> str:
    """As a study's file has it."""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return "none" if value is None else str(value)


def _method(word: str) -> str:
    """The registry's name of a method, however it is spelled."""
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
    """An experiment's choices by the names that a study has for them."""
    plain = plan.describe()
    memory = plain.pop("memory")
    memory["memory"] = memory.pop("name")
    if memory.get("dac") is not None:
        memory["dac"] = "x".join(str(item) for item in memory["dac"])
    flat = {**plain, **memory}
    tables = {f"{name}.{key}": value for name in TABLES for key, value in flat.pop(name, {}).items()}
    return flat | tables


def as_tuple(value: Any, *, pair: bool = False) -> tuple[Any, ...]:
    """A list as it is, a single value as a list of one; `dac = [3, 4]` is one pair."""
    if not isinstance(value, list) or (pair and len(value) == 2 and all(isinstance(item, int) for item in value)):
        value = [value]
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)
