"""A study that is killed again and again, and one that loses a worker of Ray, end with the table of a calm one."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from sampling import thorough

TOOL = Path(__file__).parents[2] / "tools" / "kill_study.py"


@pytest.mark.slow
@pytest.mark.skipif(not TOOL.is_file(), reason="only in a checkout")
@thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["workers", "ray"])
def test_killed_or_calm_the_table_is_the_same(engine: str, tmp_path: Path) -> None:
    if engine == "ray" and not find_spec("ray"):
        pytest.skip("needs the extra 'ray'")
    words = [sys.executable, str(TOOL), "--small", "--seed", "3", "--out", str(tmp_path)]
    words += ["--kills", "2"] if engine == "workers" else ["--kills", "0", "--ray"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal tables" in done.stdout
    if engine == "ray":
        assert "was killed in mid-run" in done.stdout
        assert "on Ray: 6 runs" in done.stdout
