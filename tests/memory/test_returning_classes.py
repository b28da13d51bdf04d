"""Memories when classes return: chosen anew and replaced, no class beyond its quota, never more rows than λ."""

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odedm import ODEDM, MemoryPart, Native, Prototypes, Rows, UsageError
from odedm.core.registry import POLICIES
from odedm.core.rows import ColumnSpec, Task
from odedm.core.timer import Timer
from odedm.memory.build_context import BuildContext, StreamShape
from odedm.memory.quotas import class_quotas

WIDE = 3


class ModelView:
    """A learner that sees pixels, and whose loss is one number."""

    def embed(self, image):
        return image

    def annotate(self, rows):
        return {}

    def features_and_losses(self, rows):
        return rows["image"], rows["image"].sum(1).abs()

    def gradients(self, rows, *, of="head", then=None):
        return rows["image"] if then is None else then(rows["image"])

    def class_weights(self):
        return torch.eye(20, WIDE)

    def training_loss(self):
        return torch.tensor(1.0)


def rng(name):
    return torch.Generator().manual_seed(len(name))


def built(memory, labels, native="reservoir"):
    shape = StreamShape.of(labels)
    raw = (ColumnSpec("image", (WIDE,)), *(ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")))
    site = BuildContext(shape, raw, (), torch.device("cpu"), rng=rng, cpu_rng=rng, timer=Timer())
    return memory.resolve(shape, native).build(site)


def tasks_of(labels, sizes, seed) -> list[Task]:
    """Rows of each task: as many of each of its classes as `sizes` says in turn, in random order."""
    draws, start, found = torch.Generator().manual_seed(seed), 0, []
    for number, own in enumerate(labels):
        label = torch.cat([torch.full((sizes[(number + each) % len(sizes)],), each) for each in own])
        label = label[torch.randperm(len(label), generator=draws)]
        image = torch.randn(len(label), WIDE, generator=draws) + label[:, None]
        index = torch.arange(start, start + len(label))
        rows: Rows = {"image": image, "label": label, "task": torch.full_like(label, number), "index": index}
        start += len(label)
        found.append(Task(number, len(labels), own, rows))
    return found


def feed(memory, task, size=7):
    memory.begin_task(task)
    for start in range(0, len(task), size):
        rows = {name: column[start : start + size] for name, column in task.rows.items()}
        memory.add(rows, ModelView(), rng=rng("memory"))
        assert memory.size() <= memory.capacity


@st.composite
def streams(draw):
    """Tasks of any size, labels by arrival; a task has some new classes, some that return, or both."""
    seen, labels = 0, []
    for _ in range(draw(st.integers(2, 5))):
        new = draw(st.integers(0 if seen else 1, 3))
        old = draw(st.sets(st.integers(0, seen - 1), min_size=0 if new else 1, max_size=3)) if seen else set()
        labels.append((*sorted(old), *range(seen, seen + new)))
        seen += new
    return tuple(labels)


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=4)
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(
    labels=streams(),
    sizes=SIZES,
    rho=st.sampled_from([0.3, 0.6, 1.0]),
    bounded=st.sampled_from([None, 90]),
    seed=st.integers(0, 9),
)
def test_prototypes_keep_to_their_quota_and_all_rows_to_the_capacity(labels, sizes, rho, bounded, seed):
    room = 90 if bounded is None else 90 + 90 * max(map(len, labels))
    settings_ = ODEDM(
        room,
        rho=rho * 90 / room,
        selection=Prototypes("l2", dac=None),
        candidates="task" if bounded is None else bounded,
    )
    memory = built(settings_, labels)
    shape = StreamShape.of(labels)
    most = class_quotas(settings_, shape) if shape.task_classes else [memory.selector.k] * 20
    assert sum(most) <= room or not shape.task_classes
    arrived = Counter()
    for task in tasks_of(labels, sizes, seed):
        before = memory.rows(MemoryPart.LONG)
        feed(memory, task)
        memory.end_task(task, ModelView(), rng=rng("borders"))
        arrived.update(task.rows["label"].tolist())
        long, held = memory.rows(MemoryPart.LONG), memory.rows()
        assert memory.size() == len(held["label"]) <= memory.buffer.capacity <= memory.capacity == room
        assert len(set(long["index"].tolist())) == len(long["index"]), "no row is pinned twice"
        pinned, past = (Counter(each["label"].tolist()) for each in (long, before))
        for label in range(max(map(max, labels)) + 1):
            if task.last or label not in task.classes:
                assert pinned[label] == past[label], "of other classes nothing changes"
            else:
                assert pinned[label] <= most[label]
                assert pinned[label] >= min(past[label] + 1, most[label]), "as many as there are rows, up to the quota"
        others = ~torch.isin(before["label"], torch.tensor(task.classes))
        assert set(before["index"][others].tolist()) <= set(long["index"].tolist())


@QUICK
@given(labels=streams(), sizes=SIZES, capacity=st.integers(0, 25), seed=st.integers(0, 9))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_holds_more_than_its_capacity_or_a_row_twice(policy, labels, sizes, capacity, seed):
    memory = built(Native(capacity, policy), labels)
    for task in tasks_of(labels, sizes, seed):
        before = torch.bincount(memory.rows()["label"], minlength=20)
        feed(memory, task)
        memory.end_task(task, ModelView(), rng=rng("borders"))
        rows = memory.rows()
        assert memory.size() == len(rows["label"]) <= capacity
        assert len(set(rows["index"].tolist())) == len(rows["index"])
        seen = 1 + max(each for own in labels[: task.index + 1] for each in own)
        counts = torch.bincount(rows["label"], minlength=seen)
        if policy == "herded" and capacity >= seen:
            assert counts.max() <= capacity // seen
            there = before + torch.bincount(task.rows["label"], minlength=20)
            assert counts.equal(there[:seen].clamp(max=capacity // seen)), "few rows that return push nothing out"


def test_the_choice_for_a_class_that_returns_is_among_its_prototypes_and_new_rows():
    labels = ((0,), (1,), (0,), (1,))
    memory = built(ODEDM(30, k=4, selection=Prototypes("l2", dac=None)), labels)
    tasks = tasks_of(labels, [10, 9, 2], 0)
    for task in tasks[:2]:
        feed(memory, task)
        memory.end_task(task, ModelView(), rng=rng("borders"))
    first = set(memory.rows(MemoryPart.LONG)["index"].tolist())
    feed(memory, tasks[2])
    memory.end_task(tasks[2], ModelView(), rng=rng("borders"))
    long = memory.rows(MemoryPart.LONG)
    own = set(long["index"][long["label"] == 0].tolist())
    assert len(own) == 4, "two new rows do not push four prototypes out"
    assert own <= first | set(tasks[2].rows["index"].tolist())
    assert long["prototype"][long["label"] == 0].sort().values.tolist() == [0, 1, 2, 3]
    order = memory.buffer.store.columns["order"][memory.buffer.store.priority > 1]
    assert sorted(order.tolist()) == list(range(memory.size(MemoryPart.LONG))), "ranks without a gap"


def test_recorded_steps_go_on_with_the_same_store():
    """A recording holds on to the store's tensors: pins are replaced in place."""
    labels = ((0, 1), (0, 1), (0, 1))
    memory = built(ODEDM(20, k=2, selection=Prototypes("l2", dac=None)), labels)
    before = [column.data_ptr() for column in (memory.buffer.store.priority, *memory.buffer.store.columns.values())]
    for task in tasks_of(labels, [9], 1):
        feed(memory, task)
        memory.end_task(task, ModelView(), rng=rng("borders"))
    assert before == [
        column.data_ptr() for column in (memory.buffer.store.priority, *memory.buffer.store.columns.values())
    ]
    assert memory.size(MemoryPart.LONG) == 4


@pytest.mark.parametrize(
    ("labels", "rho", "quota"),
    [
        (((0, 1), (2, 3, 4), (5,)), 0.5, (25 / 2, 25 / 2, 25 / 3, 25 / 3, 25 / 3, 0)),
        (((0, 1), (2, 3), (0, 1), (2, 3)), 0.6, (20, 20, 10, 10)),
        (((0, 1, 2),) * 4, 0.6, (20, 20, 20)),
        (((0,), (0, 1), (2,)), 0.5, (25 + 12.5, 12.5, 0)),
    ],
)
def test_quotas_are_the_sum_of_a_class_s_shares(labels, rho, quota):
    """F_k gives each consolidated task ρλ / (n − 1) rows, which its |C_i| classes share; halves go up."""
    found = class_quotas(ODEDM(100, rho=rho), StreamShape.of(labels))
    assert found == tuple(int(each + 0.5) for each in quota)


def test_budgets_that_do_not_fit_are_sentences():
    uneven = StreamShape.of(((0,), (1, 2, 3), (4,)))
    with pytest.raises(
        UsageError, match="5 prototypes of each of 4 classes need 20 pinned rows, but the memory has 12"
    ):
        ODEDM(12, k=5).resolve(uneven, "reservoir")
    with pytest.raises(UsageError, match="The largest k that fits is 3; or raise the capacity to 20"):
        ODEDM(12, k=5).resolve(uneven, "reservoir")
    with pytest.raises(
        UsageError, match="rounds to 0. One for each class needs a rho of at least 0.3, or a capacity of at"
    ):
        ODEDM(10, rho=0.1).resolve(uneven, "reservoir")
    with pytest.raises(
        UsageError, match=r"1 prototype of each of 4 classes needs 4 .* Raise the capacity to 13, or give"
    ):
        ODEDM(9, rho=0.6, candidates=3).resolve(uneven, "reservoir")
    with pytest.raises(UsageError, match="4 candidates for each of 3 classes need 12 rows"):
        ODEDM(10, k=1, candidates=4).resolve(uneven, "reservoir")
    with pytest.raises(UsageError, match="2 candidates per class cannot give 10 prototypes"):
        ODEDM(20, rho=1.0, candidates=2).resolve(uneven, "reservoir")
    whole = ODEDM(21, rho=1.0).resolve(uneven, "reservoir")
    assert whole.k is None
    assert sum(class_quotas(whole, uneven)) <= 21
    assert ODEDM(20, rho=0.5).resolve(StreamShape.of(((0, 1),) * 3), "reservoir").k == 5
    assert ODEDM(20, rho=0.5).resolve(StreamShape.of(((0,), (0, 1))), "reservoir").k == 10
