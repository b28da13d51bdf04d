"""The paper's tables and figures by number: what each needs to be run, and which of its runs are done."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from odedm.core.configuration import settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.plain_data import flatten
from odedm.paper.mini import miniature
from odedm.paper.protocol import POLICIES
from odedm.paper.studies import ready
from odedm.results.folder import FinishedRun
from odedm.studies.merging import read_all
from odedm.studies.spec import Study
from odedm.training.experiment import Experiment

CITATION = (
    "Dai et al., Dynamic Dual Buffer with Divide-and-Conquer Strategy for Online Continual Learning (ODEDM), "
    "arXiv:2505.18101"
)
FOLDER = "paper"
"""All of the paper is one study's folder: a run that several tables share is made once."""
MINI_FOLDER = "paper-mini"
SHIPPED = Path(__file__).parent / "results"
"""Packed results of this repository, which come with the package."""
DIAGRAM = Path(__file__).parent / "figure1.svg"
"""Our own drawing of the system, which is docs/system.svg."""
SEED = "seed "
MEMORY_SETTINGS = ("memory.name", "memory.policy", "memory.short_policy", "memory.k")
"""Settings that a plan and its result write differently: what follows from others is filled in."""


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of the paper: the ready study that makes it, on which data, and what is shown of it.

    `tables` are names in the published numbers, `figures` those of drawings. Where there is no study, `source` says
    where the item comes from; `note` is what a reader of the printed numbers must know, `caption` the
    paper's own.
    """

    name: str
    title: str
    study: str = ""
    data: tuple[str, ...] = ("cifar10",)
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    source: str = ""
    note: str = ""
    caption: str = ""

    @property
    def number(self) -> str:
        """How the paper calls it.

        >>> ITEMS["table12"].number, ITEMS["figure3a"].number
        ('Table 12', 'Figure 3a')
        """
        kind = self.name.rstrip("abc").rstrip("0123456789")
        return f"{kind.title()} {self.name.removeprefix(kind)}"


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _item(name: str, table: dict[str, Any]) -> PaperItem:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return PaperItem(name, **values)


ITEMS = {name: _item(name, table) for name, table in _toml("items.toml").items()}
"""By name; figure 3 has three parts, each with runs of its own."""


def items_named(name: str) -> list[PaperItem]:
    """Return the table or figure of that name, or the parts of a figure that has several.

    >>> [item.number for item in items_named("figure3")]
    ['Figure 3a', 'Figure 3b', 'Figure 3c']
    """
    parts = [item for item in ITEMS.values() if item.name.rstrip("abc") == name]
    return parts or [choose("table or figure of the paper", name, ITEMS)]


def study_of(item: PaperItem, data: str | None = None) -> Study:
    """Return the study that makes a table or figure, on one of its data sets or on all of them.

    >>> len(study_of(ITEMS["figure3c"]).experiments())
    10
    """
    if data is not None and data not in item.data:
        raise UsageError(
            f"The paper has {item.number} on {', '.join(item.data)}; '{data}' was given. Give one of these."
        )
    parts = [ready(item.study, name) for name in ([data] if data else item.data)]
    grids = tuple(grid for part in parts for grid in part.grids)
    return replace(parts[0], name=FOLDER, about=item.title, grids=grids)


def run_signature(described: Mapping[str, Any]) -> str:
    """Return what a plan of the paper's and its result have in common and no other run has; it needs no data."""
    flat = flatten({name: value for name, value in described.items() if name not in _speed_settings()})
    settings = {name: value for name, value in flat.items() if name not in MEMORY_SETTINGS and value != {}}
    usual = POLICIES.get(str(flat.get("method")), "reservoir")
    name = flat.get("memory.name")
    policy = "reservoir" if name == "reservoir" else flat.get("memory.policy") or usual
    settings["memory"] = "odedm" if name == "odedm" else "plain" if policy == usual else policy
    seed = settings.pop("seed", 0)
    return f"{json.dumps(settings, sort_keys=True)} {SEED}{seed}"


@cache
def _speed_settings() -> frozenset[str]:
    settings = settings_of(Experiment).items()
    return frozenset({"precision", *(name for name, setting in settings if setting.speed_only)})


def by_signature(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    """Return finished runs by what tells them from others, whatever device made them."""
    return {run_signature(run.result.experiment): run for run in runs}


def shipped_runs() -> list[FinishedRun]:
    """Return the finished runs that come with the package."""
    return list(read_all(sorted(SHIPPED.glob("*.jsonl.gz"))).values())


CHANGES: list[dict[str, Any]] = _toml("changes.toml")["change"]
CHANGED = "†"
"""Marks numbers of runs that are older than a change of their algorithm."""


def changes_since(runs: Iterable[FinishedRun]) -> dict[str, int]:
    """Return what has changed in the algorithms of finished runs since they were made, each with how many are older."""
    older: Counter[str] = Counter()
    for run in runs:
        settings = flatten(run.result.experiment)
        made = str(run.result.provenance.get("finished", ""))
        for change in CHANGES:
            if made < change["since"] and all(settings.get(name) == value for name, value in change["where"].items()):
                older[change["about"]] += 1
    return dict(older)


@dataclass(frozen=True)
class PaperProgress:
    """Which runs of a table or figure are done, and the plans of those that are missing.

    `stands_for` has the runs in miniature that are done, each with the settings of the paper's that it stands for.
    """

    done: Sequence[FinishedRun]
    missing: Sequence[Experiment]
    stands_for: Sequence[tuple[Mapping[str, Any], FinishedRun]] = ()

    @property
    def runs(self) -> int:
        """Return how many there are in all."""
        return len(self.done) + len(self.missing)


def progress(item: PaperItem, finished: Mapping[str, FinishedRun], study: Study | None = None) -> PaperProgress:
    """Return which runs of an item, or of its narrowed study, are among the finished ones, by signature."""
    plans = _plans(study) if study else [pair for data in item.data for pair in _plans_of(item.study, data)]
    return _among(plans, finished)


def progress_in_miniature(_: PaperItem, finished: Mapping[str, FinishedRun], study: Study) -> PaperProgress:
    """Return which small runs that stand for those of a narrowed study are among the finished ones, by signature."""
    # bounds, which have no memory, are not printed in the paper
    pairs = [(plan, miniature(plan)) for plan in study.experiments() if plan.memory.name != "none"]
    signed = [(run_signature(small.describe()), plan, small) for plan, small in pairs]
    stands_for = [(plan.describe(), finished[signature]) for signature, plan, _ in signed if signature in finished]
    return replace(_among([(signature, small) for signature, _, small in signed], finished), stands_for=stands_for)


def _among(plans: Iterable[tuple[str, Experiment]], finished: Mapping[str, FinishedRun]) -> PaperProgress:
    """Return which plans, each with its signature, are among the finished runs."""
    done: dict[str, FinishedRun] = {}
    missing: dict[str, Experiment] = {}
    for signature, plan in plans:
        run = finished.get(signature)
        if run is not None and _same_k(plan, run):
            done[signature] = run
        else:
            missing[signature] = plan
    return PaperProgress(list(done.values()), list(missing.values()))


@cache
def keeps_evidence() -> frozenset[str]:
    """Return the signatures, without seeds, of the runs whose features and choices a figure shows."""
    studies = [study_of(item) for item in ITEMS.values() if item.study]
    plans = [plan for study in studies if study.observation.evidence for plan in study.with_seeds(1).experiments()]
    described = [run.describe() for plan in plans for run in (plan, miniature(plan))]
    return frozenset(run_signature(settings).rpartition(SEED)[0] for settings in described)


@cache
def _plans_of(study: str, data: str) -> list[tuple[str, Experiment]]:
    return _plans(ready(study, data))


def _plans(study: Study) -> list[tuple[str, Experiment]]:
    """Return the plans of a study, each with its signature; those of one seed come first, then the same of the next."""
    plans = study.experiments()
    per_seed = plans[: len(plans) // len({plan.seed for plan in plans})]
    signatures = [run_signature(plan.describe()).rpartition(SEED)[0] for plan in per_seed]
    return [(f"{signatures[i % len(per_seed)]}{SEED}{plan.seed}", plan) for i, plan in enumerate(plans)]


def _same_k(plan: Experiment, run: FinishedRun) -> bool:
    k = getattr(plan.memory, "k", None)
    return k is None or run.result.experiment["memory"].get("k") == k
