"""`--plugin` in lanes, in studies and in resumed runs; children find the plug-in's module, and nothing beside it."""

import json
import os
import sys
from dataclasses import replace

import pytest
import torch
from commands import interrupted, odedm
from jobs import SMALL, job_of

import odedm as package
from odedm.core.plugin_modules import export_plugins, load_plugins
from odedm.core.plugins import plugins
from odedm.core.registry import METHODS, OPTIMIZERS
from odedm.execute.ray_backend import do_remotely

PLUGIN = """
import os
import odedm
from dataclasses import dataclass
from odedm.methods.er import ER
import numpy

if os.environ.get("ODEDM_TEST_ONLY_IN") not in (None, str(os.getpid())):
    import odedm_test_beside

class Dice:
    def __init__(self):
        self.numpy = numpy.random.default_rng(3)

@dataclass(kw_only=True, eq=False)
class Mine(ER):
    "Draws a part of each batch, by a generator of numpy's in an object of its own."

    def __post_init__(self):
        super().__post_init__()
        self.dice = Dice()

    def observe(self, batch, replay):
        some = self.dice.numpy.permutation(len(batch["label"]))[:3].tolist()
        return super().observe({name: column[some] for name, column in batch.items()}, replay)

odedm.register("methods", "mine", Mine, title="My own")
"""
WORDS = ("--method", "mine", "--data", "blobs", "--memory", "reservoir", "--batch", "6", "--device", "cpu")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "odedm_test_mine.py"
    path.write_text(PLUGIN)
    (tmp_path / "odedm_test_beside.py").write_text("")
    yield "./odedm_test_mine.py"
    sys.modules.pop("odedm_test_mine", None)


def results(folder):
    found = {}
    for path in sorted(folder.glob("*/*/result.json")):
        found[path.parent.name] = json.loads(path.read_text())["class_il"]
    return found


def test_a_run_of_a_plugin_goes_on_where_it_stopped(plugin, tmp_path, monkeypatch):
    assert "My own · reservoir" in odedm("run", "--plugin", plugin, *WORDS, "--out", "whole")
    with interrupted(monkeypatch, 45):
        odedm("run", "--plugin", plugin, *WORDS, "--out", "broken", "--checkpoint", "7 steps", code=130)
    del METHODS["mine"], sys.modules["odedm_test_mine"]  # as another process would begin
    assert "--plugin" in odedm("resume", "broken", code=2)
    odedm("resume", "broken", "--plugin", plugin)
    assert results(tmp_path / "broken")["seed-0"] == results(tmp_path / "whole")["seed-0"]


def test_what_a_worker_cannot_import_fails_its_runs_with_a_sentence(plugin, monkeypatch):
    monkeypatch.setenv("ODEDM_TEST_ONLY_IN", str(os.getpid()))
    said = odedm("run", "--plugin", plugin, *WORDS, "--seeds", "2", "--workers", "2", "--out", "workers", code=2)
    path = os.path.abspath(plugin)
    assert f"In a worker process: The plug-in '{path}' cannot be imported" in said
    assert "No module named 'odedm_test_beside'" in said, "a worker finds nothing in the current folder"


def test_every_command_that_trains_or_lists_takes_plugins(plugin):
    assert "mine" in odedm("list", "methods", "--plugin", plugin)
    for words in (("study", "mini"), ("tune",), ("resume", "runs"), ("demo",), ("run",)):
        assert "cannot be imported" in odedm(*words, "--plugin", "no_such_module", code=2)


def test_a_ray_worker_knows_what_its_driver_hands_over(plugin, tmp_path):
    load_plugins([plugin])
    handed, job = export_plugins(), job_of(replace(SMALL, method="mine"), tmp_path / "run")
    del METHODS["mine"], sys.modules["odedm_test_mine"]
    assert "Unknown method 'mine'" in do_remotely(job.to_text(), None)["error"]
    assert "result.json" in do_remotely(job.to_text(), None, "", handed)["files"]
    plugins.clear()
    error = do_remotely(job.to_text(), None, "", {**handed, "plugins": ["odedm_test_none"]})["error"]
    assert error.startswith("In a worker: The plug-in 'odedm_test_none' cannot be imported")


def edited(path):
    """The plug-in with another step, as the next process finds it."""
    path.write_text(PLUGIN.replace("[:3]", "[:2]"))
    del METHODS["mine"], sys.modules["odedm_test_mine"]


def test_a_run_by_code_that_was_edited_since_is_not_taken_for_this_one(plugin, tmp_path):
    words = ("run", "--plugin", plugin, *WORDS, "--out", "runs")
    odedm(*words)
    before = results(tmp_path / "runs")
    assert "finished already" in odedm(*words)
    edited(tmp_path / plugin)
    said = odedm(*words, code=2)
    assert "was made by another version of the method 'mine': odedm_test_mine is other code here." in said
    assert "--overwrite to replace it" in said
    assert results(tmp_path / "runs") == before
    odedm(*words, "--overwrite")
    assert results(tmp_path / "runs") != before
    assert "finished already" in odedm(*words)


def test_a_study_does_again_what_other_code_made_unless_any_counts(plugin, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'seeds = 1\ndata = "blobs"\nmethod = ["mine", "er"]\nmemory = "reservoir"\nbatch = 6\ncapacity = 20\n'
    )
    words = ("study", "mine.toml", "--plugin", plugin, "--device", "cpu", "--out", "study")
    assert "2 runs, 0 done" in odedm(*words)

    def code():
        (path,) = (tmp_path / "study" / "runs").glob("*-mine-*/seed-0/result.json")
        return json.loads(path.read_text())["provenance"]["plugins"]["method"]["code"]

    before = code()
    edited(tmp_path / plugin)
    assert "2 runs, 2 done, 0 to do." in odedm(*words, "--reuse", "any")
    assert "1 made by other code" in odedm(*words, "--dry-run")
    assert "2 runs, 1 done, 1 to do, 1 made by other code, done again" in odedm(*words)
    assert code() != before
    assert "2 runs, 2 done, 0 to do." in odedm(*words)


def test_an_unfinished_run_by_code_that_was_edited_since_starts_anew(plugin, tmp_path, monkeypatch):
    words = ("run", "--plugin", plugin, *WORDS, "--checkpoint", "7 steps")
    for folder in ("run", "resumed"):
        with interrupted(monkeypatch, 45):
            odedm(*words, "--out", folder, code=130)
    edited(tmp_path / plugin)
    assert "another version of your code or weights, so it starts anew" in odedm(*words, "--out", "run")
    odedm(*words, "--out", "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert "code of the method" in odedm("resume", "resumed", "--plugin", plugin), "asked for, it goes on and says so"
    assert results(tmp_path / "resumed") != results(tmp_path / "whole")


def test_a_class_of_a_library_is_found_again_by_its_module(tmp_path):
    run = package.train("blobs", method="er", memory=package.Reservoir(20), device="cpu", optimizer=torch.optim.Adam)
    run.save(tmp_path / "seed-0")
    assert json.loads((tmp_path / "seed-0" / "result.json").read_text())["provenance"]["plugins"]["optimizer"]["again"]
    del OPTIMIZERS["torch.optim.adam.Adam"]  # as another process would begin
    words = ("run", "--from", tmp_path / "seed-0", "--out", tmp_path / "again")
    assert "(--plugin torch.optim.adam)" in odedm(*words, code=2)
    odedm(*words, "--plugin", "torch.optim.adam")
    assert results(tmp_path / "again")["seed-0"] == run.result.class_il
