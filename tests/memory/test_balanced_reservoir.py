"""The class-balanced reservoir against the paper's algorithm, written out slowly."""

import copy
import pickle
import random
from collections import Counter

import pytest
import torch

from odedm import ColumnSpec, DualMemory, MemoryPart, Prototypes
from odedm.memory.balanced_reservoir import CBRSBuffer

LABEL, INDEX = ColumnSpec("label", dtype=torch.int64), ColumnSpec("index", dtype=torch.int64)


def stream(seed, shares, n):
    rng = torch.Generator().manual_seed(seed)
    label = torch.multinomial(torch.tensor(shares), n, replacement=True, generator=rng)
    return {"label": label, "index": torch.arange(n)}


def filled(rows, capacity, *, batch=7, classes=None, seed=0):
    memory = CBRSBuffer(capacity, [LABEL, INDEX], classes=classes)
    rng = torch.Generator().manual_seed(seed)
    for start in range(0, len(rows["label"]), batch):
        memory.add({name: column[start : start + batch] for name, column in rows.items()}, None, rng=rng)
    return memory


def by_the_paper(label, capacity, rng):
    """Algorithm 1 of Chrysakis & Moens (2020), row by row; a class can become full once the memory is filled."""
    stored, met, full = [], Counter(), set()
    for index, c in enumerate(label):
        met[c] += 1
        if len(stored) < capacity:
            stored.append((index, c))
            continue
        sizes = Counter(each for _, each in stored)
        largest = [each for each in sizes if sizes[each] == max(sizes.values())]
        full |= set(largest)
        if c not in full:
            gone = rng.choice([place for place, (_, each) in enumerate(stored) if each in largest])
        elif rng.random() <= sizes[c] / met[c]:
            gone = rng.choice([place for place, (_, each) in enumerate(stored) if each == c])
        else:
            continue
        stored[gone] = (index, c)
    return stored


class Keys:
    """The draws that `add` makes of a generator, one batch after the other, for the slow version of it."""

    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)

    def batch(self, amount, excess):
        return [torch.rand(n, dtype=torch.float64, generator=self.rng).tolist() for n in (amount, excess)]


def by_keys(label, capacity, *, batch, seed):
    """The same rows as the memory, by lists: of a class that gives up a row the one of the smallest key goes."""
    stored, full, draws = [], set(), Keys(seed)
    for start in range(0, len(label), batch):
        part = label[start : start + batch]
        fresh, chance = draws.batch(len(part), max(0, len(stored) + len(part) - capacity))
        for place, (c, key) in enumerate(zip(part, fresh, strict=True)):
            if len(stored) == capacity:
                sizes = Counter(each for _, each, _ in stored)
                largest = sorted(each for each in sizes if sizes[each] == max(sizes.values()))
                full = {each for each in full if each in sizes} | set(largest)
                victim = c if c in full else largest[int(chance.pop(0) * len(largest))]
                if c in full:
                    chance.pop(0)
                stored.append((key, c, start + place))
                stored.remove(min(each for each in stored if each[1] == victim))
            else:
                stored.append((key, c, start + place))
    return {index for _, _, index in stored}


@pytest.mark.parametrize("classes", [5, None])
@pytest.mark.parametrize(("capacity", "batch"), [(12, 7), (1, 3), (3, 20), (40, 8)])
def test_the_very_rows_of_the_slow_version(capacity, batch, classes):
    for seed in range(4):
        rows = stream(seed, [8.0, 4.0, 2.0, 1.0, 0.3], 90)
        memory = filled(rows, capacity, batch=batch, classes=classes, seed=seed)
        wanted = by_keys(rows["label"].tolist(), capacity, batch=batch, seed=seed)
        assert set(memory.rows()["index"].tolist()) == wanted


@pytest.mark.parametrize(("capacity", "batch", "classes"), [(12, 7, 5), (3, 20, 5), (40, 8, 5), (50, 10, 200)])
def test_a_host_and_a_device_keep_the_same_rows(capacity, batch, classes, monkeypatch):
    """On a device nothing may be read back; the same draws give the same rows, pins and all."""
    shares = [8.0, 4.0, 2.0, 1.0, 0.3] if classes == 5 else [1.0] * classes
    label, kept = torch.tensor([0, 1]), []
    for add in (CBRSBuffer._add_on_host, CBRSBuffer._add_on_device):
        monkeypatch.setattr(CBRSBuffer, "_add_on_host", add)
        for seed in range(4):
            memory = filled(stream(seed, shares, 200), capacity, batch=batch, classes=classes)
            memory.pin({"label": label, "index": label + 900, "prototype": label})
            rows, rng = stream(seed + 50, shares, 100), torch.Generator().manual_seed(seed + 100)
            for start in range(0, 100, batch):
                memory.add({name: column[start : start + batch] for name, column in rows.items()}, None, rng=rng)
            kept.append({name: memory.rows()[name].tolist() for name in ("index", "full", "order", "prototype")})
    assert kept[:4] == kept[4:]


def test_a_copy_goes_on_as_the_memory_does():
    rows = stream(2, [3.0, 2.0, 1.0], 200)
    memory = filled({name: column[:100] for name, column in rows.items()}, 20, classes=3)
    later = {name: column[100:] for name, column in rows.items()}
    kept = []
    for other in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory)), memory):
        other.add(later, None, rng=torch.Generator().manual_seed(7))
        kept.append(other.rows()["index"].tolist())
    assert kept[0] == kept[1] == kept[2]


def test_every_row_is_kept_as_often_as_by_the_papers_algorithm():
    """Over many draws, row for row: keys in the place of the paper's u ≤ m/n change no probability."""
    rows, trials = stream(3, [6.0, 2.0, 1.0], 24), 600
    kept, wanted, rng = torch.zeros(24), torch.zeros(24), random.Random(0)
    for seed in range(trials):
        kept[filled(rows, 6, batch=24, classes=3, seed=seed).rows()["index"]] += 1
        wanted[[index for index, _ in by_the_paper(rows["label"].tolist(), 6, rng)]] += 1
    spread, off = (2 * 0.25 / trials) ** 0.5, ((kept - wanted) / trials).abs()
    assert off.max() < 4.5 * spread
    assert off.mean() < spread
    assert (kept / trials).max() - (kept / trials).min() > 0.2, "rows of rare classes are kept more often"


def test_rare_classes_are_kept_whole_and_the_others_share_the_rest():
    rows = stream(0, [100.0, 60.0, 30.0, 0.8], 600)
    memory = filled(rows, 60, classes=4)
    rare = int((rows["label"] == 3).sum())
    found = memory.class_counts(4)["short"]
    assert 0 < rare < 15
    assert found[3] == rare
    assert sum(found) == 60
    assert max(found[:3]) - min(found[:3]) <= 1


def test_labels_of_any_kind_where_nobody_knows_the_number_of_classes():
    rows = stream(1, [5.0, 3.0, 1.0], 80)
    names = torch.tensor([-7, 10**12, 3])
    plain, named = filled(rows, 10, seed=2), filled({**rows, "label": names[rows["label"]]}, 10, seed=2)
    assert sorted(Counter(named.rows()["label"].tolist()).values()) == sorted(
        Counter(plain.rows()["label"].tolist()).values()
    )


def test_pins_take_the_places_of_rows_of_the_largest_class():
    memory = filled(stream(0, [1.0, 1.0], 40), 10, classes=2)
    memory.pin({"label": torch.tensor([1, 1]), "index": torch.tensor([900, 901]), "prototype": torch.tensor([0, 1])})
    assert memory.class_counts(2) == {"short": [4, 4], "long": [0, 2]}
    key = {int(i): float(k) for i, k in zip(memory.store.columns["index"], memory.store.priority, strict=True)}
    assert all(0 <= key[int(i)] < 1 for i in memory.rows(MemoryPart.SHORT)["index"])
    memory.add(stream(5, [0.0, 1.0], 30), None, rng=torch.Generator().manual_seed(1))
    assert memory.class_counts(2) == {"short": [4, 4], "long": [0, 2]}, "a full class grows no more"
    memory.resize(5)
    assert memory.size(MemoryPart.LONG) == 2
    assert sorted(memory.class_counts(2)["short"]) == [1, 2]
    memory.resize(12)
    memory.add(stream(6, [1.0, 1.0], 30), None, rng=torch.Generator().manual_seed(2))
    assert memory.size() == 12


def test_a_live_memory_has_it_and_goes_on_from_its_state():
    """What is full is a column of the rows, so a state holds it."""
    whole = DualMemory(
        12, k=1, candidates="task", short_policy="balanced-reservoir", selection=Prototypes(space="pixels"), seed=3
    )
    rng, parts = torch.Generator().manual_seed(0), []
    for label in (5, 10**9, 5, -2):
        parts.append((torch.randn(25, 3, generator=rng), torch.full((25,), label)))
    for x, y in parts[:2]:
        whole.add(x, y)
    whole.end_task()
    other = pickle.loads(pickle.dumps(whole))
    for memory in (whole, other):
        for x, y in parts[2:]:
            memory.add(x, y)
    a, b = whole.rows(), other.rows()
    assert all(a[name].equal(b[name]) for name in a)
    assert sorted(a) == ["images", "labels", "prototype"]
    assert sorted(a["labels"][a["prototype"] < 0].unique(return_counts=True)[1].tolist()) == [3, 3, 4]


def test_what_it_knows_of_its_rows_on_a_cpu_outlives_a_batch():
    """Else every batch would cost a look at all rows."""
    memory = CBRSBuffer(20, [ColumnSpec("label", dtype=torch.int64)])
    rng = torch.Generator().manual_seed(0)
    memory.add({"label": torch.arange(30) % 4}, None, rng=rng)
    index = memory._index
    memory.add({"label": torch.arange(30) % 7}, None, rng=rng)
    assert memory._index is index
