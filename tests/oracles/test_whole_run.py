"""A run of `odedm.train` under `ODEDM.paper` with a network whose features stay: its long-term part is the oracle's."""

import numpy as np
import pytest
import torch

import odedm
from odedm import MemoryPart
from oracles.allocation import allocation
from oracles.consolidation import row_costs
from oracles.points import embedding, pictures
from oracles.selection import price
from oracles.watched import numbers_of, watch

ROWS, TASKS, CAPACITY, RHO, K = 60, 5, 120, 0.5, 8


class Fixed(torch.nn.Module):
    """The oracle's embedding of pictures, as layers without a weight to learn, and a head that learns."""

    def __init__(self, classes=10, width=48):
        super().__init__()
        weight = np.random.default_rng(0).normal(size=(784, width)) / 28
        self.register_buffer("weight", torch.from_numpy(weight.astype(np.float32)))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        flat = x.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True, unbiased=False)
        return self.head((flat @ self.weight).relu())


def stream():
    images, labels = pictures()
    first = np.sort(np.concatenate([np.flatnonzero(labels == label)[:ROWS] for label in range(10)]))
    return images[first], labels[first]


@pytest.mark.parametrize("method", ["er", "derpp"])
def test_the_long_term_part_is_what_the_oracle_keeps(method):
    images, labels = stream()
    data = odedm.from_arrays(images, labels, tasks=TASKS, test=(images[:100], labels[:100]))
    plan = {"method": method, "net": Fixed(), "batch": 20, "seed": 5}
    watched, classes, _ = watch(CAPACITY, RHO)
    odedm.train(data, memory=watched, **plan)
    outcome = odedm.train(data, memory=odedm.ODEDM.paper(CAPACITY, RHO), **plan)

    sizes = allocation(CAPACITY, K, [{2 * task: ROWS, 2 * task + 1: ROWS} for task in range(TASKS)])
    for counts, (short, long) in zip(outcome.result.class_counts, sizes, strict=True):
        assert sum(counts["short"]) == short
        assert counts["long"] == [long.get(label, 0) for label in range(10)]

    long = outcome.memory.rows(MemoryPart.LONG)
    assert long["prototype"].tolist() == list(range(K)) * 8
    stored = numbers_of(images, long["image"].squeeze(1).numpy())
    points = embedding(images).astype(np.float64)
    for label, seen in enumerate(classes):
        mine = np.flatnonzero(labels == label)
        # the same rows to choose from, as the oracle embeds them
        gaps = np.abs(points[mine][:, None] - seen.candidates[None]).max(2)
        place = gaps.argmin(0)
        assert sorted(place) == list(range(ROWS))
        assert gaps.min(0).max() < 1e-4
        kept = mine[place[numbers_of(seen.candidates, seen.kept)]]
        cost = row_costs(points[mine], np.searchsorted(mine, kept), seen.centres)
        chosen = stored[label * K : (label + 1) * K]
        factors, margins = price(cost, [kept.tolist().index(row) for row in chosen])
        assert factors.max() <= 1.01
        assert (factors[margins > 1.002] == 1).all()
    assert len(classes) == 8
