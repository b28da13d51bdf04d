"""A study as data: what its lists stand for, what a file may say, and what comes back from one that was written."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odedm import ODEDM, Native, Reservoir
from odedm.core.errors import UsageError
from odedm.paper.studies import READY, ready
from odedm.studies.grid import Grid, matches_filters
from odedm.studies.spec import Study, ValidationSplit, parse, read
from odedm.training.observation import Observation
from odedm.training.preparation import prepare


def test_every_combination_once_and_all_of_the_first_seed_first() -> None:
    study = parse(
        """
        data = "blobs"
        method = ["er", "derpp"]
        memory = ["native", "odedm"]
        capacity = [20, 40]
        rho = [0.25, 0.5]
        seeds = [3, 1]
        [options.derpp]
        lr = [0.1, 0.3]
        """
    )
    plans = study.experiments()
    assert len(plans) == 2 * 2 * (1 + 2) * (1 + 2)  # seeds, λ, memories, rates of both methods
    assert [plan.seed for plan in plans] == [3] * 18 + [1] * 18
    assert [plan.slug() for plan in plans[:18]] == [plan.slug() for plan in plans[18:]]
    assert len({plan.slug() for plan in plans}) == 18
    assert {plan.options.get("lr") for plan in plans if plan.method == "er"} == {None}


def test_what_belongs_to_odedm_does_not_multiply_other_memories() -> None:
    grid = Grid({"memory": ("reservoir", "odedm"), "capacity": (20,), "distance": ("l1", "l2"), "rho": (0.5,)})
    assert [type(plan.memory) for plan in grid.experiments()] == [Reservoir, ODEDM, ODEDM]


def test_native_is_the_methods_own_memory_or_a_reservoir() -> None:
    grid = Grid({"method": ("er", "icarl"), "memory": ("native",), "capacity": (20,)})
    assert [plan.memory for plan in grid.experiments()] == [Native(20), Native(20)]
    resolved = [prepare(replace(plan, data="blobs", device="cpu")).experiment.memory for plan in grid.experiments()]
    assert resolved == [Reservoir(20), Native(20, "herded")]


def test_dac_by_the_paper_none_or_a_pair() -> None:
    grid = Grid({"capacity": (200,), "rho": (0.25, 0.75), "dac": ("paper", "none", (4, 2))})
    memories = [plan.memory for plan in grid.experiments() if isinstance(plan.memory, ODEDM)]
    found = [(memory.rho, memory.flat()["dac"]) for memory in memories]
    assert found == [(0.25, (3, 4)), (0.25, None), (0.25, (4, 2)), (0.75, (5, 3)), (0.75, None), (0.75, (4, 2))]
    with pytest.raises(UsageError, match="goes by ρ"):
        Grid({"capacity": (200,), "k": (2,), "dac": ("paper",)}).experiments()


def test_clusters_of_no_distance_of_a_grid_are_refused_and_of_some_left_out() -> None:
    with pytest.raises(UsageError, match="dac does nothing beside distance='random'"):
        parse('distance = ["random", "herding"]\ndac = "3,4"').experiments()
    assert parse('distance = ["random", "l2"]\ndac = "3,4"').experiments()


def test_a_grid_overrides_what_stands_above_it() -> None:
    study = parse('method = "er"\ncapacity = 20\nrho = 0.5\n[[grid]]\nmethod = "der"\n[[grid]]\nmemory = "native"')
    assert [(plan.method, plan.memory.name) for plan in study.experiments()[:2]] == [
        ("der", "odedm"),
        ("er", "native"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("methods = ['er']", "did you mean 'method'"),
        ("lr = 0.1", "[options.derpp] and below it lr = 0.1"),
        ("method = 'er'\nlr = [0.1, 0.3]", "[options.er] and below it lr = [0.1, 0.3]"),
        ("[[grid]]\ncapcity = 3", "did you mean 'capacity'"),
        ("method = []", "'method' is an empty list"),
        ("capacity = [20, 20]", "'capacity' has 20 twice"),
        ("capacity = 'many'", "'capacity' must be a whole number"),
        ("capacity = true", "'capacity' must be a whole number"),
        ("capacity = -5", "'capacity' must be a whole number of rows, 0 or more"),
        ("rho = 1.5", "from 0 to 1"),
        ("rho = 'x'", "'rho' must be a number"),
        ("dac = [3, 4, 5]", "'dac' must be a pair"),
        ("dac = 'deep'", "'dac' must be a pair"),
        ("mixup = 1", "'mixup' must be true or false"),
        ("method = 'derp'", "did you mean 'derpp'"),
        ("memory = 'resevoir'", "did you mean 'reservoir'"),
        ("[options]\nlr = 0.1", "Options belong to a method: write [options.NAME], not options.lr"),
        ("[options.derp]\nlr = 0.1", "did you mean 'derpp'"),
        ("options = 3", "'options' must be a table"),
        ("seeds = 0", "'seeds' is how many"),
        ("seeds = 'x'", "'seeds' is how many"),
        ("seeds = [1, 1]", "'seeds' has 1 twice"),
        ("seeds = [-1]", "0 or more"),
        ("seeds = []", "'seeds' is an empty list"),
        ("grid = 3", "'grid' must be"),
        ("about = 3", "'about' must be text"),
        ("name = ''", "needs a name"),
        ("name = '../../elsewhere'", "which its folder gets, and that must be one line"),
        ("name = '/etc'", "without /"),
        ("name = '..'", "no dot in front"),
        (r"name = 'C:\\x'", "without /"),
        (f"name = '{'x' * 101}'", "up to 100 characters"),
        (f"capacity = {'9' * 5000}", "is not: Exceeds the limit"),
        (f"seeds = {'9' * 400}", "'seeds' is how many"),
        ("capacity = 9223372036854775808", "'capacity' must be a whole number"),
        ("tasks = 0", "'tasks' must be a whole number, 1 or more"),
        ("tune = {first_tasks = 0}", "must be a whole number, 1 or more"),
        ("only = [3]", "'only' must be"),
        ("[tune]\nfirst_task = 2", "did you mean 'first_tasks'"),
        ("[tune]\nvalidation = 1.0", "between 0 and 1"),
        ("[tune]\nseeds = [0]", "other seeds than the study's"),
        ("method = ", "A study is written in TOML"),
        ("", "Nothing says what to run. A study needs one line of that at the least, e.g. method ="),
        ("# to do\nname = 'mine'\nseeds = 3", "Nothing says what to run"),
        ("[[grid]]\n[[grid]]", "Nothing says what to run"),
    ],
)
def test_a_wrong_word_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text).experiments()
    assert said in str(raised.value)


def test_lists_that_multiply_without_end_are_refused_at_once() -> None:
    many = tuple(range(1, 200))
    with pytest.raises(UsageError, match="more than"):
        Grid({"capacity": many, "batch": many, "replay_batch": many, "rho": (0.5,)}).experiments()
    with pytest.raises(UsageError, match="multiply to more than"):
        Grid({f"options.er.{name}": many for name in ("lr", "momentum", "weight_decay")}).experiments()


def test_the_constants_of_one_method_do_not_multiply_those_of_others() -> None:
    rates = tuple(rate / 100 for rate in range(1, 21))
    names = ("er", "der", "derpp", "fdr", "mir", "gss")
    grid = Grid({"method": names, **{f"options.{name}.lr": rates for name in names}})
    assert len(grid.experiments()) == len(grid.expand()) == 120


def test_only_keeps_what_matches_and_says_so_where_nothing_does() -> None:
    study = ready("mini")
    kept = replace(study, only=("method=derpp,icarl", "memory=odedm", "rho=0.5")).experiments()
    assert {(plan.method, plan.memory.name) for plan in kept} == {("derpp", "odedm"), ("icarl", "odedm")}
    assert all(isinstance(plan.memory, ODEDM) and plan.memory.rho == 0.5 for plan in kept)
    with pytest.raises(UsageError, match="No experiment"):
        replace(study, only=("method=vrmcl",)).experiments()
    with pytest.raises(UsageError, match="did you mean 'method'"):
        replace(study, only=("metod=er",)).experiments()
    with pytest.raises(UsageError, match="takes NAME=VALUE"):
        matches_filters(study.experiments()[0], ["method"])


@pytest.mark.parametrize("name", READY)
def test_a_written_study_is_read_as_it_was(name: str, tmp_path) -> None:
    study = replace(ready(name), only=("method=derpp",), tune=ValidationSplit(0.1, 3, (900,)), chosen="on 10%")
    (tmp_path / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    assert read(tmp_path / "study.toml") == study


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40))
def test_any_text_about_a_study_survives_the_file(about: str) -> None:
    study = Study("mine", (Grid({"capacity": (5,)}),), (0,), about)
    assert parse(study.to_toml()) == study


def test_what_runs_look_at_is_the_studys_and_no_axis() -> None:
    study = parse("evidence = true\nanytime = 4\ncapacity = [5, 6]")
    assert study.observation == Observation(evidence=True, anytime=4)
    assert len(study.experiments()) == 10
    assert parse(study.to_toml()) == study
    assert parse("capacity = 5").observation == Observation()
    bad = {
        "evidence = 'yes'": "true or false; 'yes' was given",
        "anytime = -1": "-1 was given",
        "anytime = [1, 2]": "whole number",
        "[[grid]]\nanytime = 2": "'anytime' is the whole study's: write it above the grids",
    }
    for text, sentence in bad.items():
        with pytest.raises(UsageError, match=re.escape(sentence)):
            parse(text)


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path) -> None:
    with pytest.raises(UsageError, match="Cannot read the study"):
        read(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read(tmp_path / "odd.toml")


def test_a_key_of_endless_parts_is_refused_at_once() -> None:
    plain, spaced = ".".join("a" * 400_000) + "=1", "capacity = 5\n[" + " . ".join("a" * 200_000) + "]"
    commas, numbers = '",".' * 200_000 + "a=1", "1.1 . " * 100_000 + "a=1"
    for text in (plain, spaced, commas, numbers):
        with pytest.raises(UsageError, match="more than 200 dots"):
            parse(text)
    for end in ("", "e-1"):
        parse("blur = [" + ",".join(f"0.{i}{end}" for i in range(1001, 1301)) + "]")


def test_names_alone_are_methods_however_they_are_spelled() -> None:
    study = ready("table1", "cifar10")
    kept = replace(study, only=("DER,DER++", "capacity=200")).experiments()
    assert {plan.method for plan in kept} == {"der", "derpp"}
    assert {plan.method for plan in replace(study, only=("iCaRL,DER++refresh",)).experiments()} == {"icarl", "refresh"}
    with pytest.raises(UsageError, match=r"Unknown method in --only 'DERR'"):
        replace(study, only=("DERR",)).experiments()


def test_only_takes_seeds_and_says_which_values_there_are():
    grid = Grid({"data": ("blobs",), "method": ("er", "der"), "capacity": (20,)})
    study = Study("mine", (grid,), seeds=(3, 4), only=("seed=4", "der"))
    assert [(plan.method, plan.seed) for plan in study.experiments()] == [("der", 4)]
    for only, there in {"seed=9": "seed=3,4", "capacity=7": "capacity=20", "memory=plan": "memory=odedm"}.items():
        with pytest.raises(UsageError, match=f"has {only}. There are: {there}."):
            replace(study, only=(only,)).experiments()
    for none in ("none", "None"):
        assert len(replace(study, only=(f"weight_average={none}",)).experiments()) == 4
    with pytest.raises(UsageError, match="There are: weight_average=none"):
        replace(study, only=("weight_average=0.9",)).experiments()


@pytest.mark.parametrize("wish", ["weight_average=50", "weight_average=50.0", "rho=1", "gamma=2"])
def test_a_wish_for_a_whole_number_may_be_written_without_a_point(wish):
    study = parse("memory = 'odedm'\nrho = 1\ngamma = 2\nweight_average = [50, 'auto']")
    assert replace(study, only=(wish,)).experiments()
    with pytest.raises(UsageError, match="There are: weight_average=50,auto"):
        replace(study, only=("weight_average=7",)).experiments()


@pytest.mark.parametrize(
    ("wish", "words"),
    [("method=er,derpp", "method=er"), ("capacity=20,200", "capacity=20,40"), ("seed=0,9", "seed=0,1")],
)
def test_one_unknown_value_among_known_ones_is_refused(wish, words):
    """It would leave out what was asked for without a word."""
    study = parse("data = 'blobs'\nmethod = 'er'\ncapacity = [20, 40]\nseeds = 2")
    with pytest.raises(UsageError, match=words):
        replace(study, only=(wish,)).experiments()
