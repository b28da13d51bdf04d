"""The memory alone, as a loop of anyone's uses it."""

import numpy as np
import pytest
import torch

import odedm
from odedm import DAC, ODEDM, ColumnSpec, DualMemory, MemoryPart, Native, Prototypes, Reservoir, Sinkhorn, UsageError
from odedm.core.rng import generator
from odedm.memory.reservoir import ReservoirBuffer

MEANS = Prototypes(mixup=True)
FIELDS = [ColumnSpec("image", (4,)), ColumnSpec("label", dtype=torch.int64), ColumnSpec("own.logits", (3,))]


def batch(number, classes=(0, 1), rows=20):
    rng = torch.Generator().manual_seed(number)
    label = torch.tensor(classes)[torch.arange(rows) % len(classes)]
    image = torch.randn(rows, 4, generator=rng) + 5 * label[:, None]
    return image, label, torch.randn(rows, 3, generator=rng)


def feed(memory, task, batches=3, per_task=2):
    for number in range(batches):
        image, label, logits = batch(100 * task + number, tuple(range(task * per_task, (task + 1) * per_task)))
        memory.add(image, label, logits=logits)


def per_class(memory, part="long"):
    return torch.bincount(torch.as_tensor(memory.rows(part)["labels"])).tolist()


def same(one, other):
    return all(torch.as_tensor(one[name]).equal(torch.as_tensor(other[name])) for name in one) and set(one) == set(
        other
    )


def test_without_prototypes_it_is_the_plain_reservoir_draw_for_draw():
    plain, keys, draws = ReservoirBuffer(15, FIELDS), generator(7, "memory"), generator(7, "draw")
    lives = [
        DualMemory(15, k=0, seed=7),
        DualMemory(15, rho=0, seed=7),
        DualMemory.from_config(Reservoir(15), seed=7),
    ]
    lives += [DualMemory.from_config(Native(15), seed=7), odedm.DualMemory.from_config(ODEDM(15, k=0), seed=7)]
    for task in range(3):
        for number in range(3):
            image, label, logits = batch(10 * task + number)
            plain.add({"image": image, "label": label, "own.logits": logits}, None, rng=keys)
            for each in lives:
                each.add(image, label, logits=logits)
        drawn = plain.sample(6, rng=draws)
        for each in lives:
            each.end_task(embed=None)
            found = each.sample(6)
            assert found["images"].equal(drawn["image"])
            assert found["logits"].equal(drawn["own.logits"])


def test_every_task_leaves_k_prototypes_of_each_class_that_are_its_rows():
    memory = DualMemory(40, k=3, candidates="task", seed=1)
    for task in range(3):
        feed(memory, task)
        memory.end_task(embed=lambda image: image)
        assert per_class(memory) == [3] * (2 * task + 2)
        assert len(memory) == 40
        assert memory.size("short") + memory.size(MemoryPart.LONG) == 40
    rows = memory.rows("long")
    seen = [batch(100 * task + n, (2 * task, 2 * task + 1)) for task in range(3) for n in range(3)]
    image, logits = torch.cat([each[0] for each in seen]), torch.cat([each[2] for each in seen])
    for mine, own in zip(rows["images"], rows["logits"], strict=True):
        at = (image == mine).all(1).nonzero()
        assert len(at) == 1, "a real row"
        assert logits[at[0, 0]].equal(own), "with its own columns"
    assert sorted(rows["prototype"].tolist()) == sorted([0, 1, 2] * 6)
    assert (memory.rows("short")["prototype"] == -1).all()
    assert not set(memory.sample(99, part="short")["labels"].tolist()) - set(range(6))


def test_short_term_rows_stay_a_uniform_sample_through_pins_candidates_and_a_smaller_capacity():
    counts, rounds = torch.zeros(120), 120
    for seed in range(rounds):
        memory = DualMemory(30, k=2, candidates=4, selection=Prototypes("l2", dac=None, space="pixels"), seed=seed)
        for task in range(3):
            label = torch.arange(40) % 2 + 2 * task
            number = torch.arange(40) + 40 * task
            for part in range(0, 40, 10):
                own = slice(part, part + 10)
                memory.add(number[own, None].float() / 120, label[own], number=number[own])
            if task < 2:
                memory.end_task()
        memory.resize(26)
        short = memory.rows("short")["number"]
        assert len(memory) + 8 == 26
        assert len(short) == 10
        counts[short] += 1
    expected = 10 / 120
    assert (counts / rounds - expected).abs().max() < 5 * (expected * (1 - expected) / rounds) ** 0.5


def test_bounded_candidates_count_inside_the_capacity():
    memory = DualMemory(34, k=3, candidates=5, seed=0)
    for task in range(3):
        feed(memory, task)
        assert len(memory) == 34 - 10
        memory.end_task(embed=lambda image: image)
        assert per_class(memory) == [3] * (2 * task + 2)


def test_a_class_without_candidates_is_chosen_among_its_short_term_rows_which_move():
    memory = DualMemory(40, k=3, candidates=8, seed=0)
    feed(memory, 0, per_task=3)
    assert len(memory) == 40 - 2 * 8, "two classes take 16 of the 20 rows that candidates may have, a third none"
    before = memory.rows("short")
    memory.end_task(embed=lambda image: image)
    assert per_class(memory) == [3, 3, 3]
    long, short = (memory.rows(part)["images"][:, 0].tolist() for part in ("long", "short"))
    moved = memory.rows("long")["images"][memory.rows("long")["labels"] == 2][:, 0].tolist()
    assert {*moved} <= {*before["images"][:, 0].tolist()}
    assert not {*moved} & {*short}, "nothing is stored twice"
    assert len({*long}) == 9


def test_it_is_bounded_if_nobody_ever_tells_of_a_task_s_end():
    memory = DualMemory(100, seed=0)
    for number in range(300):
        memory.add(*batch(number, (number // 20,))[:2])
    sizes = {name: len(tensor) for name, tensor in memory.state_dict()["tensors"].items() if "generator" not in name}
    assert {*sizes.values()} == {100}
    before = memory.rows("short")["images"][:, 0].tolist()
    memory.end_task(embed=lambda image: image)
    long, short = (memory.rows(part)["images"][:, 0].tolist() for part in ("long", "short"))
    assert len(long) == 15, "one of each class"
    assert sorted(long + short) == sorted(before), "what becomes a prototype moves"


def test_a_share_is_divided_equally_and_the_last_prototypes_leave_when_a_class_joins():
    memory, before = DualMemory(80, rho=0.25, candidates="task", seed=2), None
    for task, quota in enumerate((10, 5, 3, 2)):
        feed(memory, task)
        memory.end_task(embed=lambda image: image)
        rows = memory.rows("long")
        assert per_class(memory) == [quota] * (2 * task + 2)
        assert memory.size("long") <= 20
        if before is not None:
            kept = take(before, before["prototype"] < quota)
            assert same(kept, take(rows, rows["labels"] < 2 * task)), "the first ranks stay, in their order"
        before = rows
    feed(memory, 1, per_task=30)
    with pytest.raises(UsageError, match="leaves 20 long-term rows, too few for 28 classes"):
        memory.consolidate(range(30, 50), embed=lambda image: image)
    assert same(memory.rows("long"), before), "nothing changed"


def take(rows, mask):
    return {name: column[mask] for name, column in rows.items()}


def test_a_class_that_returns_is_chosen_anew_among_its_prototypes_and_its_new_rows():
    memory = DualMemory(40, k=4, seed=3, selection=Prototypes("l2", dac=None, space="pixels"))
    feed(memory, 0)
    memory.end_task()
    first = memory.rows("long")["images"]
    feed(memory, 0)
    image, label, logits = batch(999, (0,))
    memory.add(image + 50, label, logits=logits)
    memory.consolidate(0)
    assert per_class(memory) == [4, 4]
    now = memory.rows("long")
    assert (now["images"][now["labels"] == 0] > 20).any(), "the new cloud is stood for"
    assert now["images"][now["labels"] == 1].equal(first[4:]), "the other class waits for its own call"
    memory.consolidate([1])
    memory.consolidate([0])
    assert per_class(memory) == [4, 4], "chosen among its own prototypes where nothing new came"
    with pytest.raises(UsageError, match="no rows of class 9 to choose from"):
        memory.consolidate([9])


def test_pins_beyond_the_capacity_are_refused_and_released_room_is_used_again():
    memory = DualMemory(10, k=4, candidates="task", seed=0, selection=Prototypes(space="pixels"))
    feed(memory, 0)
    memory.end_task()
    feed(memory, 1)
    before, state = memory.rows(), memory.state_dict()
    with pytest.raises(UsageError, match="8 rows cannot be pinned: 8 are pinned already, and of 10 rows 10 can be"):
        memory.end_task()
    assert same(memory.rows(), before)
    assert memory.tasks == 1
    assert all(memory.state_dict()["tensors"][name].equal(each) for name, each in state["tensors"].items())
    assert memory.release([0, 1, 77]) == 8
    assert memory.release(0) == 0
    assert memory.size("long") == 0
    memory.end_task()
    assert memory.rows("long")["labels"].unique().tolist() == [2, 3]
    feed(memory, 2)
    assert len(memory) == 10


def test_another_capacity_keeps_prototypes_by_k_and_thins_them_by_rho():
    by_k, by_rho = (
        DualMemory(40, k=3, candidates="task", selection=Prototypes(space="pixels")),
        DualMemory(40, rho=0.5, candidates="task", selection=Prototypes(space="pixels")),
    )
    for memory in (by_k, by_rho):
        feed(memory, 0)
        memory.end_task()
        memory.resize(20)
        assert (memory.capacity, len(memory)) == (20, 20)
    assert (by_k.size("long"), by_rho.size("long")) == (6, 10)
    by_k.resize(6)
    assert by_k.size("short") == 0
    with pytest.raises(UsageError, match="5 rows cannot hold the 6 long-term rows"):
        by_k.resize(5)
    assert by_k.capacity == 6
    by_k.resize(30)
    feed(by_k, 1)
    assert len(by_k) == 30
    fresh = DualMemory(5)
    fresh.resize(7)
    assert fresh.capacity == 7


@pytest.mark.parametrize("policy", ["task-quota", "class-quota"])
def test_policies_that_choose_at_borders(policy):
    memory = DualMemory(32, k=2, short_policy=policy, selection=Prototypes(space="pixels"))
    for task in range(2):
        feed(memory, task)
        memory.end_task(annotate=lambda image: {"logits": torch.ones(len(image), 3)})
        assert memory.size("long") == 4 * (task + 1)
    labels = memory.rows("short")["labels"]
    assert (labels < 2).sum() == pytest.approx((labels >= 2).sum(), abs=0 if policy == "task-quota" else 9)
    assert (memory.rows()["logits"] == 1).all()
    assert set(memory.rows()) == {"images", "labels", "logits", "prototype"}
    with pytest.raises(UsageError, match="call end_task instead"):
        memory.consolidate([0])
    plain = DualMemory.from_config(Native(10, policy=policy))
    feed(plain, 0)
    plain.end_task()
    assert len(plain) == 10


@pytest.mark.parametrize("settings", [
    {"selection": "l1"}, {"selection": "mmd"}, {"selection": Prototypes(dac=None)},
    {"selection": Prototypes(dac=DAC(2, 1))}, {"selection": MEANS}, {"selection": Prototypes(space="pixels")},
    {"selection": Sinkhorn(epsilon=0.3)}, {"rows_per_prototype": 2}, {"candidates": 9},
    {"rho": 0.4, "candidates": "task"},
])  # fmt: skip
def test_settings_of_the_configuration_hold(settings):
    memory = DualMemory(60, **({"k": 2} | settings if "rho" not in settings else settings), seed=4)
    again = DualMemory.from_config(ODEDM(60, **({"k": 2} | settings if "rho" not in settings else settings)), seed=4)
    for each in (memory, again):
        for task in range(2):
            feed(each, task)
            each.end_task(embed=lambda image: image.double())
    assert per_class(memory) == [{"rows_per_prototype": 4, "rho": 6}.get(next(iter(settings)), 2)] * 4
    assert same(memory.rows(), again.rows()), "one configuration, one memory"


@pytest.mark.parametrize("kind", ["uint8 images", "float64 vectors", "half images", "flags"])
@pytest.mark.parametrize("numpy", [True, False])
def test_rows_come_back_as_they_were_given(kind, numpy):
    rng = np.random.default_rng(0)
    image = {
        "uint8 images": rng.integers(0, 255, (30, 1, 5, 5), dtype=np.uint8),
        "float64 vectors": rng.random((30, 7)),
        "half images": rng.random((30, 3, 2, 2)).astype(np.float16),
        "flags": rng.random((30, 9)) < 0.5,
    }[kind]
    image.flags.writeable = False
    label, when, at = np.arange(30, dtype=np.int32) % 3, np.arange(30), rng.random((30, 2))
    given = (
        (image, label, when, at) if numpy else tuple(torch.from_numpy(each.copy()) for each in (image, label, when, at))
    )
    asked = []
    memory = DualMemory(12, k=1)
    memory.add(given[0], given[1], when=given[2], at=given[3])

    def embed(images):
        asked.append(type(images))
        return images.reshape(len(images), -1) * 1.0

    memory.end_task([0, 1], embed=embed)
    rows = memory.rows()
    assert asked == [type(given[0])]
    assert {type(column) for column in rows.values()} == {type(given[0])}
    assert rows["images"].dtype == given[0].dtype
    assert (rows["images"] == given[0][rows["when"]]).all()
    assert (rows["at"] == given[3][rows["when"]]).all()
    assert (rows["labels"] == given[1][rows["when"]]).all()
    memory.add(given[0][:2], given[1][:2].tolist(), when=given[2][:2], at=given[3][:2])


def test_a_module_is_in_evaluation_mode_while_it_is_asked_and_gradients_stay_away():
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.9))
    net[1].eval()
    memory, modes = DualMemory(20, k=1), []
    net.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    image = torch.randn(6, 4, requires_grad=True)
    memory.add(image, torch.zeros(6, dtype=torch.int64))
    memory.end_task(embed=net)
    assert modes == [(False, False)]
    assert (net.training, net[1].training) == (True, False)
    assert not memory.rows()["images"].requires_grad


def test_annotate_gives_prototypes_new_columns():
    memory = DualMemory(20, k=1, selection=Prototypes(space="pixels"))
    feed(memory, 0)
    for given, said in (
        ({"scores": torch.ones(2, 3)}, "annotate gave 'scores', which is no column; there are logits"),
        ({"logits": torch.ones(5, 3)}, "annotate gave 5 entries of 'logits' for 2 images"),
        ({"logits": torch.ones(2, 4)}, r"A row of logits has the shape \[4\]"),
    ):
        with pytest.raises(UsageError, match=said):
            memory.end_task(annotate=lambda image, given=given: given)
        assert memory.size("long") == memory.tasks == 0
    memory.end_task(annotate=lambda image: {"logits": image[:, :3]})
    rows = memory.rows("long")
    assert rows["logits"].equal(rows["images"][:, :3])


def test_a_batch_whose_memory_is_used_again_leaves_what_was_added():
    memory, image = DualMemory(20, k=2, selection=Prototypes(space="pixels")), torch.rand(10, 4)
    memory.add(image, torch.zeros(10, dtype=torch.int64))
    image.fill_(-1)
    memory.end_task()
    assert (memory.rows()["images"] >= 0).all()


GOOD = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
NAN = torch.tensor([[0.0, 0.0], [float("nan"), 0.0]])


@pytest.mark.parametrize(("images", "labels", "columns", "said"), [
    (NAN, [0, 1], {}, "images has a NaN or an infinity in 1 of 2 rows, first in row 1"),
    (GOOD[0], GOOD[1], {"at": [0.0, 1.0, float("inf"), 0.0]}, "at has a NaN or an .* 1 of 4 rows, first in row 2"),
    (torch.zeros(0, 2), [], {}, "images has 0 rows"),
    (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), {}, "images has 0 rows"),
    (torch.zeros(4), GOOD[1], {}, r"vectors \[n, d\] or images"),
    (GOOD[0], torch.zeros(4), {}, "labels must be whole numbers; float64"),
    (GOOD[0], ["a", "b", "c", "d"], {}, "labels must be whole numbers; <U1"),
    (GOOD[0], [True] * 4, {}, "labels must be whole numbers"),
    (GOOD[0], torch.zeros(4, 2, dtype=torch.int64), {}, "one label for each row"),
    (GOOD[0], torch.zeros(3, dtype=torch.int64), {}, "images has 4 rows but labels has 3"),
    (GOOD[0], GOOD[1], {"at": torch.zeros(5)}, "images has 4 rows but at has 5"),
    (GOOD[0], GOOD[1], {"at": 3}, "at must have one entry for each row"),
    (GOOD[0], GOOD[1], {"prototype": GOOD[1]}, "cannot be called 'prototype'"),
    (GOOD[0] * 1j, GOOD[1], {}, "images cannot be of type torch.complex64"),
    ("rows", GOOD[1], {}, "images must hold numbers; it holds str"),
    (np.zeros((4, 2), np.complex64), GOOD[1], {}, "images must hold numbers; it holds complex64"),
    (np.zeros((4, 2), np.uint32), GOOD[1], {}, "cannot be of type"),
])  # fmt: skip
def test_first_rows_that_cannot_be(images, labels, columns, said):
    memory = DualMemory(5)
    with pytest.raises(UsageError, match=said):
        memory.add(images, labels, **columns)
    assert len(memory) == 0
    memory.add(*GOOD)


@pytest.mark.parametrize(("images", "columns", "said"), [
    (torch.zeros(4, 3), {"at": torch.zeros(4)}, r"images has the shape \[3\], and in the first rows it had \[2\]"),
    (GOOD[0], {}, "The column 'at' is missing: the first rows had at"),
    (GOOD[0], {"at": torch.zeros(4), "new": torch.zeros(4)}, "The column 'new' is new: the first rows had at"),
    (GOOD[0].int(), {"at": torch.zeros(4)}, "images holds int32, and in the first rows float32"),
    (GOOD[0], {"at": torch.zeros(4, 1)}, r"A row of at has the shape \[1\]"),
])  # fmt: skip
def test_later_rows_that_are_other_than_the_first(images, columns, said):
    memory = DualMemory(5, k=1)
    memory.add(*GOOD, at=torch.zeros(4))
    before = memory.state_dict()["tensors"]
    with pytest.raises(UsageError, match=said):
        memory.add(images, GOOD[1], **columns)
    assert all(each.equal(before[name]) for name, each in memory.state_dict()["tensors"].items())


def test_calls_that_cannot_be():
    memory = DualMemory(9, k=2)
    assert (len(memory), memory.size("long")) == (0, 0)
    for call in (lambda: memory.sample(3), memory.rows, memory.end_task, lambda: memory.consolidate([0])):
        with pytest.raises(UsageError, match="Nothing was added to this memory yet"):
            call()
    memory.add(*GOOD)
    for call, said in (
        (lambda: memory.sample(3, part="longer"), "Unknown part of a memory 'longer': did you mean 'long'"),
        (lambda: memory.sample(-1), "n must be a whole number, 0 or more"),
        (lambda: memory.size(3), "part must be a name, one of all, short, long; 3 was given"),
        (memory.end_task, "give embed=, a function from images to features"),
        (lambda: memory.end_task(embed=lambda image: image[0]), r"embed must give features \[n, d\]; of 4 images"),
        (lambda: memory.end_task(embed=lambda image: image * torch.nan), "it has diverged"),
        (lambda: memory.end_task(["a"]), "Classes are named by their labels"),
        (lambda: memory.release("a"), "Classes are named by their labels"),
        (lambda: memory.consolidate(True), "Classes are named by their labels"),
        (lambda: memory.resize(-1), "capacity must be a whole number"),
    ):
        with pytest.raises(UsageError, match=said):
            call()
    assert memory.tasks == memory.size("long") == 0
    assert memory.sample(3, part="long")["images"].shape == (0, 2)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: DualMemory(-1), "capacity must be a whole number"),
    (lambda: DualMemory(5, gamma=1.0), "Unknown setting of a live memory 'gamma'"),
    (lambda: DualMemory(5, slection="l2"), "did you mean 'selection'"),
    (lambda: DualMemory(5, **{"distance": "l2"}), r"belongs to the selection: selection=odedm.Prototypes\(…\)"),
    (lambda: DualMemory(5, seed=-1), "seed must be a whole number"),
    (lambda: DualMemory(5, device="nowhere"), "device must be one that torch has"),
    (lambda: DualMemory(5, short_policy="purity"), "The policy 'purity' needs a method's scores"),
    (lambda: DualMemory.from_config(Native(5, policy="herded")), "The policy 'herded' needs a method's scores"),
    (lambda: DualMemory.from_config("odedm"), r"is made of ODEDM\(…\), Reservoir\(…\) or Native\(…\); 'odedm'"),
    (lambda: DualMemory(0), "capacity must be 1 row or more; 0 was given"),
    (lambda: DualMemory(50).resize(0), "capacity must be a whole number, 1 or more"),
    (lambda: DualMemory(50, k=6, candidates=5), "5 candidates per class cannot give 6 prototypes"),
    (lambda: DualMemory(50, rho=1.0, candidates=5), "candidates=5 of a class are more than 0, half of the rows that"),
    (lambda: DualMemory(50, k=1, candidates=5, short_policy="task-quota"), "reads all rows of a task"),
    (lambda: DualMemory(50, k=1, selection=MEANS, rows_per_prototype=2), "With mixup each cluster has one mean image"),
])  # fmt: skip
def test_memories_that_cannot_be(make, said):
    with pytest.raises(UsageError, match=said):
        make()


class Appraising(odedm.Memory):
    """Keeps by the loss of a method's network, which a loop of one's own has not told it."""

    def add(self, rows, probe, *, rng):
        probe.features_and_losses(rows)

    def end_task(self, task, probe, *, rng):
        pass


def test_a_policy_that_needs_a_method_says_so():
    memory = DualMemory(20, k=1, short_policy=Appraising)
    with pytest.raises(UsageError, match=r"asks `view.features_and_losses`, which only a method can answer"):
        memory.add(*GOOD)


def test_labels_are_any_whole_numbers():
    memory = DualMemory(12, rho=0.5, candidates="task", selection=Prototypes(space="pixels"))
    memory.add(torch.rand(30, 2), torch.tensor([-5, 10**12, 7]).repeat(10))
    memory.end_task([10**12, -5])
    assert memory.rows("long")["labels"].tolist() == [10**12] * 3 + [-5] * 3


def test_it_says_what_it_is_in_one_line():
    assert repr(DualMemory(30, k=3)) == "<DualMemory of 30 rows, k=3: 0 short-term, 0 long-term>"
    assert repr(DualMemory.from_config(30)) == "<DualMemory of 30 rows, rho=0.25: 0 short-term, 0 long-term>"
    memory = DualMemory.from_config(Reservoir(3))
    memory.add(*GOOD)
    assert repr(memory) == "<DualMemory of 3 rows: 3 short-term, 0 long-term>"


class Elsewhere(torch.nn.Module):
    """Stands for a network on a GPU: its weights are on another device than the rows."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, device="meta"))

    def forward(self, image):
        assert image.device == self.weight.device, "the rows are where the weights are not"
        return torch.arange(2.0 * len(image)).view(-1, 2)


def test_a_module_gets_the_rows_on_its_own_device():
    memory = DualMemory(20, k=1, seed=0)
    memory.add(torch.rand(12, 3), torch.arange(12) % 2)
    memory.end_task(embed=Elsewhere())
    assert memory.size("long") == 2


def test_bounded_candidates_of_tasks_with_one_class_each():
    """Their pool has a single compartment."""
    plan = {"data": odedm.blobs(per_class=20, classes=3, tasks=3), "method": "er", "batch": 8}
    kept = odedm.train(memory=ODEDM(30, k=2, candidates=5), **plan).memory
    assert kept.class_counts(3)["long"] == [2, 2, 0]


class Draws(torch.utils.data.IterableDataset):
    """Four draws of 8 rows of a memory."""

    def __init__(self, memory):
        self.memory = memory

    def __iter__(self):
        for _ in range(4):
            yield tuple(self.memory.sample(8)["images"][:, 0].tolist())


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_loader_draw_other_rows_in_each_worker_and_epoch_and_the_same_by_seed(start):
    memory = DualMemory(500)
    memory.add(torch.arange(500.0)[:, None].expand(-1, 2), torch.arange(500) % 3)
    loaders = [
        torch.utils.data.DataLoader(
            Draws(memory),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=start,
            generator=torch.Generator().manual_seed(5),
        )
        for _ in range(2)
    ]
    epochs = [list(loaders[0]), list(loaders[0])]
    drawn = [str(draw) for epoch in epochs for draw in epoch]
    assert len(drawn) == len({*drawn}) == 16
    assert sorted(map(str, loaders[1])) == sorted(drawn[:8])
    memory.sample(8)  # the memory's own draws go on
