"""Clocks that jump, as after a sleep, a correction or a change of the hour, change nothing but stamps."""

import ast
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import interrupted, odedm

import odedm as package
from odedm.checkpoint import checkpointer
from odedm.execute import run_job
from odedm.training import training_log

WORDS = ["run", "--data", "blobs", "--method", "er", "--capacity", "30", "--seeds", "1", "--device", "cpu"]


def accuracies(folder):
    (path,) = folder.glob("*/*/result.json")
    return json.loads(path.read_text())["class_il"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
@pytest.mark.parametrize("schedule", ["60 seconds", "auto"])
def test_a_run_ends_with_the_same_numbers_whatever_its_clock_does(jump, schedule, tmp_path, monkeypatch):
    odedm(*WORDS, "--out", tmp_path / "calm")
    clock = SimpleNamespace(monotonic=itertools.count(1e6, jump).__next__)
    for module in (checkpointer, run_job, training_log):
        monkeypatch.setattr(module, "time", clock)
    with interrupted(monkeypatch, 7):
        odedm(*WORDS, "--checkpoint", schedule, "--out", tmp_path / "killed", code=130)
    odedm(*WORDS, "--checkpoint", schedule, "--out", tmp_path / "killed")
    assert accuracies(tmp_path / "killed") == accuracies(tmp_path / "calm")


def test_the_time_of_day_is_for_stamps_alone():
    """What lasts is measured by clocks that a correction of the time does not move."""
    root, stamped = Path(package.__file__).parent, set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                assert name not in ("time.time", "time.time_ns"), path
                if name == "datetime.now":
                    stamped.add(path.relative_to(root).as_posix())
    assert stamped == {
        "checkpoint/checkpoint.py",
        "checkpoint/lock.py",
        "results/provenance.py",
        "studies/run_store.py",
        "training/loggers.py",
    }
