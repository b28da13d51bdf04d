"""The hash of a plug-in's code changes with every file of its package, and with nothing else."""

import importlib
import sys

import pytest

from odedm.core.plugin_modules import source_hash
from odedm.methods.er import ER

CODE = """
from functools import partial
from torch import nn
from . import helper

def halved(x):
    return x / 2

class Mine:
    def step(self, x):
        return halved(x)

net = nn.Linear(3, 4)
third = partial(halved, 3)
"""
PACKAGE = "odedm_hashed"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The module of a package with this code, and with this helper, as a fresh process imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / PACKAGE
    (folder / "below").mkdir(parents=True)
    (folder / "__init__.py").write_text("")

    def forget():
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]

    def load(code=CODE, helper="FACTOR = 1\n"):
        forget()
        (folder / "mine.py").write_text(code)
        (folder / "helper.py").write_text("")
        (folder / "below" / "further.py").write_text(helper)
        importlib.invalidate_caches()
        return importlib.import_module(f"{PACKAGE}.mine")

    yield load
    forget()


def test_every_file_of_the_package_counts(mine):
    first = source_hash(mine().Mine)
    assert first is not None
    assert source_hash(mine(CODE.replace("x / 2", "x / 3")).Mine) != first
    assert source_hash(mine(helper="FACTOR = 2\n").Mine) != first
    assert source_hash(mine().Mine) == first


def test_files_beside_a_single_file_count_and_those_below_do_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    hashes = []
    for place, code in (("odedm_single", "class Mine: ..."), ("beside", "A = 1"), ("below/further", "A = 1")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / f"{place}.py").write_text(code)
        importlib.invalidate_caches()
        sys.modules.pop("odedm_single", None)
        hashes.append(source_hash(importlib.import_module("odedm_single").Mine))
    del sys.modules["odedm_single"]
    assert hashes[0] != hashes[1] == hashes[2]


def test_a_file_that_is_edited_later_leaves_the_hash_of_what_was_imported(mine, tmp_path):
    module = mine()
    first = source_hash(module.Mine)
    (tmp_path / PACKAGE / "mine.py").write_text(CODE.replace("x / 2", "x * 2"))
    assert source_hash(module.Mine) == first
    assert source_hash(module.Mine()) == first, "an object has its class's"
    assert source_hash(importlib.reload(module).Mine) != first, "and what is imported anew its own"


def test_an_object_has_the_hash_of_the_module_that_made_it(mine):
    def both(code):
        module = mine(code)
        return [source_hash(obj, module.__name__) for obj in (module.net, module.third)]

    first = both(CODE)
    assert None not in first
    assert both(CODE.replace("Linear(3, 4)", "Linear(3, 5)"))[0] != first[0]
    assert both(CODE.replace("partial(halved, 3)", "partial(halved, 4)"))[1] != first[1]
    assert source_hash(mine().net) is None, "torch's own, of nobody's module"


def test_what_has_a_version_of_its_own_or_no_file_has_no_hash():
    assert source_hash(ER) is None
    assert source_hash(len) is None
    assert source_hash(3) is None
    assert source_hash(importlib.import_module) is None
