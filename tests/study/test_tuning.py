"""Choices without the test set: which rows are held out, what is never read, and that both sides try as often."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from jobs import DUAL, SMALL, result_of

from odedm import ODEDM
from odedm.core.errors import UsageError
from odedm.execute.attempt import attempt
from odedm.execute.planning import below, plan_jobs
from odedm.stream.synthetic import blobs
from odedm.study.grid import Grid
from odedm.study.paper_studies import ready
from odedm.study.trials import configuration, families, held_out_score, trials_of
from odedm.study.tuning import Contest, as_study, candidates
from odedm.training.hold_out import Selection, held_out

SELECT = Selection(tasks=2, share=0.25, seeds=(70, 71))
RATES = {"er": {"lr": (0.01, 0.1, 0.5)}}
PLAIN = Grid({"data": ("blobs",), "method": ("er",), "memory": ("plain",), "capacity": (20,)}, RATES)
WITH = Grid({"data": ("blobs",), "method": ("er",), "memory": ("odedm",), "capacity": (20,), "rho": (0.25, 0.5)}, RATES)


def planned(plans, place):
    return plan_jobs([replace(plan, device="cpu") for plan in plans], below(place)).jobs


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
    plan, part = held_out(data, replace(SMALL, setting="imbalanced"), SELECT)
    counts = torch.bincount(part.label) + torch.bincount(part.test_label)
    assert counts[0] < counts[1]
    assert plan.setting == "standard"  # it has been applied


def test_more_tasks_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="first 9 tasks"):
        held_out(blobs(), SMALL, Selection(tasks=9))


def scrambled(data):
    """The same training rows beside test rows and test labels that are noise."""
    rng = torch.Generator().manual_seed(1)
    noise = torch.randn(data.test_image.shape, generator=rng).to(data.test_image.dtype)
    mixed = data.test_label[torch.randperm(len(data.test_label), generator=rng)]
    return replace(data, test_image=1000 * noise, test_label=mixed, known_checksum=None)


@pytest.fixture
def contest(tmp_path) -> Contest:
    sides = candidates(PLAIN, WITH)
    return Contest({side: trials_of(planned(plans, tmp_path), SELECT) for side, plans in sides.items()})


def test_the_choice_does_not_change_when_the_test_set_does(contest) -> None:
    answers = []
    for data in (blobs(), scrambled(blobs())):
        trials = contest.to_do({})
        scores = {trial.key: attempt(trial, data=data) for trial in trials}
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
    assert [len(own) for own in candidates(PLAIN, WITH, tries=2).values()] == [2, 2]
    with pytest.raises(UsageError, match="only 3 combinations"):
        candidates(PLAIN, WITH, tries=4)


def test_the_choices_are_a_study(contest) -> None:
    scores = {trial.key: float(place) for place, trial in enumerate(contest.to_do({}))}
    tried = contest.tried(scores)
    study = as_study(tried, {"without": PLAIN, "with": WITH})
    plain, dual = (plan for plan in study.experiments() if plan.seed == 0)
    assert plain.options == {"lr": tried["without"][0].experiment.options["lr"]} == {"lr": 0.5}
    assert isinstance(dual.memory, ODEDM)
    assert dual.memory.rho == tried["with"][0].experiment.memory.rho


def test_only_runs_that_differ_in_rho_alone_are_a_choice(tmp_path) -> None:
    shares = [replace(DUAL, memory=ODEDM(20, rho=rho, dac=dac)) for rho, dac in ((0.25, (3, 4)), (0.5, (3, 2)))]
    lonely = replace(DUAL, method="der")
    jobs = planned([SMALL, *shares, lonely], tmp_path)
    assert families(jobs) == jobs[1:3]
    sweep = [replace(DUAL, memory=ODEDM(20, rho=0.25, dac=dac)) for dac in ((3, 4), (3, 2), None)]
    assert families(planned(sweep, tmp_path)) == []
    both = planned([*sweep, shares[1]], tmp_path)
    assert [job.experiment.memory.dac for job in families(both)] == [(3, 2), (3, 2)]


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
