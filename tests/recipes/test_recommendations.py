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
    for capacity, kind in ((500, ODEDM), (501, Reservoir), (100, ODEDM)):
        assert isinstance(recipe("best", capacity=capacity, classes=50, colour=True).memory, kind)
        assert isinstance(recipe("best", capacity=capacity, classes=50, colour=False).memory, Reservoir)
    few = recipe("best", capacity=99, classes=50, colour=True)
    assert isinstance(few.memory, Reservoir), "no room for a prototype a class"
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


@pytest.mark.parametrize(
    ("data", "classes", "views"),
    [
        ("cifar10", 10, "strong"),
        ("cifar100", 100, "strong"),
        ("shapes", 6, "strong"),
        ("blobs", 10, "crop"),
        (odedm.from_arrays(np.zeros((8, 3, 8, 8), "uint8"), [0, 1] * 4, tasks=1, name="mine"), 2, "strong"),
    ],
    ids=["published", "published-many", "built-in-colour", "built-in-vectors", "object"],
)
def test_python_looks_at_the_data_as_the_command_does(data, classes, views, monkeypatch, tmp_path):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    scarce, plenty = (recipe(capacity=classes * 10 + more, data=data) for more in (0, 1))
    assert (scarce.memory.name, plenty.memory.name) == ("odedm" if views == "strong" else "reservoir", "reservoir")
    assert scarce.views == plenty.views == views
    assert scarce.data == getattr(data, "name", data)
    assert recipe(data=data, colour=views == "crop").views != views, "what is given goes first"
    assert recipe(capacity=20, data=data, classes=1).memory.name == "reservoir"
    assert list(tmp_path.iterdir()) == [], "nothing is got or imported"


def test_python_knows_an_imported_data_set_and_asks_about_a_path(monkeypatch, tmp_path):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "cache"))
    np.savez(tmp_path / "mine.npz", x=np.zeros((8, 3, 8, 8), np.uint8), y=[0, 1] * 4)
    path = str(tmp_path / "mine.npz")
    with pytest.raises(UsageError, match="not known before it is imported"):
        recipe(data=path)
    assert recipe(data=path, classes=2, colour=True).views == "strong"
    assert not (tmp_path / "cache").exists()
    assert recipe(data=odedm.load_dataset(path).name).views == "strong"


@pytest.mark.parametrize("name", recipes())
def test_every_case_has_its_reasons_and_can_be_run(name):
    for case in recipes()[name].cases:
        assert case.why.endswith(".")
        assert case.evidence.endswith(".")
    for capacity in (1, 5, 19, 20, 1000):
        plan = recipe(name, capacity=capacity, classes=DATA.classes, data="blobs")
        assert prepare(plan, DATA).experiment.updates == 3


def test_the_command_is_the_options_it_stands_for_and_others_go_first(tmp_path):
    short = ran(tmp_path / "a", "--recipe", "best", "--capacity", 40)
    case = recipes()["best"].case(40, DATA.classes, colour=False)
    long = ran(tmp_path / "b", *case.options.split(), "--capacity", 40)
    assert content_key(short) == content_key(long)
    other = ran(tmp_path / "c", "--recipe", "best", "--capacity", 40, "--set", "training.updates=1", "--method", "er")
    assert (other["updates"], other["method"], other["weight_average"]) == (1, "er", short["weight_average"])


def test_refusals_and_the_list(tmp_path):
    done = call("run", "--recipe", "bset", "--data", "blobs", "--out", tmp_path)
    assert done.exit_code == 2
    assert "did you mean 'best'" in done.output
    with pytest.raises(UsageError, match="capacity must be a whole number"):
        odedm.recipe("best", capacity="many")
    listed = " ".join(call("list", "recipes").output.split())
    assert all(" ".join(line.split()) in listed for line in ("λ / classes ≤ 10", "--set training.updates=3"))
    assert len(recipe_lines()) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "no"}, "colour must be true or false; 'no' was given"),
        ({"capacity": 0}, "for a memory with rows, and a capacity of 0 was given. Give some"),
        ({"data": "cifar11"}, "did you mean 'cifar10'"),
        ({"capacity": -1}, "capacity must be a whole number, 1 or more; -1 was given"),
        ({"data": 3}, r"data must be a name or a Dataset \(see odedm.from_arrays\); 3 was given"),
        ({"data": " "}, "The data set's name is empty"),
        ({"memory": ODEDM(10)}, "chooses the memory by itself"),
        ({"mixup": True}, "Unknown setting of an experiment 'mixup'"),
    ],
)
def test_what_a_recipe_cannot_take_is_a_sentence(given, said):
    with pytest.raises(UsageError, match=said):
        recipe(**given)
