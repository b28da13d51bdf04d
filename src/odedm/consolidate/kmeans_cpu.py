"""k-means on a processor: what surely stays as it was is not computed again, and what comes is computed together."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from odedm.core.accel import device

DIRECTIONS = 16
"""Directions in which a move of the centroids is followed; in all others together it is bounded."""

SAMPLE = 1024
"""About how many points tell in which directions points differ."""

MANY = 1 / 3
"""The share of points from which on all are compared: to pick these out costs what is saved."""

LEAST_ROWS = 16
"""Rows of a product at least: few may be multiplied by other code, that rounds otherwise."""

LEAST_DRAWS = 5
"""Points drawn for a seed from which on it pays to foresee those of the next ones."""

FEW_ROWS = 256
"""Points gone through at a time where else a copy of all is made: fresh memory takes longer than the arithmetic."""

SPARE = 2
"""Points more than are drawn at a time that are foreseen: some that are drawn then come after others now."""


class Nearest:
    """The nearest centroid of each of some points, again and again as the centroids move.

    Points `x` [n, d] are about the origin, `square` [n] are their squared lengths. The scores |c|² − 2⟨x, c⟩ of all
    pairs are known of an earlier time. A move of the centroids changes them by what it does along a few directions, a
    small product, and in all others by no more than the product of two lengths. A point whose centroid is ahead of the
    others by more than that and all rounding keeps it. The rest are compared by the product that would be made of all
    points. When as many as all have been compared so, the scores are made anew.

    >>> points, centroid = torch.tensor([[-5.0, 0.0], [-3.0, 0.0], [8.0, 0.0]]), torch.tensor([[-5.0, 0.0], [9.0, 0.0]])
    >>> nearest = Nearest(points, (points * points).sum(1))
    >>> nearest(centroid).tolist(), nearest(centroid + 1).tolist(), nearest.compared
    ([0, 0, 1], [0, 0, 1], 3)
    """

    def __init__(self, x: Tensor, square: Tensor) -> None:
        self.x, limits = x, torch.finfo(x.dtype)
        # what d products and their sum may be rounded by, with the few that a score's change is the sum of, and what a
        # few such sums, whose squares are added, may be
        self.slack = 2 * (x.shape[1] + 8) * limits.eps
        self.loss = 8 * self.slack
        # what so many products lose that are too small to keep all digits: of numbers whose squares vanish much
        self.least = (x.shape[1] + DIRECTIONS) * limits.tiny
        square = square + self.least
        self.axes = directions(x)
        along = x @ self.axes
        rest = (square - (along * along).sum(1)).clamp_(min=0).add_(square, alpha=self.loss)
        self.reach = torch.stack([rest.sqrt_(), square.sqrt(), torch.ones_like(square)])
        self.parts = torch.cat([along.T, self.reach])
        self.longest = float(self.reach[1].max())
        self.compared = 0  # points, since the time that scores are known of
        self.label = self.score = self.at = self.lower = x.new_empty(0)

    def __call__(self, centroid: Tensor) -> Tensor:
        """The number [n] of each point's nearest of `centroid` [k, d], of equals the lower one."""
        n = len(self.x)
        if self.compared and self.compared < 2 * n:
            unsure = self._unsure(centroid)
            self.compared += len(unsure)
            unsure = _enough(unsure)
            if len(unsure) < MANY * n:
                label = scores(self.x.index_select(0, unsure), centroid).min(1).indices
                self.label = self.label.index_copy(0, unsure, label)
                return self.label
        score = scores(self.x, centroid)
        self.label = score.min(1).indices
        self.score, self.at, self.compared = score.T.contiguous(), centroid, n
        return self.label

    def _unsure(self, centroid: Tensor) -> Tensor:
        """The points that may have another nearest centroid than before."""
        weight, loose = self._change(centroid)
        if weight is None:  # an infinite score says nothing of what it becomes
            return torch.arange(len(self.x))
        if self.lower.shape != self.score.shape:
            self.lower = torch.empty_like(self.score)
        torch.addmm(self.score, torch.from_numpy(weight).T, self.parts, out=self.lower)
        own = self.label[None]
        off = torch.from_numpy(loose).index_select(1, self.label).mul_(self.reach).sum(0)
        upper = self.lower.gather(0, own)[0].add_(off, alpha=2)
        ahead = self.lower.scatter_(0, own, torch.inf).amin(0) > upper
        return torch.from_numpy(np.flatnonzero(~ahead.numpy()))

    def _change(self, centroid: Tensor) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        """What the lower bounds of the scores change by, times `parts` [r + 3, k], and by how much they may be off.

        That is times `reach` [3, k]: what a point has in other directions, its length, and one. In numpy, which starts
        small operations sooner than torch does.
        """
        step = centroid - self.at
        with np.errstate(all="ignore"):  # what overflows says so by its result
            along, move, to, was = (step @ self.axes).numpy(), step.numpy(), centroid.numpy(), self.at.numpy()
            square, before, far = (np.einsum("kd,kd->k", each, each) + self.least for each in (to, was, move))
            rest = np.sqrt(np.maximum(far - np.einsum("kr,kr->k", along, along), 0) + self.loss * far)
            length = np.sqrt(square) + np.sqrt(before)
            most = self.longest + float(length.max())
            loose = np.stack([2 * rest, self.slack * length + self.loss * np.sqrt(far), self.slack * length * length])
            loose[2] += 16 * self.least
            weight = np.concatenate([-2 * along.T, -loose])
            weight[-1] += square - before
        return (weight if 16 * most * most < torch.finfo(self.x.dtype).max else None), loose


class Sums:
    """The size of each of k clusters of points `x` [n, d] and its sum, made again only where points came or went.

    >>> sums = Sums(torch.tensor([[1.0], [2.0], [4.0]]), 2)
    >>> [each.flatten().tolist() for each in sums(torch.tensor([0, 0, 1]))]
    [[2.0, 1.0], [3.0, 4.0]]
    >>> [each.flatten().tolist() for each in sums(torch.tensor([0, 1, 1]))]
    [[1.0, 2.0], [1.0, 6.0]]
    """

    def __init__(self, x: Tensor, k: int) -> None:
        self.x, self.total = x, x.new_zeros(k, x.shape[1])
        self.label: NDArray[Any] | None = None

    def __call__(self, label: Tensor) -> tuple[Tensor, Tensor]:
        """Sizes [k, 1] and sums [k, d] of the clusters that points are in by `label` [n]."""
        k = len(self.total)
        # numpy starts small operations sooner than torch does, and sorts small numbers by their digits
        own = label.numpy().astype(np.min_scalar_type(k))
        size = np.bincount(own, minlength=k)
        changed = np.ones(k, dtype=bool)
        if self.label is not None:
            moved = own != self.label
            changed[:] = False
            changed[own[moved]] = changed[self.label[moved]] = True
        if changed.any():
            # ascending in each, so that sums are rounded as those of all are
            point = own.argsort(kind="stable")
            if not changed.all():
                point = point[np.repeat(changed, size)]
            cluster = np.flatnonzero(changed)
            first = size[cluster].cumsum() - size[cluster]
            sums = F.embedding_bag(torch.from_numpy(point), self.x, torch.from_numpy(first), mode="sum")
            self.total = self.total.index_copy(0, torch.from_numpy(cluster), sums)
            self.label = own
        return torch.from_numpy(size)[:, None].to(self.x.dtype), self.total


class Foreseen:
    """Squared distances from points that k-means++ draws to all of the points `x` [n, d], for many draws at a time.

    A product with few rows takes nearly as long as one with many. Which points the next seeds are chosen from is known
    before the seeds: noise is drawn by then, and how far points are from the seeds changes less and less. What was
    foreseen in vain is lost, and what was not is made when it is asked for: nothing depends on it. No more than
    `most_bytes` are kept.

    >>> points = torch.tensor([[0.0], [1.0], [3.0]])
    >>> foreseen = Foreseen(points, points.square().sum(1), 1, 1 << 20)
    >>> foreseen(torch.tensor([2]), torch.ones(3), torch.ones(1, 3)).tolist()
    [[9.0, 4.0, 0.0]]
    """

    def __init__(self, x: Tensor, square: Tensor, draws: int, most_bytes: int) -> None:
        self.x, self.square, self.amount = x, square, min(draws + SPARE, len(x))
        room = max(most_bytes // (len(x) * x.element_size()), 2 * (draws + SPARE + LEAST_ROWS))
        self.row = x.new_empty(min(room, len(x) + LEAST_ROWS), len(x))
        self.place = torch.full((len(x),), -1)  # of a point's distances among the rows
        self.used = 0

    def __call__(self, point: Tensor, far: Tensor, noise: Tensor) -> Tensor:
        """Rows [m, n] of the drawn `point` [m]; how `far` [n] points are and the `noise` of these and later draws."""
        if bool((self.place[point] < 0).any()):
            ahead = max(1, len(self.row) // self.amount - 2)
            self._make(torch.cat([point, (far / noise[:ahead]).topk(self.amount).indices.flatten()]).unique())
        return self.row[self.place[point]]

    def _make(self, point: Tensor) -> None:
        fresh = _enough(point[self.place[point] < 0])
        if self.used + len(fresh) > len(self.row):
            self.used, fresh = 0, _enough(point)
            self.place.fill_(-1)
        self.place[fresh] = torch.arange(self.used, self.used + len(fresh))
        row = self.row[self.used : self.used + len(fresh)]
        torch.add(self.square[fresh, None], self.square, out=row)
        row.addmm_(self.x.index_select(0, fresh), self.x.T, alpha=-2).clamp_(min=0)
        self.used += len(fresh)


def repeatable(x: Tensor, least: int = LEAST_ROWS) -> bool:
    """Whether a row of a product has the same bits whichever rows are beside it, for points like `x`, on this machine.

    Where it has not, nothing may be left out: of centroids that are equally near, another could come out ahead. It is
    tried for rows that lie one after the other, `least` of them and more. What is reused has no gradient.
    """
    plain = x.is_contiguous() and not x.requires_grad
    return plain and _rows_round_alike(x.shape[-1], x.dtype, torch.get_num_threads(), least)


@cache
def _rows_round_alike(width: int, dtype: torch.dtype, threads: int, least: int) -> bool:
    """By trying; another number of `threads` may share products out otherwise, above all those of few rows."""
    del threads
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, width, generator=rng, dtype=torch.float64).to(dtype) for n in (300, 160))
    for columns in (2, 6, 47, 160):
        other = y[:columns].T
        whole = x @ other
        for rows in (least, LEAST_ROWS, 33, 200):
            some = torch.randperm(len(x), generator=rng)[:rows].sort().values
            if not whole[some].equal(x[some] @ other):
                return False
    return True


def _enough(row: Tensor) -> Tensor:
    """The rows, and where these are few, the first again and again."""
    return torch.cat([row, row[:1].expand(LEAST_ROWS)]) if 0 < len(row) < LEAST_ROWS else row


def scores(x: Tensor, centroid: Tensor) -> Tensor:
    """|c|² − 2⟨x, c⟩ of points [n, d] and centroids [k, d]: their squared distance less |x|², [n, k].

    >>> scores(torch.tensor([[1.0]]), torch.tensor([[1.0], [3.0]])).tolist()
    [[-1.0, 3.0]]
    """
    return torch.addmm(square_lengths(centroid), x, centroid.T, alpha=-2)


def square_lengths(x: Tensor) -> Tensor:
    """Squared lengths [..., n] of points [..., n, d], on a processor without a copy of all.

    >>> square_lengths(torch.tensor([[3.0, 4.0]])).tolist()
    [25.0]
    """
    if device.launch_bound(x.device) or x.shape[-2] <= FEW_ROWS:
        return (x * x).sum(-1)
    return torch.cat([(part * part).sum(-1) for part in x.split(FEW_ROWS, -2)], -1)


def directions(x: Tensor, amount: int = DIRECTIONS) -> Tensor:
    """Orthonormal directions [d, r], r ≤ `amount`, in which centred points `x` [n, d] differ much, from some of them.

    One step of subspace iteration from random ones, the same every time: which they are is not decisive.

    >>> directions(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 1)[0].abs().item() > 0.9
    True
    """
    some = x[:: max(1, len(x) // SAMPLE)]
    amount = min(amount, *some.shape)
    rng = torch.Generator().manual_seed(0)
    random = torch.randn(x.shape[1], amount, generator=rng, dtype=torch.float64).to(x.dtype)
    axes: Tensor = torch.linalg.qr(some.T @ (some @ random)).Q
    return axes
