"""GDumb's sampler against its rule in lists, and the class quota."""

import random

import pytest
import torch

from odedm import ColumnSpec, MemoryPart, Task
from odedm.memory.greedy_balance import GDumbBuffer
from odedm.memory.quota_buffers import ClassQuotaBuffer

FIELDS = [ColumnSpec("label", dtype=torch.int64), ColumnSpec("index", dtype=torch.int64)]


def rows(label, first=0):
    return {"label": torch.tensor(label), "index": torch.arange(first, first + len(label))}


def by_the_rule(label, capacity):
    """How many rows each class has in the end, and the rows of classes that never gave any up."""
    kept = []
    for index, own in enumerate(label):
        sizes = {c: sum(each == c for _, each in kept) for c in {each for _, each in kept}}
        if own in sizes and sizes[own] >= capacity // max(1, len(sizes)):
            continue
        if len(kept) == capacity:
            largest = min(sizes, key=lambda c: (-sizes[c], c))
            kept.remove(next(each for each in kept if each[1] == largest))
        kept.append((index, own))
    return {c: sum(each == c for _, each in kept) for _, c in kept}


@pytest.mark.parametrize(("capacity", "classes"), [(20, 4), (10, 3), (37, 7), (3, 5)])
def test_sizes_are_those_of_the_rule_whatever_the_batches(capacity, classes):
    luck = random.Random(capacity)
    label = [luck.randrange(min(classes, 1 + i // 40)) for i in range(60 * classes)]
    for batch in (1, 7, 50):
        memory, rng = GDumbBuffer(capacity, FIELDS), torch.Generator().manual_seed(0)
        for start in range(0, len(label), batch):
            memory.add(rows(label[start : start + batch], start), None, rng=rng)
        stored = memory.rows()
        assert memory.size() == len(set(stored["index"].tolist()))
        assert {c: n for c, n in enumerate(memory.class_counts(classes)["short"]) if n} == by_the_rule(label, capacity)
        assert [label[index] for index in stored["index"].tolist()] == stored["label"].tolist()
    if capacity >= classes:
        assert max(memory.class_counts(classes)["short"]) - min(memory.class_counts(classes)["short"]) <= 1


def test_which_row_of_the_largest_class_goes_is_chance_and_others_are_the_first():
    gone = []
    for seed in range(60):
        memory, rng = GDumbBuffer(4, FIELDS), torch.Generator().manual_seed(seed)
        memory.add(rows([0, 0, 0, 0, 0, 1]), None, rng=rng)
        left = set(memory.rows()["index"].tolist())
        assert 5 in left
        assert 4 not in left, "beyond its quota"
        gone += [{0, 1, 2, 3} - left]
    assert len({tuple(each) for each in gone}) == 4


def test_pinned_rows_are_not_counted_and_stay():
    memory, rng = GDumbBuffer(6, FIELDS), torch.Generator().manual_seed(0)
    memory.add(rows([0] * 6), None, rng=rng)
    memory.pin({**rows([0, 0], 90), "prototype": torch.tensor([0, 1])})
    memory.add(rows([1, 1, 1, 1], 10), None, rng=rng)
    assert memory.rows(MemoryPart.LONG)["index"].tolist() == [90, 91]
    assert memory.class_counts(2)["short"] == [2, 2]


def test_the_class_quota_keeps_as_many_random_rows_of_every_class():
    class NoFields:
        def annotate(self, rows):
            return {}

    memory, rng, chosen = ClassQuotaBuffer(10, FIELDS), torch.Generator().manual_seed(0), {}
    for t, wanted in enumerate([[5, 5, 0, 0, 0, 0], [2, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1]]):
        task = Task(t, 3, (2 * t, 2 * t + 1), rows([2 * t, 2 * t + 1] * 20, 100 * t))
        memory.begin_task(task)
        memory.end_task(task, NoFields(), rng=rng)
        assert memory.class_counts(6)["short"] == wanted
        stored = memory.rows()
        for c in range(2 * t + 2):
            own = stored["index"][stored["label"] == c].tolist()
            assert own == chosen.get(c, own)[: len(own)], "what stays is a prefix of what was chosen"
            chosen[c] = own
    assert chosen[0] != [0], "not just the first"
    memory.pin({**rows([0, 0, 0, 0, 0, 0], 90), "prototype": torch.arange(6)})
    back = Task(3, 4, (0, 1), rows([0, 1] * 9, 500))
    memory.end_task(back, NoFields(), rng=rng)
    assert memory.size(MemoryPart.LONG) == 6
    assert sum(memory.class_counts(6)["short"]) == 4, "of six classes the newest, where there is no room for all"
