"""Consolidation as one writes it with numpy and without a library: what the library's own is measured against.

Loops over centroids, over clusters and over pairs. What would take minutes is timed on a few of its parts and
multiplied by how many there are; `Stopwatch.estimated` says so. Where a later step needs what was only timed in part
(which clusters are closest), it is asked of the library, outside the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from odedm.selection.dac import closest_subset
from odedm.selection.distance import Sinkhorn

Array = NDArray[Any]
Item = TypeVar("Item")

PARTS = 3
"""Parts of each kind that are timed where all would take too long."""


class Stopwatch:
    """Seconds, by a clock, of what was done, and of what was done in part and multiplied."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds, self.estimated, self.clock = 0.0, False, clock

    def whole(self, work: Callable[[], Item]) -> Item:
        """Time all of it."""
        began = self.clock()
        result = work()
        self.seconds += self.clock() - began
        return result

    def some(self, items: Sequence[Any], work: Callable[..., object], parts: int = PARTS) -> None:
        """Time some of it, evenly spread, for all."""
        chosen = items if len(items) <= parts else [items[i] for i in np.linspace(0, len(items) - 1, parts).astype(int)]
        began = self.clock()
        for item in chosen:
            work(*item)
        self.seconds += (self.clock() - began) * len(items) / max(1, len(chosen))
        self.estimated |= len(chosen) < len(items)


def consolidate(
    x: Array,
    k: int,
    distance: str,
    dac: tuple[int, int] | None,
    iterations: Callable[[Array, int], int],
    clock: Callable[[], float] = time.process_time,
) -> Stopwatch:
    """Choose k rows of `x` [n, d]: reduce, centre, select. `iterations` says how many k-means takes, if not all run."""
    watch, rng, whole = Stopwatch(clock), np.random.default_rng(0), x
    clusters, depth = dac or (0, 0)
    for _ in range(depth):
        if len(x) <= clusters:
            break
        label, _ = watch.whole(lambda x=x: kmeans(x, clusters, rng))  # type: ignore[misc]
        parts = [x[label == c] for c in range(clusters)]
        pairs = [*combinations(parts, 2)]
        watch.some(pairs, cloud_cost)
        far = {
            (p, q): float(Sinkhorn().between_sets(torch.from_numpy(parts[p]), torch.from_numpy(parts[q])))
            for p, q in combinations(range(clusters), 2)
        }
        best = closest_subset(far, [len(part) for part in parts], k)
        x = np.concatenate([parts[c] for c in best]) if best else x
    if k <= 10:
        _, centre = watch.whole(lambda: kmeans(x, k, rng))
    else:
        centre = x[rng.choice(len(x), min(k, len(x)), replace=False)]
        watch.some([(x, centre)] * k, lambda x, c: seed_step(x, c[:PARTS], rng))
        watch.some([(x, centre)] * iterations(x, k), lloyd_step, 1)
    if distance == "l2":
        watch.some([(x, c) for c in centre], lambda x, c: np.linalg.norm(x - c, axis=1).argmin())
        return watch
    ground = watch.whole(lambda: profile_cost(whole))
    s, q = (v.clip(0) / v.clip(0).sum(1, keepdims=True) for v in (x.astype(float), centre.astype(float)))
    some = rng.integers(0, [len(s), len(q)], (4 * PARTS, 2))
    pairs = [(s[i], q[j], ground) for i, j in some]
    began = watch.seconds
    watch.some(pairs, histogram_cost, len(pairs))
    watch.seconds = began + (watch.seconds - began) * len(s) * len(q) / len(pairs)
    watch.estimated = True
    return watch


def kmeans(x: Array, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Lloyd's algorithm from k-means++ until the centres move less than a ten-thousandth of the variance."""
    centre = x[rng.integers(len(x))][None]
    while len(centre) < k:
        centre = np.vstack([centre, seed_step(x, centre, rng)])
    for _ in range(100):
        label, moved = lloyd_step(x, centre)
        shift = ((moved - centre) ** 2).sum()
        centre = moved
        if shift < 1e-4 * x.var(0).mean():
            break
    return label, centre


def seed_step(x: Array, centre: Array, rng: np.random.Generator) -> Array:
    """The next centre of k-means++."""
    far = np.min([((x - c) ** 2).sum(1) for c in centre[-1:]], axis=0)
    chosen: Array = x[rng.choice(len(x), p=far / far.sum())]
    return chosen


def lloyd_step(x: Array, centre: Array) -> tuple[Array, Array]:
    """The nearest centre of each row, and the means of the rows of each."""
    label = np.stack([((x - c) ** 2).sum(1) for c in centre], axis=1).argmin(1)
    means = [x[label == c].mean(0) if (label == c).any() else centre[c] for c in range(len(centre))]
    return label, np.array(means)


def cloud_cost(x: Array, y: Array) -> float:
    """Entropic transport between two clouds."""
    cost = np.stack([((y - row) ** 2).sum(1) for row in x]).astype(float)
    return sinkhorn(np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y)), cost, 0.05)


def profile_cost(x: Array) -> Array:
    """What it costs to move mass between dimensions: squared distances of their standardised activations."""
    z = ((x - x.mean(0)) / (x.std(0) + 1e-12)).T
    return np.stack([((z - row) ** 2).sum(1) for row in z]) / len(x)


def histogram_cost(a: Array, b: Array, ground: Array) -> float:
    """Entropic transport between two rows read as histograms."""
    return sinkhorn(a, b, ground, 0.1)


def sinkhorn(a: Array, b: Array, cost: Array, epsilon: float) -> float:
    """Textbook scaling in float64 until the sums are right to 1e-4."""
    kernel, v = np.exp(-cost / (epsilon * cost.mean())), np.ones(len(b))
    for _ in range(500):
        u = a / (kernel @ v + 1e-300)
        v = b / (u @ kernel + 1e-300)
        if np.abs(u * (kernel @ v) - a).sum() < 1e-4:
            break
    return float((u[:, None] * kernel * v * cost).sum())
