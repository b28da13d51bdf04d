"""The rows of both parts after each task of a run under `ODEDM.paper`, class by class, exactly."""

from collections import Counter

import numpy as np
import pytest

import odedm
from oracles.allocation import allocation, imbalanced
from oracles.prototype_count import prototype_count


def stream(tasks, classes, rows):
    """Vectors of tasks · classes classes, `rows` of each but the last few, which have 3."""
    labels = np.arange(tasks * classes).repeat([rows] * (tasks * classes - 3) + [3] * 3)
    labels = np.random.default_rng(0).permutation(labels)
    points = np.random.default_rng(1).normal(size=(len(labels), 4)).astype(np.float32) + labels[:, None]
    return points, labels


@pytest.mark.parametrize("setting", ["standard", "imbalanced"])
@pytest.mark.parametrize(
    ("tasks", "classes", "rows", "capacity", "rho"),
    [(5, 2, 30, 60, 0.25), (5, 2, 40, 100, 0.5), (5, 4, 8, 96, 0.75), (10, 1, 30, 90, 0.25), (10, 2, 16, 120, 0.75)],
)
def test_every_task_leaves_the_papers_sizes(setting, tasks, classes, rows, capacity, rho):
    points, labels = stream(tasks, classes, rows)
    data = odedm.from_arrays(points, labels, tasks=tasks, test=(points[:200], labels[:200]))
    memory = odedm.ODEDM.paper(capacity, rho)
    counts = odedm.train(data, method="er", memory=memory, imbalance=setting, batch=10).result.class_counts
    kept = np.ones(len(labels), bool) if setting == "standard" else np.array(imbalanced(labels.tolist()))
    amount = Counter(labels[kept].tolist())
    by_task = [{c: amount[c] for c in range(task * classes, (task + 1) * classes)} for task in range(tasks)]
    expected = allocation(capacity, prototype_count(rho, capacity, tasks, classes), by_task)
    for sizes, (short, long) in zip(counts, expected, strict=True):
        assert sizes["long"] == [long.get(c, 0) for c in range(tasks * classes)]
        assert sum(sizes["short"]) == short


@pytest.mark.parametrize(("capacity", "k"), [(40, 3), (25, 1), (16, 2), (200, 9)])
def test_a_memory_of_ones_own_has_them_too(capacity, k):
    memory = odedm.DualMemory.from_config(odedm.ODEDM.paper(capacity, k=k), seed=3)
    tasks = [{2 * task: 11, 2 * task + 1: 7} for task in range(5)]
    for number, (classes, sizes) in enumerate(zip(tasks, allocation(capacity, k, tasks), strict=True)):
        labels = np.repeat(list(classes), list(classes.values()))
        points = np.random.default_rng(number).random((len(labels), 6)).astype(np.float32)
        for part in np.array_split(np.arange(len(labels)), 4):
            memory.add(points[part], labels[part])
            assert len(memory) <= capacity
        if number < 4:
            memory.end_task(embed=lambda rows: rows)
        short, long = sizes
        assert memory.size("short") == short
        assert Counter(memory.rows("long")["labels"].tolist()) == long
