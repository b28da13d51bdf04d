"""The task quota against a list of lists, alone and as the host of a dual memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from odedm import ColumnSpec, MemoryPart, Task
from odedm.core.rows import rank_within
from odedm.core.timer import Timer
from odedm.memory.dual import DualBuffer
from odedm.memory.quota_buffers import TaskQuotaBuffer, quotas, rank_priorities
from odedm.memory.quotas import FixedQuota
from odedm.selection.distance import L2
from odedm.selection.selector import PrototypeSelector

FIELDS = [ColumnSpec("image", (2,)), *[ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]]
FIELDS += [ColumnSpec("logits", (3,))]


def task(index, size=24, total=9):
    label = torch.tensor((2 * index, 2 * index + 1)).repeat(size)[:size]
    uid = torch.arange(size) + 1000 * index
    image = torch.stack([uid.float(), -uid.float()], 1)
    return Task(index, total, (2 * index, 2 * index + 1), {
        "image": image, "label": label, "task": label * 0 + index, "index": uid,
    })  # fmt: skip


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def by_task(memory, tasks):
    rows = memory.rows(MemoryPart.SHORT)
    return [rows["index"][rows["task"] == t].tolist() for t in range(tasks)]


def check_columns(memory):
    rows = memory.rows()
    assert (rows["index"] // 1000 == rows["task"]).all()
    assert (rows["image"][:, 0] == rows["index"]).all()
    assert (rows["logits"] == rows["index"][:, None]).all(), "annotated by the probe"
    assert memory.size() == len(rows["index"]) <= memory.capacity
    short = memory.rows(MemoryPart.SHORT)["index"].tolist()
    assert len(set(short)) == len(short)


@given(capacity=st.integers(0, 40), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_counts_are_the_quota_and_what_is_kept_is_a_prefix(probe_like, capacity, sizes):
    memory, rng, before = TaskQuotaBuffer(capacity, FIELDS), seeded(), []
    for t, size in enumerate(sizes):
        memory.end_task(task(t, size), probe_like, rng=rng)
        now = by_task(memory, t + 1)
        quota = capacity // (t + 1)
        if quota:
            assert [len(own) for own in now] == [min(quota, n) for n in sizes[: t + 1]]
        else:
            assert [len(own) for own in now] == [0] * (t + 1 - capacity) + [1] * capacity
        for own, earlier in zip(now, before, strict=False):
            assert own == earlier[: len(own)]
        before = now
        check_columns(memory)


@pytest.fixture(scope="module")
def probe_like():
    class Probe:
        def embed(self, image):
            return image.double()

        def annotate(self, rows):
            return {"logits": rows["index"].float()[:, None].expand(-1, 3)}

    return Probe()


@given(capacity=st.integers(8, 60), k=st.integers(1, 2), sizes=st.lists(st.integers(4, 30), min_size=2, max_size=5))
def test_inside_a_dual_memory_the_quota_is_of_what_the_pins_leave(probe_like, capacity, k, sizes):
    pinned = 2 * k * (len(sizes) - 1)
    capacity = max(capacity, pinned)
    host = TaskQuotaBuffer(capacity, FIELDS)
    selector = PrototypeSelector(k, distance=L2(), dac=None)
    memory = DualBuffer(host, selector, None, FixedQuota(k), rng=torch.Generator(), timer=Timer(), in_place=True)
    rng, before, long = seeded(), [], []
    for t, size in enumerate(sizes):
        each = task(t, size, total=len(sizes))
        memory.begin_task(each)
        memory.end_task(each, probe_like, rng=rng)
        room = capacity - 2 * k * min(t + 1, len(sizes) - 1)
        assert host.short_capacity == room
        assert memory.rows(MemoryPart.LONG)["index"].tolist()[: len(long)] == long, (
            "long-term rows are no quota's business"
        )
        long = memory.rows(MemoryPart.LONG)["index"].tolist()
        assert len(long) == capacity - room
        now, quota = by_task(memory, t + 1), quotas(room, t + 1)
        for j, own in enumerate(now):
            if min(quotas(room, t + 1)) > 0:
                assert len(own) == min(quota[j], sizes[j])
            assert len(own) <= quota[j]
            if j < t:
                assert own == before[j][: len(own)]
        before = now
        check_columns(memory)


def test_pins_displace_the_last_ranks_of_every_task_in_turn(probe):
    memory, rng = TaskQuotaBuffer(30, FIELDS), seeded()
    for t in range(3):
        memory.end_task(task(t), probe, rng=rng)
    before = by_task(memory, 3)
    rows = task(5).rows
    chosen = {name: column[:7] for name, column in rows.items()}
    memory.pin({**chosen, **probe.annotate(chosen), "prototype": torch.arange(7)})
    after = by_task(memory, 3)
    assert [len(own) for own in after] == [7, 8, 8], "of equal ranks the older task's goes first"
    assert all(own == earlier[: len(own)] for own, earlier in zip(after, before, strict=True))


def test_with_fewer_slots_than_tasks_the_newest_keep_one_row_each(probe):
    memory, rng, kept = TaskQuotaBuffer(2, FIELDS), seeded(), []
    for t in range(5):
        memory.end_task(task(t), probe, rng=rng)
        kept.append(memory.rows()["task"].tolist())
    assert kept == [[0, 0], [0, 1], [1, 2], [2, 3], [3, 4]]


def test_nothing_is_kept_before_the_first_task_ends(probe):
    memory = TaskQuotaBuffer(10, FIELDS)
    rows = task(0).rows
    memory.begin_task(task(0))
    memory.add({**rows, **probe.annotate(rows)}, probe, rng=seeded())
    assert memory.size() == 0
    assert memory.rows()["index"].tolist() == []
    assert memory.sample(4, rng=seeded())["index"].tolist() == []
    memory.end_task(task(0), probe, rng=seeded())
    memory.add({**rows, **probe.annotate(rows)}, probe, rng=seeded())
    assert memory.size() == 10


def test_every_row_of_a_task_is_as_likely_to_be_kept(probe):
    counts, rng, repeats = torch.zeros(24), seeded(), 1500
    for _ in range(repeats):
        memory = TaskQuotaBuffer(6, FIELDS)
        memory.end_task(task(0), probe, rng=rng)
        memory.end_task(task(1), probe, rng=rng)
        counts[torch.tensor(by_task(memory, 2)[0])] += 1
    assert counts.sum() == 3 * repeats
    assert (counts / repeats - 3 / 24).abs().max() < 5 * (0.125 * 0.875 / repeats) ** 0.5


def test_the_seed_alone_decides_and_the_stream_is_not_aliased(probe):
    memories = []
    for seed in (1, 1, 2):
        memory, each = TaskQuotaBuffer(6, FIELDS), task(0)
        memory.end_task(each, probe, rng=seeded(seed))
        kept = memory.rows()["image"].clone()
        each.rows["image"].fill_(-1)
        assert memory.rows()["image"].equal(kept)
        memories.append(memory.rows()["index"].tolist())
    assert memories[0] == memories[1] != memories[2]


def test_rewritten_rows_keep_the_fields_of_their_own_task(probe):
    class Counting:
        calls = 0

        def annotate(self, rows):
            self.calls += 1
            return {"logits": torch.full((len(rows["index"]), 3), float(self.calls))}

    memory, counting = TaskQuotaBuffer(9, FIELDS), Counting()
    for t in range(3):
        memory.end_task(task(t), counting, rng=seeded())
    rows = memory.rows()
    assert rows["logits"][:, 0].tolist() == (rows["task"] + 1.0).tolist(), "stored once, never refreshed"


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_ranks_and_priorities(sizes):
    number = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rank = rank_within(number)
    assert rank.tolist() == [place for size in sizes for place in range(size)]
    key = rank_priorities(rank)
    assert ((key > 0) & (key < 1)).all()
    assert key.dtype == torch.float64
    best = key.argsort(descending=True).tolist()
    assert best == sorted(range(len(rank)), key=lambda i: (int(rank[i]), -int(number[i])))
