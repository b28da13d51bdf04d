"""A study as data: grids of experiments, seeds, and how a choice among several ρ is made; TOML in and out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, unknown
from odedm.study.dac_timing_plan import Runtime, parse_runtime
from odedm.study.grid import TABLES, Grid, axes, many, matches
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection, check_seeds
from odedm.training.observation import Observation

MOST_RUNS = 100_000
MOST_BYTES = 1 << 20
KEYS = ("name", "about", "seeds", "only", "select", "runtime", "grid", "evidence", "anytime")


@dataclass(frozen=True)
class Study:
    """What is to be run, as data: every combination of each grid with every seed, in a stable order.

    >>> grid = Grid({"method": ("er",), "memory": ("plain", "odedm"), "capacity": (50,)})
    >>> [(plan.memory.name, plan.seed) for plan in Study("mine", (grid,), seeds=(0, 1)).experiments()]
    [('native', 0), ('odedm', 0), ('native', 1), ('odedm', 1)]
    """

    name: str
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    about: str = ""
    only: tuple[str, ...] = ()
    select: Selection | None = None
    observation: Observation = field(default_factory=Observation)
    """What every run looks at; no part of what a run is, so one that is finished without it counts."""
    runtime: Runtime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not self.name.strip():
            raise UsageError(f"A study needs a name, one line of text; {self.name!r} was given.")
        if not self.grids and self.runtime is None:
            raise UsageError(f"The study '{self.name}' has no grid, so there is nothing to run.")
        check_seeds("seeds", self.seeds)
        if self.select is not None and set(self.select.seeds) & set(self.seeds):
            both = sorted(set(self.select.seeds) & set(self.seeds))
            raise UsageError(
                f"The seeds of a choice must be others than the study's; {both[0]} is among both. Change select.seeds."
            )

    def experiments(self) -> list[Experiment]:
        """Each experiment once, all of the first seed first, so that a study cut short can still be compared."""
        found: dict[str, Experiment] = {}
        for place, grid in enumerate(self.grids, start=1):
            try:
                found |= {plan.slug(): plan for plan in grid.experiments() if matches(plan, self.only)}
            except UsageError as error:
                raise UsageError(f"Grid {place} of the study '{self.name}': {error}") from None
        if not self.grids and not self.only:
            return []
        if not found:
            raise UsageError(f"No experiment of the study '{self.name}' has {' and '.join(self.only)}.")
        if len(found) * len(self.seeds) > MOST_RUNS:
            raise UsageError(f"The study '{self.name}' stands for more than {MOST_RUNS} runs; cut it.")
        return [plan.with_seed(seed) for seed in self.seeds for plan in found.values()]

    def with_seeds(self, number: int) -> Study:
        """The same with the seeds 0 to number - 1."""
        return replace(self, seeds=tuple(range(number)))

    def to_toml(self) -> str:
        """The study as a file that `read` gives back."""
        lines = [f"name = {_toml(self.name)}", f"about = {_toml(self.about)}", f"seeds = {_toml(list(self.seeds))}"]
        if self.only:
            lines.append(f"only = {_toml(list(self.only))}")
        lines += [f"{name} = {_toml(value)}" for name, value in self.observation.to_dict().items() if value]
        if self.select is not None:
            own = self.select
            lines += ["", "[select]", f"tasks = {own.tasks}", f"share = {_toml(own.share)}"]
            lines.append(f"seeds = {_toml(list(own.seeds))}")
        if self.runtime is not None:
            lines += ["", "[runtime]", *(f"{name} = {_toml(value)}" for name, value in self.runtime.to_dict().items())]
        for grid in self.grids:
            lines += ["", "[[grid]]", *(f"{name} = {_toml(list(values))}" for name, values in grid.axes.items())]
            for method, table in grid.options.items():
                lines.append(f"[grid.options.{method}]")
                lines += [f"{_key(name)} = {_toml(list(values))}" for name, values in table.items()]
            if grid.net_options:
                lines.append("[grid.net_options]")
                lines += [f"{_key(name)} = {_toml(list(values))}" for name, values in grid.net_options.items()]
        return "\n".join(lines) + "\n"


def read(path: Path) -> Study:
    """A study from its TOML file; every key is checked."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"'{path}' has more than {MOST_BYTES} bytes, which no study needs.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"Cannot read the study '{path}': {reason}.") from error
    return parse(text, path.stem, str(path))


def parse(text: str, name: str = "study", where: str = "the study") -> Study:
    r"""A study from TOML text: keys above the grids are every grid's, and without a grid they are the only one.

    >>> study = parse('method = ["er", "derpp"]\ncapacity = 50\nseeds = 2\n[options.derpp]\nlr = [0.1, 0.3]')
    >>> len(study.experiments())
    6
    >>> parse("methods = ['er']")
    Traceback (most recent call last):
    odedm.UsageError: In the study: Unknown key 'methods': did you mean 'method'? Known: ...
    """
    try:
        plain = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where[:1].upper()}{where[1:]} is not TOML: {error}.") from None
    try:
        return _study(plain, name)
    except UsageError as error:
        raise UsageError(f"In {where}: {error}") from None


def _study(plain: dict[str, Any], name: str) -> Study:
    shared = {key: value for key, value in plain.items() if key not in KEYS}
    tables = plain.get("grid", [{}])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise UsageError("'grid' must be one or more tables, each headed [[grid]].")
    runtime = None if "runtime" not in plain else parse_runtime(plain["runtime"])
    only_timed = runtime is not None and not shared and "grid" not in plain
    grids = () if only_timed else tuple(_grid(shared, table) for table in tables)
    about = plain.get("about", "")
    if not isinstance(about, str):
        raise UsageError(f"'about' must be text; {about!r} was given.")
    only = many(plain.get("only", []))
    if not all(isinstance(each, str) for each in only):
        raise UsageError("'only' must be a list of NAME=VALUE, e.g. ['method=er'].")
    return Study(
        plain.get("name", name),
        grids,
        _seeds(plain.get("seeds", 5)),
        about,
        only,
        select=_selection(plain.get("select")),
        runtime=runtime,
        observation=Observation(plain.get("evidence", False), plain.get("anytime", 0)),
    )


def _grid(shared: Mapping[str, Any], table: Mapping[str, Any]) -> Grid:
    both = {**shared, **table}
    for key in table:
        if key in KEYS:
            raise UsageError(f"'{key}' is the whole study's: write it above the grids.")
    for key in both:
        if key not in axes() and key not in TABLES:
            raise unknown("key", key, [*axes(), *TABLES, *KEYS])
    for name in TABLES:
        if not isinstance(both.get(name, {}), dict):
            raise UsageError(f"'{name}' must be a table; {both[name]!r} was given.")
    options: dict[str, Mapping[str, Any]] = both.get("options", {})
    for method, own in options.items():
        if not isinstance(own, dict):
            raise UsageError(f"Hyper-parameters belong to a method: write [options.derpp], not options.{method}.")
    return Grid(
        {name: many(value, pair=name == "dac") for name, value in both.items() if name not in TABLES},
        {method: {name: many(value) for name, value in own.items()} for method, own in options.items()},
        {name: many(value) for name, value in both.get("net_options", {}).items()},
    )


def _seeds(value: Any) -> tuple[int, ...]:
    """So many seeds from 0 on, or those of a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_RUNS:
            raise UsageError(f"'seeds' is how many, 1 or more, or a list of them; {value} was given.")
        return tuple(range(value))
    if not isinstance(value, list):
        raise UsageError(f"'seeds' is how many, 1 or more, or a list of them; {value!r} was given.")
    return tuple(value)


def _selection(plain: Any) -> Selection | None:
    if plain is None:
        return None
    if not isinstance(plain, dict):
        raise UsageError("'select' must be a table: [select] with tasks, share and seeds.")
    for key in plain:
        if key not in ("tasks", "share", "seeds"):
            raise unknown("key of [select]", key, ["tasks", "share", "seeds"])
    own = dict(plain)
    if "seeds" in own:
        own["seeds"] = _seeds(own["seeds"] if isinstance(own["seeds"], list) else [own["seeds"]])
    return Selection(**own)


def _toml(value: Any) -> str:
    r"""A value in TOML.

    >>> _toml(["a\n", 0.5, True, (3, 4)])
    '["a\\n", 0.5, true, [3, 4]]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return repr(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)
