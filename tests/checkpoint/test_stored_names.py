"""Files name classes by stored names: every class of the package that a state reaches has one, and may be renamed."""

import json
from functools import partial
from typing import ClassVar

import pytest
import torch
from sampling import KEEPING

import odedm
from odedm import Experiment, Run
from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core import stored_names
from odedm.core.registry import DISTANCES, METHODS, NETS, POLICIES, RETRIEVALS
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec
from odedm.core.store import Store
from odedm.core.stored_names import STORED, stored, stored_name, transient
from odedm.memory.reservoir import ReservoirBuffer
from odedm.methods.base import Method
from odedm.nets.grouped_batch_norm import GroupedBatchNorm, Norm2d
from odedm.selection.prototype_settings import ROW_SELECTORS
from odedm.testing.contracts import small_stream
from odedm.training.custom_transform import CustomTransform
from odedm.training.observation import Observation
from odedm.training.optimizers import optimizer_keywords

RUNS = [(name, odedm.NoMemory()) for name in METHODS if name not in KEEPING]
RUNS += [(name, memory) for name in KEEPING for memory in (odedm.Native(30), odedm.ODEDM(30, k=1))]
RUNS += [("er", odedm.ODEDM(30, k=1, short_policy=name)) for name in POLICIES]
RUNS += [
    ("er", odedm.ODEDM(30, k=1, selection=odedm.Prototypes(name))) for name in DISTANCES if name not in ROW_SELECTORS
]
RUNS += [("er", odedm.ODEDM(30, k=1, selection=kind())) for kind in ROW_SELECTORS.values()]


class TaskIsOver(Exception):
    pass


def stop(_run):
    raise TaskIsOver


def run_for_one_task(method, memory, observation=None, **settings):
    data = small_stream()
    plan = Experiment(memory, data=data.name, method=method, device="cpu", batch=64, **settings)
    run = Run(plan, data, observation or Observation(), callbacks=[stop])
    with pytest.raises(TaskIsOver):
        run.finish()
    return run


def words(node):
    """Every text in a tree."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        yield from (word for pair in node.items() for part in pair for word in words(part))
    elif isinstance(node, list):
        yield from (word for part in node for word in words(part))


@pytest.mark.parametrize(("method", "memory"), RUNS, ids=[f"{method}-{memory}" for method, memory in RUNS])
def test_a_state_names_no_module_of_the_package(method, memory):
    run = run_for_one_task(method, memory)
    tree = state_tree(run.roots(), run.external_tensors()).tree
    assert [word for word in words(tree) if "odedm." in word] == []


@pytest.mark.parametrize("setting", [{"retrieval": name} for name in RETRIEVALS] + [{"optimizer": "adamw"}], ids=str)
def test_nor_does_one_with_other_ingredients(setting):
    run = run_for_one_task("er", odedm.Reservoir(30), **setting)
    assert [word for word in words(state_tree(run.roots(), run.external_tensors()).tree) if "odedm." in word] == []


def test_nor_does_one_that_is_looked_at():
    looked = Observation(evidence=True, anytime=2, keep_model=True)
    run = run_for_one_task("er", odedm.ODEDM(30, k=1), looked)
    assert [word for word in words(state_tree(run.roots(), run.external_tensors()).tree) if "odedm." in word] == []


@pytest.mark.parametrize("table", [METHODS, POLICIES, RETRIEVALS, DISTANCES, NETS], ids=["m", "p", "r", "d", "n"])
def test_every_class_that_a_setting_names_has_a_stored_name(table):
    classes = [entry.load() for entry in table.values()]
    assert [kind for kind in classes if isinstance(kind, type) and STORED.get(stored_name(kind)) is not kind] == []


def test_names_are_unique_and_cannot_be_taken_for_import_paths():
    assert len(set(STORED.values())) == len(STORED)
    assert [name for name in STORED if "." in name] == []
    with pytest.raises(ValueError, match=r"'store' is that of odedm\.core\.store\.Store"):
        stored("store")(Method)
    with pytest.raises(ValueError, match="no dot"):
        stored("odedm.store")(Method)


def test_a_class_of_the_package_without_a_stored_name_is_refused():
    class Unnamed(Store):
        __module__ = "odedm.core.unnamed"

    with pytest.raises(StateError, match=r"memory is a odedm\.core\.unnamed.*Unnamed, a class without a stored name"):
        state_tree({"memory": Unnamed(2, [])})


def test_a_class_may_be_renamed_and_move_to_another_module():
    run = run_for_one_task("derpp", odedm.ODEDM(30, k=1))
    state = state_tree(run.roots(), run.external_tensors())
    fresh = Run(run.experiment, small_stream())
    kinds = (ReservoirBuffer, Store, type(run.method), type(run.memory), type(run.method.net), type(run.engine.replay))
    names = [(kind.__module__, kind.__qualname__) for kind in kinds]
    try:
        for kind in kinds:
            kind.__module__, kind.__qualname__ = "odedm.elsewhere", f"Renamed{kind.__qualname__}"
        load_state_tree(
            fresh.roots(), State(state.tensors, json.loads(json.dumps(state.tree))), fresh.external_tensors()
        )
    finally:
        for kind, (module, name) in zip(kinds, names, strict=True):
            kind.__module__, kind.__qualname__ = module, name
    assert fresh.method.net.state_dict().keys() == run.method.net.state_dict().keys()
    assert all(fresh.method.net.state_dict()[name].equal(value) for name, value in run.method.net.state_dict().items())
    assert fresh.memory.rows()["index"].equal(run.memory.rows()["index"])


def test_another_class_under_the_stored_name_takes_over_what_was_stored(monkeypatch):
    store = Store(3, [ColumnSpec("label", dtype=torch.int64)])
    store.pin({"label": torch.tensor([4, 5])})
    state = state_tree({"store": store})
    monkeypatch.setattr(stored_names, "_NAMES", {**stored_names._NAMES})
    monkeypatch.delitem(STORED, "store")

    @stored("store")
    class Shelves(Store):
        """The same class in a later version."""

    fresh = {"store": None}
    load_state_tree(fresh, state)
    assert type(fresh["store"]) is Shelves
    assert fresh["store"].columns["label"].equal(store.columns["label"])


def test_code_of_the_package_is_free_to_move_and_that_of_others_is_not():
    state = state_tree(
        {
            "make": optimizer_keywords,
            "draw": partial(generator, 3),
            "view": CustomTransform(torch.zeros(1), torch.ones(1), view=abs),
        }
    )
    assert sorted(word for word in words(state.tree) if "odedm" in word) == ["odedm", "odedm"]
    fresh = {"make": generator, "draw": partial(optimizer_keywords), "view": None}
    load_state_tree(fresh, state)
    assert fresh["make"] is generator
    with pytest.raises(StateError, match=r"made with odedm where the fresh object has builtins\.len"):
        load_state_tree({"make": len, "draw": None, "view": None}, state)


def test_what_is_transient_adds_up_along_the_bases():
    class Plain:
        TRANSIENT: ClassVar = frozenset({"_cache"})

    class Grown(Plain):
        TRANSIENT: ClassVar = frozenset({"_view"})

    assert transient(Grown) == {"_cache", "_view"}
    assert transient(Norm2d) == GroupedBatchNorm.TRANSIENT == {"counters"}
    assert transient(object) == frozenset()


def test_a_plug_ins_caches_are_no_state_either():
    class Cached:
        TRANSIENT: ClassVar = frozenset({"cache"})

        def __init__(self, seen):
            self.seen, self.cache = seen, {object()}

    old, fresh = {"own": Cached(3)}, {"own": Cached(0)}
    kept = fresh["own"].cache
    load_state_tree(fresh, state_tree(old))
    assert fresh["own"].seen == 3
    assert fresh["own"].cache is kept
