"""The paper's twelve tables and five figures by name: what each needs to be run, and what of it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from odedm.core.configuration import settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.plain_data import flatten
from odedm.execute.eta import TimeEstimate
from odedm.execute.job import Job, RunOptions
from odedm.results.folder import FinishedRun
from odedm.study.paper_numbers import BORROWED, PRINTED_WITH, plain
from odedm.study.paper_studies import ready
from odedm.study.study import Study
from odedm.training.experiment import Experiment, content_key

FOLDER = "paper"
"""All of the paper is one study's folder: a run that several tables share is made once."""
THREE = ("cifar10", "cifar100", "tiny-imagenet")
ROWS = {"cifar10": 50_000, "cifar100": 50_000, "tiny-imagenet": 100_000, "imagenet-r": 24_000}
"""Training rows, so that a time can be told without the data; of ImageNet-R four in five."""
HALVED = 0.75
"""The share of the rows that the imbalanced setting leaves."""
SEED = "seed "
BY_NAME = ("memory.name", "memory.policy", "memory.short_policy", "memory.k")
"""Settings that a plan and its result write differently: what follows from others is filled in."""


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of the paper: the ready study that makes it, on which data, and what is shown of it.

    `tables` are names in the printed numbers, `figures` those of a report's drawings. Where there is no study,
    `without` says why, or where it is; `note` is what a reader of the printed numbers must know.
    """

    title: str
    study: str = ""
    data: tuple[str, ...] = ("cifar10",)
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    without: str = ""
    note: str = ""


ITEMS = {
    "table1": PaperItem("Eight methods without ODEDM and with the best of three ρ", "table1", THREE, ("table1",)),
    **{
        f"full-{data}": PaperItem(f"The same for every ρ, {data}", "table1", (data,), (f"full_{plain(data)}",))
        for data in THREE
    },
    **{
        f"task-il-{data}": PaperItem(f"Task-IL accuracy, {data}", "table1", (data,), (f"task_il_{plain(data)}",))
        for data in THREE
    },
    "dac-sweep": PaperItem("Clusters and depth of DAC", "dac-sweep", tables=("dac_sweep",)),
    "distances": PaperItem("Sinkhorn, L2, L1 and MMD", "distances", tables=("distance_ablation",)),
    "fitting": PaperItem("PuriDivER with its fit to the memory", "fitting", tables=("puridiver_fitting",)),
    "imagenet-r": PaperItem("A vision transformer on ImageNet-R", "imagenet-r", ("imagenet-r",), ("imagenet_r",)),
    "table4": PaperItem(
        "Other methods at 1 and 50 epochs",
        "table4",
        tables=(BORROWED,),
        note="Printed there are literature values of another protocol (batches of 10 and draws of 64, Adam, stronger "
        "views); ours are by the protocol of the paper's own tables",
    ),
    "figure1": PaperItem("The system", without="our own diagram: docs/system.svg"),
    "figure2": PaperItem("Forgetting rate over tasks at three λ", "forgetting", figures=("forgetting",)),
    "figure3a": PaperItem("Ablation over ρ", "ablation", figures=("share",)),
    "figure3b": PaperItem("Seconds with and without DAC", "dac-runtime", figures=("runtime", "training_time")),
    "figure3c": PaperItem("What the memory holds, as a density", "density", figures=("class_density",)),
    "figure4": PaperItem("Memory among the data, by distance", "distances", figures=("projection",)),
    "figure5": PaperItem("Chosen pictures, by distance", "distances", figures=("selections",)),
}
"""By name; figure 3 has three parts, each with runs of its own."""


def study_of(name: str, data: str | None = None) -> Study:
    """The study that makes a table or figure, on one of its data sets or on all of them.

    >>> len(study_of("figure3c").experiments())
    10
    >>> study_of("figure1")
    Traceback (most recent call last):
    odedm.UsageError: 'figure1' has nothing to run: our own diagram: docs/system.svg.
    """
    item = choose("table or figure of the paper", name, ITEMS)
    if not item.study:
        raise UsageError(f"'{name}' has nothing to run: {item.without}.")
    if data is not None and data not in item.data:
        raise UsageError(f"The paper has '{name}' on {', '.join(item.data)}; '{data}' was given. Give one of these.")
    parts = [ready(item.study, each) for each in ([data] if data else item.data)]
    grids = tuple(grid for part in parts for grid in part.grids)
    # Choosing ρ on held-out rows is not the paper's: `odedm study table1` does it.
    return replace(parts[0], name=FOLDER, about=item.title, grids=grids, select=None)


def same_run(described: Mapping[str, Any]) -> str:
    """What a plan of the paper's and its result have in common and no other run has; it needs no data."""
    flat = flatten({name: value for name, value in described.items() if name not in _paces()})
    own = {name: value for name, value in flat.items() if name not in BY_NAME and value != {}}
    usual = PRINTED_WITH.get(plain(str(flat.get("method"))), "reservoir")
    name = flat.get("memory.name")
    policy = "reservoir" if name == "reservoir" else flat.get("memory.policy") or usual
    own["memory"] = "odedm" if name == "odedm" else "plain" if policy == usual else policy
    seed = own.pop("seed", 0)
    return f"{json.dumps(own, sort_keys=True)} {SEED}{seed}"


def _paces() -> set[str]:
    return {"precision", *(name for name, own in settings_of(Experiment).items() if own.speed_only)}


@dataclass(frozen=True)
class PaperProgress:
    """How much of a table or figure is done, by runs, and the seconds that the rest takes, but for `unknown` runs.

    Unknown is the time of a method that was not measured on that data yet.
    """

    runs: int
    done: Sequence[FinishedRun]
    seconds: float
    unknown: int

    @property
    def left(self) -> int:
        """Runs that are not done."""
        return self.runs - len(self.done)


def progress(name: str, finished: Mapping[str, FinishedRun]) -> PaperProgress:
    """What of a table or figure is among the finished runs, which are by `same_run`; times are those of near ones."""
    item = ITEMS[name]
    marks = {mark: plan for data in item.data for mark, plan in _plans(item.study, data)}
    done = {mark: finished[mark] for mark in marks if mark in finished and _same_k(marks[mark], finished[mark])}
    times, device = TimeEstimate(), "cpu"
    for run in finished.values():
        plan = run.result.experiment
        device = str(plan.get("device", device))
        times.learn(plan, _rows(plan), run.seconds)
    left = [plan for mark, plan in marks.items() if mark not in done]
    # another method may take fifty times as long, and larger pictures four times: their times say nothing here
    measured = {(run.result.experiment.get("method"), run.result.experiment.get("data")) for run in finished.values()}
    alike = [plan for plan in left if (plan.method, plan.data) in measured]
    told = [times.expect(_job(replace(plan, device=device))) for plan in alike]
    known = [each for each in told if each is not None]
    return PaperProgress(len(marks), list(done.values()), sum(known), len(left) - len(known))


@cache
def _plans(study: str, data: str) -> list[tuple[str, Experiment]]:
    """What tells the runs of a ready study from others, each with its plan of the first seed; tables share them."""
    whole = ready(study, data)
    plans = replace(whole, seeds=(0,), select=None).experiments()
    marks = [(same_run(plan.describe()).rpartition(SEED)[0], plan) for plan in plans]
    return [(f"{mark}{SEED}{seed}", plan) for seed in whole.seeds for mark, plan in marks]


def _same_k(plan: Experiment, run: FinishedRun) -> bool:
    k = getattr(plan.memory, "k", None)
    return k is None or run.result.experiment["memory"].get("k") == k


def _rows(plan: Mapping[str, Any]) -> int:
    passes = HALVED if plan.get("imbalance") == "imbalanced" else 1
    return round(ROWS.get(str(plan.get("data")), 1) * passes * int(plan.get("epochs", 1)))


def _job(plan: Experiment) -> Job:
    described = plan.describe()
    return Job(content_key(described), plan, Path(), RunOptions(), rows=_rows(described))
