"""What we recommend for a memory of some size and a number of classes, with the evidence: `recommendations.toml`."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from odedm.core.configuration import default_of, option_text, settings_of
from odedm.core.errors import UsageError, choose, unknown_name_error
from odedm.core.files import expand_user
from odedm.core.plugins import discover
from odedm.core.registry import DATASETS
from odedm.core.validators import Bool, Int, refused
from odedm.data import cache as imported
from odedm.data.opening import load_dataset
from odedm.data.published import PUBLISHED
from odedm.memory.settings import KINDS, memory_from_flat
from odedm.training.experiment import Experiment

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

DATA: str = default_of(Experiment, "data")


@dataclass(frozen=True)
class Case:
    """One line of a recipe: for which rows and how many of them a class it is, what it is, and what it rests on."""

    most_rows_per_class: float
    colour: bool
    """Whether it is for colour pictures, or for all other rows."""
    settings: Mapping[str, Any]
    memory: Mapping[str, Any]
    why: str
    evidence: str
    measured: str

    @property
    def when(self) -> str:
        """When it applies, in words."""
        rows = f", λ / classes ≤ {self.most_rows_per_class:g}" if math.isfinite(self.most_rows_per_class) else ""
        return ("colour pictures" if self.colour else "other rows") + rows

    @property
    def options(self) -> str:
        """Return the same as options of `odedm run`."""
        words = [f"--memory {self.memory['name']}"]
        words += [option_text("training", name, value) for name, value in self.settings.items()]
        words += [option_text("memory", name, value) for name, value in self.memory.items() if name != "name"]
        return " ".join(words)


@dataclass(frozen=True)
class Recipe:
    """A recommendation by name; the first of its cases that fits counts."""

    name: str
    about: str
    cases: tuple[Case, ...]

    def case(self, capacity: int, classes: int, *, colour: bool) -> Case:
        """Return what it recommends for so many rows of memory and classes, of colour pictures or others."""
        fitting = (case for case in self.cases if case.colour == colour)
        return next(case for case in fitting if capacity <= case.most_rows_per_class * classes)


@cache
def recipes() -> dict[str, Recipe]:
    """Return every recipe by name."""
    text = files(__package__).joinpath("recommendations.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text).items()
    return {
        name: Recipe(
            name, table["about"], tuple(Case(**{"most_rows_per_class": math.inf, **case}) for case in table["case"])
        )
        for name, table in tables
    }


def recipe(
    name: str = "best",
    *,
    capacity: int = 100,
    classes: int | None = None,
    colour: bool | None = None,
    data: str | Dataset = DATA,
    **settings: Any,
) -> Experiment:
    """Return the experiment that we recommend for a memory of `capacity` rows on some data.

    Args:
        name: a name in `odedm list recipes`.
        capacity: rows in all (λ).
        classes: of the whole stream; the data's unless given.
        colour: whether its rows are colour pictures, which have cases of their own; what the data say unless given.
        data: the name of a data set, which need not be here yet if it is a published one, or a `Dataset`.
        settings: further settings of the experiment, in place of the recipe's: seed, updates, …

    Returns:
        The experiment; `odedm.Run(plan).finish()` runs it, and `odedm.Run(plan, data)` on a `Dataset`.

    >>> plan = recipe("best", capacity=500, data="cifar100")
    >>> plan.memory.rho, plan.memory.replay, plan.updates, plan.views
    (0.25, 'auxiliary', 6, 'strong')
    >>> recipe("best", capacity=500, data="cifar10").memory
    Reservoir(capacity=500)
    """
    known = recipes()
    choose("recipe", name, known)
    if capacity == 0:
        raise UsageError(
            "A recipe is for a memory with rows, and a capacity of 0 was given. Give some, e.g. 100; to learn without "
            "a memory leave the recipe out, and take the memory 'none' (--memory none)."
        )
    rows = Int(1).validate("capacity", capacity)
    if "memory" in settings:
        raise UsageError(
            "A recipe chooses the memory by itself, for `capacity` rows. Leave memory out, or put another one in its "
            "place: dataclasses.replace(recipe(…), memory=…)."
        )
    for setting in settings:
        if setting not in settings_of(Experiment):
            raise unknown_name_error("setting of an experiment", setting, settings_of(Experiment))
    amount = None if classes is None else Int(1).validate("classes", classes)
    colourful = None if colour is None else Bool().validate("colour", colour)
    if amount is None or colourful is None:
        seen, in_colour = _look_at(data)
        amount, colourful = amount or seen, in_colour if colourful is None else colourful
    case = known[name].case(rows, amount, colour=colourful)
    options = {key: value for key, value in case.memory.items() if key != "name"}
    memory = memory_from_flat(KINDS[case.memory["name"]], {"capacity": rows, **options})
    chosen = {**case.settings, "data": getattr(data, "name", data), **settings}
    return Experiment(memory, **chosen)


def _look_at(data: Any) -> tuple[int, bool]:
    """How many classes data have, and whether they are colour pictures; nothing is downloaded or imported for it."""
    from odedm.stream.dataset import Dataset  # needs torch

    if isinstance(data, Dataset):
        return data.classes, is_colour(data)
    if not isinstance(data, str):
        raise refused("data", "a name or a Dataset (see odedm.from_arrays)", data)
    if data not in DATASETS and not imported.is_cached(data):
        if data in PUBLISHED:
            return PUBLISHED[data].classes, PUBLISHED[data].shape[0] == 3
        discover()
        if data not in DATASETS and data.strip() and os.path.exists(expand_user(data)):
            raise UsageError(
                f"What is in '{data}' is not known before it is imported. Give data=odedm.load_dataset('{data}'), or "
                "say both yourself: classes=… and colour=True or False."
            )
    dataset = load_dataset(data)
    return dataset.classes, is_colour(dataset)


def is_colour(data: Dataset) -> bool:
    """Return whether rows are colour pictures of 8 bits."""
    from odedm.stream.augment import policy_fits

    return policy_fits(data.image) and data.shape[0] == 3


def recipe_lines() -> dict[str, str]:
    """Recipes and their cases with one line each, for a list."""
    lines = {}
    for recommended in recipes().values():
        lines[recommended.name] = recommended.about
        for case in recommended.cases:
            sentences = [f"{case.options}.", case.why, case.evidence, case.measured]
            lines[f"{recommended.name}, {case.when}"] = " ".join(filter(None, sentences))
    return lines
