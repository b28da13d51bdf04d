"""Kept models of anyone's, their checksum put right: what can be loaded predicts and goes on, the rest is refused."""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
from fuzz_learner import X, changed_state
from fuzz_memory import NUMBERS, VALUES, WAYS
from fuzzing import Fuzzer, mutated
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save

import odedm
from odedm.core.tensor_archive import archive_checksum


def state_of(method, memory):
    data = odedm.from_arrays(np.tile(X, (2, 1)), ["a", "b", "c", "d"] * 8, tasks=2, name="rows")
    net = {"net": "mlp", "net_options": {"width": 4}}
    outcome = odedm.train(data, method=method, memory=memory, batch=8, device="cpu", **net)
    with tempfile.TemporaryDirectory() as folder:
        path = outcome.save(Path(folder) / "model.safetensors")
        with safe_open(path, "pt") as file:
            head = json.loads(file.metadata()["odedm"])
            return {"head": head, "tensors": {name: file.get_tensor(name) for name in file.keys()}}  # noqa: SIM118


def as_file(state):
    head, tensors = json.dumps(state["head"]), {name: tensor.contiguous() for name, tensor in state["tensors"].items()}
    return save(tensors, {"odedm": head, "checksum": archive_checksum(head, tensors)})


def changed(number, plain, fill):
    return as_file(changed_state(STATES[number], plain, fill))


def go_on(path):
    model = odedm.load(path, device="cpu")
    model.predict_proba(X)
    model.rows("long")
    learner = odedm.Learner.from_model(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is no long-term room")
        learner.partial_fit(X, [model.classes_.tolist()[0]] * 16)
        learner.consolidate()


STATES = [
    state_of("derpp", odedm.ODEDM(16, rho=0.5, selection=odedm.Prototypes("l2", dac=None))),
    state_of("icarl", odedm.ODEDM(16, k=1, selection=odedm.Prototypes("l2", dac=None))),
    state_of("er-ace", odedm.Reservoir(12)),
]
CHANGED = st.builds(
    changed,
    st.integers(0, len(STATES) - 1),
    st.lists(st.tuples(st.one_of(WAYS, st.lists(st.integers(0, 30), min_size=3, max_size=9)), VALUES), max_size=2),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), NUMBERS), max_size=2),
)
WHOLE = [as_file(state) for state in STATES]

FUZZERS = {"model": Fuzzer(st.one_of(CHANGED, mutated(*WHOLE)), go_on, share=30)}
