"""Benchmarks take steps with the library as it is: each at its smallest."""

import json
import subprocess
import sys

import pytest
from beside import ROOT, imported
from sampling import thorough

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="only in a checkout")
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_can_be_imported(name):
    imported("benchmarks", name)


@pytest.mark.parametrize("fused", [False, True])
def test_the_ceilings_step_learns(fused):
    step = imported("benchmarks", "ceiling").er_step("cnn", 8, 4, "cpu", None, fused=fused)
    step()


@thorough
def test_the_command_is_timed_and_compared(tmp_path):
    words = ["--device", "cpu", "--quick", "--parts", "command", "--out", str(tmp_path / "times.json")]
    subprocess.run([sys.executable, "-P", str(ROOT / "benchmarks" / "all.py"), *words], check=True, capture_output=True)
    times = json.loads((tmp_path / "times.json").read_text())
    card = imported("tools", "card")
    assert card.compare_times(times, times).verdict == card.PASSED
    assert times["by hand"]["eager"]["ms"] > 0
