"""Seeded k-means that gives the same clusters for the same draws on every device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from odedm.errors import UsageError

GRAM_BYTES = 1 << 28
"""Largest matrix of inner products that seeding may hold; beyond it they are made row by row."""

Start = Callable[[Tensor, int, torch.Generator], Tensor]
"""Points [n, d], a number of clusters k and a generator in, starting centroids [k, d] out."""


class Clusters(NamedTuple):
    """The cluster of each point [n], the clusters' means [k, d], and the summed squared distance to them."""

    label: Tensor
    centroid: Tensor
    inertia: float


def kmeans(
    x: Tensor,
    k: int,
    *,
    rng: torch.Generator,
    start: Start | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> Clusters:
    """Lloyd's algorithm on points `x` [n, d] from the centroids that `start` gives (default: `plus_plus`).

    With k distinct points or fewer each of them is its own centroid, so there are exactly as many clusters as
    distinct points. A cluster that runs empty moves to a point that is farthest from its centroid. It stops
    when no label changes or the centroids move less than `tolerance` times the mean variance (squared).

    >>> points = torch.tensor([[0.0], [1.0], [9.0], [9.5]])
    >>> clusters = kmeans(points, 2, rng=torch.Generator().manual_seed(0))
    >>> sorted(clusters.centroid.flatten().tolist()), clusters.inertia
    ([0.5, 9.25], 0.625)
    """
    check_points(x, k)
    few = _few_distinct(x, k)
    if few is not None:
        return few
    # distances come from inner products, so the origin must be near the points or they cancel
    origin = x.mean(0)
    x = x - origin
    square = (x * x).sum(1)
    centroid = (start or plus_plus)(x + origin, k, rng) - origin
    settled = tolerance * float(x.var(0, unbiased=False).mean())
    label: Tensor | None = None
    for _ in range(iterations):
        nearest, assigned = _assign(x, centroid)
        if label is not None and torch.equal(assigned, label):
            break
        label = assigned
        size, total = _sums(x, label, len(centroid))
        moved = total / size.clamp(min=1)[:, None]
        empty = (size == 0).nonzero().flatten()
        if len(empty):
            moved[empty] = x[(nearest + square).topk(len(empty)).indices]
            label = None  # the newcomers have no points yet, so an equal labelling would be no fixed point
        shift = float(((moved - centroid) ** 2).sum())
        centroid = moved
        if label is not None and shift <= settled:
            break
    nearest, label = _assign(x, centroid)
    inertia = float((nearest + square).clamp(min=0).sum())
    used, label = label.unique(return_inverse=True)  # points closer than the arithmetic resolves share a cluster
    return Clusters(label, centroid[used] + origin, inertia)


def plus_plus(x: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """Greedy k-means++: k of the points `x` [n, d] as starting centroids [k, d].

    Each next point is the best of 2 + log k drawn with probability proportional to the squared distance to the
    points taken so far. Draws are an exponential race with noise from the CPU generator: no cumulative sum and
    no `multinomial`, whose results depend on the device.

    >>> points = torch.tensor([[0.0], [0.0], [8.0], [8.0]])
    >>> sorted(plus_plus(points, 2, torch.Generator().manual_seed(3)).flatten().tolist())
    [0.0, 8.0]
    """
    check_points(x, k)
    n, k = len(x), min(k, len(x))
    y = x - x.mean(0)
    square = (y * y).sum(1)
    draws = min(n, 2 + int(math.log(k)))
    # one matrix product pays when the rows asked for one by one would come near its cost
    whole = n * n * x.element_size() <= GRAM_BYTES and k * draws > n // 8
    gram = y @ y.T if whole else None

    def distances(index: Tensor) -> Tensor:
        inner = y[index] @ y.T if gram is None else gram[index]
        return torch.add(square + square[index, None], inner, alpha=-2).clamp_(min=0)

    def noise() -> Tensor:
        # a draw of exactly zero, one in 16 million, would divide to a NaN
        return torch.empty(n).exponential_(generator=rng).clamp_(min=1e-30).to(x.device, x.dtype)

    taken = [noise().argmin()[None]]
    far = distances(taken[0])[0]
    for _ in range(1, k):
        far[taken[-1]] = 0.0  # exactly: rounding must not let a point be drawn twice
        candidate = (far / noise()).topk(draws).indices
        closer = torch.minimum(distances(candidate), far)
        best = closer.sum(1).argmin()
        far = closer[best]
        taken.append(candidate[best][None])
    return x[torch.cat(taken)]


def check_points(x: Tensor, k: int) -> None:
    """Refuse points that cannot be clustered.

    >>> check_points(torch.zeros(3, 2), 1)
    """
    if x.dim() != 2 or not x.is_floating_point():
        raise UsageError(f"Points must be a float tensor [n, d]; {x.dtype} {list(x.shape)} was given.")
    if len(x) == 0:
        raise UsageError("There are no points to cluster: 0 rows were given, at least 1 is needed.")
    if k < 1:
        raise UsageError(f"The number of clusters must be 1 or more; {k} was given.")


def _few_distinct(x: Tensor, k: int) -> Clusters | None:
    """The distinct points as centroids when there are at most k of them."""
    # an integer hash of each row's bits rules the common case out without sorting rows of d numbers
    bits = (x + 0.0).contiguous().view(torch.int64 if x.element_size() == 8 else torch.int32)  # -0.0 + 0.0 is 0.0
    weight = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=torch.Generator().manual_seed(0)) | 1
    if len(x) > k and len((bits.long() * weight.to(x.device)).sum(1).unique()) > k:
        return None
    point, label = torch.unique(x, dim=0, return_inverse=True)
    return Clusters(label, point, 0.0) if len(point) <= k else None


def _assign(x: Tensor, centroid: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest centroid less |x|² [n], and that centroid [n]."""
    score = torch.addmm((centroid * centroid).sum(1), x, centroid.T, alpha=-2)
    nearest, label = score.min(1)
    return nearest, label


def _sums(x: Tensor, label: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """How many points each cluster has [k] and their sum [k, d]."""
    size = torch.bincount(label, minlength=k).to(x.dtype)
    if x.device.type == "cpu":
        return size, x.new_zeros(k, x.shape[1]).index_add_(0, label, x)
    # elsewhere index_add_ adds with atomics in any order: a product with the one-hot labels repeats
    member = x.new_zeros(k, len(x)).scatter_(0, label[None], 1.0)
    return size, member @ x
