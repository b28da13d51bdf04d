"""The leaderboard's page: rows by host, memory and ingredients, the best first, changes against the plain reservoir."""

from dataclasses import replace

import pytest
from beside import ROOT, imported
from jobs import result_of

from odedm import ODEDM, Experiment, Reservoir, UsageError
from odedm.studies.spec import parse
from odedm.training.preparation import prepare

leaderboard = imported("tools", "leaderboard")

PLANS = {
    (): (Experiment(Reservoir(20), method="er", data="blobs", device="cpu"), 40.0),
    ("odedm",): (Experiment(ODEDM(20, rho=0.5), method="er", data="blobs", device="cpu"), 41.0),
    ("best",): (
        Experiment(Reservoir(20), method="er", data="blobs", device="cpu", updates=3, predict="nearest-mean"),
        50.0,
    ),
}


def test_the_best_is_first_and_changes_are_against_the_plain_reservoir(tmp_path):
    results = [
        result_of(prepare(replace(plan, seed=seed)).experiment, "sum", acc=acc + seed)
        for plan, acc in PLANS.values()
        for seed in (10, 11)
    ]
    scores = tmp_path / "choice-blobs.csv"
    scores.write_text("runs,seed,held_out_acc\nER,1,40.0\nER,2,42.0\n")
    text = leaderboard.page(results, "board.jsonl.gz", [scores], "board.png")
    leaderboard.draw(results, tmp_path / "board.png")
    assert (tmp_path / "board.png").stat().st_size > 5000
    assert "| ER | 2 | 41.0 ± 1.0 |" in text
    assert "0 of 430 planned runs" in text, "which are on other data"
    with pytest.raises(UsageError, match="Two runs have one place: ER, reservoir on blobs, seed 10"):
        leaderboard.entries([*results, results[0]])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ER")][:3]
    assert [row[1:3] for row in rows] == [
        ["reservoir", "updates 3, nearest-mean"],
        ["ODEDM", "–"],
        ["reservoir", "–"],
    ]
    assert rows[0][5].startswith("+10.0")
    assert rows[1][5].startswith("+1.0")
    assert rows[2][5].strip() == ""
    assert "\n| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n" in text, "texts left, numbers right"
    assert "seeds 10 to 11" in text
    assert "first seen on CIFAR's own test rows" in text


def test_rows_of_one_or_two_seeds_stand_last():
    (plain, _), (other, _) = list(PLANS.values())[:2]
    few = [result_of(prepare(replace(plain, seed=seed)).experiment, "sum", acc=90.0) for seed in (10, 11)]
    many = [result_of(prepare(replace(other, seed=seed)).experiment, "sum", acc=50.0) for seed in (10, 11, 12)]
    (rows,) = leaderboard.entries(few + many).values()
    assert [len(row.runs) for row in rows] == [3, 2]


def test_what_an_ingredient_is_worth_is_what_is_lost_without_it():
    full = replace(PLANS["best",][0], weight_average=0.5)
    plans = {full: 50.0, replace(full, weight_average=None): 47.0, replace(full, updates=1): 45.5, PLANS[()][0]: 40.0}
    results = [
        result_of(prepare(replace(plan, seed=seed)).experiment, "sum", acc=acc + seed)
        for plan, acc in plans.items()
        for seed in (10, 11)
    ]
    text = leaderboard.left_out(leaderboard.entries(results))
    assert "| blobs, λ = 20: ER, reservoir | average 0.5 | 2 | −3.0" in text
    assert "| blobs, λ = 20: ER, reservoir | updates 3 | 2 | −4.5" in text
    assert len([line for line in text.splitlines() if line.startswith("| blobs")]) == 2


def test_its_study_is_what_the_page_says():
    plans = parse((ROOT / "benchmarks" / "leaderboard.toml").read_text()).experiments()
    assert len(plans) == 400
    assert {plan.seed for plan in plans} == {*range(10, 20)}
    assert len({leaderboard.place(plan.describe()) for plan in plans}) == 400, "each has a place of its own"
    assert "2 of 430 planned runs" in leaderboard.page([result_of(plan, "sum") for plan in plans[:2]], "some.gz")
    assert {(plan.data, plan.memory.capacity) for plan in plans} == {("cifar10", 200), ("cifar100", 500)}


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", "runs,seed,held_out_acc\nER,1,nan\n", "runs,seed,held_out_acc\nER\n", None]
)
def test_scores_that_are_none_are_a_sentence(tmp_path, text):
    path = tmp_path / "held-out.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match="is no held-out.csv"):
        leaderboard.chosen([path])


def test_a_method_from_outside_has_its_own_name():
    result = result_of(prepare(PLANS[()][0]).experiment, "sum", acc=40.0)
    result = replace(result, experiment={**result.experiment, "method": "mine"})
    ((row,),) = leaderboard.entries([result]).values()
    assert row.host == "mine"
