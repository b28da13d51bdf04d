"""The examples run as they stand, and are as short as is said of them."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="only in a checkout")


def test_the_plain_loop_learns_with_the_memory(capsys):
    path = EXAMPLES / "plain_pytorch_loop.py"
    assert len(path.read_text().splitlines()) <= 25
    left = runpy.run_path(str(path))
    assert left["memory"].size("long") == 60
    said = capsys.readouterr().out
    assert "k=6: 40 short-term, 60 long-term" in said
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
