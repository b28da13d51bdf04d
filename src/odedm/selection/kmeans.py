"""Seeded k-means that gives the same clusters for the same draws on every device, of many sets at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from odedm.core.accel import device
from odedm.core.accel.threads import thread_map
from odedm.core.errors import UsageError

NOISE_ROWS = 64
"""Seeds whose noise is drawn by one call and moved by one transfer."""

MOST_DRAWS = 5
"""Points that are drawn for a seed at most: more take longer, and bring inertias down by half a per cent."""

STEPS = 16
"""Of twice as many clusters or more, draws for several seeds are made together, so many times in all.

`benchmarks/selection.py`: 480 clusters of 5 000 × 512 points take three quarters of the time, with the same inertia.
"""

CHECK_EVERY = 8
"""Iterations between two looks at convergence where a look costs more than an iteration."""

WIDE = 1 << 32
"""Points times columns times clusters from which on all threads work at one set; below, a set has one thread."""

SAMPLE, SAMPLE_PER_CLUSTER, ITERATIONS_AFTER = 2048, 10, 12
"""A set of more than twice as many points starts from the clusters of a sample of them, and then has few iterations.

`benchmarks/selection.py`: 5 000 × 512 points in 6 or 160 clusters take half of the time, with an inertia 1.005 times as
large.
"""


class Clusters(NamedTuple):
    """The cluster of each point [n], the clusters' means [k, d], and the summed squared distance to them."""

    labels: Tensor
    centers: Tensor
    inertia: float


def kmeans(
    x: Tensor,
    k: int,
    *,
    rng: torch.Generator,
    init: Tensor | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> Clusters:
    """Cluster points `x` [n, d] by Lloyd's algorithm from the centers `init` [k, d], or from greedy k-means++.

    With k distinct points or fewer each of them is its own center, so there are exactly as many clusters as
    distinct points. It has settled when the centers move less than `tolerance` times the mean variance (squared);
    a cluster that is empty by then moves to a point that is farthest from its center, and it goes on. A large set
    starts from the centers of a sample of it, see `SAMPLE`.

    >>> points = torch.tensor([[0.0], [1.0], [9.0], [9.5]])
    >>> clusters = kmeans(points, 2, rng=torch.Generator().manual_seed(0))
    >>> sorted(clusters.centers.flatten().tolist()), clusters.inertia
    ([0.5, 9.25], 0.625)
    """
    inits = None if init is None else [init]
    return batched_kmeans([x], k, rngs=[rng], inits=inits, iterations=iterations, tolerance=tolerance)[0][0]


def batched_kmeans(
    sets: Sequence[Tensor],
    k: int,
    *,
    rngs: Sequence[torch.Generator],
    inits: Sequence[Tensor] | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
    exact: bool = False,
) -> tuple[list[Clusters], list[list[int]]]:
    """Cluster each set of points, with a generator each, and return the clusters and their sizes.

    No set has any influence on another's clusters. On a GPU all but large sets go through one padded batch. `exact`
    starts from k-means++ on all points and iterates until the centers rest, however large a set is.

    >>> sets, rngs = [torch.tensor([[0.0], [9.0]]), torch.ones(3, 1)], [torch.Generator(), torch.Generator()]
    >>> batched_kmeans(sets, 2, rngs=rngs)[1]
    [[1, 1], [3]]
    """
    if not sets:
        return [], []
    for x in sets:
        check_points(x, k)
    solved = {i: few for i, x in enumerate(sets) if (few := _few_distinct(x, k)) is not None}
    rest = [i for i in range(len(sets)) if i not in solved]
    batched = device.launch_bound(sets[0].device)
    sampled = {i for i in rest if inits is None and not exact and len(sets[i]) > 2 * _sample_size(k)}
    batch = [i for i in rest if batched and i not in sampled]

    def solve(group: list[int]) -> dict[int, tuple[Clusters, list[int]]]:
        points, draws, most = [sets[i] for i in group], [rngs[i] for i in group], iterations
        centers = None if inits is None else torch.stack([inits[i] for i in group])
        if group[0] in sampled:  # alone in its group
            centers, most = _centers_of_sample(points[0], k, draws[0]), min(iterations, ITERATIONS_AFTER)
        return dict(zip(group, _Lloyd(points, k, draws, centers).solve(most, tolerance), strict=True))

    groups = [[i] for i in rest if i not in batch] + [batch] * bool(batch)
    narrow = not batched and all(sets[i].numel() * k < WIDE for i in rest)
    for group in thread_map(solve, groups) if narrow else map(solve, groups):
        solved.update(group)
    clusters, sizes = zip(*(solved[i] for i in range(len(sets))), strict=True)
    return list(clusters), list(sizes)


class _Lloyd:
    """Lloyd's algorithm on padded sets [C, n, d]; a padded row is zero and weighs nothing."""

    def __init__(self, sets: Sequence[Tensor], k: int, rngs: Sequence[torch.Generator], centers: Tensor | None) -> None:
        self.k, self.amounts = k, [len(x) for x in sets]
        amount = torch.tensor(self.amounts, dtype=sets[0].dtype).to(sets[0].device, non_blocking=True)
        points = sets[0][None] if len(sets) == 1 else pad_sequence(list(sets), batch_first=True)
        self.weight = (torch.arange(points.shape[1], device=points.device) < amount[:, None]).to(points.dtype)
        # distances come from inner products, so the origin must be near the points or they cancel
        self.origin = points.sum(1, keepdim=True) / amount[:, None, None]
        self.x = points - self.origin
        if len(sets) > 1:
            self.x.mul_(self.weight[:, :, None])
        self.square = (self.x * self.x).sum(2)
        self.variance = self.square.sum(1) / (amount * points.shape[2])
        self.batched = device.launch_bound(points.device)
        if self.batched:  # one product gives sums and sizes; four columns keep its rows aligned
            extra = self.weight[:, :, None] * torch.eye(4, device=points.device, dtype=points.dtype)[0]
            self.weighed = torch.cat([self.x, extra], 2)
        if centers is None:
            seeds = _seeds(self.x, self.square, self.weight, self.amounts, k, rngs)
            self.centers = self.x.gather(1, seeds[:, :, None].expand(-1, -1, self.x.shape[2]))
        else:
            self.centers = centers - self.origin

    def solve(self, iterations: int, tolerance: float) -> list[tuple[Clusters, list[int]]]:
        """Return the clusters of each set, and their sizes."""
        # no less than what rounding alone moves: a tolerance of zero ends too
        least = 2 * torch.finfo(self.x.dtype).eps * (self.k * self.x.shape[2]) ** 0.5
        settled = max(tolerance**0.5, least) * self.variance.sqrt()
        active = torch.ones_like(settled, dtype=torch.bool)
        left = torch.full_like(settled, iterations)  # each set's own: a slow one takes nothing from the others
        while True:
            left = self._settle(active, left, settled)
            nearest, label = self._assign()
            size, _ = self._sums(label)
            far = (nearest + self.square).clamp_(min=0).mul_(self.weight)
            *sizes, inertia, rest = torch.cat([size[..., 0].T, far.sum(1)[None], left[None]]).tolist()
            empty = [[c for c in range(self.k) if sizes[c][i] == 0] for i in range(len(self.x))]
            again = [bool(lost) and rest[i] > 0 for i, lost in enumerate(empty)]
            if not any(again):
                break
            for i, lost in enumerate(empty):
                if again[i]:
                    self.centers[i, lost] = self.x[i, far[i].topk(len(lost)).indices]
            active = torch.tensor(again).to(active.device, non_blocking=True)
        moved = self.centers + self.origin
        result = []
        for i, n in enumerate(self.amounts):
            labels, means = label[i, :n], moved[i]
            if empty[i]:  # points closer than the arithmetic resolves share a cluster
                used, labels = labels.unique(return_inverse=True)
                means = means[used]
            result.append((Clusters(labels, means, inertia[i]), [int(column[i]) for column in sizes if column[i]]))
        return result

    def _settle(self, active: Tensor, left: Tensor, settled: Tensor) -> Tensor:
        """Move the centers of the sets that are `active` [C] until they rest; return what is `left` of iterations."""
        while bool(active.any()):
            for _ in range(CHECK_EVERY if self.batched else 1):
                left = left - active.to(left.dtype)
                active = self._step(active, settled) & (left > 0)
        return left

    def _step(self, active: Tensor, settled: Tensor) -> Tensor:
        """Move the centers of the sets that are `active` [C]; return which of them are so still."""
        size, total = self._sums(self._assign()[1])
        # few and small operations, since starting them is what takes the time on a GPU; an empty cluster stays
        move = total.addcmul(size, self.centers, value=-1).div_(size.clamp(min=1))
        # a set that has settled stays as it is, so it does not matter how late anybody looks
        self.centers = self.centers.addcmul(move, active[:, None, None].to(move.dtype))
        shift: Tensor = torch.linalg.vector_norm(move, dim=(1, 2))
        return active & (shift > settled)

    def _assign(self) -> tuple[Tensor, Tensor]:
        """Return the squared distance to the nearest center less |x|² [C, n], and that center [C, n]."""
        length = (self.centers * self.centers).sum(2)
        nearest, label = torch.baddbmm(length[:, None], self.x, self.centers.mT, alpha=-2).min(2)
        return nearest, label

    def _sums(self, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many points each cluster has [C, k, 1] and their sum [C, k, d]."""
        sets, n, d = self.x.shape
        if self.batched:  # index_add_ adds with atomics in any order: a product with the one-hot labels repeats
            member = self.x.new_zeros(sets, self.k, n).scatter_(1, label[:, None], 1.0)
            total = member @ self.weighed
            return total[:, :, d : d + 1], total[:, :, :d]
        size = torch.bincount(label[0], minlength=self.k).to(self.x.dtype)
        return size[None, :, None], self.x.new_zeros(self.k, d).index_add_(0, label[0], self.x[0])[None]


def _seeds(
    x: Tensor, square: Tensor, weight: Tensor, amounts: list[int], k: int, rngs: Sequence[torch.Generator]
) -> Tensor:
    """Return the rows [C, k] of padded, centred sets `x` [C, n, d] from which to start, by greedy k-means++.

    Each next point is the best of 2 + log k drawn with probability proportional to the squared distance to the
    points taken so far. Of many clusters some draws are made together, see `STEPS`. Draws are an exponential race with
    noise from the CPU generator: no cumulative sum and no `multinomial`, whose results depend on the device.
    """
    sets, n, d = x.shape
    draws = min(n, 2 + int(math.log(k)), MOST_DRAWS)
    together = max(1, k // STEPS) if n > 4 * k else 1

    def distances(index: Tensor) -> Tensor:
        taken, squares = x.gather(1, index[:, :, None].expand(-1, -1, d)), square.gather(1, index)
        return (squares[:, :, None] + square[:, None]).baddbmm_(taken, x.mT, alpha=-2).clamp_(min=0)

    def noise(rows: int) -> Tensor:
        drawn = torch.ones(rows, sets, n, pin_memory=x.is_cuda)  # else the transfer would wait for the device
        for i, (amount, rng) in enumerate(zip(amounts, rngs, strict=True)):
            # not by exponential_, whose draws differ between versions of torch, and which is slower
            drawn[:, i, :amount] = torch.rand(rows, amount, dtype=torch.float64, generator=rng).log_().neg_()
        return drawn.to(x.device, x.dtype, non_blocking=True)

    race = noise(min(k, NOISE_ROWS))
    seeds = [race[0].masked_fill(weight == 0, torch.inf).argmin(1, keepdim=True)]
    # padding is less far than a point that is taken, and too little to show in a sum
    far = distances(seeds[0])[:, 0].masked_fill_(weight == 0, -1e-30)
    while len(seeds) < k:
        begin = len(seeds) % NOISE_ROWS
        if begin == 0:
            race = noise(min(k - len(seeds), NOISE_ROWS))
        far.scatter_(1, seeds[-1], 0.0)  # exactly: rounding must not let a point be drawn twice
        candidates = (far / race[begin : begin + together]).topk(draws).indices.transpose(0, 1)  # [C, steps, draws]
        near = distances(candidates.flatten(1)).unflatten(1, candidates.shape[1:])
        for candidate, distance in zip(candidates.unbind(1), near.unbind(1), strict=True):
            closer = torch.minimum(distance, far[:, None])
            best = closer.sum(2).argmin(1, keepdim=True)
            far = closer.gather(1, best[:, :, None].expand(-1, -1, n))[:, 0].scatter_(1, candidate.gather(1, best), 0.0)
            seeds.append(candidate.gather(1, best))
    return torch.cat(seeds, 1)


def _sample_size(k: int) -> int:
    return max(SAMPLE, SAMPLE_PER_CLUSTER * k)


def _centers_of_sample(x: Tensor, k: int, rng: torch.Generator) -> Tensor | None:
    """Return the centers [1, k, d] of clusters of some of the points, or None where too few of these are distinct."""
    rows = torch.randperm(len(x), generator=rng)[: _sample_size(k)].to(x.device)
    centers = kmeans(x.index_select(0, rows), k, rng=rng).centers
    return centers[None] if len(centers) == k else None


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


def _few_distinct(x: Tensor, k: int) -> tuple[Clusters, list[int]] | None:
    """Return the distinct points of a set as its centers, or None where there are more than k."""
    if len(x) > 4 * k and len(torch.unique(x[: 2 * k], dim=0)) > k:  # seldom are all of them needed
        return None
    points, labels, sizes = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
    return (Clusters(labels, points, 0.0), sizes.tolist()) if len(points) <= k else None
