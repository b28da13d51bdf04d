"""Divide-and-conquer: narrow a class's candidates to the clusters that lie closest together."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from odedm.consolidate.distance import Distance, Sinkhorn
from odedm.consolidate.kmeans import Start, kmeans
from odedm.errors import UsageError

MOST_CLUSTERS = 12
"""All subsets of the clusters are compared: 4083 for 12, and twice as many with each further one."""


@dataclass(frozen=True)
class Dac:
    """Up to `depth` times: k-means into K (`clusters`) parts, keep the subset with the smallest sum of distances.

    >>> points = torch.tensor([[0.0], [0.1], [5.0], [5.1], [50.0], [50.1]])
    >>> Dac(3, 1).reduce(points, smallest=2, rng=torch.Generator().manual_seed(0)).tolist()
    [0, 1, 2, 3]
    """

    clusters: int
    depth: int
    distance: Distance = field(default_factory=Sinkhorn)

    def __post_init__(self) -> None:
        if not 2 <= self.clusters <= MOST_CLUSTERS:
            raise UsageError(
                f"Divide-and-conquer needs 2 to {MOST_CLUSTERS} clusters, since it compares all their subsets; "
                f"{self.clusters} was given. The paper uses 3 or 5."
            )
        if self.depth < 0:
            raise UsageError(f"Divide-and-conquer's depth must be 0 (keep everything) or more; {self.depth} was given.")

    def reduce(self, x: Tensor, *, smallest: int, rng: torch.Generator, start: Start | None = None) -> Tensor:
        """Indices [m], ascending, of the rows of `x` [n, d] that stay: at least min(`smallest`, n) of them."""
        keep = torch.arange(len(x), device=x.device)
        distance = self.distance.prepare(x, None) if len(x) > self.clusters and self.depth else self.distance
        for _ in range(self.depth):
            if len(keep) <= self.clusters:
                break
            label = kmeans(x[keep], self.clusters, rng=rng, start=start).label
            parts = [(label == c).nonzero().flatten() for c in range(int(label.max()) + 1)]
            best = closest_subset(_matrix(distance, [x[keep[part]] for part in parts]), list(map(len, parts)), smallest)
            if not best:
                break
            # all clusters together leave the rows as they are; the next round still draws another start,
            # so its clusters may be others and the depth is used up as the definition says
            keep = keep[torch.cat([parts[c] for c in best])].sort().values
        return keep


def closest_subset(distance: list[list[float]], sizes: list[int], smallest: int) -> tuple[int, ...]:
    """The two or more clusters, of `smallest` rows or more together, with the smallest sum of pairwise distances.

    Equal sums: fewer clusters, then the lower numbers. Empty when no subset is large enough.

    >>> closest_subset([[0, 1, 5], [1, 0, 2], [5, 2, 0]], [4, 4, 4], smallest=5)
    (0, 1)
    >>> closest_subset([[0, 1, 5], [1, 0, 2], [5, 2, 0]], [1, 1, 4], smallest=5)
    (1, 2)
    """
    best: tuple[int, ...] = ()
    least = float("inf")
    for amount in range(2, len(sizes) + 1):
        for subset in combinations(range(len(sizes)), amount):
            if sum(sizes[c] for c in subset) < smallest:
                continue
            total = sum(distance[p][q] for p, q in combinations(subset, 2))
            if total < least:
                best, least = subset, total
    return best


def _matrix(distance: Distance, clouds: list[Tensor]) -> list[list[float]]:
    """The symmetric matrix of distances between clouds, with zeros on its diagonal."""
    matrix = [[0.0] * len(clouds) for _ in clouds]
    for p, q in combinations(range(len(clouds)), 2):
        matrix[p][q] = matrix[q][p] = float(distance.clouds(clouds[p], clouds[q]))
    return matrix
