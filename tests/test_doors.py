"""A setting is written once: one line in one file reaches the command line, studies, `train` and the reference."""

import inspect
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer.testing
from sampling import EVERYTHING

import odedm
from odedm.cli.app import app
from odedm.cli.dotted_settings import spelling
from odedm.core.configuration import settings_of
from odedm.execute.backend import ExecutionConfig
from odedm.memory.settings import KINDS
from odedm.studies.grid import axes
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation
from odedm.training.preparation import prepare

PACKAGE = Path(odedm.__file__).parent
LINE = '    pretend: int = setting_field(Int(1), 7, "A pretend option.")\n'
BEHIND = '    batch: int = setting_field(Int(1), 32, "Stream rows per step.")\n'
ROOT = PACKAGE.parents[1]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))

DOORS = """
import sys
import typer.testing
import odedm
from odedm.cli.app import app
sys.path.insert(0, sys.argv[1])
from reference import reference
from odedm.studies.spec import parse
from odedm.training.experiment import content_key

help = typer.testing.CliRunner().invoke(app, ["list", "settings"], env={"COLUMNS": "200"}).output
print("command line", "--set training.pretend" in help and "A pretend option." in help)
plans = parse("pretend = [1, 2]\\nseeds = 1").experiments()
print("study", [plan.pretend for plan in plans] == [1, 2])
outcome = odedm.train("blobs", memory=odedm.Reservoir(5), method="er", pretend=3)
print("train", outcome.result.experiment["pretend"] == 3)
print("reference", "`--set training.pretend`" in reference())
plain = odedm.Experiment(odedm.Reservoir(5)).describe()
print("files", odedm.Experiment.from_dict({**plain, "pretend": 8}).pretend == 8)
print("key", content_key({**plain, "pretend": 8}) != content_key(plain))
changed = typer.testing.CliRunner().invoke(app, ["run", "--set", "training.pretend=0"])
print("check", changed.exit_code == 2 and "training.pretend must be a whole number, 1 or more" in changed.output)
"""


def python(code, tree, **more):
    words = [sys.executable, "-P", "-c", code, str(TOOLS)]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tree), "PATH": "", **more}
    )


@pytest.fixture
def copy(tmp_path):
    """A copy of the package that can be changed."""
    return shutil.copytree(PACKAGE, tmp_path / "odedm", ignore=shutil.ignore_patterns("__pycache__"))


def test_one_line_more_reaches_all_doors(copy):
    path = copy / "training" / "experiment.py"
    text = path.read_text()
    assert text.count(BEHIND) == 1
    path.write_text(text.replace(BEHIND, BEHIND + LINE))
    done = python(DOORS, copy.parent)
    assert done.returncode == 0, done.stderr
    doors = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(doors) == 7
    assert set(doors.values()) == {"True"}, doors


RUN = """
import sys
from pathlib import Path
import typer.testing
from odedm.cli.app import app
words = ["--data", "blobs", "--method", "er", "--memory", "reservoir", "--device", "cpu", "--out", "runs"]
out = typer.testing.CliRunner().invoke(app, ["run", *words]).output
study = "data = 'blobs'\\nmethod = 'er'\\nmemory = 'reservoir'\\nseeds = 1\\n"
Path("mine.toml").write_text(study)
said = typer.testing.CliRunner().invoke(app, ["study", "mine.toml", "--device", "cpu", "--out", "study"]).output
print("again" if "finished already" in out else "trained", "done" if "1 runs, 1 done" in said else "to do")
print(len(list(Path("runs").glob("*/seed-0/result.json"))), len(list(Path("study").glob("runs/*/*/result.json"))))
"""


def said(tree, place):
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN], cwd=place, env={"PYTHONPATH": str(tree), "PATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_changed_default_is_another_run(copy, tmp_path):
    """Keys hold the whole resolved plan: an old result is never counted for a run under a new default."""
    place = tmp_path / "place"
    place.mkdir()
    assert said(copy.parent, place) == ["trained", "to", "do", "1", "1"]
    path = copy / "training" / "experiment.py"
    text = path.read_text()
    path.write_text(text.replace(BEHIND, BEHIND.replace("32", "16")))
    assert said(copy.parent, place) == ["trained", "to", "do", "2", "2"], "the old result is not counted"
    if not EVERYTHING:
        return
    method = copy / "methods" / "er.py"
    method.write_text(method.read_text().replace("lr: float = 0.1", "lr: float = 0.2"))
    assert said(copy.parent, place) == ["trained", "to", "do", "3", "3"], "nor under a new default of the method"


def test_every_setting_is_an_option_an_axis_and_a_keyword():
    from reference import reference

    text = reference()
    for kind in (Experiment, *KINDS.values(), Observation, ExecutionConfig):
        for name in settings_of(kind):
            flag = spelling(name)
            assert re.search(rf"`{flag}`", text), f"{kind.__name__}.{name} has no line in the reference"
    keywords = set(inspect.signature(odedm.train).parameters)
    assert {each.name for each in fields(Experiment)} | {"evidence", "anytime"} <= keywords
    varied = {name for kind in (Experiment, *KINDS.values()) for name, own in settings_of(kind).items() if own.axis}
    assert varied | {"memory"} == set(axes())


class Asked(Exception):
    """In the place of the work: what was asked for is known."""


def asked_by_command(monkeypatch, *words):
    """The experiments and the looks that `odedm run` asks for."""
    found = []

    def plan_jobs(plans, place, execution, options):
        del place, execution
        found.append((plans, options.observation))
        raise Asked

    monkeypatch.setattr("odedm.cli.run_command.plan_jobs", plan_jobs)
    typer.testing.CliRunner().invoke(app, ["run", *words])
    return found[0]


def asked_by_python(monkeypatch, **given):
    """The experiments and the looks that `odedm.train` asks for."""
    found = []

    class Run:
        def __init__(self, plan, data, observation, callbacks):
            assert (plan.data, list(callbacks)) == (data.name, [])
            found.append((plan, observation))

        def finish(self, *reporters):
            pass

    monkeypatch.setattr("odedm.training.train.Run", Run)
    monkeypatch.setattr("odedm.training.train.Outcomes", list)
    odedm.train(**given)
    return [plan for plan, _ in found], found[0][1]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--memory", "reservoir", "--seeds", "3", "--seed", "2"], {"memory": "reservoir", "seeds": 3, "seed": 2}),
        (["--memory", "native", "--lr", "0.2", "--anytime", "2"], {"memory": "native", "lr": 0.2, "anytime": 2}),
        (["--capacity", "40", "--evidence"], {"memory": odedm.ODEDM(40), "evidence": True}),
        (["--data", "blobs", "--method", "er"], {"data": "blobs", "method": "er"}),
    ],
)
def test_what_is_not_said_is_the_same_in_python_as_on_the_command_line(words, given, monkeypatch):
    """Setting by setting, as every run is then prepared: the data's tasks, the method's rates, the long-term share."""
    plans, looks = asked_by_command(monkeypatch, *words)
    ours, our_looks = asked_by_python(monkeypatch, **given)
    assert len(plans) == len(ours) == given.get("seeds", 1)
    for plan, own in zip(plans, ours, strict=True):
        prepared = [prepare(each).experiment.describe() for each in (plan, own)]
        for name, value in prepared[0].items():
            assert prepared[1][name] == value, name
    assert our_looks == looks


def test_the_defaults_in_the_signature_are_those_of_a_plan():
    keywords, plan = inspect.signature(odedm.train).parameters, Experiment()
    for each in fields(Experiment):
        assert keywords[each.name].default == getattr(plan, each.name), each.name


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="only in a checkout")
def test_the_reference_in_the_docs_is_made_from_the_settings():
    from reference import reference

    assert (ROOT / "docs" / "reference.md").read_text(encoding="utf-8") == reference(), "make reference writes it"
