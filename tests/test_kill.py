"""A small share of `make kill`: commands killed at random moments leave what calm ones do, and no noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sampling import thorough

TOOL = Path(__file__).parents[1] / "tools" / "kill.py"


@pytest.mark.skipif(not TOOL.is_file(), reason="only in a checkout")
@thorough  # tests/cli/test_resume_cli.py kills, too
@pytest.mark.parametrize("what", ["run", "import"])
def test_killed_or_calm_the_same_is_left(what: str, tmp_path: Path) -> None:
    words = [sys.executable, str(TOOL), "--kills", "2", "--seed", "4", "--only", what, "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 signals in all" in done.stdout
