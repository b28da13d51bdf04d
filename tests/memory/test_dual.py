import pytest
import torch

from odedm import ColumnSpec, MemoryPart, Task, UsageError
from odedm.core.timer import Timer
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.dual import DualBuffer
from odedm.memory.quotas import FixedQuota
from odedm.memory.reservoir import ReservoirBuffer
from odedm.selection.distance import L2
from odedm.selection.selector import PrototypeSelector

RAW = [ColumnSpec("image", (2,)), ColumnSpec("label", dtype=torch.int64), ColumnSpec("task", dtype=torch.int64)]
RAW += [ColumnSpec("index", dtype=torch.int64)]
FIELDS = [*RAW, ColumnSpec("logits", (3,))]


def task(index, total=4, per_class=12):
    classes = (2 * index, 2 * index + 1)
    label = torch.tensor(classes).repeat(per_class)
    uid = torch.arange(len(label)) + 1000 * index
    rng = torch.Generator().manual_seed(index)
    image = torch.randn(len(label), 2, generator=rng) + 10 * label[:, None]
    return Task(index, total, classes, {"image": image, "label": label, "task": label // 2, "index": uid})


def stream_through(memory, probe, tasks, batch=5):
    keys, choice = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)
    for each in tasks:
        memory.begin_task(each)
        for start in range(0, len(each), batch):
            rows = {name: column[start : start + batch] for name, column in each.rows.items()}
            logits = rows["index"].float()[:, None].expand(-1, 3)
            memory.add({**rows, "logits": logits}, probe, rng=keys)
        memory.end_task(each, probe, rng=choice)
        yield each


def dual(capacity=30, k=2, candidates=None, **options):
    selector = PrototypeSelector(k, distance=L2(), dac=None, **options)
    buffer = ReservoirBuffer(capacity - (candidates.reserved() if candidates else 0), FIELDS)
    quota, rng = FixedQuota(k, selector.rows_per_prototype), torch.Generator().manual_seed(1)
    return DualBuffer(buffer, selector, candidates, quota, rng=rng, timer=Timer(), in_place=True)


def test_long_term_grows_by_the_classes_of_each_task_but_the_last(probe):
    memory, tasks = dual(), [task(i) for i in range(4)]
    for each in stream_through(memory, probe, tasks):
        expected = 4 * min(each.index + 1, 3)
        assert memory.size(MemoryPart.LONG) == expected
        assert memory.size(MemoryPart.SHORT) == min(24 * (each.index + 1), 30 - expected)
        assert memory.size() <= memory.capacity == 30
        counts = memory.class_counts(8)
        assert counts["long"] == [2] * min(2 * each.index + 2, 6) + [0] * (8 - min(2 * each.index + 2, 6))
        assert sum(counts["short"]) == memory.size(MemoryPart.SHORT)


def test_pinned_rows_are_distinct_real_rows_with_identity_and_annotated_fields(probe):
    memory, tasks = dual(k=3, capacity=40), [task(i) for i in range(4)]
    pinned = []
    for each in stream_through(memory, probe, tasks):
        long = memory.rows(MemoryPart.LONG)
        assert long["index"].tolist()[: len(pinned)] == pinned, "nothing pinned ever leaves"
        pinned = long["index"].tolist()
        if each.index < 3:
            identity = list(zip(long["label"].tolist(), long["prototype"].tolist(), strict=True))
            assert len(set(identity)) == len(identity)
            assert set(identity) == {(c, p) for c in range(2 * each.index + 2) for p in range(3)}
    assert len(set(pinned)) == len(pinned)
    assert (long["logits"][:, 0] == long["index"]).all()
    for each in tasks[:3]:
        own = long["task"] == each.index
        at = (long["index"][own] - 1000 * each.index).long()
        assert each.rows["image"][at].equal(long["image"][own])


def test_two_rows_per_prototype_share_their_identity(probe):
    memory = dual(k=2, capacity=60, rows_per_prototype=2)
    list(stream_through(memory, probe, [task(i) for i in range(2)]))
    long = memory.rows(MemoryPart.LONG)
    identity = list(zip(long["label"].tolist(), long["prototype"].tolist(), strict=True))
    assert sorted(identity) == sorted([(c, p) for c in range(4) for p in range(2)] * 2)


def test_classes_with_fewer_rows_than_prototypes_pin_what_they_have(probe):
    memory = dual(k=5, capacity=30)
    list(stream_through(memory, probe, [task(0, per_class=2), task(1)]))
    assert memory.class_counts(4)["long"] == [2, 2, 5, 5]


def test_bounded_candidates_are_a_uniform_reservoir_per_class_and_restart_with_each_task(probe):
    counts = torch.zeros(24)
    for seed in range(400):
        seen = ClassReservoirPool(3, RAW, rng=torch.Generator().manual_seed(seed), compartments=2)
        for index in (1, 0):
            each = task(index)
            seen.forget(seen.classes())
            seen.join(each.classes)
            for start in range(0, 24, 5):
                seen.insert({name: column[start : start + 5] for name, column in each.rows.items()})
        rows = seen.rows()
        assert torch.bincount(rows["label"]).tolist() == [3, 3]
        assert rows["image"].equal(each.rows["image"][rows["index"]])
        counts[rows["index"]] += 1
    assert (counts / 400 - 0.25).abs().max() < 5 * (0.25 * 0.75 / 400) ** 0.5


def test_bounded_prototypes_come_from_the_candidates_inside_the_budget(probe):
    candidates = ClassReservoirPool(4, RAW, rng=torch.Generator(), compartments=2)
    memory = dual(capacity=30, candidates=candidates)
    for _ in stream_through(memory, probe, [task(i) for i in range(3)]):
        assert memory.size() + int((candidates.store.priority >= 0).sum()) <= 30
    with pytest.raises(UsageError, match="at least 1 row per class; 0"):
        ClassReservoirPool(0, RAW, rng=torch.Generator(), compartments=2)


@pytest.mark.parametrize("source", ["task", "pool", "short-term part"])
def test_candidates_are_copies_and_a_row_chosen_from_the_short_term_part_moves(source, probe):
    pool = ClassReservoirPool(12, FIELDS, rng=torch.Generator().manual_seed(3)) if source == "pool" else None
    memory, now = dual(capacity=60, candidates=pool), task(0)
    rows = {**now.rows, "logits": torch.zeros(24, 3)}
    memory.join(now.classes)
    memory.add(rows, probe, rng=torch.Generator().manual_seed(0))
    before = {*memory.rows(MemoryPart.SHORT)["index"].tolist()}
    assert len(before) == 24
    memory.consolidate(now.classes, probe, candidates=rows if source == "task" else None)
    short, long = ({*memory.rows(part)["index"].tolist()} for part in (MemoryPart.SHORT, MemoryPart.LONG))
    assert len(long) == 4
    assert short == (before - long if source == "short-term part" else before)
