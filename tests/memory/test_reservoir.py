import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from odedm import ColumnSpec, MemoryPart, UsageError
from odedm.core.store import LARGE_CAPACITY
from odedm.memory.reservoir import ReservoirBuffer

FIELDS = [ColumnSpec("label", dtype=torch.int64), ColumnSpec("logits", (2,))]


def make(start, size):
    uid = torch.arange(start, start + size)
    return {"label": uid, "logits": torch.stack([uid.float(), -uid.float()], 1)}


def pins(start, size):
    return {**make(start, size), "prototype": torch.arange(size)}


def fill(memory, total, batch, seed=0, start=0):
    rng = torch.Generator().manual_seed(seed)
    for at in range(start, start + total, batch):
        memory.add(make(at, min(batch, start + total - at)), None, rng=rng)


@pytest.mark.parametrize("part", list(MemoryPart))
@pytest.mark.parametrize("capacity", [20, LARGE_CAPACITY + 1])
def test_a_draw_of_no_rows_is_empty(capacity, part):
    memory = ReservoirBuffer(capacity, FIELDS)
    fill(memory, capacity, capacity)
    assert memory.sample(0, part=part, rng=torch.Generator())["logits"].shape == (0, 2)


@pytest.mark.parametrize("capacity", [0, 1, 3, 10, 100])
@pytest.mark.parametrize("batch", [1, 4, 30])
def test_size_and_contents_for_every_kind_of_capacity(capacity, batch):
    memory = ReservoirBuffer(capacity, FIELDS)
    fill(memory, 40, batch)
    rows = memory.rows()
    assert memory.size() == memory.size(MemoryPart.SHORT) == min(capacity, 40) == len(rows["label"])
    assert len(set(rows["label"].tolist())) == memory.size(), "a streamed row is stored once"
    assert rows["label"].tolist() == sorted(rows["label"].tolist()), "rows come in the order of their arrival"
    assert (rows["logits"] == torch.stack([rows["label"].float(), -rows["label"].float()], 1)).all()
    assert (rows["prototype"] == -1).all()
    draw = memory.sample(7, rng=torch.Generator().manual_seed(1))
    assert len(draw["label"]) == min(7, memory.size())
    assert set(draw["label"].tolist()) <= set(rows["label"].tolist())


def test_rows_before_the_first_overflow_are_the_stream_itself():
    memory = ReservoirBuffer(20, FIELDS)
    fill(memory, 20, 7)
    assert memory.rows()["label"].tolist() == list(range(20))


def inclusion(repeats, pinned_at=None):
    counts = torch.zeros(60)
    rng = torch.Generator().manual_seed(11)
    for _ in range(repeats):
        memory = ReservoirBuffer(20, [FIELDS[0]])
        for start in range(0, 60, 10):
            memory.add({"label": torch.arange(start, start + 10)}, None, rng=rng)
            if start + 10 == pinned_at:
                memory.pin({"label": torch.full((8,), 99), "prototype": torch.arange(8)})
        counts[memory.rows(MemoryPart.SHORT)["label"]] += 1
    return counts / repeats


@pytest.mark.parametrize(("pinned_at", "share"), [(None, 20 / 60), (40, 12 / 60)])
def test_every_streamed_row_is_kept_with_the_same_probability_also_after_a_shrink(pinned_at, share):
    repeats = 1200
    frequency = inclusion(repeats, pinned_at)
    sigma = (share * (1 - share) / repeats) ** 0.5
    assert (frequency - share).abs().max() < 5 * sigma
    assert frequency.sum().item() == pytest.approx(60 * share)


@given(batches=st.lists(st.integers(1, 9), min_size=1, max_size=10), capacity=st.integers(1, 15), data=st.data())
def test_short_term_is_the_top_keys_of_the_entire_stream_after_every_batch(batches, capacity, data):
    memory, rng, twin = (
        ReservoirBuffer(capacity, FIELDS),
        torch.Generator().manual_seed(5),
        torch.Generator().manual_seed(5),
    )
    keys, long, start = [], 0, 0
    for size in batches:
        memory.add(make(start, size), None, rng=rng)
        keys += torch.rand(size, dtype=torch.float64, generator=twin).tolist()
        start += size
        amount = data.draw(st.integers(0, min(2, capacity - long)))
        memory.pin(pins(1000 + long, amount))
        long += amount
        best = sorted(range(start), key=lambda uid: -keys[uid])[: capacity - long]
        assert memory.rows(MemoryPart.SHORT)["label"].tolist() == sorted(best)
        assert memory.rows(MemoryPart.LONG)["label"].tolist() == list(range(1000, 1000 + long))
        assert memory.size(MemoryPart.SHORT) == len(best)
        assert memory.size(MemoryPart.LONG) == long
        assert memory.size() == len(best) + long <= capacity


def test_draws_are_distinct_uniform_and_from_the_part_asked_for():
    memory = ReservoirBuffer(10, FIELDS)
    fill(memory, 50, 10)
    memory.pin(pins(100, 4))
    rng, counts = torch.Generator().manual_seed(2), torch.zeros(200)
    repeats = 4000
    for _ in range(repeats):
        label = memory.sample(3, rng=rng)["label"]
        assert len(set(label.tolist())) == 3
        counts[label] += 1
    share = counts[counts > 0] / repeats
    assert len(share) == 10
    assert (share - 0.3).abs().max() < 5 * (0.3 * 0.7 / repeats) ** 0.5
    for part, legal in ((MemoryPart.LONG, range(100, 104)), (MemoryPart.SHORT, range(50))):
        label = memory.sample(50, part=part, rng=rng)["label"].tolist()
        assert len(label) == len(set(label)) == memory.size(part)
        assert set(label) <= set(legal)


def test_pinned_rows_survive_any_stream_and_say_which_prototype_they_are():
    memory = ReservoirBuffer(6, FIELDS)
    fill(memory, 20, 5)
    memory.pin(pins(100, 3))
    fill(memory, 5000, 50, start=1000)
    long = memory.rows(MemoryPart.LONG)
    assert long["label"].tolist() == [100, 101, 102]
    assert long["prototype"].tolist() == [0, 1, 2]
    assert (long["logits"][:, 0] == long["label"]).all()


def test_everything_may_be_pinned_and_adding_is_then_a_no_op():
    memory = ReservoirBuffer(3, FIELDS)
    memory.pin(pins(100, 3))
    fill(memory, 20, 5)
    assert memory.size(MemoryPart.SHORT) == 0
    assert memory.rows()["label"].tolist() == [100, 101, 102]
    with pytest.raises(UsageError, match="1 rows cannot be pinned: 3 of 3"):
        memory.pin(pins(200, 1))


def test_class_counts_are_classes_by_part():
    memory = ReservoirBuffer(8, [FIELDS[0]])
    memory.add({"label": torch.tensor([0, 0, 1, 2])}, None, rng=torch.Generator())
    memory.pin({"label": torch.tensor([1, 1]), "prototype": torch.tensor([0, 1])})
    assert memory.class_counts(4) == {"short": [2, 1, 1, 0], "long": [0, 2, 0, 0]}
