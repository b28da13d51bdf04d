"""Runs that were packed before a default changed are still those that the studies ask for."""

from dataclasses import replace

import numpy as np
import pytest
from beside import ROOT

import odedm
from odedm.paper.items import SHIPPED
from odedm.paper.studies import ready
from odedm.results.packed import read_packed
from odedm.studies.spec import parse
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare

STUDIES = {
    "table1": (SHIPPED, lambda data: ready("table1", data)),
    "leaderboard": (
        ROOT / "docs" / "results",
        lambda _: parse((ROOT / "docs" / "results" / "leaderboard.toml").read_text()),
    ),
}
"""By the name of the packed file: where it lies, and the study."""


def stand_in(name):
    """A row of each class in the data's place; that the rows are others is no part of a plan."""
    classes = {"cifar10": 10, "cifar100": 100}[name]
    rows = np.zeros((classes, 3, 32, 32), np.uint8), np.arange(classes)
    return odedm.from_arrays(*rows, tasks=5 if classes == 10 else 10, test=rows, name=name)


def mark(plain):
    """A run's content, but for its seed and what a GPU's precision is."""
    return content_key({**plain, "precision": "bf16", "seed": 0})


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
@pytest.mark.parametrize("name", STUDIES)
def test_every_packed_run_is_one_of_its_study(name, data):
    packed = (run.result.experiment for run in read_packed(STUDIES[name][0] / f"{name}.jsonl.gz"))
    done, study = [plain for plain in packed if plain["data"] == data], STUDIES[name][1](data)
    assert "auxiliary" in {plain["memory"].get("replay") for plain in done}
    sizes = ",".join(sorted({str(plain["memory"]["capacity"]) for plain in done}))
    study = replace(study, seeds=study.seeds[:1], only=(f"data={data}", f"capacity={sizes}"))
    rows = stand_in(data)
    wanted = {mark(prepare(plan, rows, remote=True).experiment.describe()) for plan in study.experiments()}
    assert {mark(plain) for plain in done} <= wanted


PAPERS = {
    "mini": lambda: ready("mini"),
    "elsewhere": lambda: ready("ablation", "fashion-mini"),
    "equal": lambda: ready("equal-tuning"),
}


@pytest.mark.parametrize("study", PAPERS)
def test_studies_of_the_paper_have_its_reading_on_any_data(study):
    duals = [plan.memory for plan in PAPERS[study]().experiments() if plan.memory.name == "odedm"]
    assert {(memory.replay, memory.gamma, memory.gamma_rule) for memory in duals} == {("auxiliary", 1.0, "fixed")}
