"""A stream of new and stored rows: how many of each, which, and the same again."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import odedm
from odedm import UsageError


def memory_of(rows, **columns):
    memory = odedm.DualMemory(rows)
    memory.add(torch.arange(rows).float()[:, None], torch.full((rows,), 9), **columns)
    return memory


NEW = [(torch.tensor([-1.0 - i]), 0) for i in range(30)]


def firsts(stream, **loader):
    return [float(x) for batch, _ in DataLoader(stream, batch_size=5, **loader) for x in batch]


@pytest.mark.parametrize(("ratio", "stored"), [(0, 0), (0.5, 15), (1, 30), (2.5, 75)])
def test_so_many_stored_rows_come_for_each_new_one(ratio, stored):
    rows = firsts(odedm.ReplayStream(NEW, memory_of(10), ratio=ratio))
    assert sum(x >= 0 for x in rows) == stored
    assert [x for x in rows if x < 0] == [-1.0 - i for i in range(30)]


def test_each_stored_row_comes_once_before_one_comes_again():
    rows = [x for x in firsts(odedm.ReplayStream(NEW, memory_of(10))) if x >= 0]
    assert [Counter(rows[start : start + 10]) for start in (0, 10, 20)] == [Counter(map(float, range(10)))] * 3


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_and_workers_draw_differently_and_the_same_again(workers):
    stream = odedm.ReplayStream(NEW, memory_of(1000), shuffle=True, seed=3)
    torch.manual_seed(0)
    epochs = [firsts(stream, num_workers=workers) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for rows in epochs:
        assert sorted(x for x in rows if x < 0) == [-30.0 + i for i in range(30)]
        assert len([x for x in rows if x >= 0]) == 30
    numbered = odedm.ReplayStream(NEW, memory_of(1000), shuffle=True, seed=3)
    twice = []
    for _ in range(2):
        numbered.set_epoch(4)
        twice.append(firsts(numbered, num_workers=workers))
    assert twice[0] == twice[1]
    numbered.set_epoch(5)
    assert firsts(numbered, num_workers=workers) != twice[0]


def test_workers_do_not_repeat_each_others_draws():
    stream = odedm.ReplayStream(NEW, memory_of(15), seed=1)
    drawn = Counter(x for x in firsts(stream, num_workers=2) if x >= 0)
    assert sum(drawn.values()) == 30
    assert max(drawn.values()) <= 3  # each worker begins another order after 7 or 8 rows
    stream = odedm.ReplayStream(NEW, memory_of(30), seed=1)
    assert {*firsts(stream, num_workers=2)} >= {*range(30)}


def test_an_epoch_draws_from_the_memory_as_it_was_when_it_began():
    memory = odedm.DualMemory(100)
    stream = odedm.ReplayStream(NEW, memory)
    assert all(x < 0 for x in firsts(stream))
    rows = iter(stream)
    next(rows)
    memory.add(torch.arange(5).float()[:, None], torch.full((5,), 9))
    assert all(float(x) < 0 for x, _ in rows)
    assert sum(x >= 0 for x in firsts(stream)) == 30


def test_only_prototypes():
    memory = odedm.DualMemory(20, k=2, selection=odedm.Prototypes(space="pixels"))
    memory.add(torch.randn(50, 4), torch.arange(50) % 2)
    memory.end_task()
    drawn = [
        y
        for _, y, replayed in odedm.ReplayStream([(torch.zeros(4), 7)] * 8, memory, part="long", mark=True)
        if replayed
    ]
    assert Counter(drawn) == {0: 4, 1: 4}


def test_mappings_have_the_names_of_the_source():
    memory = odedm.DualMemory(10)
    memory.add(
        torch.randint(50, (10, 6)),
        torch.zeros(10, dtype=torch.long),
        attention_mask=torch.ones(10, 6, dtype=torch.long),
    )
    new = [{"input_ids": [1] * 6, "labels": 1, "attention_mask": np.ones(6)} for _ in range(4)]
    stream = odedm.ReplayStream(new, memory, names=("input_ids", "labels"), mark=True)
    rows = list(stream)
    assert [row["replayed"] for row in rows] == [False, True] * 4
    assert {*rows[1]} == {"input_ids", "labels", "attention_mask", "replayed"}
    assert isinstance(rows[1]["input_ids"], list)
    assert isinstance(rows[1]["attention_mask"], np.ndarray)
    assert rows[1]["labels"] == 0


class Forever(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.tensor([-1.0]), 0


def test_a_source_without_an_end():
    stream = iter(odedm.ReplayStream(Forever(), memory_of(3), ratio=2))
    assert [float(next(stream)[0]) >= 0 for _ in range(6)] == [False, True, True] * 2
    generated = odedm.ReplayStream((row for row in NEW), memory_of(3))
    assert len(list(generated)) == 60


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory": "memory"}, "memory must be an odedm.DualMemory; 'memory'"),
        ({"source": 3}, "source must be iterable"),
        ({"ratio": -1}, "ratio"),
        ({"part": "new"}, "new"),
    ],
)
def test_bad_arguments(change, words):
    arguments = {"source": NEW, "memory": memory_of(3), **change}
    with pytest.raises(UsageError, match=words):
        odedm.ReplayStream(**arguments)


def test_rows_of_another_form():
    with pytest.raises(UsageError, match="must be pairs"):
        list(odedm.ReplayStream([1, 2], memory_of(3)))
    with pytest.raises(UsageError, match="have 'weight', which the memory does not store"):
        list(odedm.ReplayStream([{"images": torch.zeros(1), "labels": 1, "weight": 2}], memory_of(3)))
    with pytest.raises(UsageError, match="needs a source with a length"):
        list(odedm.ReplayStream(iter(NEW), memory_of(3), shuffle=True))
