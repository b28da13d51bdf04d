"""The memory inside Avalanche, against a stand-in of its storage protocol."""

import doctest
import pickle
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from stand_ins import adapter, experience, strategy, stream
from torch import nn

from odedm import DualMemory, UsageError


@pytest.fixture
def ours(monkeypatch):
    return adapter("avalanche", monkeypatch)


def trained(storage, agent=None, **online):
    agent = agent or strategy()
    for x, y in stream():
        agent.experience = experience(x, y, **online)
        storage.update(agent)
    return agent


def test_the_buffer_holds_the_rows_that_the_memory_chose(ours):
    storage = ours.ODEDMStorage(20, k=3, seed=0)
    agent = trained(storage)
    assert Counter(storage.memory.rows("long")["labels"].tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert storage.max_size == len(storage.buffer) == 20
    held = [(int(x[0]), y) for x, y, _ in storage.buffer.items]
    assert all(of_x == y for of_x, y in held)
    assert Counter(y for _, y in held) == Counter(storage.memory.rows()["labels"].tolist())
    assert agent.model.training, "the model's mode is as it was"
    assert all(module.training for module in agent.model.modules())


def test_with_k_0_it_is_the_reservoir_of_the_same_seed(ours):
    storage, memory = ours.ODEDMStorage(20, k=0, seed=5), DualMemory(20, k=0, seed=5)
    trained(storage)
    for x, y in stream():
        memory.add(x, y)
        memory.end_task()
    numbers = sorted(float(x[1]) for x, _, _ in storage.buffer.items)
    assert numbers == sorted(memory.rows()["images"][:, 1].tolist())


def test_prototypes_are_those_of_the_features(ours):
    """Chosen by the second number alone, they are what the memory alone chooses of such points."""
    storage = ours.ODEDMStorage(20, k=3, seed=0, features=lambda _, x: x[:, 1:])
    memory = DualMemory(20, candidates="task", k=3, seed=0)
    trained(storage)
    for x, y in stream():
        memory.add(x, y)
        memory.end_task(embed=lambda images: images[:, 1:])
    places = storage.memory.rows("long")["images"]
    assert [100.0 * task + row for task, row in places.tolist()] == memory.rows("long")["images"][:, 1].tolist()


def test_pieces_of_a_task_are_consolidated_when_the_next_task_begins(ours):
    storage, agent = ours.ODEDMStorage(20, k=2, seed=0), strategy()
    for x, y in stream(tasks=3):
        for place, (a, b) in enumerate(zip(x.split(10), y.split(10), strict=True)):
            storage.post_adapt(agent, experience(a, b, is_first_subexp=place == 0, is_last_subexp=False))
    assert set(storage.memory.rows("long")["labels"].tolist()) == {0, 1, 2, 3}
    needed = {*storage.memory.rows()["images"][:, 0].tolist(), *range(12, 18)}
    assert set(storage._experiences) == needed, "what is over and not kept is let go"
    assert len(needed) < 18


def test_it_can_be_resized_and_pickled(ours):
    storage = ours.ODEDMStorage(20, k=2, seed=0)
    trained(storage)
    storage.resize(None, 12)
    assert storage.max_size == len(storage.buffer) == storage.memory.capacity == 12
    again = pickle.loads(pickle.dumps(storage.memory))
    assert torch.equal(again.rows()["images"], storage.memory.rows()["images"])


def test_the_auxiliary_term_is_gamma_times_the_loss_on_prototypes(ours):
    storage = ours.ODEDMStorage(20, k=1, seed=0)
    plugin, agent = ours.AuxiliaryPlugin(storage, draw=99, gamma=0.5), strategy()
    plugin.before_backward(agent)
    assert agent.loss == 0, "nothing before there are prototypes"
    trained(storage, agent)
    agent.model.eval()  # its dropout draws
    plugin.before_backward(agent)
    x, y, _ = storage.draw_long_term(99)
    assert sorted(y.tolist()) == [0, 1, 2, 3]
    torch.testing.assert_close(agent.loss, 0.5 * nn.functional.cross_entropy(agent.model(x), y))


def test_a_benchmark_is_a_stream_of_ours(ours):
    experiences = [experience(x, y) for x, y in stream()]
    data = ours.dataset_of(SimpleNamespace(train_stream=experiences, test_stream=experiences))
    assert (data.tasks, data.classes, len(data.image)) == (2, 4, 120)
    assert data.task.tolist() == [0] * 60 + [1] * 60
    with pytest.raises(UsageError, match="2 experiences to train on and 1 to test on"):
        ours.dataset_of(SimpleNamespace(train_stream=experiences, test_stream=experiences[:1]))


def test_what_cannot_be_done_is_said(ours, monkeypatch):
    with pytest.raises(UsageError, match="no linear layer"):
        trained(ours.ODEDMStorage(20, k=1), SimpleNamespace(model=nn.Flatten(), device="cpu", eval_mb_size=4))
    with pytest.raises(UsageError, match="leave space"):
        ours.ODEDMStorage(20, space="pixels")
    with pytest.raises(UsageError, match="needs the ODEDMStorage"):
        ours.AuxiliaryPlugin("storage")
    with pytest.raises(UsageError, match="needs Avalanche.*pip install avalanche-lib"):
        adapter("avalanche", monkeypatch, missing=True)


def test_its_examples_hold(ours):
    """They are not collected with the others, since the module needs Avalanche."""
    assert tuple(doctest.testmod(ours)) == (0, 1)
