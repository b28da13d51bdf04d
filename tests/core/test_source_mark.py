"""A mark of code changes when what computes does, and with nothing else."""

import importlib
import sys

import pytest

from odedm.core.source_mark import source_mark
from odedm.methods.er import ER

CODE = """
import math
from dataclasses import dataclass
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

def keep(thing):
    return thing

@keep
def extra(x):
    return x + 7

@dataclass
class Further:
    size: int = 5

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
        ("x + 7", "x + 8"),
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
        ("size: int = 5", "size: int = 6"),
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
    assert first == mark(CODE, "# of all\nFACTOR = 1  # one\n"), "comments do not count there either"


def test_a_module_that_is_imported_anew_has_the_mark_of_what_it_is_now(mark, tmp_path):
    first = mark(CODE)
    module = sys.modules["odedm_marked.mine"]
    (tmp_path / "odedm_marked" / "mine.py").write_text(CODE.replace("x / SCALE", "x * SCALE"))
    assert source_mark(importlib.reload(module).Mine) != first


def test_an_object_has_the_mark_of_the_module_that_made_it(mark):
    made = (
        CODE + "from torch import nn\nfrom functools import partial\nnet = nn.Linear(3, 4)\nhalf = partial(used, 3)\n"
    )

    def both(code):
        mark(code)
        module = sys.modules["odedm_marked.mine"]
        return [source_mark(thing, "odedm_marked.mine") for thing in (module.net, module.half)]

    first = both(made)
    assert None not in first
    assert both(made.replace("Linear(3, 4)", "Linear(3, 5)"))[0] != first[0]
    assert both(made.replace("x / SCALE", "x * SCALE"))[1] != first[1]
    assert source_mark(sys.modules["odedm_marked.mine"].net) is None, "torch's own, of nobody's module"
    inline = CODE + "from torch import nn\nodedm.register('nets', 'wide', nn.Linear(3, 4))\n"
    assert None is not mark(inline) != mark(inline.replace("(3, 4)", "(3, 5)")), "it is made where it is registered"


def test_an_expression_too_deep_to_be_written_out_is_no_error(mark):
    deep = CODE + f"TOTAL = {' + '.join(['1'] * 400)}\n"
    assert mark(deep) is not None


def test_a_file_that_is_edited_later_leaves_the_mark_of_what_was_imported(mark, tmp_path):
    first = mark(CODE)
    (tmp_path / "odedm_marked" / "mine.py").write_text(CODE.replace("x / SCALE", "x * SCALE"))
    assert source_mark(sys.modules["odedm_marked.mine"].Mine) == first
    assert source_mark(sys.modules["odedm_marked.mine"].Mine()) == first, "an object has its class's"


def test_what_has_a_version_of_its_own_or_no_file_has_no_mark():
    assert source_mark(ER) is None
    assert source_mark(len) is None
    assert source_mark(3) is None
