"""A call that does not fit is a sentence with the function's name and what it takes; to Python, a TypeError."""

import inspect

import numpy as np
import pytest
import torch

import odedm
from odedm import UsageError
from odedm.core.calling import explains_calls
from odedm.memory.live import DualMemory

X, Y = np.random.default_rng(0).random((40, 5)), np.arange(40) % 4
FUNCTIONS = [name for name in odedm.__all__ if inspect.isfunction(getattr(odedm, name))]
CLASSES = [
    "ODEDM",
    "Reservoir",
    "Native",
    "NoMemory",
    "Experiment",
    "Observation",
    "Learner",
    "DualMemory",
    "MIR",
]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: odedm.select(X, 5),
            r"^select\(\) takes 1 by place \(x\), and 2 were given: select\(x, k=5\)\. By name",
        ),
        (lambda: odedm.select(X, k=5, sed=3), "^Unknown keyword of select 'sed': did you mean 'seed'"),
        (lambda: odedm.select(X, x=X, k=5), r"^select\(\) was given x twice"),
        (lambda: odedm.from_arrays(X, Y), r"^from_arrays\(\) lacks tasks: from_arrays\(x, y, tasks=…\)\. By name it"),
        (lambda: odedm.from_arrays(X, Y, task=2), "^Unknown keyword of from_arrays 'task': did you mean 'tasks'"),
        (lambda: odedm.ODEDM(10, rhoo=1), "^Unknown keyword of ODEDM 'rhoo': did you mean 'rho'"),
        (lambda: odedm.Experiment(methd=1), "^Unknown keyword of Experiment 'methd': did you mean 'method'"),
        (lambda: odedm.Reservoir(1, 2), r"^Reservoir\(\) takes 1 by place \(capacity\), and 2 were given"),
        (lambda: odedm.NoMemory(1), r"^NoMemory\(\) takes no value by its place, and 1 was given: NoMemory\(\)\.$"),
        (lambda: odedm.prequential(odedm.Learner(), X, Y), r"prequential\(learner, \[\(x, y\)\]\)"),
        (lambda: odedm.train("blobs", "er"), r"train\('blobs', method='er'\)\. By name it takes .*, method, "),
        (lambda: odedm.Learner("er", 50), r"^Learner\(\) takes 1 by place \(method\).* Learner\('er', memory=50\)"),
        (lambda: odedm.memory(1, 2), r"^memory\(\) takes 1 by place \(configuration\)"),
        (lambda: DualMemory(1, 2), r"^DualMemory\(\) takes 1 by place \(capacity\)"),
    ],
)
def test_a_call_that_does_not_fit_says_what_to_write(call, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_every_public_function_explains_its_calls(name):
    """With more values than anything takes."""
    with pytest.raises(UsageError, match=rf"^{name}\(\) takes .*, and 99 were given: {name}\("):
        getattr(odedm, name)(*range(99))


def test_signatures_stay_as_they_were_written():
    assert list(inspect.signature(odedm.Reservoir).parameters) == ["capacity"]
    assert list(inspect.signature(odedm.select).parameters)[:2] == ["x", "k"]
    assert list(inspect.signature(odedm.memory).parameters) == ["configuration", "seed", "device"]


def test_a_type_error_from_inside_stays_itself():
    @explains_calls()
    def broken(x):
        return x + "text"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)


def test_test_rows_of_torch_go_by_their_place():
    rows = torch.utils.data.TensorDataset(torch.rand(40, 3, 8, 8), torch.arange(40) % 4)
    data = odedm.from_torch(rows, rows)
    assert (len(data.image), len(data.test_image)) == (40, 40)


@pytest.mark.parametrize("given", ["er", odedm.Learner, 5])
def test_what_cannot_learn_is_refused_before_the_stream_begins(given):
    with pytest.raises(UsageError, match=r"learner must be an odedm\.Learner, .* Write prequential\(odedm\.Learner"):
        odedm.prequential(given, [(X, Y)])
