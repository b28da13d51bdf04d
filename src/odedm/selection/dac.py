"""Divide-and-conquer: narrow a class's candidates to the clusters that lie closest together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from odedm.core.accel import device
from odedm.core.accel.threads import thread_map
from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.selection.distance import Distance, Sinkhorn
from odedm.selection.kmeans import batched_kmeans

MOST_CLUSTERS = 12
"""All subsets of the clusters are compared: 4083 for 12, and twice as many with each further one."""

FEW_CLUSTERS = 6
"""Up to so many, comparing all subsets again and again takes less time than solving a pair of clouds."""


@stored("dac")
@dataclass(frozen=True)
class Dac:
    """Up to `depth` times: k-means into K (`clusters`) parts, keep the subset with the smallest sum of distances.

    A distance between clusters is that of at most `sample` seeded rows of each: transport between all rows takes longer
    than what is saved. None: of all rows, as the paper has it.

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
        """Indices [m], ascending, of the rows of `x` [n, d] that stay: at least min(`smallest`, n) of them."""
        return self.reduce_all([x], smallest=smallest, rngs=[rng])[0]

    def reduce_all(self, sets: Sequence[Tensor], *, smallest: int, rngs: Sequence[torch.Generator]) -> list[Tensor]:
        """`reduce` of each set, with a generator each: side by side, so that a GPU is asked once for all of them."""
        keep = [torch.arange(len(x), device=x.device) for x in sets]
        fitted = {i: self.distance.fit(x, None) for i, x in enumerate(sets) if len(x) > self.clusters and self.depth}
        for _ in range(self.depth):
            going = [i for i in fitted if len(keep[i]) > self.clusters]
            if not going:
                break
            points = [kept_rows(sets[i], keep[i]) for i in going]
            clusters, sizes = batched_kmeans(points, self.clusters, rngs=[rngs[i] for i in going])
            orders = [one.labels.argsort(stable=True) for one in clusters]
            clouds = [x.index_select(0, o).split(size) for x, o, size in zip(points, orders, sizes, strict=True)]
            compared = [[self._some(cloud, rngs[i]) for cloud in own] for i, own in zip(going, clouds, strict=True)]
            chosen = self._closest([fitted[i] for i in going], compared, sizes, smallest)
            for i, best, order, size in zip(going, chosen, orders, sizes, strict=True):
                if not best:
                    del fitted[i]
                elif len(best) < len(size):
                    parts = order.split(size)
                    keep[i] = keep[i][torch.cat([parts[c] for c in best]).sort().values]
                # all clusters together leave the rows as they are; the next round still draws another start,
                # so its clusters may be others and the depth is used up as the definition says
        return keep

    def _some(self, cloud: Tensor, rng: torch.Generator) -> Tensor:
        """Return the rows by which a cluster is compared with others; draws only where it has more of them."""
        if self.sample is None or len(cloud) <= self.sample:
            return cloud
        return cloud.index_select(0, torch.randperm(len(cloud), generator=rng)[: self.sample].to(cloud.device))

    def _closest(
        self,
        fitted: Sequence[Distance],
        clouds: Sequence[Sequence[Tensor]],
        sizes: Sequence[list[int]],
        smallest: int,
    ) -> list[tuple[int, ...]]:
        """For each set the `closest_subset` of its clouds."""
        at_least = getattr(self.distance, "between_sets_at_least", None)
        if at_least is None or self.clusters > FEW_CLUSTERS or device.launch_bound(clouds[0][0].device):
            matrices = self._matrices(fitted, clouds)
            return [closest_subset(matrix, size, smallest) for matrix, size in zip(matrices, sizes, strict=True)]

        def closest(i: int) -> tuple[int, ...]:
            solve = partial(_cloud_distance, fitted[i], clouds[i])
            return closest_by_bounds(at_least(clouds[i]).tolist(), sizes[i], smallest, solve)

        return thread_map(closest, range(len(clouds)))

    def _matrices(self, fitted: Sequence[Distance], clouds: Sequence[Sequence[Tensor]]) -> list[list[list[float]]]:
        """For each set the symmetric matrix of distances between its clouds, with zeros on its diagonal."""
        places = [(i, p, q) for i, own in enumerate(clouds) for p, q in combinations(range(len(own)), 2)]
        many = getattr(self.distance, "between_many_sets", None)
        if many is not None:
            values = many([(clouds[i][p], clouds[i][q]) for i, p, q in places])
        else:
            values = [fitted[i].between_sets(clouds[i][p], clouds[i][q]) for i, p, q in places]
        matrices = [[[0.0] * len(own) for _ in own] for own in clouds]
        # all numbers at once: each asked for alone would wait for the device
        for (i, p, q), far in zip(places, torch.stack(list(values)).tolist() if places else [], strict=True):
            matrices[i][p][q] = matrices[i][q][p] = far
        return matrices


def kept_rows(x: Tensor, keep: Tensor) -> Tensor:
    """The rows `keep` [m], ascending, of `x` [n, d]: where that is all of them, no copy.

    >>> kept_rows(torch.eye(2), torch.tensor([1])).tolist()
    [[0.0, 1.0]]
    """
    return x if len(keep) == len(x) else x.index_select(0, keep)


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


def closest_by_bounds(
    least: list[list[float]], sizes: list[int], smallest: int, solve: Callable[[int, int], float]
) -> tuple[int, ...]:
    """The `closest_subset` by distances that `solve` gives, of which `least` are lower bounds.

    While the closest subset by what is known and by bounds has a pair that is not solved, it is solved. So the subset
    that is found at last is exact, and none of the others, whose distances are the bounds or more, is closer.

    >>> far = [[0.0, 1, 5], [1, 0, 2], [5, 2, 0]]
    >>> closest_by_bounds([[0.0, 0.5, 4], [0.5, 0, 1.5], [4, 1.5, 0]], [4, 4, 4], 5, lambda p, q: far[p][q])
    (0, 1)
    """
    matrix, known = [list(row) for row in least], set[tuple[int, int]]()
    while True:
        best = closest_subset(matrix, sizes, smallest)
        unknown = [pair for pair in combinations(best, 2) if pair not in known]
        if not unknown:
            return best
        for p, q in unknown:
            matrix[p][q] = matrix[q][p] = solve(p, q)
        known.update(unknown)


def _cloud_distance(measure: Distance, clouds: Sequence[Tensor], p: int, q: int) -> float:
    return float(measure.between_sets(clouds[p], clouds[q]))
