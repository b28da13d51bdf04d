"""Saved memories of anyone's: what can be loaded goes on, the rest is refused."""

import json
import math
import tempfile
from pathlib import Path

import torch
from fuzzing import Fuzzer, altered, mutated
from hypothesis import strategies as st
from safetensors.torch import save

import odedm
from odedm.core.tensor_archive import archive_checksum
from odedm.memory.live_state import PLAIN

VALUES = st.sampled_from(
    ["null", "true", "-1", "0", "3", str(2**70), "1.5", '""', '"x"', '"uint8"', "[]", "{}", "[[1, 2]]"]
    + ['[["image", [3], "bool"]]', '"task"', '"cuda"', "12"]
)
NUMBERS = st.sampled_from([0.0, -1.0, 1.0, 0.5, math.inf, -math.inf, math.nan, 2.0**62])


def state_of(**settings):
    memory = odedm.DualMemory(12, seed=0, selection=odedm.Prototypes("l2", dac=None, space="pixels"), **settings)
    for task in range(2):
        memory.add(torch.rand(8, 3), torch.arange(8) % 2 + 2 * task, at=torch.rand(8))
        memory.end_task() if task == 0 else None
    return memory.state_dict()


def content(state):
    head, tensors = json.dumps({name: state[name] for name in PLAIN}), state["tensors"]
    return save(tensors, {"odedm": head, "checksum": archive_checksum(head, tensors)})


def changed(number, plain, fill):
    """A state with some plain values and some tensors' entries replaced, at any depth."""
    state = STATES[number]
    new = altered({name: state[name] for name in PLAIN}, plain)
    tensors = {name: tensor.clone() for name, tensor in state["tensors"].items()}
    for which, at, value in fill:
        column = list(tensors.values())[which % len(tensors)].view(-1)
        if len(column):
            finite = value if math.isfinite(value) or column.is_floating_point() else 0
            column[at % len(column)] = finite if column.is_floating_point() else int(finite) % 256
    return content({**new, "tensors": tensors})


def go_on(path):
    memory = odedm.DualMemory.load(path)
    memory.sample(3)
    rows = memory.rows()
    memory.add(rows["images"][:1], rows["labels"][:1], at=rows["at"][:1])
    memory.end_task()
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "again")


STATES = [state_of(k=1), state_of(rho=0.5), state_of(k=1, candidates=2), state_of(k=1, short_policy="task-quota")]
WAYS = st.lists(st.integers(0, 30), min_size=1, max_size=4)
CHANGED = st.builds(
    changed,
    st.integers(0, len(STATES) - 1),
    st.lists(st.tuples(WAYS, VALUES), max_size=2),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), NUMBERS), max_size=2),
)

FUZZERS = {"memory": Fuzzer(st.one_of(CHANGED, mutated(*map(content, STATES))), go_on)}
