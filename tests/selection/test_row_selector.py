"""Choices without clusters: rows at random, the control for every other choice."""

import pytest
import torch
from clouds import rng
from test_selector import FakeProbe, run, task_rows

from odedm import DAC, ODEDM, DualMemory, Prototypes, Random, select
from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES, WITHOUT_CLUSTERS
from odedm.core.rows import ColumnSpec, MemoryPart, Task
from odedm.memory.build_context import StreamShape
from odedm.memory.herding import HerdingBuffer
from odedm.selection.row_selector import ROW_SELECTORS, Herding, RandomRows
from odedm.selection.selector import PrototypeSelector
from odedm.testing import check_distance
from odedm.testing.contracts import check_exact, finish

EVERY = pytest.mark.parametrize("choice", list(ROW_SELECTORS.values()), ids=list(ROW_SELECTORS))
INTS = ("label", "task", "index")
FIVE = StreamShape(tasks=5, classes_per_task=2)


class Bare(FakeProbe):
    """One without columns of its own."""

    def annotate(self, rows):
        return {}


def test_their_names_are_those_of_the_table():
    assert tuple(ROW_SELECTORS) == WITHOUT_CLUSTERS
    for name, choice in ROW_SELECTORS.items():
        assert isinstance(choice, DISTANCES[name].load())


@EVERY
@pytest.mark.parametrize("space", ["features", "pixels"])
def test_chosen_rows_are_real_distinct_balanced_and_whole(choice, space):
    rows = task_rows()
    chosen = run(PrototypeSelector(5, choice, rows_per_prototype=2, space=space), rows)
    assert chosen["label"].tolist() == [4] * 10 + [7] * 10
    assert chosen["prototype"].tolist() == [p for _ in range(2) for p in range(5) for _ in range(2)]
    assert len(chosen["index"].unique()) == 20
    for name in rows:
        assert torch.equal(chosen[name], rows[name][chosen["index"] - 1000])
    assert torch.equal(chosen["logits"], FakeProbe().annotate(chosen)["logits"])


@EVERY
def test_fewer_are_the_first_of_more_and_a_small_class_gives_all_it_has(choice):
    few, more = (run(PrototypeSelector(k, choice), task_rows())["index"].view(2, k) for k in (3, 6))
    assert few.equal(more[:, :3])
    assert len(run(PrototypeSelector(50, choice), task_rows(per_class=8))["index"].unique()) == 16
    assert run(PrototypeSelector(3, choice), task_rows(), classes=(5,))["image"].shape == (0, 3, 4, 4)


def test_random_rows_ask_no_network_and_go_by_the_seed():
    probe = FakeProbe()
    one, same, other = (
        run(PrototypeSelector(6, RandomRows()), task_rows(200), seed=seed, probe=probe)["index"].tolist()
        for seed in (1, 1, 2)
    )
    assert probe.calls == []
    assert one == same
    assert one != other
    assert one[:6] != [index - 1 for index in one[6:]]  # each class draws for itself


def test_herding_is_the_rule_of_icarl():
    rows, probe = task_rows(), FakeProbe()
    memory = HerdingBuffer(
        60, [ColumnSpec("image", (3, 4, 4), torch.uint8), *(ColumnSpec(n, (), torch.int64) for n in INTS)]
    )
    memory.end_task(Task(0, 2, (4, 7), rows), Bare(), rng=rng())
    of_policy = memory.rows()["index"][memory.rows()["label"] == 4][:5]
    chosen = run(PrototypeSelector(5, Herding()), rows, probe=probe)["index"][:5]
    assert probe.calls == [60]
    assert chosen.equal(of_policy)
    # by hand: each pick brings the mean of those so far nearest to the mean of all, on the sphere
    points = torch.nn.functional.normalize(FakeProbe().embed(rows["image"][rows["label"] == 4]).double())
    own = (rows["label"] == 4).nonzero().flatten()
    taken = []
    for j in range(5):
        far = [(points.mean(0) - points[[*taken, i]].mean(0)).norm() for i in range(len(points))]
        taken.append(min((i for i in range(len(points)) if i not in taken), key=lambda i: far[i]))
        assert chosen[j] == rows["index"][own[taken[j]]]


def test_herded_rows_have_a_mean_nearer_to_that_of_all_than_random_ones():
    x = torch.nn.functional.normalize(torch.rand(200, 12, generator=rng(3)))
    herded, random = (x[select(x, k=10, distance=name)].mean(0) - x.mean(0) for name in ("herding", "random"))
    assert herded.norm() < random.norm() / 2


def test_random_rows_are_each_equally_likely():
    picks = torch.cat([RandomRows().select(torch.zeros(10, 0), 3, rng(seed)) for seed in range(1000)])
    share = picks.bincount(minlength=10) / 1000
    assert bool(((share > 0.24) & (share < 0.36)).all())  # 0.3, give or take four standard errors


@EVERY
def test_select_takes_them_and_refuses_divide_and_conquer(choice):
    x = torch.rand(40, 6, generator=rng())
    name = next(each for each in ROW_SELECTORS if ROW_SELECTORS[each] is choice)
    chosen = select(x, k=4, rows_per_prototype=2, distance=name, seed=3)
    assert len(chosen.unique()) == 8
    assert chosen.equal(select(x, k=4, rows_per_prototype=2, distance=choice, seed=3))
    assert select(x.numpy(), k=8, distance=name, seed=3).tolist() == chosen.tolist()
    with pytest.raises(UsageError, match="leave dac out"):
        select(x, k=4, distance=name, dac=(3, 2))


@pytest.mark.parametrize("name", WITHOUT_CLUSTERS)
def test_what_needs_clusters_is_refused(name):
    with pytest.raises(UsageError, match="mixup does nothing beside"):
        ODEDM.from_flat(capacity=60, k=2, distance=name, mixup=True)
    with pytest.raises(UsageError, match="means of clusters"):
        PrototypeSelector(2, ROW_SELECTORS[name], mixup=True)
    with pytest.raises(UsageError, match="makes none; it must be one of sinkhorn"):
        ODEDM(60, k=2, selection=Prototypes(dac=DAC(distance=name)))
    with pytest.raises(UsageError, match="makes none; it must be one of sinkhorn"):
        ODEDM(60, k=2, selection=Prototypes(name))
    with pytest.raises(UsageError, match="epsilon does nothing beside"):
        ODEDM.from_flat(capacity=60, k=2, distance=name, epsilon=0.1)
    with pytest.raises(UsageError, match="compares clusters"):
        check_distance(name)


@pytest.mark.parametrize("name", WITHOUT_CLUSTERS)
def test_one_choice_has_one_description(name):
    memories = (ODEDM(200, k=6, selection=name), ODEDM.from_flat(capacity=200, k=6, distance=name, dac=None))
    first, second = (memory.resolve(FIVE, "reservoir") for memory in memories)
    assert first == second
    assert first.flat()["dac"] is None


@pytest.mark.parametrize("name", WITHOUT_CLUSTERS)
@pytest.mark.parametrize("memory", [{}, {"candidates": 6}, {"rows_per_prototype": 2}, {"annotate": "stream"}])
def test_runs_keep_k_rows_of_each_past_class(name, memory):
    _, outcome = finish(ODEDM(40, k=2, selection=name, **memory), method="derpp", batch=16)
    label = outcome.memory.rows(MemoryPart.LONG)["label"]
    assert label.bincount().tolist() == [2 * memory.get("rows_per_prototype", 1)] * 8


@pytest.mark.parametrize("name", WITHOUT_CLUSTERS)
def test_resumed_exactly(name):
    check_exact(ODEDM(30, k=2, selection=name), method="er")


def test_a_memory_of_ones_own_keeps_random_rows_without_features():
    memory = DualMemory(20, k=3, selection=Random(), seed=1)
    memory.add(torch.rand(40, 5, generator=rng()), torch.arange(40) % 2)
    memory.consolidate([0, 1])
    assert sorted(memory.rows("long")["labels"].tolist()) == [0, 0, 0, 1, 1, 1]
