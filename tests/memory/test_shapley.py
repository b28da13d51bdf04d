"""Shapley values against their definition over all orders, and ASER's memory and retrieval against lists."""

from itertools import permutations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from workbench import Bench, batch_of

from odedm import ColumnSpec, MemoryPart, UsageError, train
from odedm.core.rows import take
from odedm.memory.shapley import ASERBuffer, knn_shapley
from odedm.methods.er import ER
from odedm.training.retrieval import ShapleyRetrieval


def points(seed, n, classes=3):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, generator=rng, dtype=torch.float64), torch.randint(0, classes, (n,), generator=rng)


def by_definition(point, label, candidate, known, k):
    """What each candidate adds to the k-nearest-neighbour answer, on average over all orders in which they can join."""
    distance = (candidate - point).norm(dim=1)

    def worth(members):
        nearest = sorted(members, key=lambda j: float(distance[j]))[:k]
        return sum(float(known[j] == label) for j in nearest) / k

    value = torch.zeros(len(known), dtype=torch.float64)
    orders = list(permutations(range(len(known))))
    for order in orders:
        for place, j in enumerate(order):
            value[j] += worth(order[: place + 1]) - worth(order[:place])
    return value / len(orders)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_values_are_the_mean_over_all_orders(k):
    for n in (1, 2, 5):
        (point, label), (candidate, known) = points(n, 2), points(10 + n, n)
        found = knn_shapley(point, label, candidate, known, k)
        for e in range(2):
            torch.testing.assert_close(found[e], by_definition(point[e], label[e], candidate, known, k))


def test_values_sum_to_the_share_of_right_neighbours_and_masked_candidates_are_as_if_absent():
    (point, label), (candidate, known) = points(0, 20), points(1, 30)
    found = knn_shapley(point, label, candidate, known, 3)
    nearest = torch.cdist(point, candidate).topk(3, largest=False).indices
    torch.testing.assert_close(found.sum(1), (known[nearest] == label[:, None]).double().mean(1))
    here = torch.arange(30) % 3 > 0
    part = knn_shapley(point, label, candidate, known, 3, here)
    torch.testing.assert_close(part[:, here], knn_shapley(point, label, candidate[here], known[here], 3))
    assert part[:, ~here].equal(torch.zeros(20, 10, dtype=torch.float64))


class Pixels:
    def embed(self, image):
        return image


FIELDS = [
    ColumnSpec("image", (2,), torch.float64),
    *(ColumnSpec(name, dtype=torch.int64) for name in ("label", "index")),
]


def batch(seed, n=6, first=0, classes=3):
    image, label = points(seed, n, classes)
    return {"image": image, "label": label, "index": torch.arange(first, first + n)}


def test_a_full_memory_changes_equally_many_rows_for_the_worthiest():
    memory, rng = ASERBuffer(20, FIELDS, classes=3, per_class=3), torch.Generator().manual_seed(0)
    for step in range(12):
        before = set(memory.rows()["index"].tolist())
        memory.add(batch(step, first=6 * step), Pixels(), rng=rng)
        now = set(memory.rows()["index"].tolist())
        assert memory.size() == len(now) == min(20, 6 * (step + 1))
        assert len(before - now) == len(now - before) or len(before) < 20
    assert max(memory.rows()["index"].tolist()) > 30, "new rows come in"


def test_rows_that_leave_are_those_of_least_worth():
    memory, rng = ASERBuffer(12, FIELDS, classes=3, per_class=2), torch.Generator().manual_seed(0)
    memory.add(batch(0, 12), Pixels(), rng=rng)
    slot, worth = torch.tensor([3, 8, 5]), torch.tensor([5.0, 1.0, 4.0, 2.0, 0.0])
    stored, new = memory.store.columns["index"].clone(), batch(1, 2, first=50)
    memory._swap(new, torch.rand(2, dtype=torch.float64), slot, worth)
    wanted = stored.clone()
    wanted[8] = 50  # of 5, 1, 4 and the new 2, 0 the two least go: slot 8 and the second new row
    assert memory.store.columns["index"].equal(wanted)


def test_a_new_class_enters_where_it_is_rare():
    memory, rng = ASERBuffer(30, FIELDS, classes=2, per_class=5), torch.Generator().manual_seed(0)
    memory.add({**batch(0, 30), "label": torch.zeros(30, dtype=torch.int64)}, Pixels(), rng=rng)
    for step in range(1, 8):
        memory.add({**batch(step, 6), "label": torch.ones(6, dtype=torch.int64)}, Pixels(), rng=rng)
    assert memory.class_counts(2)["short"][1] >= 5


class NothingReadBack(TorchDispatchMode):
    """A block in which no number may be read from a tensor, as while a step is recorded on a GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value was read back"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("classes", [3, None])
def test_rows_compete_without_a_look_at_a_value_where_the_classes_are_known(classes):
    memory = ASERBuffer(12, FIELDS, classes=classes)
    rng = torch.Generator().manual_seed(0)
    memory.add(batch(0, 12), Pixels(), rng=rng)
    later, key = batch(1), torch.rand(6, dtype=torch.float64, generator=rng)
    with NothingReadBack():
        if classes is None:  # a learner's, whose steps are not recorded
            with pytest.raises(AssertionError, match="read back"):
                memory._compete(later, key, Pixels(), rng)
        else:
            memory._compete(later, key, Pixels(), rng)


def test_pinned_rows_stay():
    memory, rng = ASERBuffer(20, FIELDS, classes=3, per_class=3), torch.Generator().manual_seed(0)
    memory.add(batch(0, 20), Pixels(), rng=rng)
    memory.pin({**batch(1, 5, first=900), "prototype": torch.arange(5)})
    for step in range(2, 9):
        memory.add(batch(step, first=100 * step), Pixels(), rng=rng)
    assert memory.rows(MemoryPart.LONG)["index"].tolist() == [900, 901, 902, 903, 904]
    assert memory.size() == 20


def test_the_retrieval_takes_the_largest_difference_of_means():
    bench = Bench(ER, capacity=40, draw=4, retrieval=ShapleyRetrieval(per_class=3))
    bench.memory.add(
        {name: column for name, column in batch_of(3, n=40).items() if name != "input"}, None, rng=bench.keys
    )
    stream, seen, method = batch_of(4, n=6), [], bench.method
    view = bench.replay.transform.augment
    bench.replay.begin_step(stream)
    before = bench.state()
    object.__setattr__(bench.replay.transform, "augment", lambda image, rng: seen.append(view(image, rng)) or seen[-1])
    try:
        chosen = bench.replay(4)
    finally:
        object.__delattr__(bench.replay.transform, "augment")
    rows = bench.memory.rows()

    def rows_of(images):
        return take(rows, torch.tensor([int((rows["image"] == each).flatten(1).all(1).nonzero()) for each in images]))

    candidates, judges = map(rows_of, seen)
    assert candidates["label"].bincount().tolist() == [3, 3, 3, 3]
    assert not set(candidates["index"].tolist()) & set(judges["index"].tolist())
    feature = lambda rows: method.embed(rows["image"]).flatten(1)  # noqa: E731
    score = sum(
        sign * knn_shapley(feature(part), part["label"], feature(candidates), candidates["label"], 3).mean(0)
        for sign, part in ((1, judges), (-1, stream))
    )
    place = [candidates["index"].tolist().index(i) for i in chosen["index"].tolist()]
    assert score[place].min() >= score.sort().values[-4]
    assert all(bench.state()[name].equal(each) for name, each in before.items()), "nothing of the learner moved"
    assert len(bench.replay(50)["index"]) == 40


def test_aser_is_er_with_its_retrieval_and_policy():
    outcome = train("blobs", method="aser", memory="native", batch=16, progress=False)
    plan = outcome.result.experiment
    assert (plan["retrieval"], plan["memory"]["policy"]) == ("aser", "aser")
    with pytest.raises(UsageError, match="ASER chooses the rows that it replays by itself, by 'aser'; 'mir' was"):
        train("blobs", method="aser", memory="native", retrieval="mir")
