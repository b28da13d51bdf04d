"""The nearest distinct rows of centroids in turn, from all costs or from as few solved ones as decide the choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.errors import UsageError

FIRST = 8
"""Rows per centroid that are solved before anything is known of how far the estimates are off."""

FAR = np.finfo(np.float64).max
"""The cost of a pair that could not be solved: behind all others, and still a number."""

Solve = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]
"""Rows [p] and centroids [p] in, their costs [p] out."""


class Chosen(NamedTuple):
    """Rows [m] in the order of their centroids, and the centroid of each [m], both int64."""

    row: Tensor
    centroid: Tensor


def nearest_distinct(cost: Tensor, per: int = 1) -> Chosen:
    """Each centroid in turn takes its `per` nearest rows that no other has taken, by `cost` [n, k].

    Equal costs: the lower row. When the rows run out the last centroids get fewer, or none.

    >>> nearest_distinct(torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]))
    Chosen(row=tensor([0, 2]), centroid=tensor([0, 1]))
    """
    if cost.dim() != 2 or per < 1:
        raise UsageError(f"Costs must be [n, k] and per 1 or more; {list(cost.shape)} and {per} were given.")
    # numpy, since only there an argmin among equals is promised to be the first
    table = np.ascontiguousarray(cost.T.cpu().numpy())
    free = np.arange(table.shape[1])
    taken: list[tuple[int, int]] = []
    for centroid, column in enumerate(table):
        for _ in range(min(per, len(free))):
            place = int(column[free].argmin())
            taken.append((int(free[place]), centroid))
            free = np.delete(free, place)
    return _chosen(taken, cost.device)


def nearest_by_estimate(estimate: Tensor, sharpen: Solve, solve: Solve, per: int = 1, *, margin: float = 0.1) -> Chosen:
    """`nearest_distinct` where a cost is dear, but an `estimate` [n, k] of it, wrong by a factor, is not.

    `sharpen` gives better estimates at a fraction of the price of `solve`. Both are done for the best estimates of each
    centroid, and then for every free row that could still beat what its centroid has found: whose estimate, times the
    centroid's mean factor so far, times the lowest factor so far as a share of such means, less `margin` of it, is
    below; first by `estimate`, then by the sharpened one. What is solved on the way moves these factors, and it goes on
    until no such row is left. So it chooses as all costs would, unless the factor of an unsolved pair is below the
    lowest seen by more than `margin`; where estimates are poor it solves everything.

    >>> cost = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    >>> exact = lambda row, centroid: cost.numpy()[row, centroid]
    >>> nearest_by_estimate(cost + 0.1, exact, exact)
    Chosen(row=tensor([0, 2]), centroid=tensor([0, 1]))
    """
    guess = np.ascontiguousarray(estimate.T.cpu().numpy()).astype(np.float64)
    guess = np.where(np.isfinite(guess), guess, 0.0)  # what could not be estimated must be solved
    offset = 1e-6 * guess.mean() + np.finfo(np.float64).tiny  # both may be zero, and then agree
    guess += offset
    sharp, known = guess.copy(), np.full_like(guess, np.inf)
    is_sharp, is_known = np.zeros((2, *guess.shape), dtype=bool)  # what was asked for, whatever the answer
    amount = min(per + FIRST, guess.shape[1])
    blunt = np.zeros(guess.shape, dtype=bool)
    np.put_along_axis(blunt, np.argpartition(guess, amount - 1, axis=1)[:, :amount], True, axis=1)
    dear = blunt
    while True:
        for table, asked, find, places in ((sharp, is_sharp, sharpen, blunt), (known, is_known, solve, dear)):
            centroid, row = places.nonzero()
            if len(row):
                answer = find(row, centroid) + offset
                # an answer that overflowed says nothing: the estimate stays, or the cost counts as beyond all others
                answer = np.where(np.isfinite(answer), answer, guess[centroid, row] if table is sharp else FAR)
                table[centroid, row], asked[centroid, row] = answer, True
        solved = (is_known & (known < FAR)).nonzero()
        bound = np.where(is_sharp, *(_lowest(table, known, solved, margin) for table in (sharp, guess)))
        bound[is_known] = np.inf
        taken, wanted = _try(known, bound, per)
        if not wanted.any():
            return _chosen(taken, estimate.device)
        blunt, dear = wanted & ~is_sharp, wanted & is_sharp


def _lowest(guess: NDArray[Any], known: NDArray[Any], solved: tuple[Any, ...], margin: float) -> NDArray[Any]:
    """How low the costs [k, n] may be, going by estimates of all and by the costs `known` where they are `solved`."""
    factor, centroid = known[solved] / guess[solved], solved[0]
    amount = np.bincount(centroid, minlength=len(guess))
    mean = np.bincount(centroid, factor, len(guess)) / np.maximum(amount, 1)
    share = (factor / mean[centroid]).min(initial=1.0) * (1 - margin)
    lowest: NDArray[Any] = guess * np.where(amount > 0, mean * share, 0.0)[:, None]  # nothing solved: anything may win
    return lowest


def _try(known: NDArray[Any], bound: NDArray[Any], per: int) -> tuple[list[tuple[int, int]], NDArray[np.bool_]]:
    """Choose by the `known` costs [k, n], and say which others must be known, going by lower bounds [k, n] of them."""
    free = np.ones(known.shape[1], dtype=bool)
    wanted = np.zeros(known.shape, dtype=bool)
    taken: list[tuple[int, int]] = []
    for centroid in range(len(known)):
        cost = np.where(free, known[centroid], np.inf)
        rest = np.where(free, bound[centroid], np.inf)
        for _ in range(min(per, int(free.sum()))):
            row = int(cost.argmin())
            if not np.isfinite(cost[row]):  # others have taken all that are known: some more of its best
                few = np.argsort(rest, kind="stable")[: per + FIRST]
                wanted[centroid, few[np.isfinite(rest[few])]] = True
                break
            wanted[centroid] |= rest < cost[row]
            taken.append((row, centroid))
            cost[row], free[row] = np.inf, False
    return taken, wanted


def _chosen(taken: list[tuple[int, int]], device: torch.device) -> Chosen:
    row, centroid = torch.tensor(taken, dtype=torch.int64).view(-1, 2).T.contiguous().to(device, non_blocking=True)
    return Chosen(row, centroid)
