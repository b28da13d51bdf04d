"""Divide-and-conquer: narrow a class's candidates to the clusters that lie closest together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.selection.distance import Distance, Sinkhorn
from odedm.selection.kmeans import batched_kmeans
from odedm.selection.sinkhorn.transport import squares

MOST_CLUSTERS = 12
"""All subsets of the clusters are compared: 4083 for 12, and twice as many with each further one."""

BLOCK = 1024
"""Rows whose distances to centers are made at a time."""


@stored("dac")
@dataclass(frozen=True)
class Dac:
    """Up to `depth` times: k-means into K (`clusters`) parts, keep the subset with the smallest sum of distances.

    Rows are clustered by K · `sample` seeded ones, and a distance between clusters is that of at most `sample` seeded
    rows of each: all rows take longer than what is saved. None: all rows, as the paper has it.

    >>> points = torch.tensor([[0.0], [0.1], [5.0], [5.1], [50.0], [50.1]])
    >>> Dac(3, 1).reduce(points, smallest=2, rng=torch.Generator().manual_seed(0)).tolist()
    [0, 1, 2, 3]
    """

    clusters: int
    depth: int
    distance: Distance = field(default_factory=Sinkhorn)
    sample: int | None = 256

    def __post_init__(self) -> None:
        if not 2 <= self.clusters <= MOST_CLUSTERS:
            raise UsageError(
                f"Divide-and-conquer needs 2 to {MOST_CLUSTERS} clusters, since it compares all their subsets; "
                f"{self.clusters} was given. The paper uses 3 or 5."
            )
        if self.depth < 0:
            raise UsageError(f"Divide-and-conquer's depth must be 0 (keep everything) or more; {self.depth} was given.")
        if self.sample is not None and self.sample < 1:
            raise UsageError(
                f"Divide-and-conquer's sample must be 1 row or more, or None for all rows; {self.sample} was given."
            )

    def reduce(self, x: Tensor, *, smallest: int, rng: torch.Generator) -> Tensor:
        """Return the indices [m], ascending, of the rows of `x` [n, d] that stay: at least min(`smallest`, n)."""
        return self.reduce_all([x], smallest=smallest, rngs=[rng])[0]

    def reduce_all(self, sets: Sequence[Tensor], *, smallest: int, rngs: Sequence[torch.Generator]) -> list[Tensor]:
        """`reduce` each set, with a generator each: side by side, so that a GPU is asked once for all of them."""
        keep = [torch.arange(len(x), device=x.device) for x in sets]
        fitted = {i: self.distance.fit(x, None) for i, x in enumerate(sets) if len(x) > self.clusters and self.depth}
        for _ in range(self.depth):
            active = [i for i in fitted if len(keep[i]) > self.clusters]
            if not active:
                break
            parts = self._partition([kept_rows(sets[i], keep[i]) for i in active], [rngs[i] for i in active])
            matrices = self._distances([fitted[i] for i in active], [clouds for _, clouds in parts])
            for i, (labels, clouds), matrix in zip(active, parts, matrices, strict=True):
                sizes = torch.bincount(labels, minlength=len(clouds)).tolist()
                closest = closest_subset(matrix, sizes, smallest)
                if not closest:
                    del fitted[i]
                elif len(closest) < len(sizes):
                    keep[i] = keep[i][torch.isin(labels, torch.tensor(closest, device=labels.device))]
                # all clusters together leave the rows as they are; the next round still draws another start,
                # so its clusters may be others and the depth is used up as the definition says
        return keep

    def _partition(
        self, sets: Sequence[Tensor], rngs: Sequence[torch.Generator]
    ) -> list[tuple[Tensor, Sequence[Tensor]]]:
        """Return each row's cluster [n], and the rows by which each cluster is compared, of each set."""
        most = None if self.sample is None else self.clusters * self.sample
        drawn = [_draw(x, most, rng) for x, rng in zip(sets, rngs, strict=True)]
        clustered = zip(*batched_kmeans(drawn, self.clusters, rngs=rngs, exact=self.sample is None), strict=True)
        parts: list[tuple[Tensor, Sequence[Tensor]]] = []
        for x, part, rng, (clusters, sizes) in zip(sets, drawn, rngs, clustered, strict=True):
            clouds = part.index_select(0, clusters.labels.argsort(stable=True)).split(sizes)
            labels = clusters.labels if len(part) == len(x) else _nearest_center(x, clusters.centers)
            parts.append((labels, [_draw(cloud, self.sample, rng) for cloud in clouds]))
        return parts

    def _distances(
        self, fitted: Sequence[Distance], clouds: Sequence[Sequence[Tensor]]
    ) -> list[dict[tuple[int, int], float]]:
        """Return the distance of each pair of its clouds, for each set."""
        pairs = [(i, *pair) for i, parts in enumerate(clouds) for pair in combinations(range(len(parts)), 2)]
        together = getattr(self.distance, "between_many_sets", None)
        if together is not None:
            distances = together([(clouds[i][p], clouds[i][q]) for i, p, q in pairs])
        else:
            distances = [fitted[i].between_sets(clouds[i][p], clouds[i][q]) for i, p, q in pairs]
        # all numbers at once: each asked for alone would wait for the device
        numbers = torch.stack(list(distances)).tolist() if pairs else []
        matrices: list[dict[tuple[int, int], float]] = [{} for _ in clouds]
        for (i, p, q), number in zip(pairs, numbers, strict=True):
            matrices[i][p, q] = number
        return matrices


def kept_rows(x: Tensor, keep: Tensor) -> Tensor:
    """Return the rows `keep` [m], ascending, of `x` [n, d]: where that is all of them, no copy.

    >>> kept_rows(torch.eye(2), torch.tensor([1])).tolist()
    [[0.0, 1.0]]
    """
    return x if len(keep) == len(x) else x.index_select(0, keep)


def closest_subset(distance: dict[tuple[int, int], float], sizes: list[int], smallest: int) -> tuple[int, ...]:
    """Return the two or more clusters, of `smallest` rows or more together, with the smallest sum of distances.

    Equal sums: fewer clusters, then the lower numbers. Empty when no subset is large enough.

    >>> distance = {(0, 1): 1.0, (0, 2): 5.0, (1, 2): 2.0}
    >>> closest_subset(distance, [4, 4, 4], smallest=5), closest_subset(distance, [1, 1, 4], smallest=5)
    ((0, 1), (1, 2))
    """
    best: tuple[int, ...] = ()
    least = float("inf")
    for amount in range(2, len(sizes) + 1):
        for subset in combinations(range(len(sizes)), amount):
            if sum(sizes[c] for c in subset) < smallest:
                continue
            total = sum(distance[pair] for pair in combinations(subset, 2))
            if total < least:
                best, least = subset, total
    return best


def _nearest_center(x: Tensor, centers: Tensor) -> Tensor:
    """Return the number [n] of each row's nearest center, some rows at a time: distances take copies of them."""
    return torch.cat([squares(part, centers).argmin(1) for part in x.split(BLOCK)])


def _draw(x: Tensor, most: int | None, rng: torch.Generator) -> Tensor:
    """Return at most so many seeded rows; draws only where there are more."""
    if most is None or len(x) <= most:
        return x
    return x.index_select(0, torch.randperm(len(x), generator=rng)[:most].to(x.device))
