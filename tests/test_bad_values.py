"""Whatever is given to the library in Python, what is not legal is a UsageError: one line that says what is wrong."""

from __future__ import annotations

import inspect
from dataclasses import fields
from decimal import Decimal

import numpy as np
import pytest
import torch

import odedm
from odedm import ODEDM, Experiment, Native, Observation, Reservoir, Run, UsageError, blobs
from odedm.core.registry import METHODS
from odedm.methods.hyperparameters import hyperparameters


class Mute:
    def __repr__(self):
        raise RuntimeError("no words")


class Hostile:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __index__ = __float__ = __len__ = lambda self: 1 // 0


NUMBERS = [True, -1, 0, 2**31, 2**62, 2**64, -(10**30), 10**400, 10**5000, -0.5, 1e308]
NUMBERS += [float("nan"), float("inf"), 1j, Decimal("sNaN"), np.float64("nan"), np.int64(-5)]
WORDS = ["", "x", "\x00", "\ud800", "a" * 10_000, "9" * 5000, b"x"]
SHELLS = [[], [[1]], (1, 2, 3), {}, {1: 2}, {None: None}, {"lr": float("nan")}, {"lr": b"x"}, {"lr": 10**400}]
SHELLS += [{"width": 0}, {"width": 10**30}, {"width": 2**40}, {"width": [1]}, {"nothing": 1}]
ARRAYS = [np.array(5), np.array([]), np.zeros((2, 2)), torch.tensor([1, 2]), torch.tensor(float("nan"))]
THINGS = [None, object(), object, len, ..., range(3), iter([]), Mute(), Hostile()]
BAD = [*NUMBERS, *WORDS, *SHELLS, *ARRAYS, *THINGS]

DATA = blobs(per_class=4)
ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


def run(**settings):
    """What `train` does before its first step."""
    return Run(Experiment(**{"memory": Reservoir(8), "method": "er", "data": "blobs", **settings}), DATA)


CALLS = {
    **{kind: {each.name for each in fields(kind)} for kind in (Experiment, Reservoir, Native, ODEDM, Observation)},
    run: {each.name for each in fields(Experiment)} - {"data"},
}
FUNCTIONS = {
    odedm.load_dataset: {"name_or_path": "blobs"},
    odedm.blobs: {},
    odedm.shapes: {},
    odedm.prototypes_per_class: {"rho": 0.25, "capacity": 100, "tasks": 5, "classes": 2},
    odedm.from_arrays: {"x": ROWS, "y": np.arange(20) % 4, "tasks": 2},
    odedm.split: {"data": DATA},
    odedm.select: {"x": torch.from_numpy(ROWS), "k": 2},
}
CASES = [(call, name, {}) for call, names in CALLS.items() for name in sorted(names)]
CASES += [(odedm.train, name, {}) for name in ("data", "nothing")]
CASES += [
    (call, name, given)
    for call, given in FUNCTIONS.items()
    for name in inspect.signature(call).parameters
    if name != "watch"
]


@pytest.mark.parametrize(("call", "name", "given"), CASES, ids=[f"{call.__name__}.{name}" for call, name, _ in CASES])
def test_a_bad_value_is_a_usage_error(call, name, given):
    for value in BAD:
        only_usage_errors(call, **{**given, name: value})


def only_usage_errors(call, **given):
    """Whatever is legal may pass; what is not is refused in a line."""
    try:
        call(**given)
    except UsageError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    assert len(said) < 1000


@pytest.mark.parametrize("method", METHODS)
def test_a_bad_hyper_parameter_is_a_usage_error(method):
    for name in hyperparameters(METHODS[method].load()):
        for value in [*NUMBERS, *WORDS, None]:
            only_usage_errors(run, method=method, options={name: value})


@pytest.mark.parametrize("capacity", [2**40, 2**62, 10**30])
@pytest.mark.parametrize("kind", [Reservoir, Native, ODEDM])
def test_a_memory_larger_than_the_machine_is_a_usage_error(kind, capacity):
    with pytest.raises(UsageError):
        odedm.train(DATA, memory=kind(capacity), method="er")


def test_what_is_no_plan_is_a_usage_error():
    for value in BAD:
        only_usage_errors(Run, plan=value)
        if value is not None:
            with pytest.raises(UsageError):
                Run(Experiment(Reservoir(5), data="blobs"), value)
        only_usage_errors(Experiment.from_dict, plain=value)
        only_usage_errors(odedm.Result.from_dict, plain=value)


def test_paths_are_text_or_paths(tmp_path):
    outcome = odedm.train("blobs", memory=odedm.Reservoir(10), method="er", device="cpu")
    outcome.save(str(tmp_path / "run"))
    assert odedm.Result.load(str(tmp_path / "run" / "result.json")) == outcome.result
    for call in (outcome.save, odedm.Result.load):
        with pytest.raises(odedm.UsageError, match="A path must be text or a Path; int was given"):
            call(3)
