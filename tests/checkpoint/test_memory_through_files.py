"""Any sequence of what memories do, with a save and a load between any two of them: as without, bit for bit."""

import copy
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
from equal_states import equal_states
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm.checkpoint.checkpoint import Meta, Position, load_latest, restore, save
from odedm.checkpoint.state_tree import state_tree
from odedm.core.registry import POLICIES
from odedm.core.rows import ColumnSpec, MemoryPart, Task
from odedm.core.timer import Timer
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.dual import DualBuffer
from odedm.memory.quotas import FixedQuota
from odedm.selection.distance import L2
from odedm.selection.selector import PrototypeSelector

FIELDS = (
    ColumnSpec("image", (8,), torch.uint8),
    ColumnSpec("label", dtype=torch.int64),
    ColumnSpec("task", dtype=torch.int64),
    ColumnSpec("index", dtype=torch.int64),
    ColumnSpec("logits", (4,)),
)
TASKS, PER_TASK = 3, 2
META = Meta({"test": True}, "none")


class Answers:
    """A learner that answers by the rows alone."""

    def embed(self, image):
        return image.float()

    def annotate(self, rows):
        return {"logits": rows["index"].float()[:, None].expand(-1, 4).clone()}

    def features_and_losses(self, rows):
        return rows["image"].float(), rows["image"].float().mean(1) / 100

    def gradients(self, rows, *, of="head", then=None):
        noise = rows["image"].float() - rows["label"].float()[:, None]
        return noise if then is None else then(noise)

    def class_weights(self):
        return torch.eye(TASKS * PER_TASK, 8)

    def training_loss(self):
        return torch.tensor(1.5)


class Bench:
    """A memory, its generators, and where in the stream it is."""

    def __init__(self, kind, capacity):
        policy = POLICIES[kind.removeprefix("dual ").removeprefix("bounded ")].load()
        rng = {name: torch.Generator().manual_seed(number) for number, name in enumerate(("keys", "draw", "border"))}
        memory = policy(capacity, FIELDS)
        if kind.startswith(("dual", "bounded")):
            bounded = kind.startswith("bounded")
            pool_rng = torch.Generator().manual_seed(8)
            pool = ClassReservoirPool(3, FIELDS[:4], rng=pool_rng, compartments=PER_TASK) if bounded else None
            chooser = PrototypeSelector(1, distance=L2(), dac=None)
            dual_rng = torch.Generator().manual_seed(9)
            memory = DualBuffer(memory, chooser, pool, FixedQuota(1), rng=dual_rng, timer=Timer(), in_place=True)
        self.roots = {"memory": memory, "rng": rng, "place": {"task": 0, "row": 0, "begun": False}}
        self.seen = []

    def task(self):
        index, rows = self.roots["place"]["task"], 24
        number = torch.arange(rows) + 100 * index
        image = (number[:, None] * torch.arange(1, 9) % 251).to(torch.uint8)
        label = number % PER_TASK + index * PER_TASK
        columns = {"image": image, "label": label, "task": torch.full((rows,), index), "index": number}
        return Task(index, TASKS, (index * PER_TASK, index * PER_TASK + 1), columns)

    def act(self, action, amount):
        memory, rng, place = self.roots["memory"], self.roots["rng"], self.roots["place"]
        if place["task"] == TASKS:
            return
        if not place["begun"]:
            memory.begin_task(self.task())
            place["begun"] = True
        if action == "add":
            rows = {name: column[place["row"] : place["row"] + amount] for name, column in self.task().rows.items()}
            place["row"] += len(rows["label"])
            if len(rows["label"]):
                memory.add({**rows, **Answers().annotate(rows)}, Answers(), rng=rng["keys"])
        elif action == "sample":
            for part in MemoryPart:
                self.note(memory.sample(amount, part=part, rng=rng["draw"]))
        elif action == "pin":
            host = getattr(memory, "buffer", memory)
            amount = min(amount, 2, host.short_capacity)
            rows = {name: column[:amount] for name, column in self.task().rows.items()}
            if amount:
                host.pin({**rows, **Answers().annotate(rows), "prototype": torch.arange(amount)})
        elif action == "end task":
            task = self.task()
            fits = getattr(memory, "buffer", memory).short_capacity >= PER_TASK
            if fits:
                memory.end_task(task, Answers(), rng=rng["border"])
            place.update(task=place["task"] + 1, row=0, begun=False)
        self.note(memory.rows())

    def note(self, rows):
        self.seen.append({name: column.clone() for name, column in rows.items()})


def through_files(bench, kind, capacity, folder, step):
    save(folder, state_tree(bench.roots), META, Position(0, step, 0))
    fresh = Bench(kind, capacity)
    checkpoint = load_latest(folder, META)
    assert checkpoint.position.step == step
    restore(fresh.roots, checkpoint)
    fresh.seen = bench.seen
    return fresh


KINDS = [*POLICIES, *(f"dual {policy}" for policy in POLICIES), "bounded reservoir", "bounded purity"]
DEEDS = st.sampled_from(["add", "add", "add", "sample", "pin", "end task"])
ACTIONS = st.tuples(DEEDS, st.integers(0, 9), st.booleans())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(capacity=st.integers(0, 12), sequence=st.lists(ACTIONS, min_size=1, max_size=14))
def test_saving_and_loading_between_any_two_actions_changes_nothing(kind, capacity, sequence):
    straight, stopped = Bench(kind, capacity), Bench(kind, capacity)
    with tempfile.TemporaryDirectory() as name:
        for step, (action, amount, stop) in enumerate(sequence):
            straight.act(action, amount)
            stopped.act(action, amount)
            if stop:
                stopped = through_files(stopped, kind, capacity, Path(name), step)
    for bench in (straight, stopped):
        if hasattr(bench.roots["memory"], "timer"):
            bench.roots["memory"].timer.seconds.clear()
    assert equal_states(state_tree(straight.roots), state_tree(stopped.roots)) == []
    assert len(straight.seen) == len(stopped.seen)
    for one, other in zip(straight.seen, stopped.seen, strict=True):
        assert all(one[name].equal(column) for name, column in other.items())


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda roots: pickle.loads(pickle.dumps(roots))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_goes_on_as_the_memory_itself(kind, way):
    """What two attributes share, a copy must share too: else rows of a copy get the labels of others."""
    straight = Bench(kind, 12)
    for _ in range(3):
        straight.act("add", 8)
    straight.act("end task", 0)
    copied = Bench(kind, 12)
    copied.roots, copied.seen = way(straight.roots), copy.deepcopy(straight.seen)
    for bench in (straight, copied):
        for action in ("add", "sample", "add", "add", "end task", "add", "pin", "sample"):
            bench.act(action, 8)
    for one, two in zip(straight.seen, copied.seen, strict=True):
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(one["image"], (one["index"][:, None] * torch.arange(1, 9) % 251).to(torch.uint8))
