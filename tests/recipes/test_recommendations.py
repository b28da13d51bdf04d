"""Recommendations: by rows for each class, as options, and as a command that takes other options beside them."""

import json

import numpy as np
import pytest
import typer.testing

import odedm
from odedm import ODEDM, Reservoir, UsageError, blobs
from odedm.cli.app import app
from odedm.recipes.recommendations import is_colour, recipe, recipe_lines, recipes
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare

DATA = blobs(per_class=8)


def call(*words):
    return typer.testing.CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def ran(tmp_path, *words):
    done = call("run", "--data", "blobs", "--limit", 8, "--json", "--out", tmp_path, *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)[0]["experiment"]


def test_scarce_rows_have_prototypes_and_others_a_reservoir():
    assert isinstance(recipe("best", capacity=500, classes=50).memory, ODEDM)
    assert isinstance(recipe("best", capacity=501, classes=50).memory, Reservoir)
    assert recipe("best", capacity=20, classes=10, seed=7, updates=5).updates == 5


def test_colour_pictures_have_strong_views_where_the_policy_fits():
    plan = recipe("best", capacity=20, classes=10, colour=True)
    assert (plan.updates, plan.views) == (6, "strong")
    assert recipe("best", capacity=20, classes=10, colour=True, updates=1).updates == 1
    x, y = np.zeros((8, 3, 8, 8)), [0, 1] * 4
    assert is_colour(odedm.from_arrays(x.astype("uint8"), y, tasks=1))
    assert not is_colour(odedm.from_arrays(x, y, tasks=1)), "not of 8 bits"
    assert not is_colour(odedm.from_arrays(x[:, 0].astype("uint8"), y, tasks=1)), "grey"
    assert not is_colour(DATA), "vectors"


@pytest.mark.parametrize("name", recipes())
def test_every_case_has_its_reasons_and_can_be_run(name):
    for case in recipes()[name].cases:
        assert case.why.endswith(".")
        assert case.evidence.endswith(".")
    for capacity in (20, 1000):
        plan = recipe(name, capacity=capacity, classes=DATA.classes, data="blobs")
        assert prepare(plan, DATA).experiment.updates == 3


def test_the_command_is_the_options_it_stands_for_and_others_go_first(tmp_path):
    short = ran(tmp_path / "a", "--recipe", "best", "--capacity", 40)
    (case, _) = recipes()["best"].cases
    long = ran(tmp_path / "b", *case.options.split(), "--capacity", 40)
    assert content_key(short) == content_key(long)
    other = ran(tmp_path / "c", "--recipe", "best", "--capacity", 40, "--updates", 1, "--method", "er")
    assert (other["updates"], other["method"], other["predict"]) == (1, "er", "nearest-mean")


def test_refusals_and_the_list(tmp_path):
    done = call("run", "--recipe", "bset", "--data", "blobs", "--out", tmp_path)
    assert done.exit_code == 2
    assert "did you mean 'best'" in done.output
    with pytest.raises(UsageError, match="capacity must be a whole number"):
        odedm.recipe("best", capacity="many")
    listed = " ".join(call("list", "recipes").output.split())
    assert all(" ".join(line.split()) in listed for line in ("λ / classes ≤ 10", "--updates 3"))
    assert len(recipe_lines()) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "no"}, "colour must be true or false; 'no' was given"),
        ({"memory": ODEDM(10)}, "chooses the memory by itself"),
        ({"choose_again": True}, "Unknown setting of an experiment 'choose_again'"),
    ],
)
def test_what_a_recipe_cannot_take_is_a_sentence(given, said):
    with pytest.raises(UsageError, match=said):
        recipe(**given)
