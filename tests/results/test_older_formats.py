"""Results of the first format, made at 51b1e5e, are read as this version would have written them."""

import shutil
from pathlib import Path

import pytest
from commands import odedm

from odedm import Experiment, UsageError
from odedm.core.configuration import introduced
from odedm.core.registry import METHODS
from odedm.execute.planning import below, plan_jobs
from odedm.methods.hyperparameters import hyperparameters
from odedm.results.folder import FinishedRun
from odedm.results.older_formats import LATER, LATER_OPTIONS, upgraded
from odedm.results.result import Result
from odedm.results.verification import is_sound, verify
from odedm.study.identity import Code, key_of_result
from odedm.study.ledger import Ledger
from odedm.training.preparation import prepare

OLD = Path(__file__).parent / "first_format"
RUNS = sorted(path.name for path in OLD.iterdir())


@pytest.mark.parametrize("name", RUNS)
def test_an_old_result_is_sound_and_gives_its_plan_back(name):
    assert is_sound(verify(OLD / name))
    result = FinishedRun.load(OLD / name).result
    plan = Experiment.from_dict(result.experiment)
    assert prepare(plan).experiment.describe() == plan.describe(), "every default stands there as it was"
    assert len(result.classes) == 10


def test_what_names_stood_for_is_said():
    memories = {name: FinishedRun.load(OLD / name).result.experiment["memory"] for name in RUNS}
    assert memories["er-native"] == {"name": "reservoir", "capacity": 20}
    assert memories["fdr-native"]["policy"] == "task-quota"
    assert memories["icarl-odedm"]["short_policy"] == "herded"
    assert memories["icarl-odedm"]["epsilon"] == 0.05
    assert memories["er-odedm"]["epsilon"] is None, "of the distance l2"
    assert memories["derpp-odedm"]["replay"] == "both"


def test_a_study_counts_old_results_as_done(tmp_path):
    ledger = Ledger(tmp_path / "study")
    for number, name in enumerate(RUNS):
        shutil.copytree(OLD / name, ledger.runs / f"run-{number}" / "seed-0")
    plans = [Experiment.from_dict(FinishedRun.load(OLD / name).result.experiment) for name in RUNS]
    jobs = plan_jobs(plans, below(ledger.runs)).jobs
    assert [job.key for job in jobs] == [key_of_result(FinishedRun.load(OLD / name).result) for name in RUNS]
    assert ledger.status(jobs, reuse="version", code=Code.here()).todo == []


def test_old_and_new_results_are_reported_together(tmp_path):
    words = ("--data", "blobs", "--capacity", 20, "--device", "cpu", "--memory", "reservoir", "--method", "er")
    odedm("run", *words, "--seed", 1, "--out", tmp_path / "new")
    said = odedm("report", OLD / "er-native", tmp_path / "new", "--out", tmp_path / "page.html")
    assert "ER · reservoir" in said
    assert said.count("ER ·") == 1, "one group of two seeds"


def test_an_old_result_that_is_none_is_named():
    with pytest.raises(UsageError, match="of the format 'odedm.result/1' cannot be read"):
        upgraded({"schema": "odedm.result/1", "experiment": {"method": 3}}, "somewhere")
    other = {"schema": "odedm.result/7"}
    assert upgraded(other, "somewhere") is other


def test_settings_of_an_experiment_that_came_later_are_listed():
    """The room of results lies below that of experiments, so it cannot ask them."""
    assert introduced(Experiment) == LATER


def test_a_result_from_before_a_setting_has_the_value_all_runs_had():
    plain = FinishedRun.load(OLD / "fdr-native").result.to_dict()
    del plain["experiment"]["memory"]["policy_options"]
    assert Result.from_dict(plain).experiment["memory"]["policy_options"] == {}


def test_a_result_from_before_a_hyper_parameter_has_the_value_all_runs_had():
    plain = FinishedRun.load(OLD / "fdr-native").result.to_dict()
    plain["experiment"] |= {"method": "pocl", "options": {"lr": 0.2}}
    assert Result.from_dict(plain).experiment["options"] == {"lr": 0.2, "query_precision": "same"}
    for method, later in LATER_OPTIONS.items():
        defaults = hyperparameters(METHODS[method].load())
        assert later.items() <= defaults.items(), "what it is without a word"
