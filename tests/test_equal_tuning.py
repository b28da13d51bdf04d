"""The page on equal tuning, from small runs on embedded data: whose numbers it shows, and what it says is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from beside import imported

from odedm import Dataset
from odedm.core.errors import UsageError
from odedm.execute.run_job import run_job
from odedm.results.result import Result
from odedm.stream.synthetic import blobs
from odedm.studies.run_store import RunStore
from odedm.studies.runner import StudyRunner
from odedm.studies.spec import Study, parse
from odedm.studies.tuning import TuningStudy
from odedm.training.preparation import prepare
from odedm.training.run import Run

equal_tuning = imported("tools", "equal_tuning")

STUDY = parse("""
name = "small"
data = "blobs"
capacity = 20
limit = 20
method = ["er", "der"]
seeds = [5, 6]
grid = [{ memory = "plain" }, { memory = "odedm", k = 1 }]
[tune]
seeds = [70]
[options.er]
lr = [0.001, 0.1]
[options.der]
lr = [0.03, 0.0001]
""")


def finished(study: Study, data: Dataset) -> list[Result]:
    plans = [replace(plan, device="cpu") for plan in study.experiments()]
    return [Run(prepare(plan, data).experiment, data).finish().result for plan in plans]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What `odedm tune` and `odedm study` would leave: the choices, the runs at tuned rates, those of the constants."""
    folder, data = tmp_path_factory.mktemp("tuned"), blobs()
    tuning, runner = TuningStudy.of(STUDY), StudyRunner(RunStore(folder), device="cpu")
    planned = runner.plan(tuning.trials, tuning.experiments())
    for job in planned.jobs:
        run_job(job, data=data)
    decided, undecided = tuning.decided(planned.jobs, runner.status(planned).done, {})
    path = folder / "tuned.json"
    path.write_text(json.dumps(tuning.to_dict(decided, undecided)))
    tuned = finished(tuning.as_study(decided), data)
    usual = finished(replace(STUDY, seeds=(0, 1), tune=None, only=("method=er",)), data)
    return equal_tuning.read_tuned(path), tuned, usual


def test_every_number_is_that_of_its_own_runs(made) -> None:
    tuned, runs, usual = made
    er, der = equal_tuning.cases(STUDY, tuned, [*runs, *usual])
    assert [each.title for each in (er, der)] == ["ER", "DER"]
    for case, contest in zip((er, der), tuned["tuned"], strict=True):
        for side in ("without", "with"):
            best = max(contest[side], key=lambda each: each["mean"])["experiment"]["options"]["lr"]
            assert case.rate(side) == best
            own = [
                run
                for run in runs
                if run.experiment["method"] == case.method
                and (run.experiment["memory"]["name"] == "odedm") == (side == "with")
            ]
            assert {run.experiment["options"]["lr"] for run in own} == {best}
            assert case.tuned.scores[side] == {run.experiment["seed"]: run.acc_last for run in own}
    constant = [run for run in usual if run.experiment["options"]["lr"] == 0.1]  # the paper's studies have it for ER
    found = {**er.constants.scores["without"], **er.constants.scores["with"]}
    assert len(constant) == 4
    assert found.keys() == {0, 1}
    assert {run.acc_last for run in er.constants.results} == {run.acc_last for run in constant}
    assert der.constants.results == []


def test_the_page_says_what_was_found_and_what_is_missing(made, tmp_path: Path) -> None:
    tuned, runs, usual = made
    text = equal_tuning.page(STUDY, tuned, [*runs, *usual], "--tuned x.json", "picture.png")
    assert "# Does the gain survive equal tuning?" in text
    assert "- Runs at the paper's constants: DER on blobs, without ODEDM; DER on blobs, with ODEDM.\n" in text
    assert "Tuned runs" not in text
    assert "2 learning\nrates" in text or "2\nlearning rates" in text
    change = next(each for each in equal_tuning.cases(STUDY, tuned, runs) if each.method == "er").tuned.change()
    assert change is not None
    assert f"{change.estimate.mean:+.1f}".replace("-", "−").replace("+0.0", "0.0") in text
    assert "8 trials" in text
    assert "seeds 5 to 6" in text
    assert "](picture.png)" in text
    assert "the paper prints as the method's best (1 on blobs)" in " ".join(text.split())
    assert "met by the reading `union` for ER; `auxiliary` with γ = 1 times the long-term share for DER (" in text
    assert "would now have [another]" not in text
    few = {**tuned, "tuned": tuned["tuned"][1:], "undecided": {"er on blobs, λ=20": 3}}
    text = equal_tuning.page(STUDY, few, runs[:-1], "")
    assert "- No rate is chosen yet: ER on blobs (3 trials left).\n" in text
    assert "- Tuned runs: DER on blobs, with ODEDM (1 of 2 seeds).\n" in text
    picture = tmp_path / "picture.png"
    equal_tuning.save_figure(equal_tuning.changes(equal_tuning.cases(STUDY, few, runs)), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_file_that_is_no_choice_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    nobody, nothing = '{"tuned": [{"base": "x", "without": [], "with": []}]}', '{"tuned": [], "tune": 3}'
    for text in ("", "[]", '{"tuned": [{"without": [{}]}]}', nobody, nothing, "[" * 100_000):
        path.write_text(text)
        with pytest.raises(UsageError, match="is no tuned.json"):
            equal_tuning.read_tuned(path)
