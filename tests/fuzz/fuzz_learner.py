"""Saved learners of anyone's, their checksum put right: what can be loaded goes on, the rest is refused."""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
from fuzz_memory import NUMBERS, VALUES, WAYS
from fuzzing import Fuzzer, altered, mutated
from hypothesis import strategies as st
from safetensors.torch import save

import odedm
from odedm.core.tensor_archive import archive_checksum
from odedm.learner.learner_state import capture

X = np.random.default_rng(0).random((16, 3))


def state_of(method, memory, **settings):
    learner = odedm.Learner(
        method, memory=memory, net="mlp", net_options={"width": 4}, batch=8, every=12, device="cpu", **settings
    )
    return capture(learner.partial_fit(X, ["a", "b"] * 8).partial_fit(X, ["b", "c"] * 8))


def content(state):
    plain = json.dumps(state["head"])
    tensors = {name: tensor.contiguous() for name, tensor in state["tensors"].items()}
    return save(tensors, {"odedm": plain, "checksum": archive_checksum(plain, tensors)})


def changed(number, plain, fill):
    return content(changed_state(STATES[number], plain, fill))


def changed_state(state, plain, fill):
    """A state with some plain values, at any depth, and some tensors' entries replaced."""
    head = altered(state["head"], plain)
    tensors = {name: tensor.clone() for name, tensor in state["tensors"].items()}
    for which, at, value in fill:
        column = list(tensors.values())[which % len(tensors)].view(-1)
        if len(column):
            finite = value if column.is_floating_point() else int(value) % 256 if abs(value) < 1e9 else 0
            column[at % len(column)] = finite
    return {"head": head, "tensors": tensors}


def go_on(path):
    learner = odedm.Learner.load(path)
    learner.predict_proba(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is no long-term room")
        learner.partial_fit(X, ["d"] * 16)
        learner.consolidate()
    with tempfile.TemporaryDirectory() as folder:
        learner.save(Path(folder) / "again")


STATES = [
    state_of("er", odedm.ODEDM(12, k=1, selection=odedm.Prototypes("l2", dac=None)), options={"momentum": 0.5}),
    state_of("derpp", odedm.ODEDM(16, rho=0.5, selection=odedm.Prototypes("l2", dac=None), candidates=3)),
    state_of("er", odedm.Reservoir(12), scaling=None),
]
CHANGED = st.builds(
    changed,
    st.integers(0, len(STATES) - 1),
    st.lists(st.tuples(st.one_of(WAYS, st.lists(st.integers(0, 30), min_size=3, max_size=9)), VALUES), max_size=2),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), NUMBERS), max_size=2),
)

FUZZERS = {"learner": Fuzzer(st.one_of(CHANGED, mutated(*map(content, STATES))), go_on, share=30)}
