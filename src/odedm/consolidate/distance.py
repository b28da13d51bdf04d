"""The distances a memory can be consolidated by: row to centroid, and cloud to cloud."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from odedm.consolidate.sinkhorn.transport import Sinkhorn, squares
from odedm.core.errors import UsageError
from odedm.core.stored_names import stored

__all__ = ["DISTANCES", "L1", "L2", "MMD", "CentroidMMD", "Distance", "Sinkhorn"]

MEDIAN_ROWS = 2000
"""Rows at most whose median distance is MMD's bandwidth."""

BLOCK = 1 << 24
"""Entries of a distance matrix held at a time when only its mean is wanted."""


class Distance(Protocol):
    """How far rows are from centroids and clouds from each other, once fitted to a class's candidates.

    Two methods more are used where a distance has them: `nearest(x, y, per)`, which chooses as all `pairs` would with
    less work, and `to_clusters(x, label, k)` -> [n, k], of rows to whole clusters in place of their centroids.
    """

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> Distance:
        """The distance fitted to `candidates` [n, d]; `image_shape` is given when rows are flattened images."""
        ...

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of rows to centroids: [n, d], [k, d] -> [n, k]."""
        ...

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Distance of two clouds: [n, d], [m, d] -> a number (0-d)."""
        ...


@stored("distance/l1")
@dataclass(frozen=True)
class L1:
    """City-block distance; between clouds the mean over all cross pairs.

    >>> L1().pairs(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 2.0]])).tolist()
    [[3.0]]
    """

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> L1:
        """Nothing to fit."""
        del candidates, image_shape
        return self

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum of absolute differences: [n, d], [k, d] -> [n, k]."""
        return torch.cdist(x, y, p=1.0)

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean over all cross pairs: [n, d], [m, d] -> 0-d."""
        return _mean(self.pairs, x, y)


@stored("distance/l2")
@dataclass(frozen=True)
class L2:
    """Euclidean distance; between clouds the mean over all cross pairs.

    >>> L2().pairs(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> L2:
        """Nothing to fit."""
        del candidates, image_shape
        return self

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Length of the difference: [n, d], [k, d] -> [n, k]."""
        return squares(x, y).sqrt_()

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean over all cross pairs: [n, d], [m, d] -> 0-d."""
        return _mean(self.pairs, x, y)


@stored("distance/mmd-centroid")
@dataclass(frozen=True)
class CentroidMMD:
    """Maximum mean discrepancy (squared, biased) with the kernel exp(−|x−y|²/2σ²), of rows to centroids.

    σ (`bandwidth`) is the median distance among a class's candidates unless given. Between single points the
    distance is 2 − 2 exp(−|x−y|²/2σ²), so it ranks rows as L2 does; between clouds it does not.

    >>> CentroidMMD(bandwidth=1.0).pairs(torch.zeros(1, 2), torch.zeros(1, 2)).tolist()
    [[0.0]]
    """

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise UsageError(f"MMD's bandwidth must be above 0, or None for the median; {self.bandwidth} was given.")

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> Self:
        """Fit the bandwidth to `candidates` [n, d]: the median distance of at most `MEDIAN_ROWS` evenly spaced rows."""
        del image_shape
        if self.bandwidth is not None:
            return self
        some = candidates[:: max(1, math.ceil(len(candidates) / MEDIAN_ROWS))]
        apart = squares(some, some)[torch.ones(len(some), len(some), dtype=torch.bool).triu(1).to(some.device)]
        median = float(apart.median().sqrt()) if len(apart) else 0.0
        return replace(self, bandwidth=median if median > 0 else 1.0)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """2 − 2 k(x, y): [n, d], [k, d] -> [n, k]."""
        fitted = self.prepare(x, None)
        return fitted._kernel(x, y).mul_(-2).add_(2).clamp_(min=0)

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean k(x, x') + mean k(y, y') − 2 mean k(x, y): [n, d], [m, d] -> 0-d."""
        kernel = self.prepare(torch.cat([x, y]), None)._kernel
        return (_mean(kernel, x, x) + _mean(kernel, y, y) - 2 * _mean(kernel, x, y)).clamp(min=0)

    def _kernel(self, x: Tensor, y: Tensor) -> Tensor:
        width = self.bandwidth or 1.0
        return squares(x, y).div_(-2 * width * width).exp_()


@stored("distance/mmd")
@dataclass(frozen=True)
class MMD(CentroidMMD):
    """The same, of a row to the points of a cluster: its distance to their mean in the kernel's space.

    That mean is no centroid: a row in a dense part of a cluster is nearer than one at the middle of two parts. So it
    does not rank rows as L2 does.

    >>> x = torch.tensor([[-1.0], [1.0], [0.0]])
    >>> MMD(bandwidth=0.5).to_clusters(x, torch.zeros(3, dtype=torch.int64), 1).argmin().item()
    2
    """

    def to_clusters(self, x: Tensor, label: Tensor, k: int) -> Tensor:
        """1 − 2 mean k(x, c) + mean k(c, c') over a cluster's points c: rows [n, d] in clusters [n] -> [n, k]."""
        fitted = self.prepare(x, None)
        member = torch.nn.functional.one_hot(label.long(), k).to(x.dtype)
        member = member / member.sum(0).clamp(min=1)
        to_mean = torch.cat([fitted._kernel(part, x) @ member for part in x.split(max(1, BLOCK // len(x)))])
        return (1 - 2 * to_mean + (to_mean * member).sum(0)).clamp_(min=0)


DISTANCES: dict[str, Distance] = {
    "l1": L1(),
    "l2": L2(),
    "mmd": MMD(),
    "mmd-centroid": CentroidMMD(),
    "sinkhorn": Sinkhorn(),
}
"""The distances by name, with their default settings."""


def _mean(matrix: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Mean entry of matrix(x, y), made a block of rows at a time."""
    rows = max(1, BLOCK // len(y))
    return torch.stack([matrix(part, y).sum() for part in x.split(rows)]).sum() / (len(x) * len(y))
