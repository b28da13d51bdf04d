"""Distances of rows to centers, by which prototypes are selected, and of sets to sets, for divide-and-conquer.

These compute. What users write under the same names, `odedm.L2()` and so on, are settings that make these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.selection.sinkhorn.transport import Sinkhorn, squares

__all__ = ["DISTANCES", "L1", "L2", "MMD", "Distance", "Sinkhorn"]

MEDIAN_ROWS = 2000
"""Rows at most whose median distance is MMD's bandwidth."""

BLOCK = 1 << 24
"""Entries of a distance matrix held at a time when only its mean is wanted."""


class Distance(Protocol):
    """How far rows are from centers, and sets from each other, once fitted to a class's candidates.

    Two methods more are used where a distance has them: `nearest(x, y, per)`, which chooses as `pairwise` of all rows
    would with less work, and `to_clusters(x, labels, k)` -> [n, k], of rows to clusters in place of their centers.
    """

    def fit(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> Distance:
        """Return the distance fitted to `candidates` [n, d]; `image_shape` is given where rows are flattened images."""
        ...

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance of each row to each center: [n, d], [k, d] -> [n, k]."""
        ...

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance of two sets: [n, d], [m, d] -> a number (0-d)."""
        ...


class PointDistance(ABC):
    """A distance of single points, to which nothing is fitted; between sets it is the mean over all cross pairs."""

    def fit(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> Self:
        """Return itself."""
        del candidates, image_shape
        return self

    @abstractmethod
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance of each row to each center: [n, d], [k, d] -> [n, k]."""

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean over all cross pairs: [n, d], [m, d] -> 0-d."""
        return _mean(self.pairwise, x, y)


@stored("distance/l1")
@dataclass(frozen=True)
class L1(PointDistance):
    """City-block distance, the sum of absolute differences.

    >>> L1().pairwise(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 2.0]])).tolist()
    [[3.0]]
    """

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return sums of absolute differences: [n, d], [k, d] -> [n, k]."""
        return torch.cdist(x, y, p=1.0)


@stored("distance/l2")
@dataclass(frozen=True)
class L2(PointDistance):
    """Euclidean distance, the length of the difference.

    >>> L2().pairwise(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return lengths of differences: [n, d], [k, d] -> [n, k]."""
        return squares(x, y).sqrt_()


@stored("distance/mmd")
@dataclass(frozen=True)
class MMD:
    """Maximum mean discrepancy (squared, biased) with the kernel exp(−|x−y|²/2σ²).

    Of a row to a cluster it is the distance to the mean of the cluster's points in the kernel's space. That mean is no
    center: a row in a dense part of a cluster is nearer than one at the middle of two parts, so it does not rank rows
    as L2 does. Between single points, as in `pairwise`, it does. σ (`bandwidth`) is the median distance among a class's
    candidates unless given.

    >>> x = torch.tensor([[-1.0], [1.0], [0.0]])
    >>> MMD(bandwidth=0.5).to_clusters(x, torch.zeros(3, dtype=torch.int64), 1).argmin().item()
    2
    """

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise UsageError(f"MMD's bandwidth must be above 0, or None for the median; {self.bandwidth} was given.")

    def fit(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> MMD:
        """Fit the bandwidth to `candidates` [n, d]: the median distance of at most `MEDIAN_ROWS` evenly spaced rows."""
        del image_shape
        if self.bandwidth is not None:
            return self
        sample = candidates[:: max(1, math.ceil(len(candidates) / MEDIAN_ROWS))]
        upper = torch.ones(len(sample), len(sample), dtype=torch.bool).triu(1).to(sample.device)
        apart = squares(sample, sample)[upper]
        median = float(apart.median().sqrt()) if len(apart) else 0.0
        return MMD(median if median > 0 else 1.0)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return 2 − 2 k(x, y): [n, d], [k, d] -> [n, k]."""
        return self.fit(x, None)._kernel(x, y).mul_(-2).add_(2).clamp_(min=0)

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Return mean k(x, x') + mean k(y, y') − 2 mean k(x, y): [n, d], [m, d] -> 0-d."""
        kernel = self.fit(torch.cat([x, y]), None)._kernel
        return (_mean(kernel, x, x) + _mean(kernel, y, y) - 2 * _mean(kernel, x, y)).clamp(min=0)

    def to_clusters(self, x: Tensor, labels: Tensor, k: int) -> Tensor:
        """Return 1 − 2 mean k(x, c) + mean k(c, c') over a cluster's points c: rows [n, d], labels [n] -> [n, k]."""
        fitted = self.fit(x, None)
        member = torch.nn.functional.one_hot(labels.long(), k).to(x.dtype)
        member = member / member.sum(0).clamp(min=1)
        to_mean = torch.cat([fitted._kernel(part, x) @ member for part in x.split(max(1, BLOCK // len(x)))])
        return (1 - 2 * to_mean + (to_mean * member).sum(0)).clamp_(min=0)

    def _kernel(self, x: Tensor, y: Tensor) -> Tensor:
        width = self.bandwidth or 1.0
        return squares(x, y).div_(-2 * width * width).exp_()


DISTANCES: dict[str, Distance] = {
    "l1": L1(),
    "l2": L2(),
    "mmd": MMD(),
    "sinkhorn": Sinkhorn(),
}
"""The distances by name, with their default settings."""


def _mean(matrix: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return the mean entry of matrix(x, y), made a block of rows at a time."""
    rows = max(1, BLOCK // len(y))
    return torch.stack([matrix(part, y).sum() for part in x.split(rows)]).sum() / (len(x) * len(y))
