"""A method, a memory and a replay that are stepped by hand as the loop does, in any precision."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from odedm import ColumnSpec, Task
from odedm.core.rng import generator
from odedm.memory.reservoir import ReservoirBuffer
from odedm.nets.small import MLP, SmallCNN
from odedm.stream.augment import Transform
from odedm.training.model_view import MethodView
from odedm.training.replay import MemoryReplay

CLASSES = 4
SHAPE = (1, 8, 8)
PLAIN = Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))


def batch_of(seed, n=6, classes=(0, 1, 2, 3)):
    """Random images, the same for the same seed."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *SHAPE, generator=rng, dtype=torch.float64)
    y = torch.tensor(classes)[torch.randint(0, len(classes), (n,), generator=rng)]
    task = torch.full_like(y, classes[0] // 2)
    return {"image": x, "input": x, "label": y, "task": task, "index": torch.arange(n) + 100 * seed}


def task_of(index, n=10, total=2):
    """Random images of two classes."""
    classes = (2 * index, 2 * index + 1)
    rows = batch_of(50 + index, n, classes)
    return Task(index, total, classes, {name: column for name, column in rows.items() if name != "input"})


def mlp():
    """A net without BatchNorm, the same every time, in float64."""
    torch.manual_seed(0)
    return MLP(SHAPE, CLASSES, width=8).double()


def cnn():
    """A net with BatchNorm whose scales and shifts are no round numbers, in float64."""
    torch.manual_seed(0)
    net = SmallCNN(SHAPE, CLASSES, width=4).double()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return net


class Bench:
    """One method on one net with one memory."""

    def __init__(
        self, kind, *, net=None, policy=ReservoirBuffer, capacity=12, draw=6, transform=PLAIN, retrieval=None, **options
    ):
        self.net = (net or mlp()).train()
        self.method = kind(net=self.net, draw=draw, **options)
        numbers = [ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]
        own = [replace(field, dtype=torch.float64) for field in self.method.fields()]
        self.memory = policy(capacity, [ColumnSpec("image", SHAPE, torch.float64), *numbers, *own])
        self.probe = MethodView(self.method, transform)
        self.replay = MemoryReplay(
            self.memory,
            transform,
            mode="auxiliary",
            draw=draw,
            gamma=1.0,
            rng=lambda name: generator(0, name),
            retrieval=retrieval,
            method=self.method,
        )
        self.keys, self.choice = generator(0, "memory"), generator(0, "consolidation")

    def step(self, batch):
        self.replay.begin_step(batch)
        stored = self.method.observe(batch, self.replay)
        self.replay.end_step()
        raw = {name: column for name, column in batch.items() if name != "input"}
        self.memory.add({**raw, **stored}, self.probe, rng=self.keys)
        return stored

    def end_task(self, task):
        self.memory.end_task(task, self.probe, rng=self.choice)
        self.method.end_task(task, self.replay)

    def weights(self):
        return flat(self.net.parameters())

    def state(self):
        return {name: value.clone() for name, value in self.net.state_dict().items()}


def flat(tensors):
    return torch.cat([each.detach().flatten() for each in tensors])


def sgd(lr, batches, net=None):
    """The weights after plain SGD on cross-entropy."""
    net = (net or mlp()).train()
    for batch in batches:
        loss = F.cross_entropy(net(batch["input"]), batch["label"])
        gradient = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for weight, slope in zip(net.parameters(), gradient, strict=True):
                weight.sub_(lr * slope)
    return flat(net.parameters())


def same(first, second):
    return all(first[name].equal(second[name]) for name in first)
