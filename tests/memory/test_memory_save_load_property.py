"""What a live memory's `save` writes `load` reads, and it goes on the same: columns, shapes, labels and types drawn."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm import ODEDM, DualMemory, Native, Prototypes, Reservoir, UsageError

CASES = int(os.environ.get("ODEDM_SAVE_LOAD_CASES", "40"))
PIXELS = Prototypes(space="pixels")
TYPES = [bool, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64]
SHAPES = [(1,), (5,), (2, 3), (1, 4, 4), (3, 2, 2)]
LABELS = [0, 1, 2, 7, -3, 2**40, -(2**40)]
MEMORIES = [
    Reservoir(7),
    Native(9, policy="task-quota"),
    Native(9, policy="class-quota"),
    ODEDM(12, rho=0.5, selection=PIXELS),
    ODEDM(16, k=2, selection=PIXELS, short_policy="balanced-reservoir"),
    ODEDM(24, rho=0.25, candidates=3, selection=PIXELS),
    ODEDM(16, k=1, candidates="task", selection=PIXELS),
]


@st.composite
def cases(draw):
    """A memory's settings, how its rows look, and what is done with it."""
    columns = {
        name: (draw(st.sampled_from(SHAPES[:3])), draw(st.sampled_from(TYPES)))
        for name in draw(st.lists(st.sampled_from(["logits", "weight", "été"]), unique=True, max_size=2))
    }
    form = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(TYPES)), draw(st.booleans()), columns
    sizes = st.integers(1, 12)
    steps = st.lists(st.tuples(st.sampled_from(["add", "add", "end_task", "release", "resize", "sample"]), sizes))
    return draw(st.sampled_from(MEMORIES)), form, [("add", 6), *draw(steps)], draw(st.integers(0, 2**31))


def rows(form, amount, rng):
    shape, dtype, is_tensor, columns = form
    parts = {name: rng.integers(0, 9, (amount, *shape)).astype(dtype) for name, (shape, dtype) in columns.items()}
    parts |= {"images": rng.integers(0, 9, (amount, *shape)).astype(dtype), "labels": rng.choice(LABELS, amount)}
    return {name: torch.from_numpy(part) if is_tensor else part for name, part in parts.items()}


def do(memory, form, step, seed):
    """Do one thing with a memory; what is refused is refused alike."""
    what, amount = step
    rng = np.random.default_rng(seed)
    calls = {
        "add": lambda: memory.add(**rows(form, amount, rng)),
        "end_task": memory.end_task,
        "release": lambda: memory.release(LABELS[amount % len(LABELS)]),
        "resize": lambda: memory.resize(memory.capacity + amount - 4),
        "sample": lambda: {name: column.tolist() for name, column in memory.sample(amount).items()},
    }
    try:
        return calls[what]()
    except UsageError as error:
        return str(error)


def content(memory):
    return {name: (str(column.dtype), column.tolist()) for name, column in memory.rows().items()}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=CASES)
@given(cases())
def test_what_is_saved_is_loaded_and_goes_on_the_same(case):
    configuration, form, steps, seed = case
    memory = DualMemory.from_config(configuration, seed=seed)
    for number, step in enumerate(steps):
        do(memory, form, step, number)
    with tempfile.TemporaryDirectory() as folder:
        again = DualMemory.load(memory.save(Path(folder) / "memory"))
    assert content(again) == content(memory)
    assert repr(again) == repr(memory)
    for number, step in enumerate([("sample", 5), ("add", 9), ("end_task", 1), *steps, ("sample", 5)]):
        assert do(again, form, step, 100 + number) == do(memory, form, step, 100 + number)
        assert content(again) == content(memory)
