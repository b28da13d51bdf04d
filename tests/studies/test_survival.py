"""A study whose command or workers are killed ends with the runs of a calm one, on this machine and on Ray."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from sampling import thorough

TOOL = Path(__file__).parents[2] / "tools" / "kill.py"


@pytest.mark.slow
@pytest.mark.skipif(not TOOL.is_file(), reason="only in a checkout")
@thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["study", "ray"])
def test_killed_or_calm_the_runs_are_the_same(what: str, tmp_path: Path) -> None:
    if what == "ray" and not find_spec("ray"):
        pytest.skip("needs the extra 'ray'")
    words = [sys.executable, str(TOOL), "--kills", "2", "--seed", "3", "--only", what, "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 signals in all" in done.stdout
