"""For tests of meta-learning methods: a replay that always gives the same rows, tasks of two classes, float64 nets."""

import torch
from torch.func import functional_call
from torch.nn import functional as F

from odedm import Task
from odedm.core.rows import count, take
from odedm.nets.small import MLP, SmallCNN

CLASSES = 6


class FixedReplay:
    """Hands out the same rows at every draw, and counts the draws."""

    def __init__(self, past=None, auxiliary=None, gamma=1.0):
        self.past, self.long, self.gamma, self.asked = past, auxiliary, gamma, []

    def __bool__(self):
        return self.past is not None

    def __call__(self, n=6):
        self.asked.append(n)
        return take(self.past, torch.arange(min(n, count(self.past)), device=self.past["label"].device))

    def long_term(self):
        return self.long


def task(index):
    return Task(index, CLASSES // 2, (2 * index, 2 * index + 1), {})


def rows(seed, tasks, shape=(5,)):
    """One row of each listed task, random label within it."""
    rng = torch.Generator().manual_seed(seed)
    index = torch.tensor(tasks)
    x = torch.randn(len(tasks), *shape, generator=rng, dtype=torch.float64)
    y = 2 * index + torch.randint(0, 2, (len(tasks),), generator=rng)
    return {"image": x, "input": x, "label": y, "task": index, "index": torch.arange(len(tasks))}


def mlp():
    torch.manual_seed(0)
    return MLP((5,), CLASSES, width=7).double()


def cnn():
    torch.manual_seed(0)
    return SmallCNN((1, 8, 8), CLASSES, width=3).double()


NETS = {"mlp": (mlp, (5,)), "cnn": (cnn, (1, 8, 8))}


def flat(tensors):
    return torch.cat([each.detach().flatten() for each in tensors])


def forward(net, weights, x):
    """Logits under a dict of weights; copies of the buffers take the changes."""
    return functional_call(net, {**weights, **{k: b.clone() for k, b in net.named_buffers()}}, (x,))


def leaves(net):
    return {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}


def adapted(net, weights, rates, x, y, low, high, clip, second_order=True):
    """One inner step on the classes [low, high), by unrolled differentiation; rates is a dict or a number."""
    loss = F.cross_entropy(forward(net, weights, x)[:, low:high], y - low)
    slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    if not second_order:
        slopes = [slope.detach() for slope in slopes]
    steps = dict(zip(weights, slopes, strict=True))
    rate = rates if isinstance(rates, dict) else dict.fromkeys(weights, rates)
    return {name: weights[name] - rate[name] * steps[name].clamp(-clip, clip) for name in weights}
