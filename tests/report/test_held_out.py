"""Scores on held-out training rows find their runs: by the study's keys, or by configuration where it is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report_runs import Fabricate, table_of

from odedm.report.load import load
from odedm.report.model import choices
from odedm.results.folder import FILE
from odedm.results.result import Result
from odedm.study.reuse import key_of_result
from odedm.study.study import parse
from odedm.study.trials import trial_key
from odedm.training.hold_out import Selection

SELECT = Selection(tasks=2, share=0.2, seeds=(1000, 1001))
SCORES = {0.25: (80.0, 82.0), 0.5: (60.0, 70.0)}


@pytest.fixture
def study(fabricate: Fabricate, tmp_path: Path) -> Path:
    """A study's folder: two ρ, of which the second is better on the test set and the first on held-out rows."""
    folder = tmp_path / "study"
    lines = []
    for rho, scores in SCORES.items():
        for seed in range(2):
            knobs = {"rho": rho, "k": int(12 * rho)}
            run = fabricate(
                seed=seed, acc=100 * rho, saved=None, root="study/runs", name=f"{rho}/seed-{seed}", knobs=knobs
            )
        result = Result.load(run / FILE)
        for seed, score in zip(SELECT.seeds, scores, strict=True):
            key = trial_key(key_of_result(result, seed), SELECT)
            other = trial_key(key_of_result(result, seed), Selection(tasks=3, seeds=SELECT.seeds))
            lines += [{"key": key, "score": score, "experiment": described(result, seed)}]
            lines += [{"key": other, "score": 1.0, "experiment": {}}]  # of another choice, on other rows
    (folder / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = "method = 'derpp'\nseeds = 2\n[select]\ntasks = 2\nshare = 0.2\nseeds = [1000, 1001]"
    (folder / "study.toml").write_text(parse(text, "mine").to_toml(), encoding="utf-8")
    return folder


def described(result: Result, seed: int) -> dict[str, Any]:
    """The experiment as a trial's line has it."""
    return {**result.experiment, "seed": seed, "device": "cuda"}


def scores_of(*paths: Path) -> dict[float, set[float | None]]:
    found: dict[float, set[float | None]] = {}
    for run in load(paths):
        found.setdefault(run.result.experiment["memory"]["rho"], set()).add(run.selection)
    return found


def test_a_studys_folder_shows_the_choice_without_the_test_set(study: Path) -> None:
    expected = {0.25: {81.0}, 0.5: {65.0}}
    assert scores_of(study) == scores_of(study / "runs") == expected
    assert scores_of(*(study / "runs").glob("*/*")) == expected
    table = table_of(study)
    chosen = {choice.how: choice.row.group.settings["memory.rho"] for choice in choices(table)}
    assert chosen == {"test": 0.5, "held-out": 0.25}


def test_a_choice_counts_when_all_its_trials_are_done(study: Path) -> None:
    lines = (study / "trials.jsonl").read_text().splitlines()
    (study / "trials.jsonl").write_text("\n".join(lines[2:]))  # without the first trial of the first ρ
    assert scores_of(study) == {0.25: {None}, 0.5: {65.0}}


def test_trials_without_their_study_are_found_by_configuration(study: Path) -> None:
    (study / "study.toml").unlink()
    assert scores_of(study) == {0.25: {81.0}, 0.5: {65.0}}
    lines = (study / "trials.jsonl").read_text()
    (study / "trials.jsonl").write_text(lines + lines.splitlines()[0] + "\n")  # a seed twice: on which rows?
    assert scores_of(study) == {0.25: {None}, 0.5: {65.0}}


@pytest.mark.parametrize("score", [10**400, float("nan"), True, "80", 1e200])
def test_a_score_that_is_no_number_is_none(study: Path, score) -> None:
    (study / "study.toml").unlink()
    trials = [json.loads(line) for line in (study / "trials.jsonl").read_text().splitlines()]
    (study / "trials.jsonl").write_text("".join(json.dumps({**trial, "score": score}) + "\n" for trial in trials))
    assert scores_of(study) == {0.25: {None}, 0.5: {None}}


def test_a_study_that_does_not_choose_has_no_choice(study: Path) -> None:
    (study / "study.toml").write_text(parse("method = 'derpp'", "mine").to_toml(), encoding="utf-8")
    assert scores_of(study) == {0.25: {None}, 0.5: {None}}
