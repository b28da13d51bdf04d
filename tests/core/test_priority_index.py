import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from odedm import ColumnSpec, MemoryPart
from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import state_tree
from odedm.core import priority_index, store
from odedm.core.store import EMPTY, LARGE_CAPACITY, Store
from odedm.memory.buffer import distinct
from odedm.memory.reservoir import ReservoirBuffer

FIELDS = [ColumnSpec("uid", dtype=torch.int64), ColumnSpec("logits", (2,)), ColumnSpec("half", (3,), torch.bfloat16)]


def rows(start, amount):
    uid = torch.arange(start, start + amount)
    return {"uid": uid, "logits": uid[:, None].double().expand(-1, 2), "half": torch.ones(amount, 3).bfloat16()}


@pytest.fixture
def few_at_hand(monkeypatch):
    """So few slots in order that they are used up, and so few that are many."""
    monkeypatch.setattr(priority_index, "CACHED_SLOTS", 6)
    monkeypatch.setattr(store, "LARGE_BATCH", 6)
    monkeypatch.setattr(store, "LARGE_CAPACITY", 20)


class AllSlots(Store):
    """A store that looks at all slots, always."""

    def accepted(self, key):
        won = self._compared(key)
        self._index = None
        return won


@pytest.mark.usefixtures("few_at_hand")
@pytest.mark.parametrize("capacity", [1, 5, 20, 21, 50])
@given(calls=st.lists(st.tuples(st.sampled_from("oooopkc"), st.integers(0, 9)), max_size=25), seed=st.integers(0, 99))
def test_a_store_that_remembers_its_keys_has_the_bits_of_one_that_looks_at_all(capacity, calls, seed):
    rng, quick, slow, start = (
        torch.Generator().manual_seed(seed),
        Store(capacity, FIELDS),
        AllSlots(capacity, FIELDS),
        0,
    )
    for kind, amount in calls:
        key, offered = torch.rand(amount, dtype=torch.float64, generator=rng), rows(start, amount)
        other = torch.rand(capacity, dtype=torch.float64, generator=rng)
        start += amount
        for instance in (quick, slow):
            free = instance.priority < 1
            if kind == "o":
                instance.insert(offered, key)
            elif kind == "p" and amount <= int(free.sum()):
                instance.pin(offered)
            elif kind == "k":  # someone else writes keys
                instance.priority.copy_(instance.priority.where(~free, other))
            elif kind == "c" and amount == 0:
                instance.clear()
        assert quick.priority.equal(slow.priority)
        assert all(column.equal(slow.columns[name]) for name, column in quick.columns.items())


@pytest.mark.usefixtures("few_at_hand")
def test_a_pin_in_inference_mode_is_noticed():
    memory, rng = ReservoirBuffer(30, [FIELDS[0]]), torch.Generator().manual_seed(0)
    for start in range(0, 90, 9):
        memory.add({"uid": torch.arange(start, start + 9)}, None, rng=rng)
    with torch.inference_mode():
        memory.pin({"uid": torch.arange(900, 920), "prototype": torch.arange(20)})
    memory.add({"uid": torch.arange(100, 400)}, None, rng=rng)
    for start in range(400, 490, 9):
        memory.add({"uid": torch.arange(start, start + 9)}, None, rng=rng)
    assert memory.rows(MemoryPart.LONG)["uid"].tolist() == [*range(900, 920)]


def through_a_checkpoint(memory):
    fresh = ReservoirBuffer(memory.capacity, FIELDS)
    load_state_tree(fresh, state_tree(memory))
    return fresh


@pytest.mark.usefixtures("few_at_hand")
@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory)), through_a_checkpoint]
)
def test_a_large_memory_goes_on_as_it_would_have(way):
    memory, rng = ReservoirBuffer(60, FIELDS), torch.Generator().manual_seed(1)
    for start in range(0, 400, 5):
        memory.add(rows(start, 5), None, rng=rng)
        memory.sample(2, rng=rng)
        if start % 100 == 15:
            memory.pin({**rows(1000 + start, 3), "prototype": torch.arange(3)})
            twin, other = way(memory), torch.Generator()
            other.set_state(rng.get_state())
            for at in range(500, 600, 5):
                for instance, draw in ((memory, rng), (twin, other)):
                    instance.add(rows(at, 5), None, rng=draw)
                drawn = [
                    instance.sample(4, part=p, rng=g)
                    for instance, g in ((memory, rng), (twin, other))
                    for p in MemoryPart
                ]
                assert all(drawn[i]["uid"].equal(drawn[i + 3]["uid"]) for i in range(3))
            assert memory.store.priority.equal(twin.store.priority)


@pytest.mark.usefixtures("few_at_hand")
@pytest.mark.parametrize("filled", [40, 400])
def test_draws_from_a_large_memory_are_distinct_uniform_and_of_their_part(filled):
    memory, rng, repeats = ReservoirBuffer(60, [FIELDS[0]]), torch.Generator().manual_seed(3), 3000
    memory.add({"uid": torch.arange(filled)}, None, rng=rng)
    memory.pin({"uid": torch.arange(900, 912), "prototype": torch.arange(12)})
    for part in MemoryPart:
        expected, counts = memory.rows(part)["uid"], torch.zeros(1000)
        first = torch.zeros(1000)
        for _ in range(repeats):
            uid = memory.sample(4, part=part, rng=rng)["uid"]
            counts[uid] += 1
            first[uid[0]] += 1
        assert counts.max() <= repeats, "a row was drawn twice"
        assert set(counts.nonzero().flatten().tolist()) == set(expected.tolist())
        for seen, amount in ((counts, 4), (first, 1)):
            share = amount / len(expected)
            sigma = (share * (1 - share) / repeats) ** 0.5
            assert (seen[expected] / repeats - share).abs().max() < 5 * sigma


@pytest.mark.usefixtures("few_at_hand")
def test_a_large_memory_keeps_every_row_with_the_same_probability():
    counts, rng, repeats = torch.zeros(90), torch.Generator().manual_seed(5), 1000
    for _ in range(repeats):
        memory = ReservoirBuffer(30, [FIELDS[0]])
        for start in range(0, 90, 5):
            memory.add({"uid": torch.arange(start, start + 5)}, None, rng=rng)
        counts[memory.rows()["uid"]] += 1
    assert (counts / repeats - 1 / 3).abs().max() < 5 * (2 / 9 / repeats) ** 0.5


def test_a_draw_up_to_the_limit_takes_the_largest_of_one_number_for_each_slot():
    memory = ReservoirBuffer(LARGE_CAPACITY, [FIELDS[0]])
    memory.add({"uid": torch.arange(LARGE_CAPACITY)}, None, rng=torch.Generator().manual_seed(0))
    noise = torch.rand(LARGE_CAPACITY, generator=torch.Generator().manual_seed(7))
    drawn = memory.sample(5, rng=torch.Generator().manual_seed(7))["uid"]
    assert drawn.equal(memory.store.columns["uid"][noise.topk(5).indices])


def test_nothing_in_a_large_memory_looks_at_all_slots_again_and_again(monkeypatch):
    memory, rng = ReservoirBuffer(LARGE_CAPACITY + 1, [FIELDS[0]]), torch.Generator().manual_seed(0)
    memory.add({"uid": torch.arange(LARGE_CAPACITY + 1)}, None, rng=rng)
    memory.add({"uid": torch.arange(32)}, None, rng=rng)
    memory.sample(3, rng=rng)
    for place in ("topk", "min", "sort", "nonzero"):
        monkeypatch.setattr(torch.Tensor, place, lambda *_, place=place, **__: pytest.fail(f"{place} of all slots"))
    state = rng.get_state()
    for _ in range(50):
        memory.add({"uid": torch.arange(32)}, None, rng=rng)
        memory.sample(3, part=MemoryPart.SHORT, rng=rng)
    assert not rng.get_state().equal(state)


def test_distinct_numbers_where_nearly_all_are_wanted():
    numbers = distinct(9, 10, torch.Generator().manual_seed(0), lambda number: number != 4)
    assert sorted(numbers.tolist()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_the_order_of_empty_slots_is_their_own():
    index = priority_index.PriorityIndex(torch.tensor([0.5, EMPTY, 0.25, EMPTY], dtype=torch.float64))
    assert [slot for _, slot in index.lowest(4)] == [1, 3, 2, 0]
