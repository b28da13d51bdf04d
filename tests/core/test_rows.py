import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from odedm import ColumnSpec, Store, UsageError
from odedm.core.rows import rank_within
from odedm.core.store import EMPTY, PINNED

FIELDS = [ColumnSpec("uid", dtype=torch.int64), ColumnSpec("image", (2, 3), torch.uint8)]


def rows(uids):
    uid = torch.as_tensor(uids)
    return {"uid": uid, "image": (uid[:, None, None] % 251).expand(-1, 2, 3).to(torch.uint8).clone()}


def contents(store):
    held = store.priority > EMPTY
    uid = store.columns["uid"][held]
    assert (store.columns["image"][held] == (uid % 251)[:, None, None]).all(), "columns moved apart"
    return dict(zip(uid.tolist(), store.priority[held].tolist(), strict=True))


@given(
    capacity=st.integers(0, 12),
    batches=st.lists(st.integers(0, 9), max_size=8),
    pins=st.lists(st.integers(0, 3), max_size=8),
    seed=st.integers(0, 1000),
)
def test_store_holds_the_largest_keys_of_everything_offered(capacity, batches, pins, seed):
    rng = torch.Generator().manual_seed(seed)
    store = Store(capacity, FIELDS)
    keys, pinned, uid = {}, [], 0
    for step, size in enumerate(batches):
        key = torch.rand(size, dtype=torch.float64, generator=rng)
        fresh = list(range(uid, uid + size))
        store.insert(rows(torch.tensor(fresh, dtype=torch.int64)), key)
        keys.update(zip(fresh, key.tolist(), strict=True))
        uid += size
        wish = min(pins[step] if step < len(pins) else 0, capacity - len(pinned))
        store.pin(rows(torch.arange(10_000 + len(pinned), 10_000 + len(pinned) + wish)))
        pinned += range(10_000 + len(pinned), 10_000 + len(pinned) + wish)
        room = capacity - len(pinned)
        best = sorted(keys.items(), key=lambda pair: -pair[1])[:room]
        assert contents(store) == {**dict(best), **dict.fromkeys(pinned, PINNED)}


def test_compartments_keep_their_own_largest_keys():
    rng = torch.Generator().manual_seed(3)
    store, best = Store(6, FIELDS), [{}, {}, {}]
    for start in range(0, 60, 5):
        key = torch.rand(3, 5, dtype=torch.float64, generator=rng)
        key[torch.rand(3, 5, generator=rng) < 0.5] = EMPTY
        store.insert(rows(torch.arange(start, start + 5)), key, groups=3)
        for group in range(3):
            new = {start + i: key[group, i].item() for i in range(5) if key[group, i] > EMPTY}
            best[group] = dict(sorted({**best[group], **new}.items(), key=lambda pair: -pair[1])[:2])
    for group in range(3):
        part = slice(2 * group, 2 * group + 2)
        held = dict(zip(store.columns["uid"][part].tolist(), store.priority[part].tolist(), strict=True))
        assert held == best[group]


def test_many_compartments_are_uniform_reservoirs():
    """20 000 reservoirs of 20 rows at once over 60 rows: every row is kept with probability 1/3."""
    repeats, capacity, stream = 20_000, 20, 60
    rng = torch.Generator().manual_seed(0)
    store = Store(repeats * capacity, [ColumnSpec("uid", dtype=torch.int64)])
    for start in range(0, stream, 12):
        key = torch.rand(repeats, 12, dtype=torch.float64, generator=rng)
        store.insert({"uid": torch.arange(start, start + 12)}, key, groups=repeats)
    share = torch.bincount(store.columns["uid"], minlength=stream) / repeats
    sigma = (1 / 3 * 2 / 3 / repeats) ** 0.5
    assert (share - 1 / 3).abs().max() < 5 * sigma


def test_store_never_aliases_what_it_was_given():
    store = Store(3, FIELDS)
    given_rows = rows([1, 2, 3])
    store.insert(given_rows, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
    before = store.columns["image"].clone()
    given_rows["image"].fill_(99)
    read = store.read(torch.tensor([0]))
    read["image"].fill_(77)
    assert store.columns["image"].equal(before)


def test_negative_capacity_is_refused():
    with pytest.raises(UsageError, match="0 or more rows; -1"):
        Store(-1, FIELDS)


@given(st.lists(st.integers(0, 4), max_size=30))
def test_ranks_count_the_rows_of_the_same_label_before(labels):
    assert rank_within(torch.tensor(labels, dtype=torch.int64)).tolist() == [
        labels[:i].count(label) for i, label in enumerate(labels)
    ]


def test_ranks_are_the_same_whatever_the_labels_are_called():
    label = torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    for other in (label - 3, label * 10**12):
        assert rank_within(other).equal(rank_within(label))


def test_what_does_not_fit_beside_pinned_rows_is_refused_and_changes_nothing():
    store = Store(3, FIELDS)
    store.pin(rows([1, 2]))
    before = contents(store)
    for given_rows in (rows([7, 8]), rows([5, 6, 7, 8])):
        with pytest.raises(UsageError, match="rows cannot be pinned: 2 of 3 slots hold pinned rows already"):
            store.pin(given_rows)
    assert contents(store) == before
    store.pin(rows([3]))
    assert set(contents(store)) == {1, 2, 3}


@pytest.mark.parametrize("first", range(9))
def test_rows_may_begin_anywhere_in_memory(first):
    """A view into a larger tensor need not begin at a whole 64-bit word."""
    memory = torch.arange(9 + 2 * 8, dtype=torch.uint8)
    image = memory[first : first + 16].view(2, 8)
    store = Store(2, [ColumnSpec("image", (8,), torch.uint8)])
    store.write(torch.tensor([1, 0]), {"image": image})
    assert store.columns["image"].equal(image.flip(0))
    store.columns["image"] = torch.zeros(9 + 16, dtype=torch.uint8)[first : first + 16].view(2, 8)
    store.write(torch.tensor([0, 1]), {"image": image.t().contiguous().t()})
    assert store.columns["image"].equal(image)
