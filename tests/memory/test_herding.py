"""Herding against a slow oracle, and the quotas that come of it under every shortage of room."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from odedm import ColumnSpec, MemoryPart, Task
from odedm.core.timer import Timer
from odedm.memory.dual import DualBuffer
from odedm.memory.herding import HerdingBuffer, exemplar_priority, herd
from odedm.memory.quotas import FixedQuota
from odedm.selection.distance import L2
from odedm.selection.selector import PrototypeSelector

FIELDS = [ColumnSpec("image", (4,)), *[ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]]
FIELDS += [ColumnSpec("logits", (3,))]
RNG = torch.Generator()


def points(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_herd(x, m):
    """The definition, pick by pick and row by row."""
    mean, total, chosen = x.mean(0), torch.zeros_like(x[0]), []
    for j in range(min(m, len(x))):
        best = min(
            (i for i in range(len(x)) if i not in chosen),
            key=lambda i: float(torch.linalg.vector_norm(mean - (total + x[i]) / (j + 1))),
        )
        chosen.append(best)
        total = total + x[best]
    return chosen


@given(n=st.integers(1, 25), d=st.integers(1, 6), m=st.integers(0, 30), seed=st.integers(0, 10**6))
def test_every_pick_is_the_best_of_those_left(n, d, m, seed):
    x = points(n, d, seed)
    picks, total = herd(x, m).tolist(), torch.zeros(d, dtype=torch.float64)
    assert len(set(picks)) == len(picks) == min(m, n)
    for j, pick in enumerate(picks):
        distance = torch.linalg.vector_norm(x.mean(0) - (total + x) / (j + 1), dim=1)
        left = [i for i in range(n) if i not in picks[:j]]
        assert distance[pick] <= distance[left].min() + 1e-12  # two rows are equally far from their mean
        total = total + x[pick]


@pytest.mark.parametrize("seed", range(5))
def test_first_is_nearest_fewer_are_a_prefix_and_all_have_the_mean(seed):
    x = points(40, 6, seed).relu()
    everything = herd(x, 40)
    assert everything[0] == torch.linalg.vector_norm(x - x.mean(0), dim=1).argmin()
    for m in range(40):
        assert herd(x, m).equal(everything[:m])
    assert everything.sort().values.equal(torch.arange(40)), "every row once"
    torch.testing.assert_close(x[everything].mean(0), x.mean(0), rtol=0, atol=1e-14)


def test_herding_beats_a_random_choice_at_keeping_the_mean():
    x = points(200, 8)
    error = torch.linalg.vector_norm(x[herd(x, 10)].mean(0) - x.mean(0))
    for seed in range(20):
        other = torch.randperm(200, generator=torch.Generator().manual_seed(seed))[:10]
        assert error < torch.linalg.vector_norm(x[other].mean(0) - x.mean(0))


def test_a_common_offset_changes_no_pick():
    x = (points(16, 4) * 2**10).round() / 2**10  # 16 rows of few binary digits: every sum is exact
    assert herd(x + 2.0**30, 16).equal(herd(x, 16))
    assert herd(x.float(), 16).equal(herd(x, 16)), "single precision in, double precision inside"


def test_ties_go_to_the_lower_row():
    assert herd(torch.ones(4, 2), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e200])
def test_no_row_is_picked_twice_whatever_the_features(bad):
    x = points(8, 3)
    x[5, 1] = bad
    assert sorted(herd(x, 8).tolist()) == list(range(8))
    x[::2], x[1::2] = bad, -bad
    assert sorted(herd(x, 8).tolist()) == list(range(8))


def test_priority_goes_by_rank_then_by_absence_from_long_term_and_is_a_legal_key():
    label = torch.arange(50).repeat(3)
    rank = torch.arange(3).repeat_interleave(50)
    pinned = torch.arange(0, 50, 2)
    key = exemplar_priority(label, rank, pinned)
    assert key.unique().numel() == 150
    assert 0 < key.min()
    assert key.max() < 1
    order = key.argsort(descending=True)
    assert rank[order].equal(rank)
    for block in order.split(50):
        assert (label[block[:25]] % 2 == 1).all()
        assert (label[block[25:]] % 2 == 0).all()


def test_where_not_all_classes_fit_those_that_stay_come_from_all_over_the_stream():
    label = torch.arange(100)
    key = exemplar_priority(label, torch.zeros_like(label), torch.tensor([], dtype=torch.int64))
    for room in (5, 10, 20):
        kept = key.topk(room).indices.sort().values
        gaps = torch.cat([kept, torch.tensor([100])]) - torch.cat([torch.tensor([-1]), kept])
        assert gaps.max() <= 2.7 * 100 / room


def task(index, *, classes=2, total=5, per_class=30):
    own = tuple(range(index * classes, (index + 1) * classes))
    label = torch.tensor(own).repeat(per_class)
    image = points(len(label), 4, seed=index).float() + label[:, None] * torch.tensor([1.0, 0.0, 2.0, 0.0])
    uid = torch.arange(len(label)) + 100_000 * index
    rows = {"image": image, "label": label, "task": torch.full_like(label, index), "index": uid}
    return Task(index, total, own, rows)


def indices(memory, label):
    rows = memory.rows(MemoryPart.SHORT)
    return rows["index"][rows["label"] == label].tolist()


def herded(each, label):
    """The row numbers of one class of a task in herding order on normalised features."""
    member = each.rows["label"] == label
    x = torch.nn.functional.normalize(each.rows["image"][member].double(), dim=1)
    return each.rows["index"][member][torch.tensor(slow_herd(x, len(x)))].tolist()


@pytest.mark.parametrize(
    ("capacity", "tasks", "classes", "first", "last"),
    [(200, 5, 2, 100, 20), (500, 5, 2, 250, 50), (200, 10, 10, 20, 2), (500, 10, 10, 50, 5), (200, 10, 20, 10, 1)],
)
def test_quotas_of_the_published_settings(capacity, tasks, classes, first, last, probe):
    memory, quotas = HerdingBuffer(capacity, FIELDS), []
    for index in range(tasks):
        each = task(index, classes=classes, total=tasks, per_class=first + 1)
        memory.end_task(each, probe, rng=RNG)
        seen = (index + 1) * classes
        quotas.append(capacity // seen)
        assert memory.class_counts(seen)["short"] == [quotas[-1]] * seen
    assert (quotas[0], quotas[-1]) == (first, last)


def test_rows_of_a_class_are_its_first_picks_in_herding_order_for_good(probe):
    memory, tasks = HerdingBuffer(24, FIELDS), [task(index) for index in range(4)]
    for each in tasks:
        memory.end_task(each, probe, rng=RNG)
        quota = 24 // (2 * each.index + 2)
        for label in range(2 * each.index + 2):
            assert indices(memory, label) == herded(tasks[label // 2], label)[:quota]
        assert memory.rows()["label"].equal(memory.rows()["label"].sort().values), "grouped by class"


def test_every_column_of_an_exemplar_is_its_own_and_none_is_shared_with_the_task(probe):
    memory, tasks = HerdingBuffer(10, FIELDS), [task(index) for index in range(2)]
    for each in tasks:
        memory.end_task(each, probe, rng=RNG)
    rows = memory.rows()
    for place, each in enumerate(rows["index"].tolist()):
        source = tasks[each // 100_000].rows
        for name in ("image", "label", "task"):
            assert rows[name][place].equal(source[name][each % 100_000])
    assert (rows["logits"][:, 0] == rows["index"]).all()
    assert (rows["prototype"] == -1).all()
    before = rows["image"].clone()
    tasks[1].rows["image"].zero_()
    assert memory.rows()["image"].equal(before)


def test_features_are_compared_by_direction():
    class Stretched:
        def __init__(self, factor):
            self.factor = factor

        def embed(self, image):
            return image * self.factor(image)

        def annotate(self, rows):
            return {"logits": torch.zeros(len(rows["label"]), 3)}

    chosen = []
    for factor in (lambda _: 1.0, lambda image: 1 + image.square().sum(1, keepdim=True)):
        memory = HerdingBuffer(8, FIELDS)
        memory.end_task(task(0), Stretched(factor), rng=RNG)
        chosen.append(memory.rows()["index"])
    assert chosen[0].equal(chosen[1])
    memory.end_task(task(1), Stretched(lambda _: 0.0), rng=RNG)
    assert memory.class_counts(4)["short"] == [2, 2, 2, 2], "dead features choose something"


def test_a_stream_batch_stores_nothing(probe):
    memory = HerdingBuffer(10, FIELDS)
    memory.add(task(0).rows | {"logits": torch.zeros(60, 3)}, probe, rng=RNG)
    assert memory.size() == 0


def test_pins_drop_the_last_picks_evenly(probe):
    memory, tasks = HerdingBuffer(24, FIELDS), [task(index) for index in range(2)]
    for each in tasks:
        memory.end_task(each, probe, rng=RNG)  # six of each of four classes
    extra = {name: column[:1] for name, column in task(9).rows.items()}
    extra |= {"logits": torch.zeros(1, 3), "prototype": torch.zeros(1, dtype=torch.int64)}
    for pinned in range(1, 25):
        memory.pin(extra)
        short = memory.class_counts(4)["short"]
        assert sum(short) == 24 - pinned == memory.size(MemoryPart.SHORT)
        assert max(short) - min(short) <= 1
        for label in range(4):
            assert indices(memory, label) == herded(tasks[label // 2], label)[: short[label]]
    memory.end_task(task(2), probe, rng=RNG)
    assert memory.size(MemoryPart.SHORT) == 0, "no room is legal"
    assert memory.size(MemoryPart.LONG) == 24


def test_a_class_with_fewer_rows_than_its_quota_gives_what_it_has(probe):
    memory = HerdingBuffer(20, FIELDS)
    memory.end_task(task(0, per_class=3), probe, rng=RNG)
    memory.end_task(task(1), probe, rng=RNG)
    assert memory.class_counts(4)["short"] == [3, 3, 5, 5]
    only = task(2).rows
    only = {name: column[only["label"] == 4] for name, column in only.items()}
    memory.end_task(Task(2, 3, (4, 5), only), probe, rng=RNG)
    assert memory.class_counts(6)["short"] == [3, 3, 3, 3, 3, 0]


@pytest.mark.parametrize("capacity", [0, 1, 3, 7])
def test_less_room_than_classes_keeps_first_picks_and_says_so_once(capacity, probe, caplog):
    caplog.set_level(logging.INFO, logger="odedm")
    memory, tasks = HerdingBuffer(capacity, FIELDS), [task(index) for index in range(5)]
    for each in tasks:
        memory.end_task(each, probe, rng=RNG)
        seen = 2 * each.index + 2
        short = memory.class_counts(seen)["short"]
        if capacity < seen:
            assert max(short, default=0) <= 1
            assert memory.size() == capacity
        for label in range(seen):
            assert indices(memory, label) == herded(tasks[label // 2], label)[: short[label]]
    assert len(caplog.records) == (1 if capacity else 0)
    assert not capacity or "cannot hold an exemplar of each of" in caplog.text


def test_short_rooms_go_to_classes_without_long_term_rows(probe):
    memory, tasks = HerdingBuffer(9, FIELDS), [task(index) for index in range(3)]
    for each in tasks[:2]:
        memory.end_task(each, probe, rng=RNG)
    # classes 0, 1 and 4 are pinned; 4 rows are left for 6 classes
    pinned = {name: column[[0, 1, 2, 3]] for name, column in tasks[0].rows.items()}
    last = {name: column[:1] for name, column in tasks[2].rows.items()}
    pinned = {name: torch.cat([column, last[name]]) for name, column in pinned.items()}
    memory.pin({**pinned, "logits": torch.zeros(5, 3), "prototype": torch.zeros(5, dtype=torch.int64)})
    assert memory.class_counts(4)["short"] == [1, 1, 1, 1], "the pins took second picks"
    memory.end_task(tasks[2], probe, rng=RNG)
    short = memory.class_counts(6)["short"]
    assert (short[2], short[3], short[5]) == (1, 1, 1)
    assert sum(short) == 4
    assert sum(short[label] for label in (0, 1, 4)) == 1


@pytest.mark.parametrize("k", [1, 2, 3])
def test_with_prototypes_the_quota_follows_the_room_they_leave(k, probe):
    host = HerdingBuffer(40, FIELDS)
    selector = PrototypeSelector(k, distance=L2(), dac=None)
    memory = DualBuffer(host, selector, None, FixedQuota(k), rng=torch.Generator(), timer=Timer(), in_place=True)
    tasks = [task(index, total=4) for index in range(4)]
    for each in tasks:
        memory.end_task(each, probe, rng=torch.Generator().manual_seed(1))
        seen, long = 2 * each.index + 2, 2 * k * min(each.index + 1, 3)
        assert memory.size(MemoryPart.LONG) == long
        assert memory.class_counts(seen)["short"] == [(40 - long) // seen] * seen
        assert memory.size() <= memory.capacity == 40
        for label in range(seen):
            assert indices(memory, label) == herded(tasks[label // 2], label)[: (40 - long) // seen]
