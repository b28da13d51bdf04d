"""An interrupt at any line of the package leaves a live memory whole, or it says that it is not."""

import copy

import numpy as np
import pytest
import torch
from interrupts import EVERY, interrupt, places_of

from odedm import ODEDM, DualMemory, Native, Prototypes, UsageError
from odedm.memory.dual import DualBuffer

PIXELS = Prototypes(space="pixels")
MEMORIES = {
    "moving": ODEDM(30, rho=0.5, selection=PIXELS),
    "candidates": ODEDM(40, rho=0.4, candidates=4, selection=PIXELS),
    "a task's": ODEDM(30, k=2, candidates="task", selection=PIXELS),
    "task-quota": Native(20, policy="task-quota"),
}


def rows(classes, amount=16, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.choice(classes, amount)
    return {"images": generator.normal(size=(amount, 6)).astype(np.float32), "labels": labels}


def embed(images):
    return images


def made(name):
    memory = DualMemory.from_config(MEMORIES[name], seed=3)
    memory.add(**rows([0, 1]))
    memory.end_task(embed=embed)
    memory.add(**rows([1, 2, 3], seed=1))
    return memory


def state_of(memory):
    """Everything that a memory is, as plain values and bytes."""
    state = memory.state_dict()
    tensors = {name: (tensor.dtype, tensor.tolist()) for name, tensor in state.pop("tensors").items()}
    return repr((state, sorted(tensors.items())))


OTHER = {name: made(name) for name in MEMORIES}
for other in OTHER.values():
    other.add(**rows([5, 6], seed=9))
ACTIONS = {
    "the first rows": lambda memory, _: memory.add(**rows([0, 1])),
    "add": lambda memory, _: memory.add(**rows([3, 4, 5], seed=2)),
    "end_task": lambda memory, _: memory.end_task(embed=embed),
    "consolidate": lambda memory, _: memory.consolidate([1, 2]),
    "release": lambda memory, _: memory.release([0]),
    "a smaller capacity": lambda memory, _: memory.resize(24),
    "a larger capacity": lambda memory, _: memory.resize(60),
    "load_state_dict": lambda memory, name: memory.load_state_dict(OTHER[name].state_dict()),
}
CASES = [(name, what) for name in MEMORIES for what in ACTIONS if (name, what) != ("task-quota", "consolidate")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("name", "what"), CASES)
def test_an_interrupt_at_any_line_leaves_it_whole_or_it_says_so(name, what, tmp_path):
    template = DualMemory.from_config(MEMORIES[name], seed=3) if what == "the first rows" else made(name)

    def action(memory):
        ACTIONS[what](memory, name)

    after = copy.deepcopy(template)
    action(after)
    legal, whole, broken, silent = {state_of(template), state_of(after)}, 0, 0, []
    places = places_of(action, copy.deepcopy(template))
    for at in places[::EVERY]:
        memory = copy.deepcopy(template)
        place = interrupt(action, memory, at)
        if memory._broken:
            broken += 1
            for call in (memory.rows, lambda one=memory: one.save(tmp_path / "file"), lambda one=memory: len(one)):
                with pytest.raises(UsageError, match="stopped in the middle of a change"):
                    call()
            memory.load_state_dict(template.state_dict())  # and so it is whole again
        whole += not broken
        loaded = DualMemory.load(memory.save(tmp_path / "file"))
        if not {state_of(memory), state_of(loaded)} <= legal or state_of(memory) != state_of(loaded):
            silent.append(place)
    print(f"{name}, {what}: {len(places[::EVERY])} of {len(places)} lines, {broken} broken, {len(silent)} silent")
    assert silent == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_load_or_save_leaves_the_file(tmp_path):
    memory = made("candidates")
    file, before = memory.save(tmp_path / "file"), state_of(memory)
    for action in (lambda _: DualMemory.load(file), lambda one: one.save(file)):
        for at in places_of(action, memory)[::EVERY]:
            interrupt(action, memory, at)
            assert state_of(memory) == before
            assert state_of(DualMemory.load(file)) == before


def test_what_anyones_code_raises_while_prototypes_are_chosen_changes_nothing():
    memory = DualMemory(30, rho=0.5, seed=0)
    memory.add(**rows([0, 1]), weight=np.arange(16.0))
    before = state_of(memory)
    for words in ({"embed": lambda _: 1 / 0}, {"embed": embed, "annotate": lambda _: 1 / 0}):
        with pytest.raises(ZeroDivisionError):
            memory.end_task(**words)
        assert state_of(memory) == before


def test_a_capacity_beyond_the_machine_changes_nothing():
    memory = made("candidates")
    before = state_of(memory)
    with pytest.raises(UsageError, match="Give a smaller capacity"):
        memory.resize(10**13)
    assert state_of(memory) == before


def test_first_rows_that_its_policy_refuses_leave_it_empty_and_usable(monkeypatch):
    memory = DualMemory.from_config(MEMORIES["moving"], seed=3)
    before = state_of(memory)

    def refuse(*_, **__):
        torch.rand(3)
        raise UsageError("Not these rows.")

    with monkeypatch.context() as patch:
        patch.setattr(DualBuffer, "add", refuse)
        with pytest.raises(UsageError, match="Not these"):
            memory.add(**rows([0, 1]))
    assert state_of(memory) == before
    memory.add(**rows([0, 1]))
    assert len(memory) == 16
