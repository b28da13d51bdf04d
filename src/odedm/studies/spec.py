"""A study as data: grids of experiments, seeds, and how its constants are tuned; TOML in and out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, choose, short_repr
from odedm.core.text import LONGEST, printable
from odedm.core.validators import Int, Share, Text, refused
from odedm.studies.grid import (
    MOST_RUNS,
    NONE,
    OWNERS,
    TABLES,
    Grid,
    as_tuple,
    axes,
    check_filters,
    check_values,
    matches_filters,
    nobody_has,
    split_name,
)
from odedm.studies.unused_keys import unused_keys
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

MOST_BYTES = 1 << 20
MOST_NAME = 100
MOST_DOTS = 200
"""Of a line beside those of its numbers: the time to read a key grows with the square of its parts."""
NUMBER = re.compile(r"(?<![^\s\[,=])[+-]?[\d_]+\.[\d_]+(?:[eE][+-]?\d+)?(?![^\s\],}])")
KEYS = ("name", "about", "chosen", "seeds", "only", "tune", "grid", "evidence", "anytime", "keep_model")
OF_EVERY_METHOD = ("lr", "momentum", "weight_decay")
"""Hyper-parameters that every method has, which are looked for among a grid's keys: `--lr` is an option of a run."""


@dataclass(frozen=True)
class ValidationSplit:
    """How constants are tuned: on a share of the training rows of the first tasks, with seeds that a study has not.

    Args:
        validation: the share of each class's training rows that is held out and tested on.
        first_tasks: how many tasks a run has; None: all of its stream.
        seeds: of each configuration.
    """

    validation: float = 0.2
    first_tasks: int | None = 2
    seeds: tuple[int, ...] = (1000, 1001, 1002)

    def __post_init__(self) -> None:
        Share().validate("tune.validation", self.validation)
        if self.first_tasks is not None:
            Int(1).validate("tune.first_tasks", self.first_tasks)
        check_values("tune.seeds", self.seeds, Int())

    @classmethod
    def from_table(cls, table: object) -> ValidationSplit:
        """Return the split that the table [tune] of a study's file describes.

        >>> ValidationSplit.from_table({"seeds": 7, "first_tasks": "none"})
        ValidationSplit(validation=0.2, first_tasks=None, seeds=(7,))
        """
        known = {field.name: field for field in fields(cls)}
        if not isinstance(table, dict):
            raise UsageError(f"'tune' must be a table: [tune] with {', '.join(known)}; {short_repr(table)} was given.")
        for name in table:
            choose("key of [tune]", str(name), known)
        values = {name: None if name == "first_tasks" and value == NONE else value for name, value in table.items()}
        return cls(**values | ({"seeds": as_tuple(values["seeds"])} if "seeds" in values else {}))

    def to_table(self) -> dict[str, Any]:
        """Return what `from_table` reads."""
        return {**vars(self), "first_tasks": NONE if self.first_tasks is None else self.first_tasks}


@dataclass(frozen=True)
class Study:
    """What is to be run, as data: every combination of each grid with every seed, in a stable order.

    >>> grid = Grid({"method": ("er",), "memory": ("native", "odedm"), "capacity": (50,)})
    >>> [(plan.memory.name, plan.seed) for plan in Study("mine", (grid,), seeds=(0, 1)).experiments()]
    [('native', 0), ('odedm', 0), ('native', 1), ('odedm', 1)]
    """

    name: str
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    about: str = ""
    only: tuple[str, ...] = ()
    tune: ValidationSplit | None = None
    chosen: str = ""
    """How its constants were chosen, for those who read the results; "" where they were not."""
    observation: Observation = field(default_factory=Observation)
    """What every run looks at; no part of what a run is, so one that is finished without it counts."""

    def __post_init__(self) -> None:
        name = self.name if isinstance(self.name, str) and self.name.isprintable() else ""
        if not name.strip() or len(name) > MOST_NAME or name.startswith(".") or {*name} & {*"/\\:"}:
            legal = f"one line of up to {MOST_NAME} characters without / \\ and :, and with no dot in front"
            raise refused("A study needs a name, which its folder gets, and that", legal, self.name)
        if not self.grids:
            raise UsageError(f"The study '{self.name}' has no grid, so there is nothing to run.")
        check_values("seeds", self.seeds, Int())
        if self.tune is not None and (both := set(self.tune.seeds) & set(self.seeds)):
            raise UsageError(
                f"Constants are tuned with other seeds than the study's; {min(both)} is among both. Change tune.seeds."
            )

    def experiments(self) -> list[Experiment]:
        """Return each experiment once, all of the first seed first, so that a study cut short can still be compared."""
        seed_filters = [wish for wish in self.only if wish.startswith("seed=")]
        filters = [wish for wish in self.only if wish not in seed_filters]
        plans = self._of_one_seed()
        check_filters(self.name, filters, plans)
        plans = [plan for plan in plans if matches_filters(plan, filters)]
        if not plans:
            raise nobody_has(self.name, filters, self._of_one_seed())
        if len(plans) * len(self.seeds) > MOST_RUNS:
            raise self._too_many()
        seeds = self._wished_seeds(seed_filters)
        return [plan.with_seed(seed) for seed in seeds for plan in plans]

    def _of_one_seed(self) -> list[Experiment]:
        """Return every experiment of the grids, with seed 0."""
        by_slug: dict[str, Experiment] = {}
        made = 0
        for place, grid in enumerate(self.grids, start=1):
            try:
                plans = grid.experiments()
            except UsageError as error:
                raise UsageError(f"Grid {place} of the study '{self.name}': {error}") from None
            by_slug |= {plan.slug(): plan for plan in plans}
            made += len(plans)
            if made > MOST_RUNS:  # before the grids that follow are gone through
                raise self._too_many()
        return list(by_slug.values())

    def _too_many(self) -> UsageError:
        return UsageError(f"The study '{self.name}' stands for more than {MOST_RUNS} runs; cut it.")

    def _wished_seeds(self, filters: Sequence[str]) -> list[int]:
        """Return the seeds that every filter `seed=1,2` has."""
        seeds, known = [*self.seeds], {str(seed) for seed in self.seeds}
        for wish in filters:
            asked = wish.partition("=")[2].split(",")
            if any(value not in known for value in asked):
                raise UsageError(
                    f"No experiment of the study '{self.name}' has {wish}. There are: "
                    f"seed={printable(','.join(map(str, self.seeds)), LONGEST)}."
                )
            seeds = [seed for seed in seeds if str(seed) in asked]
        return seeds

    def with_seeds(self, number: int) -> Study:
        """Return the same with its first `number` seeds; where it has fewer, those after its last join them.

        >>> study = Study("mine", (Grid({"method": ("er",), "capacity": (50,)}),), seeds=(10, 11, 15))
        >>> study.with_seeds(2).seeds, study.with_seeds(5).seeds
        ((10, 11), (10, 11, 15, 16, 17))
        """
        further = range(max(self.seeds, default=-1) + 1, max(self.seeds, default=-1) + 1 + number)
        return replace(self, seeds=(*self.seeds, *further)[:number])

    def to_toml(self) -> str:
        """Return the study as a file that `read` gives back."""
        optional = {"chosen": self.chosen, "only": self.only, **self.observation.to_dict()}
        text = _table("", {"name": self.name, "about": self.about, "seeds": self.seeds})
        text += _table("", {name: value for name, value in optional.items() if value})
        if self.tune is not None:
            text += _table("\n[tune]\n", self.tune.to_table())
        for grid in self.grids:
            places = {name: split_name(name)[:2] for name in grid.axes}
            text += _table("\n[[grid]]\n", {name: grid.axes[name] for name, (table, _) in places.items() if not table})
            for table, owner in dict.fromkeys(place for place in places.values() if place[0]):
                heading = f"{table}.{_key(owner)}" if owner else table
                text += _table(f"[grid.{heading}]\n", grid.options_of(table, owner))
        return text


def read(path: Path) -> Study:
    """Return a study from its TOML file; every key is checked."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"'{path}' has more than {MOST_BYTES} bytes, which no study needs.")
        if not path.is_file() and not path.is_dir():  # a pipe keeps one waiting, a device never ends
            raise UsageError(f"'{path}' is no regular file. Write the study into a file, e.g. mine.toml.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"Cannot read the study '{path}': {reason}.") from error
    return parse(text, path.stem, str(path))


def read_to_run(path: Path) -> Study:
    """Return a study from a file whose runs are asked for: what no run has is refused as a slip.

    A study's folder may hold a file from the time when they were passed over, so `read` takes them.
    """
    study = read(path)
    if fault := unused_keys(study.grids):
        raise UsageError(f"In {path}: {fault}")
    return study


def parse(text: str, name: str = "study", where: str = "the study") -> Study:
    r"""Return a study from TOML text: keys above the grids are every grid's, and without a grid they are the only one.

    >>> study = parse('method = ["er", "derpp"]\ncapacity = 50\nseeds = 2\n[options.derpp]\nlr = [0.1, 0.3]')
    >>> len(study.experiments())
    6
    >>> parse("methods = ['er']")
    Traceback (most recent call last):
    odedm.UsageError: In the study: Unknown key 'methods': did you mean 'method'? Known: ...
    """
    if any(NUMBER.sub("", line).count(".") > MOST_DOTS for line in text.split("\n")):
        raise UsageError(f"In {where} a line has more than {MOST_DOTS} dots beside its numbers', which no study needs.")
    try:
        plain = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits
        raise UsageError(f"A study is written in TOML, and {where} is not: {str(error)[:200]}.") from None
    try:
        return _study(plain, name)
    except UsageError as error:
        raise UsageError(f"In {where}: {error}") from None


def study_from(plain: dict[str, Any], name: str = "study") -> Study:
    """Return a study from what its TOML file would hold; keys that no run has are refused as a slip.

    >>> len(study_from({"method": ["er", "derpp"], "capacity": 50, "seeds": 2}).experiments())
    4
    """
    study = _study(plain, name)
    if fault := unused_keys(study.grids):
        raise UsageError(fault)
    return study


def _study(plain: dict[str, Any], name: str) -> Study:
    shared = {key: value for key, value in plain.items() if key not in KEYS}
    tables = plain.get("grid", [{}])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise UsageError("'grid' must be one or more tables, each headed [[grid]].")
    only = as_tuple(plain.get("only", []))
    if not all(isinstance(item, str) for item in only):
        raise UsageError("'only' must be a list of NAME=VALUE, e.g. ['method=er'].")
    study = Study(
        plain.get("name", name),
        tuple(_grid(shared, table) for table in tables),
        _seeds(plain.get("seeds", 5)),
        Text().validate("'about'", plain.get("about", "")),
        only,
        tune=ValidationSplit.from_table(plain["tune"]) if "tune" in plain else None,
        chosen=Text().validate("'chosen'", plain.get("chosen", "")),
        observation=Observation(plain.get("evidence", False), plain.get("anytime", 0), plain.get("keep_model", False)),
    )
    if not shared and not any(tables):  # after all else: a wrong value is the nearer reason
        raise UsageError(
            "Nothing says what to run. A study needs one line of that at the least, e.g. method = ['er', 'derpp']; all "
            "that it leaves out is as odedm run has it."
        )
    return study


def _grid(shared: Mapping[str, Any], table: Mapping[str, Any]) -> Grid:
    both = {**shared, **table}
    for key in table:
        if key in KEYS:
            raise UsageError(f"'{key}' is the whole study's: write it above the grids.")
    for key, value in both.items():
        if key in OF_EVERY_METHOD:
            method = named if isinstance(named := both.get("method"), str) else "derpp"
            raise UsageError(
                f"'{key}' belongs to a method: write it into the table of that method's hyper-parameters, "
                f"[options.{method}] and below it {key} = {short_repr(value)}."
            )
        choose("key", key, dict.fromkeys([*axes(), *TABLES, *KEYS]))
    lists = {name: as_tuple(value, pair=name == "dac") for name, value in both.items() if name not in TABLES}
    for part in TABLES:
        entries = both.get(part, {})
        if not isinstance(entries, dict):
            raise UsageError(f"'{part}' must be a table; {short_repr(entries)} was given.")
        for owner, options in {"": entries}.items() if part == "net_options" else entries.items():
            if not isinstance(options, dict):
                kind = OWNERS[part].what
                raise UsageError(f"Options belong to a {kind}: write [{part}.NAME], not {part}.{owner}.")
            prefix = f"{part}.{owner}." if owner else f"{part}."
            lists |= {f"{prefix}{option}": as_tuple(value) for option, value in options.items()}
    return Grid(lists)


def _seeds(value: Any) -> tuple[int, ...]:
    """Return so many seeds from 0 on, or those of a list."""
    if isinstance(value, list):
        return tuple(value)
    if type(value) is not int or not 1 <= value <= MOST_RUNS:
        raise UsageError(f"'seeds' is how many, 1 or more, or a list of them; {short_repr(value)} was given.")
    return tuple(range(value))


def _table(head: str, values: Mapping[str, Any]) -> str:
    """Return a table in TOML behind its heading."""
    return head + "".join(f"{_key(name)} = {_toml(values[name])}\n" for name in values)


def _key(name: str) -> str:
    """Return a name in TOML: quoted where it is no plain word, as a class's own name with its dots."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    r"""Return a value in TOML.

    >>> _toml(["a\n", 0.5, True, (3, 4)])
    '["a\\n", 0.5, true, [3, 4]]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON writes words and whole numbers as TOML does, but infinity otherwise
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
