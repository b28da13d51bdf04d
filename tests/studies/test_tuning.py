"""Tuning without the test set: both arms try as often, on rows that no run is trained on, and the best are a study."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from jobs import write_run

from odedm import ODEDM
from odedm.core.errors import UsageError
from odedm.execute.run_job import run_job
from odedm.paper.studies import ready
from odedm.results.folder import FinishedRun
from odedm.studies.grid import Grid
from odedm.studies.run_store import RunStore
from odedm.studies.runner import StudyRunner
from odedm.studies.spec import Study, ValidationSplit
from odedm.studies.tuning import TrialResult, TuningStudy, balanced_draw, rates_at_an_end

SPLIT = ValidationSplit(validation=0.25, first_tasks=2, seeds=(70, 71))
RATES = {"options.er.lr": (0.01, 0.1, 0.5)}
PLAIN = Grid({"data": ("blobs",), "method": ("er",), "memory": ("native",), "capacity": (20,), **RATES})
WITH = Grid(
    {"data": ("blobs",), "method": ("er",), "memory": ("odedm",), "capacity": (20,), "rho": (0.25, 0.5), **RATES}
)
STUDY = Study("mine", (PLAIN, WITH), seeds=(3, 4), tune=SPLIT)
BASE = "er on blobs, λ=20"


@pytest.fixture
def tuning() -> TuningStudy:
    return TuningStudy.of(STUDY)


@pytest.fixture
def jobs(tuning, tmp_path):
    return StudyRunner(RunStore(tmp_path), device="cpu").plan(tuning.trials, tuning.experiments()).jobs


def scored(jobs, scores) -> dict[str, FinishedRun]:
    """Finished runs of jobs, which nobody ran, with these accuracies."""
    pairs = zip(jobs, scores, strict=True)
    return {job.key: FinishedRun.load(write_run(job, acc=float(score))) for job, score in pairs}


def test_a_try_is_an_ordinary_run_on_validation_rows_of_the_first_tasks(tuning, jobs) -> None:
    assert [job.experiment for job in jobs][0].validation == 0.25
    assert {(job.experiment.first_tasks, job.experiment.tasks) for job in jobs} == {(2, 5)}
    assert {job.experiment.seed for job in jobs} == {70, 71}
    result = run_job(jobs[0]).result
    assert len(result.acc) == 2
    assert tuning.trials.seeds == (70, 71)


def test_k_of_a_try_is_that_of_the_whole_stream(tmp_path) -> None:
    runner = StudyRunner(RunStore(tmp_path), device="cpu")
    tuning = TuningStudy.of(replace(STUDY, grids=(PLAIN, replace(WITH, axes={**WITH.axes, "capacity": (20,)}))))
    tried = {job.experiment.memory.k for job in runner.plan(tuning.trials, tuning.experiments()).jobs[2:4]}
    whole = runner.plan(replace(STUDY, grids=(WITH,), tune=None)).jobs
    assert tried <= {job.experiment.memory.k for job in whole}


def test_both_arms_try_as_often_and_take_turns(tuning) -> None:
    assert tuning.tries_of(BASE) == 3
    assert [len(grids) for grids in tuning.tries[BASE].values()] == [3, 3]
    plans = tuning.experiments()
    assert [plan.memory.name for plan in plans] == ["native", "native", "odedm", "odedm"] * 3
    assert [plan.seed for plan in plans[:4]] == [70, 71] * 2, "a try is whole before the next one"
    assert [len(grids) for grids in TuningStudy.of(STUDY, tries=2).tries[BASE].values()] == [2, 2]
    with pytest.raises(UsageError, match="one arm has only 3"):
        TuningStudy.of(STUDY, tries=4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("number", [2, 3, 4, 5, 8, 11])
def test_every_value_is_tried_where_the_number_of_tries_allows_it(number: int, seed: int) -> None:
    lists = {"lr": (1, 2, 3), "rho": (0.25, 0.5), "k": ("a", "b")}
    every = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    drawn = balanced_draw(every, number, seed)
    assert drawn == sorted(set(drawn)) == balanced_draw(every, number, seed)
    assert len(drawn) == number
    for name, values in lists.items():
        came = Counter(every[place][name] for place in drawn)
        assert len(came) == min(number, len(values))
        assert max(came.values()) - min(came.values()) <= 2, "and about as often as the others"


def test_another_seed_draws_others_and_where_there_are_no_more_all_are_taken_in_their_order() -> None:
    every = [{"lr": lr, "rho": rho} for lr in range(5) for rho in range(5)]
    assert len({tuple(balanced_draw(every, 5, seed)) for seed in range(10)}) > 5
    assert balanced_draw(every, 25, 0) == list(range(25))


def test_an_arm_with_more_combinations_draws_each_of_its_values(tuning) -> None:
    plans = [plan for grid in tuning.tries[BASE]["with"] for plan in grid.experiments()]
    assert {plan.memory.rho for plan in plans} == {0.25, 0.5}
    assert {plan.options["lr"] for plan in plans} == {0.01, 0.1, 0.5}


def test_a_best_rate_that_is_the_last_of_those_tried_is_said_to_be(tuning) -> None:
    def said(*rates: float) -> list[str]:
        plans = [replace(tuning.experiments()[0], options={"lr": rate}) for rate in rates]
        return rates_at_an_end({"without": [TrialResult(plan, {0: 50.0}) for plan in plans]})

    (larger,) = said(0.3, 0.01, 0.1)
    assert larger.startswith("The best learning rate without ODEDM, 0.3, is at the end of those tried: a larger one")
    assert "0.01, is at the end of those tried: a smaller one" in said(0.01, 0.3, 0.1)[0]
    assert said(0.1, 0.3, 0.01) == said(0.1) == said(0.1, 0.1) == [], "others lie on both sides, or one alone was tried"


def test_the_choices_are_a_study_that_says_how_they_were_made(tuning, jobs) -> None:
    decided, undecided = tuning.decided(jobs, scored(jobs, range(len(jobs))), {})
    assert undecided == {}
    study = tuning.as_study(decided)
    assert (study.seeds, study.name) == ((3, 4), "mine-tuned")
    assert study.chosen == "on 25% of the training rows of the first 2 tasks"
    plain, dual = (plan for plan in study.experiments() if plan.seed == 3)
    arms = decided[BASE]
    assert plain.options == {"lr": arms["without"][0][0].experiment.options["lr"]} == {"lr": 0.5}
    assert isinstance(dual.memory, ODEDM)
    assert dual.memory.rho == arms["with"][0][0].experiment.memory.rho
    assert (plain.validation, plain.first_tasks) == (None, None)
    assert arms["with"][0][0].mean == 10.5


def test_choices_of_the_longest_name_have_a_legal_one(jobs) -> None:
    long = TuningStudy.of(replace(STUDY, name="n" * 100))
    decided, _ = long.decided(jobs, scored(jobs, [1] * len(jobs)), {})
    assert long.as_study(decided).name[-6:] == "-tuned"
    assert long.trials.name[-7:] == "-trials"


def test_a_base_method_is_decided_when_every_run_is_over_or_has_failed(tuning, jobs) -> None:
    *most, last = jobs
    done = scored(most, range(len(most)))
    assert tuning.decided(jobs, done, {}) == ({}, {BASE: 1})
    decided, undecided = tuning.decided(jobs, done, {last.key: "The loss is infinite."})
    assert undecided == {}
    assert [len(results) for results in decided[BASE].values()] == [3, 2]
    assert tuning.decided(jobs, {}, {job.key: "No." for job in jobs}) == ({}, {BASE: 0})


def test_every_base_method_of_a_study_is_tuned_by_itself() -> None:
    rates = {"options.er.lr": (0.1, 0.2), "options.der.lr": (0.03,), "options.der.alpha": (0.1, 0.2)}
    axes = {"data": ("blobs",), "method": ("er", "der"), "capacity": (20, 30), "batch": (8,)}
    grids = (Grid({**axes, "memory": ("native",), **rates}), Grid({**axes, "memory": ("odedm",), "k": (1,), **rates}))
    found = TuningStudy.of(Study("mine", grids)).tries
    assert list(found) == [f"{method} on blobs, λ={size}" for method in ("er", "der") for size in (20, 30)]
    for arms in found.values():
        assert [[plan.options for grid in grids for plan in grid.experiments()] for grids in arms.values()] in (
            [[{"lr": 0.1}, {"lr": 0.2}]] * 2,
            [[{"lr": 0.03, "alpha": 0.1}, {"lr": 0.03, "alpha": 0.2}]] * 2,
        )
    other = replace(grids[1], axes={**grids[1].axes, "batch": (16,)})  # not the same: it sees other batches
    with pytest.raises(UsageError, match="no run with ODEDM"):
        TuningStudy.of(Study("mine", (grids[0], other)))
    with pytest.raises(UsageError, match=r"has method=mir\. There are: method=er,der\."):
        TuningStudy.of(Study("mine", grids, only=("method=mir",)))


def test_equal_tuning_tries_the_papers_runs_at_three_rates() -> None:
    study = ready("equal-tuning")
    found = TuningStudy.of(study).tries
    assert len(found) == 12
    assert {len(own) for sides in found.values() for own in sides.values()} == {3}
    tried = {plan.slug() for grid in study.grids for plan in grid.experiments()}
    papers = [
        plan for data in ("cifar10", "cifar100") for plan in replace(ready("table1", data), seeds=(0,)).experiments()
    ]
    same = [plan for plan in papers if plan.slug() in tried]  # every setting but the rate is the paper's
    assert len(same) == 24
    assert {(plan.memory.k, plan.data) for plan in same if isinstance(plan.memory, ODEDM)} == {
        *((k, "cifar10") for k in (6, 13, 19)),
        (1, "cifar100"),
    }
