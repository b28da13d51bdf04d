"""Choices without the test set: which rows are held out, what is never read, and that both sides try as often."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from jobs import DUAL, SMALL, result_of

from odedm import ODEDM, Prototypes
from odedm.core.errors import UsageError
from odedm.execute.backend import ExecutionConfig
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.run_job import run_job
from odedm.paper.equal_tuning import DATA, equal_tuning
from odedm.paper.studies import ready
from odedm.stream.synthetic import blobs
from odedm.study.balanced_draw import balanced_draw
from odedm.study.contests import Contests, candidates_of, contests
from odedm.study.grid import Grid
from odedm.study.run_store import RunStore
from odedm.study.study import Study
from odedm.study.study_runner import StudyRunner
from odedm.study.trials import configuration, families, held_out_score, trials_of
from odedm.study.tuning import Contest, Tried, rates_at_an_end
from odedm.training.hold_out import Selection, held_out

SELECT = Selection(tasks=2, share=0.25, seeds=(70, 71))
RATES = {"er": {"lr": (0.01, 0.1, 0.5)}}
PLAIN = Grid({"data": ("blobs",), "method": ("er",), "memory": ("plain",), "capacity": (20,)}, RATES)
WITH = Grid({"data": ("blobs",), "method": ("er",), "memory": ("odedm",), "capacity": (20,), "rho": (0.25, 0.5)}, RATES)


def planned(plans, place):
    return plan_jobs([replace(plan, device="cpu") for plan in plans], run_dir_under(place)).jobs


def rows(image: torch.Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in image}


def test_held_out_rows_are_training_rows_of_the_first_tasks_and_are_not_trained_on() -> None:
    data = blobs()
    plan, part = held_out(data, SMALL.with_seed(70), SELECT)
    first = data.image[(data.label < 4)]
    assert rows(part.image) | rows(part.test_image) == rows(first)
    assert not rows(part.image) & rows(part.test_image)
    assert not rows(part.test_image) & rows(data.test_image)
    assert (part.classes, part.tasks, plan.tasks) == (4, 2, 2)
    for label in range(4):
        whole, held = int((data.label == label).sum()), int((part.test_label == label).sum())
        assert held == round(0.25 * whole)


def test_labels_stay_with_their_rows_in_any_class_order() -> None:
    data = blobs()
    where = {row.numpy().tobytes(): data.class_names[label] for row, label in zip(data.image, data.label, strict=True)}
    _, part = held_out(data, replace(SMALL, class_order="seed", seed=5), SELECT)
    assert part.class_names != data.class_names[:4]
    for image, label in ((part.image, part.label), (part.test_image, part.test_label)):
        assert [where[row.numpy().tobytes()] for row in image] == [part.class_names[each] for each in label]


def test_an_imbalanced_stream_is_imbalanced_here_too() -> None:
    data = blobs()
    plan, part = held_out(data, replace(SMALL, imbalance="imbalanced"), SELECT)
    counts = torch.bincount(part.label) + torch.bincount(part.test_label)
    assert counts[0] < counts[1]
    assert plan.imbalance == "standard"  # it has been applied


def test_more_tasks_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="first 9 tasks"):
        held_out(blobs(), SMALL, Selection(tasks=9))


def scrambled(data):
    """The same training rows beside test rows and test labels that are noise."""
    rng = torch.Generator().manual_seed(1)
    noise = torch.randn(data.test_image.shape, generator=rng).to(data.test_image.dtype)
    mixed = data.test_label[torch.randperm(len(data.test_label), generator=rng)]
    return replace(data, test_image=1000 * noise, test_label=mixed, known_checksum=None)


STUDY = Study("mine", (PLAIN, WITH), seeds=(3, 4))


@pytest.fixture
def rivals(tmp_path) -> Contests:
    return contests(STUDY, SELECT, StudyRunner(RunStore(tmp_path), ExecutionConfig(), device="cpu"))[0]


@pytest.fixture
def contest(rivals) -> Contest:
    (own,) = rivals.hosts.values()
    return own


def test_the_choice_does_not_change_when_the_test_set_does(contest) -> None:
    answers = []
    for data in (blobs(), scrambled(blobs())):
        trials = contest.to_do({})
        scores = {trial.key: run_job(trial, data=data) for trial in trials}
        tried = contest.tried({key: score for key, score in scores.items() if score is not None})
        answers.append({side: [(each.words, each.scores) for each in own] for side, own in tried.items()})
    assert answers[0] == answers[1]
    assert len({score for _, scores in answers[0]["without"] for score in scores}) > 1  # there was something to choose
    assert answers[0]["without"] == sorted(answers[0]["without"], key=lambda pair: -sum(pair[1]))


def test_both_sides_try_as_often_and_take_turns(contest) -> None:
    assert contest.tries == 3
    assert [len(side) for side in contest.sides.values()] == [3, 3]
    kinds = [trial.experiment.memory.name for trial in contest.to_do({})]
    assert kinds == ["reservoir", "odedm"] * 6
    assert {trial.experiment.seed for trial in contest.to_do({})} == {70, 71}
    done = {contest.to_do({})[0].key: 50.0}
    assert len(contest.to_do(done)) == 11
    assert [len(own) for own in candidates_of(STUDY, tries=2)["er on blobs, λ=20"].values()] == [2, 2]
    with pytest.raises(UsageError, match="one side has only 3"):
        candidates_of(STUDY, tries=4)


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


def test_a_side_with_more_combinations_draws_each_of_its_values(rivals) -> None:
    (sides,) = candidates_of(replace(STUDY, grids=(PLAIN, WITH))).values()
    plans = [plan for grid in sides["with"] for plan in grid.experiments()]
    assert {plan.memory.rho for plan in plans} == {0.25, 0.5}
    assert {plan.options["lr"] for plan in plans} == {0.01, 0.1, 0.5}
    (left,) = rivals.not_tried.values()
    assert list(left) == ["with"]
    tried = {f"ρ={plan.memory.rho}, lr={plan.options['lr']}" for plan in plans}
    assert len(tried | {*left["with"]}) == 6


def test_a_best_rate_that_is_the_last_of_those_tried_is_said_to_be(contest) -> None:
    def said(*rates: float) -> list[str]:
        plans = [replace(contest.to_do({})[0].experiment, options={"lr": rate}) for rate in rates]
        return rates_at_an_end({"without": [Tried(plan, (50.0,)) for plan in plans]})

    (larger,) = said(0.3, 0.01, 0.1)
    assert larger.startswith("The best learning rate without ODEDM, 0.3, is at the end of those tried: a larger one")
    assert "0.01, is at the end of those tried: a smaller one" in said(0.01, 0.3, 0.1)[0]
    assert said(0.1, 0.3, 0.01) == said(0.1) == said(0.1, 0.1) == [], "others lie on both sides, or one alone was tried"


def test_the_choices_are_a_study(rivals, contest) -> None:
    scores = {trial.key: float(place) for place, trial in enumerate(contest.to_do({}))}
    tried = rivals.tried(scores, {})
    study = rivals.as_study(tried)
    assert study.seeds == (3, 4)
    plain, dual = (plan for plan in study.experiments() if plan.seed == 3)
    (sides,) = tried.values()
    assert plain.options == {"lr": sides["without"][0].experiment.options["lr"]} == {"lr": 0.5}
    assert isinstance(dual.memory, ODEDM)
    assert dual.memory.rho == sides["with"][0].experiment.memory.rho


def test_choices_of_the_longest_name_have_a_legal_one(rivals, contest) -> None:
    long = replace(rivals, study=replace(rivals.study, name="n" * 100))
    assert (
        long.as_study(long.tried(dict.fromkeys((trial.key for trial in contest.to_do({})), 1.0), {})).name[-6:]
        == "-tuned"
    )


def test_a_host_is_decided_when_every_trial_has_a_score_or_has_failed(rivals, contest) -> None:
    *most, last = contest.to_do({})
    scores = {trial.key: float(place) for place, trial in enumerate(most)}
    host = "er on blobs, λ=20"
    assert rivals.undecided(scores, {}) == {host: 1}
    assert rivals.tried(scores, {}) == {}
    failed = {last.key: "The loss is infinite."}
    assert rivals.undecided(scores, failed) == {}
    assert [len(own) for own in rivals.tried(scores, failed)[host].values()] == [3, 2]
    assert rivals.undecided({}, {trial.key: "No." for trial in contest.to_do({})}) == {host: 0}


def test_every_host_of_a_study_has_a_contest_of_its_own() -> None:
    rates = {"er": {"lr": (0.1, 0.2)}, "der": {"lr": (0.03,), "alpha": (0.1, 0.2)}}
    axes = {"data": ("blobs",), "method": ("er", "der"), "capacity": (20, 30), "batch": (8,)}
    grids = (Grid({**axes, "memory": ("plain",)}, rates), Grid({**axes, "memory": ("odedm",), "k": (1,)}, rates))
    found = candidates_of(Study("mine", grids))
    assert list(found) == [f"{method} on blobs, λ={size}" for method in ("er", "der") for size in (20, 30)]
    for sides in found.values():
        assert [[plan.options for grid in own for plan in grid.experiments()] for own in sides.values()] in (
            [[{"lr": 0.1}, {"lr": 0.2}]] * 2,
            [[{"lr": 0.03, "alpha": 0.1}, {"lr": 0.03, "alpha": 0.2}]] * 2,
        )
    other = replace(grids[1], axes={**grids[1].axes, "batch": (16,)})  # not the same host: it sees other batches
    with pytest.raises(UsageError, match="no run with ODEDM"):
        candidates_of(Study("mine", (grids[0], other)))
    with pytest.raises(UsageError, match=r"has method=mir\. There are: method=er,der\."):
        candidates_of(Study("mine", grids, only=("method=mir",)))


def test_equal_tuning_tries_the_papers_runs_at_three_rates() -> None:
    study = equal_tuning()
    found = candidates_of(study)
    assert len(found) == 12
    assert {len(own) for sides in found.values() for own in sides.values()} == {3}
    tried = {plan.slug() for grid in study.grids for plan in grid.experiments()}
    papers = [plan for data in DATA for plan in replace(ready("table1", data), seeds=(0,), select=None).experiments()]
    same = [plan for plan in papers if plan.slug() in tried]  # every setting but the rate is the paper's
    assert len(same) == 24
    assert {(plan.memory.k, plan.data) for plan in same if isinstance(plan.memory, ODEDM)} == {
        *((k, "cifar10") for k in (6, 13, 19)),
        (1, "cifar100"),
    }


def test_only_runs_that_differ_in_rho_alone_are_a_choice(tmp_path) -> None:
    shares = [
        replace(DUAL, memory=ODEDM(20, rho=rho, selection=Prototypes(dac=dac)))
        for rho, dac in ((0.25, (3, 4)), (0.5, (3, 2)))
    ]
    lonely = replace(DUAL, method="der")
    jobs = planned([SMALL, *shares, lonely], tmp_path)
    assert families(jobs) == jobs[1:3]
    sweep = [replace(DUAL, memory=ODEDM(20, rho=0.25, selection=Prototypes(dac=dac))) for dac in ((3, 4), (3, 2), None)]
    assert families(planned(sweep, tmp_path)) == []
    both = planned([*sweep, shares[1]], tmp_path)
    assert [job.experiment.memory.flat()["dac"] for job in families(both)] == [(3, 2), (3, 2)]


def test_k_of_a_trial_is_that_of_the_whole_stream(tmp_path) -> None:
    jobs = planned([replace(DUAL, memory=ODEDM(40, rho=0.5))], tmp_path)
    (trials,) = trials_of(jobs, SELECT).values()
    plan, _ = held_out(blobs(), trials[0].experiment, SELECT)
    assert isinstance(plan.memory, ODEDM)
    assert plan.memory.k == jobs[0].experiment.memory.k


def test_a_score_counts_when_all_its_seeds_are_there(tmp_path) -> None:
    jobs = planned([SMALL, SMALL.with_seed(1), DUAL], tmp_path)
    trials = trials_of(jobs, SELECT)
    assert [len(own) for own in trials.values()] == [2, 2]  # by configuration, not by run
    first, second = trials[configuration(jobs[0])]
    results = [result_of(job.experiment, job.checksum or "") for job in jobs]
    assert [held_out_score(result, SELECT, {first.key: 10.0}) for result in results] == [None] * 3
    both = {first.key: 10.0, second.key: 20.0}
    assert [held_out_score(result, SELECT, both) for result in results] == [15.0, 15.0, None]
    other = trials_of(jobs, replace(SELECT, share=0.3))
    assert not {t.key for own in other.values() for t in own} & {t.key for own in trials.values() for t in own}


def test_mini_chooses_among_its_shares(tmp_path) -> None:
    plans = [plan for plan in ready("mini").experiments() if plan.seed == 0]
    chosen = families(planned(plans, tmp_path))
    assert {(job.experiment.method, job.experiment.memory.rho) for job in chosen} == {
        (method, rho) for method in ("derpp", "icarl") for rho in (0.25, 0.5, 0.75)
    }
