"""A study compared on held-out training rows: the test set is never read, gains are over plain and random rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import odedm
from odedm.report.held_out_table import held_out_csv, held_out_rows
from odedm.study.held_out_trials import Scored, held_out_trials, scored
from odedm.study.study import parse
from test_tuning import scrambled

from odedm import ODEDM, Experiment, Herding, Native, Random, Reservoir, blobs
from odedm.core.registry import METHODS
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.run_job import run_job
from odedm.memory.build_context import StreamShape
from odedm.methods.hyperparameters import configure
from odedm.training.experiment import content_key
from odedm.training.tricks import Tricks, check_tricks

ROOT = Path(__file__).parents[2]
WORDS = {"method": "er", "data": "blobs", "batch": 32, "device": "cpu"}
TOML = """
data = "blobs"
method = "er"
capacity = 30
batch = 32
seeds = [20, 21]
grid = [{ memory = "reservoir" }, { memory = "odedm", k = 2, distance = ["l2", "random"] }]
"""


def test_test_rows_are_never_read_and_all_tasks_are_trained(tmp_path: Path) -> None:
    plans = [Experiment(ODEDM(30, k=2, selection=Random()), seed=seed, **WORDS) for seed in (20, 21)]
    planned = plan_jobs(plans, run_dir_under(tmp_path))
    trials = held_out_trials(planned, 0.25)
    assert [(trial.select.tasks, trial.select.share, trial.experiment.seed) for trial in trials] == [
        (5, 0.25, 20), (5, 0.25, 21),
    ]  # fmt: skip
    assert {trial.key for trial in trials}.isdisjoint({job.key for job in planned.jobs})
    assert {trial.key for trial in held_out_trials(planned, 0.2)}.isdisjoint({trial.key for trial in trials})
    scores = [[run_job(trial, data=data) for trial in trials] for data in (blobs(), scrambled(blobs()))]
    assert scores[0] == scores[1]
    assert len(set(scores[0])) == 2
    found = scored(trials, {trial.key: score for trial, score in zip(trials, scores[0], strict=True)})
    assert [dict(each.scores) for each in found] == [dict(zip((20, 21), scores[0], strict=True))]
    assert scored(trials, {}) == []


def test_gains_are_over_the_partner_that_differs_in_the_memory_or_the_choice_alone() -> None:
    shape = StreamShape(5, 2)
    memories = {
        Reservoir(30): 40.0,
        Native(30, "balanced-reservoir"): 42.0,
        ODEDM(30, k=2): 45.0,
        ODEDM(30, k=2, selection=Random()): 44.0,
        ODEDM(30, k=2, selection=Herding(space="pixels")): 50.0,
        ODEDM(30, k=2, selection=Herding()): 47.0,
        ODEDM(30, k=2, candidates=5): 41.0,
        Reservoir(60): 60.0,
        ODEDM(60, k=2): 59.0,
    }
    found = [
        Scored(Experiment(memory.resolve(shape, "reservoir"), **WORDS), {20: score - 1, 21: score + 1})
        for memory, score in memories.items()
    ]
    rows = held_out_rows(found)
    assert [row[1:3] for row in rows[:2]] == [["2", "40.0 ± 1.0"], ["2", "42.0 ± 1.0"]]
    over_plain, over_random = ([row[place].partition(" ")[0] for row in rows] for place in (3, 4))
    assert over_plain == ["–", "+2.0", "+5.0", "+4.0", "+10.0", "+7.0", "+1.0", "–", "−1.0"]
    assert over_random == ["–", "–", "+1.0", "–", "+6.0", "+3.0", "–", "–", "–"]
    assert rows[4][4] == "+6.0 ± 0.0 (2 of 2)"
    assert len({row[0] for row in rows}) == len(rows)
    assert "pixels" in rows[4][0].replace("_", " ")
    lines = list(csv.reader(held_out_csv(found).splitlines()))
    assert lines[1] == [rows[0][0], "20", "39.0000"]
    assert len(lines) == 19


def test_the_command_scores_once_and_makes_no_run(tmp_path: Path) -> None:
    path, out = tmp_path / "choices.toml", tmp_path / "out"
    path.write_text(TOML, encoding="utf-8")
    words = ("study", path, "--held-out", 0.25, "--out", out)
    assert "6 trials, 6 to do" in odedm(*words, "--dry-run")
    assert not out.exists()
    first = odedm(*words, "--device", "cpu", "--workers", 1)
    assert "over random rows" in first
    assert "6 to do" in first
    again = odedm(*words, "--device", "cpu", "--workers", 1)
    assert "0 to do" in again
    assert first.partition("Runs")[2] == again.partition("Runs")[2]
    assert (out / "held-out.md").read_text(encoding="utf-8").startswith("| Runs | Seeds | Held-out ACC |")
    assert len((out / "held-out.csv").read_text(encoding="utf-8").splitlines()) == 7
    assert not list(out.glob("runs/*"))
    odedm("study", path, "--held-out", 1.5, "--out", out, code=2)
    assert "makes no runs" in odedm("study", path, "--held-out", 0.2, "--select-on", 2, "--out", out, code=2)


def test_plain_is_the_methods_own_policy_where_the_study_has_it() -> None:
    words = {**WORDS, "method": "icarl"}
    memories = {Reservoir(30): 40.0, Native(30): 45.0, ODEDM(30, k=2): 44.0}
    found = [
        Scored(Experiment(memory.resolve(StreamShape(5, 2), "herded"), **words), {20: score})
        for memory, score in memories.items()
    ]
    assert [row[3].partition(" ")[0] for row in held_out_rows(found)] == ["−5.0", "–", "−1.0"]
    del found[1]
    assert [row[3].partition(" ")[0] for row in held_out_rows(found)] == ["–", "+4.0"]


@pytest.mark.parametrize("name", ["no_harm", "readings"])
def test_studies_of_many_hosts_compare_odedm_with_the_policy_that_hosts_it(name: str) -> None:
    found: dict[tuple[str, str], set[str]] = {}
    for plan in parse((ROOT / "docs" / "results" / f"{name}.toml").read_text(encoding="utf-8")).experiments():
        memory = plan.memory.resolve(StreamShape(5, 2), METHODS[plan.method].load().policy)
        policy = memory.short_policy if isinstance(memory, ODEDM) else getattr(memory, "policy", "reservoir")
        found.setdefault((plan.data, plan.method), set()).add(policy)
    assert len(found) == 14
    assert {len(own) for own in found.values()} == {1}


@pytest.mark.parametrize(("data", "k", "candidates"), [("cifar10", 6, 10), ("cifar100", 3, 5)])
def test_the_study_of_choices_stands_for_what_it_says(data: str, k: int, candidates: int) -> None:
    plans = parse((ROOT / "docs" / "results" / "choices.toml").read_text(encoding="utf-8")).experiments()
    own = [plan for plan in plans if plan.data == data and plan.seed == 1000]
    shape = StreamShape(5, 2) if data == "cifar10" else StreamShape(10, 10)
    memories = [plan.memory.resolve(shape, "reservoir") for plan in own]
    dual = [memory for memory in memories if isinstance(memory, ODEDM)]
    assert len(own) == 10
    assert {plan.seed for plan in plans} == {1000, 1001, 1002}
    assert {memory.k for memory in dual} == {k}
    assert {memory.candidates for memory in dual} == {"task", candidates}
    assert {memory.flat()["distance"] for memory in dual} == {"sinkhorn", "random", "herding", "l2"}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "results").glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_of_the_benchmarks_can_be_planned(path: Path) -> None:
    plans = parse(path.read_text(encoding="utf-8")).experiments()
    assert len(plans) == len({content_key(plan.describe(), "data") for plan in plans}), "no run is there twice"
    for plan in plans:
        kind = METHODS[plan.method].load()
        configure(plan.method, kind, dict(plan.options))
        own, title = Tricks.of(plan), METHODS[plan.method].title or plan.method
        check_tricks(own, kind, title, plan.memory, plan.options)
