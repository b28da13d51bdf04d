"""A mark of code changes when what computes does, and with nothing else."""

import importlib
import sys

import pytest

from odedm.core.source_mark import source_mark
from odedm.methods.er import ER

CODE = """
import math
from . import helper
import odedm

SCALE = 2.0

def used(x):
    "Halves."
    return x / SCALE

def unused(x):
    return x

class Other:
    size = 3

class Mine:
    "Documented."
    def step(self, x):
        return used(x)  # a comment

odedm.register("methods", "mine", Mine)

if __name__ == "__main__":
    unused(3)
"""


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """The mark of Mine in a package with this code, and with this helper, as a fresh process has it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("odedm.register", lambda *words: None)
    folder = tmp_path / "odedm_marked"
    folder.mkdir()
    (folder / "__init__.py").write_text("")

    def find(code, helper="FACTOR = 1\n", name="Mine"):
        for each in [each for each in sys.modules if each.startswith("odedm_marked")]:
            del sys.modules[each]
        (folder / "mine.py").write_text(code)
        (folder / "helper.py").write_text(helper)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return source_mark(getattr(importlib.import_module("odedm_marked.mine"), name))

    yield find
    for each in [each for each in sys.modules if each.startswith("odedm_marked")]:
        del sys.modules[each]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return used(x)", "return used(x) + 0"),
        ("x / SCALE", "x / SCALE / 1"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("import math", "import cmath as math"),
    ],
)
def test_what_computes_counts(mark, old, new):
    assert old in CODE
    assert mark(CODE) != mark(CODE.replace(old, new)) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # a comment", ""),
        ("Documented.", "Documented well."),
        ("Halves.", "Takes a half."),
        ("    return x\n", "    return x + 1\n"),
        ("size = 3", "size = 4"),
        ("\n\nclass", "\n\n\n\nclass"),
        ('"mine", Mine', '"ours", Mine'),
        ("unused(3)", "unused(4)"),
    ],
)
def test_what_does_not_is_left_out(mark, old, new):
    assert old in CODE
    assert mark(CODE) == mark(CODE.replace(old, new)) is not None


def test_modules_of_the_same_package_count(mark):
    first = mark(CODE)
    assert first != mark(CODE, "FACTOR = 2\n")
    assert first == mark(CODE)


def test_a_file_that_is_edited_later_leaves_the_mark_of_what_was_imported(mark, tmp_path):
    first = mark(CODE)
    (tmp_path / "odedm_marked" / "mine.py").write_text(CODE.replace("x / SCALE", "x * SCALE"))
    assert source_mark(sys.modules["odedm_marked.mine"].Mine) == first
    assert source_mark(sys.modules["odedm_marked.mine"].Mine()) == first, "an object has its class's"


def test_what_has_a_version_of_its_own_or_no_file_has_no_mark():
    assert source_mark(ER) is None
    assert source_mark(len) is None
    assert source_mark(3) is None


def test_a_file_that_is_no_python_any_more_has_no_mark(mark, tmp_path):
    mark(CODE)
    other = sys.modules["odedm_marked.mine"].Other
    (tmp_path / "odedm_marked" / "mine.py").write_text("def (")
    assert source_mark(other) is None
