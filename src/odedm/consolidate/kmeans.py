"""Seeded k-means that gives the same clusters for the same draws on every device, of many sets at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from odedm.consolidate.kmeans_cpu import LEAST_DRAWS, Foreseen, Nearest, Sums, repeatable, square_lengths
from odedm.core.accel import device
from odedm.core.accel.threads import thread_map
from odedm.core.accel.triton_support import has_kernels
from odedm.core.errors import UsageError

TABLE_BYTES = 1 << 28
"""Largest table of squared distances that seeding may hold; beyond it they are made row by row."""

NOISE_ROWS = 64
"""Seeds whose noise is drawn by one call and moved by one transfer."""

MOST_SEEDED = 8192
"""Points of a set from which one kernel draws all seeds: they are in one program's hands."""

CHECK_EVERY = 8
"""Iterations between two looks at convergence where a look costs more than an iteration."""

LARGE = 6 << 20
"""Numbers of points times clusters from which on a processor finds out what need not be computed again."""

WIDE = 1 << 32
"""The same from which on all threads work at one set; below a set has one thread, as they would wait for each other."""

SOME_COLUMNS, SOME_ROWS = 16, 64
"""Columns in which points are first looked at for being distinct, and of how many besides two a cluster."""

KERNELS = "odedm.consolidate.kmeans_triton"

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
    distinct points. It has settled when the centroids move less than `tolerance` times the mean variance (squared);
    a cluster that is empty by then moves to a point that is farthest from its centroid, and it goes on.

    >>> points = torch.tensor([[0.0], [1.0], [9.0], [9.5]])
    >>> clusters = kmeans(points, 2, rng=torch.Generator().manual_seed(0))
    >>> sorted(clusters.centroid.flatten().tolist()), clusters.inertia
    ([0.5, 9.25], 0.625)
    """
    return kmeans_all([x], k, rngs=[rng], start=start, iterations=iterations, tolerance=tolerance)[0][0]


def kmeans_all(
    sets: Sequence[Tensor],
    k: int,
    *,
    rngs: Sequence[torch.Generator],
    start: Start | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> tuple[list[Clusters], list[list[int]]]:
    """`kmeans` of each set of points, with a generator each, and the sizes of its clusters.

    No set has any influence on another's clusters.

    >>> sets, rngs = [torch.tensor([[0.0], [9.0]]), torch.ones(3, 1)], [torch.Generator(), torch.Generator()]
    >>> kmeans_all(sets, 2, rngs=rngs)[1]
    [[1, 1], [3]]
    """
    if not sets:
        return [], []
    for x in sets:
        check_points(x, k)
    found = _few_distinct(sets, k)
    many = [i for i in range(len(sets)) if i not in found]

    def solve(group: list[int]) -> dict[int, tuple[Clusters, list[int]]]:
        # nothing keeps the centred points of a class while those of the next are made: fresh memory is dear
        lloyd = _Lloyd([sets[i] for i in group], k, [rngs[i] for i in group], start)
        return dict(zip(group, lloyd.solve(iterations, tolerance), strict=True))

    together = device.launch_bound(sets[0].device)
    groups = ([many] if many else []) if together else [[i] for i in many]
    small = not together and all(sets[i].numel() * k < WIDE for i in many)
    for group in thread_map(solve, groups) if small else map(solve, groups):
        found.update(group)
    clusters, sizes = zip(*(found[i] for i in range(len(sets))), strict=True)
    return list(clusters), list(sizes)


class _Lloyd:
    """Lloyd's algorithm on padded sets [C, n, d]; a padded row is zero and weighs nothing."""

    def __init__(
        self, sets: Sequence[Tensor], k: int, rngs: Sequence[torch.Generator], start: Start | None = None
    ) -> None:
        self.k, self.amounts = k, [len(x) for x in sets]
        amount = torch.tensor(self.amounts, dtype=sets[0].dtype).to(sets[0].device, non_blocking=True)
        alone = len(sets) == 1
        points = sets[0][None] if alone else pad_sequence(list(sets), batch_first=True)
        self.weight = (torch.arange(points.shape[1], device=points.device) < amount[:, None]).to(points.dtype)
        # distances come from inner products, so the origin must be near the points or they cancel
        self.origin = points.sum(1, keepdim=True) / amount[:, None, None]
        self.x = points - self.origin
        if not alone:
            self.x.mul_(self.weight[:, :, None])
        self.square = square_lengths(self.x)
        self.variance = self.square.sum(1) / (amount * points.shape[2])
        self.batched = device.launch_bound(points.device)
        if self.batched:  # one product gives sums and sizes; four columns keep its rows aligned
            extra = self.weight[:, :, None] * torch.eye(4, device=points.device, dtype=points.dtype)[0]
            self.weighed = torch.cat([self.x, extra], 2)
        self.nearest: Nearest | None = None
        self.sums: Sums | None = None
        large = self.x.numel() * k >= LARGE and self.x.element_size() >= 4
        if not self.batched and large and repeatable(self.x):
            self.nearest, self.sums = Nearest(self.x[0], self.square[0]), Sums(self.x[0], k)
        if start is None:
            seed = _seeds(self.x, self.square, self.weight, self.amounts, k, rngs)
            self.centroid = self.x.gather(1, seed[:, :, None].expand(-1, -1, self.x.shape[2]))
        else:
            given = [start(x, k, rng) for x, rng in zip(sets, rngs, strict=True)]
            self.centroid = torch.stack(given) - self.origin

    def solve(self, iterations: int, tolerance: float) -> list[tuple[Clusters, list[int]]]:
        """The clusters of each set, and their sizes."""
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
                    self.centroid[i, lost] = self.x[i, far[i].topk(len(lost)).indices]
            active = torch.tensor(again).to(active.device, non_blocking=True)
        centroid = self.centroid + self.origin
        result = []
        for i, n in enumerate(self.amounts):
            own, mean = label[i, :n], centroid[i]
            if empty[i]:  # points closer than the arithmetic resolves share a cluster
                used, own = own.unique(return_inverse=True)
                mean = mean[used]
            result.append((Clusters(own, mean, inertia[i]), [int(column[i]) for column in sizes if column[i]]))
        return result

    def _settle(self, active: Tensor, left: Tensor, settled: Tensor) -> Tensor:
        """Move the centroids of the sets that are `active` [C] until they rest; what is `left` of their iterations."""
        if self.batched and self.x.dtype == torch.float32 and has_kernels(KERNELS, self.x.device):
            from odedm.consolidate import kmeans_triton as lloyd_kernels  # Triton comes with torch for GPUs alone

            mine = torch.where(active, left, 0)
            self.centroid, rest = lloyd_kernels.settle(self.weighed, self.centroid, mine, settled, CHECK_EVERY)
            return left - mine + rest
        while bool(active.any()):
            for _ in range(CHECK_EVERY if self.batched else 1):
                left = left - active.to(left.dtype)
                active = self._step(active, settled) & (left > 0)
        return left

    def _step(self, active: Tensor, settled: Tensor) -> Tensor:
        """Move the centroids of the sets that are `active` [C]; which of them are so still."""
        label = self.nearest(self.centroid[0])[None] if self.nearest else self._assign()[1]
        size, total = self._sums(label)
        # few and small operations, since starting them is what takes the time on a GPU; an empty cluster stays
        move = total.addcmul(size, self.centroid, value=-1).div_(size.clamp(min=1))
        # a set that has settled stays as it is, so it does not matter how late anybody looks
        self.centroid = self.centroid.addcmul(move, active[:, None, None].to(move.dtype))
        shift: Tensor = torch.linalg.vector_norm(move, dim=(1, 2))
        return active & (shift > settled)

    def _assign(self) -> tuple[Tensor, Tensor]:
        """Squared distance to the nearest centroid less |x|² [C, n], and that centroid [C, n]."""
        length = (self.centroid * self.centroid).sum(2)
        nearest, label = torch.baddbmm(length[:, None], self.x, self.centroid.mT, alpha=-2).min(2)
        return nearest, label

    def _sums(self, label: Tensor) -> tuple[Tensor, Tensor]:
        """How many points each cluster has [C, k, 1] and their sum [C, k, d]."""
        sets, n, d = self.x.shape
        if self.batched:  # index_add_ adds with atomics in any order: a product with the one-hot labels repeats
            member = self.x.new_zeros(sets, self.k, n).scatter_(1, label[:, None], 1.0)
            total = member @ self.weighed
            return total[:, :, d : d + 1], total[:, :, :d]
        if self.sums:
            size, total = self.sums(label[0])
            return size[None], total[None]
        size = torch.bincount(label[0], minlength=self.k).to(self.x.dtype)
        return size[None, :, None], self.x.new_zeros(self.k, d).index_add_(0, label[0], self.x[0])[None]


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
    y = (x - x.mean(0))[None]
    square = square_lengths(y)
    return x[_seeds(y, square, torch.ones_like(square), [len(x)], min(k, len(x)), [rng])[0]]


def _seeds(
    y: Tensor, square: Tensor, weight: Tensor, amounts: list[int], k: int, rngs: Sequence[torch.Generator]
) -> Tensor:
    """The rows [C, k] of the starting points of padded, centred sets `y` [C, n, d]."""
    sets, n, d = y.shape
    draws = min(n, 2 + int(math.log(k)))
    first = torch.arange(sets, device=y.device)[:, None] * n
    by_and_by = not device.launch_bound(y.device) and draws >= LEAST_DRAWS and repeatable(y, draws)
    # one matrix product pays when the rows asked for one by one, or several at a time, would come near its cost
    pays = sets * n * n * y.element_size() <= TABLE_BYTES and k * draws > n // 8
    whole = pays and (not by_and_by or k * draws > n)
    foreseen = Foreseen(y[0], square[0], draws, TABLE_BYTES) if by_and_by and not whole else None
    table = _squares(y, square, y, square).flatten(0, 1) if whole else None

    def distances(index: Tensor) -> Tensor:
        if table is not None:
            return table[first + index]
        return _squares(y.gather(1, index[:, :, None].expand(-1, -1, d)), square.gather(1, index), y, square)

    def noise(rows: int) -> Tensor:
        drawn = torch.ones(rows, sets, n, pin_memory=y.is_cuda)  # else the transfer would wait for the device
        for i, (amount, rng) in enumerate(zip(amounts, rngs, strict=True)):
            # not by exponential_, whose draws differ between versions of torch, and which is slower
            drawn[:, i, :amount] = torch.rand(rows, amount, dtype=torch.float64, generator=rng).log_().neg_()
        return drawn.to(y.device, y.dtype, non_blocking=True)

    race = noise(min(k, NOISE_ROWS))
    taken = [race[0].masked_fill(weight == 0, torch.inf).argmin(1, keepdim=True)]
    # a row alone may be rounded otherwise than in a table, which those that are foreseen then stand for
    among = foreseen if pays else None
    near = among(taken[0][0], square[0], race[1:2, 0])[None] if among else distances(taken[0])
    # padding is less far than a point that is taken, and too little to show in a sum
    far = near[:, 0].masked_fill_(weight == 0, -1e-30)
    if table is not None and n <= MOST_SEEDED and y.dtype == torch.float32 and has_kernels(KERNELS, y.device):
        from odedm.consolidate import kmeans_triton  # Triton comes with torch for GPUs alone

        every = torch.cat([taken[0], taken[0].new_zeros(sets, k - 1)], 1)
        for i in range(0, k, NOISE_ROWS):
            race = race if i == 0 else noise(min(k - i, NOISE_ROWS))
            skip, last = int(i == 0), min(k, i + NOISE_ROWS)
            kmeans_triton.seed(table, race[skip:], far, every, i + skip, last, draws)
        return every
    for i in range(1, k):
        if i % NOISE_ROWS == 0:
            race = noise(min(k - i, NOISE_ROWS))
        far.scatter_(1, taken[-1], 0.0)  # exactly: rounding must not let a point be drawn twice
        candidate = (far / race[i % NOISE_ROWS]).topk(draws).indices
        if foreseen:
            near = foreseen(candidate[0], far[0], race[i % NOISE_ROWS :][: 1 + i // 2, 0])[None]
        else:
            near = distances(candidate)
        closer = torch.minimum(near, far[:, None])
        best = closer.sum(2).argmin(1, keepdim=True)
        far = closer.gather(1, best[:, :, None].expand(-1, -1, n))[:, 0]
        taken.append(candidate.gather(1, best))
    return torch.cat(taken, 1)


def _squares(x: Tensor, x_square: Tensor, y: Tensor, y_square: Tensor) -> Tensor:
    """Squared distances [C, m, n] of `x` [C, m, d] and `y` [C, n, d], given their squared lengths."""
    return (x_square[:, :, None] + y_square[:, None]).baddbmm_(x, y.mT, alpha=-2).clamp_(min=0)


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


def _few_distinct(sets: Sequence[Tensor], k: int) -> dict[int, tuple[Clusters, list[int]]]:
    """Of each set that has at most k distinct points, these as centroids."""
    hashed = [i for i, x in enumerate(sets) if len(x) > k]
    enough = set[int]()
    if not device.launch_bound(sets[0].device):  # what differs in a few columns is distinct, so seldom all are needed
        columns = slice(None, None, max(1, sets[0].shape[1] // SOME_COLUMNS))
        enough = _more_distinct({i: sets[i][: SOME_ROWS + 2 * k, columns] for i in hashed}, k)
        enough |= _more_distinct({i: sets[i][:, columns] for i in hashed if i not in enough}, k)
    enough |= _more_distinct({i: sets[i] for i in hashed if i not in enough}, k)
    result: dict[int, tuple[Clusters, list[int]]] = {}
    for i in set(range(len(sets))) - enough:
        point, label, size = torch.unique(sets[i], dim=0, return_inverse=True, return_counts=True)
        if len(point) <= k:
            result[i] = (Clusters(label, point, 0.0), size.tolist())
    return result


def _more_distinct(sets: dict[int, Tensor], k: int) -> set[int]:
    """Which of the sets surely have more than k distinct points."""
    if not sets:
        return set()
    # an integer hash of each row's bits rules the common case out without sorting rows of d numbers
    first = next(iter(sets.values()))
    weight = torch.randint(-(2**62), 2**62, (first.shape[1],), generator=torch.Generator().manual_seed(0)) | 1
    weight = weight.to(first.device, non_blocking=True)
    codes = [_bits(x).mul_(weight).sum(1).sort().values for x in sets.values()]
    counts = torch.stack([(code[1:] != code[:-1]).sum() for code in codes]).tolist()
    return {i for i, count in zip(sets, counts, strict=True) if count >= k}


def _bits(x: Tensor) -> Tensor:
    """The bits of every number as int64; zero and minus zero have the same."""
    return (x + 0.0).contiguous().view(torch.int64 if x.element_size() == 8 else torch.int32).long()
