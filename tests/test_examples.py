"""The examples run as they stand, and are as short as is said of them."""

import re
import runpy
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
