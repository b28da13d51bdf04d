"""`odedm run --from RESULT`: the same run again from its own file, but for what is given."""

import json
from pathlib import Path

import pytest
from commands import odedm
from jobs import same

from odedm.results.folder import FinishedRun, find_runs

WORDS = ["--data", "blobs", "--method", "derpp", "--capacity", 30, "--k", 2, "--replay", "both", "--set", "alpha=0.3"]
WORDS += ["--batch", 16, "--device", "cpu"]
RATES = {"lr": 0.03, "momentum": 0.0, "weight_decay": 0.0}
OLD = Path(__file__).parents[1] / "results" / "runs"


def only(folder):
    (found,) = find_runs([folder])
    return FinishedRun.load(found).result


@pytest.fixture
def first(tmp_path):
    odedm("run", *WORDS, "--out", tmp_path / "first")
    return next((tmp_path / "first").glob("*/seed-0"))


def test_the_same_run_again(first, tmp_path):
    odedm("run", "--from", first / "result.json", "--out", tmp_path / "again")
    assert same(only(first), only(tmp_path / "again"))
    assert find_runs([tmp_path / "again"])[0].parent.name == first.parent.name, "one experiment has one folder"


def test_another_seed_is_what_a_command_would_have_run(first, tmp_path):
    odedm("run", "--from", first, "--seed", 4, "--out", tmp_path / "again")
    odedm("run", *WORDS, "--seed", 4, "--out", tmp_path / "straight")
    assert same(only(tmp_path / "straight"), only(tmp_path / "again"))


@pytest.mark.parametrize(
    ("more", "place", "value"),
    [
        (["--capacity", 40], ("memory", "capacity"), 40),
        (["--set", "beta=0.9"], ("options",), {**RATES, "alpha": 0.3, "beta": 0.9}),
        (["--method", "er"], ("options",), {**RATES, "lr": 0.1}),
        (["--memory", "reservoir"], ("memory",), {"name": "reservoir", "capacity": 30}),
        (["--rho", 0.5], ("memory", "k"), 2),
        (["--set", "memory.gamma=0.5"], ("memory", "k"), 2),
    ],
)  # fmt: skip
def test_what_is_given_changes_it_and_nothing_else(first, tmp_path, more, place, value):
    odedm("run", "--from", first, *more, "--out", tmp_path / "again")
    plan = only(tmp_path / "again").experiment
    for name in place:
        plan = plan[name]
    assert plan == value
    assert only(tmp_path / "again").experiment["batch"] == 16


def test_results_of_the_runs_run_again(tmp_path):
    for name in ("er-native", "fdr-native", "er-odedm"):
        odedm("run", "--from", OLD / name, "--out", tmp_path / name)
        old, new = FinishedRun.load(OLD / name).result, only(tmp_path / name)
        assert new.experiment == old.experiment
        assert new.class_counts == old.class_counts


def test_what_is_no_result_is_a_sentence(first, tmp_path):
    path = first / "result.json"
    for text, sentence in (
        ("{}", "not a result"),
        (path.read_text().replace('"derpp"', '"os.system"'), "Unknown method 'os.system'"),
        (json.dumps({**json.loads(path.read_text()), "experiment": {}}), "not an object with a memory"),
    ):
        (tmp_path / "result.json").write_text(text)
        assert sentence in odedm("run", "--from", tmp_path / "result.json", "--out", tmp_path / "x", code=2)
    assert "There is no" in odedm("run", "--from", tmp_path / "nowhere.json", code=2)
    assert not (tmp_path / "x").exists()
