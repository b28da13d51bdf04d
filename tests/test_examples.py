"""The examples run as they stand, and are as short as is said of them."""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import interrupted, odedm

from odedm import Result

EXAMPLES = Path(__file__).parent.parent / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="only in a checkout")


def test_the_plain_loop_learns_with_the_memory(capsys):
    path = EXAMPLES / "plain_pytorch_loop.py"
    assert len(path.read_text().splitlines()) <= 25
    left = runpy.run_path(str(path))
    assert 58 <= left["memory"].size("long") <= 60  # of a class with fewer rows in memory there are fewer
    said = capsys.readouterr().out
    assert re.search(r"k=6: 4[0-2] short-term, (58|59|60) long-term", said)
    assert float(re.match(r"[\d.]+", said)[0]) > 50


def test_the_service_learns_without_borders_and_goes_on_in_another_process(capsys, monkeypatch):
    path = EXAMPLES / "service.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--rows", "20000"])
    learner = runpy.run_path(str(path), run_name="__main__")["service"]
    said = capsys.readouterr().out
    assert "loaded in another process, the same after it: True" in said
    assert learner.rows_seen_ == 20_000
    assert len(learner.classes_) == 12
    assert 40 < learner.size("long") <= 50
    accuracy = [float(line.split()[1]) for line in said.splitlines() if re.match(r" +\d+ +[\d.]+ +\d+ +\d+$", line)]
    assert len(accuracy) == 10
    assert min(accuracy) > 70
    assert accuracy[-1] > 95


def test_a_loss_and_a_policy_of_ones_own_go_through_lanes_a_study_its_report_and_resume(tmp_path, monkeypatch):
    path = EXAMPLES / "own_method.py"
    assert len(path.read_text().splitlines()) <= 80
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path)])
    runpy.run_path(str(path), run_name="__main__")
    assert "Focal replay · ODEDM" in (tmp_path / "study" / "table.md").read_text()
    assert "Focal replay" in (tmp_path / "study" / "report.html").read_text()
    words = [
        "--data",
        "blobs",
        "--method",
        "focal",
        "--memory",
        "native",
        "--set",
        "memory.policy=hard",
        "--capacity",
        "40",
    ]
    with interrupted(monkeypatch, 8):
        odedm("run", "--plugin", path, *words, "--out", tmp_path / "runs", "--checkpoint", "3 steps", code=130)
    odedm("resume", tmp_path / "runs", "--plugin", path)
    (went_on,) = (tmp_path / "runs").glob("*/seed-0/result.json")
    (at_once,) = (tmp_path / "study").glob(f"runs/{went_on.parts[-3]}/seed-0/result.json")
    assert Result.load(went_on).class_il == Result.load(at_once).class_il
    del sys.modules["own_method"]


def test_another_search_chooses_by_validated_runs(monkeypatch):
    """Optuna is no dependency; what it calls is tried with a trial that suggests the same again and again."""
    path = EXAMPLES / "optuna_search.py"
    assert len(path.read_text().splitlines()) <= 31
    monkeypatch.setitem(sys.modules, "optuna", SimpleNamespace(Trial=object))
    validated = runpy.run_path(str(path))["validated"]
    trial = SimpleNamespace(suggest_float=lambda _name, low, high, log: low**0.75 * high**0.25)  # halfway, SGD diverges
    assert 50 < validated(trial) <= 100
