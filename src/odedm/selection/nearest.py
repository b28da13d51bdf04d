"""The nearest distinct rows of centers in turn, from all costs or from as few solved ones as decide the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.core.errors import UsageError

if TYPE_CHECKING:
    from odedm.selection.distance import Distance
    from odedm.selection.kmeans import Clusters

FIRST = 4
"""Rows per center that are solved before anything is known of how far the estimates are off."""

SAMPLE = 96
"""How many pairs are so at least, for all centers together: of few centers more rows each."""

BEHIND, MOST_BEHIND = 1024, 16
"""About how many further pairs are solved, of all centers together and of one, to see how far estimates are off."""

FAR = np.finfo(np.float64).max
"""The cost of a pair that could not be solved: behind all others, and still a number."""

Solve = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]
"""Rows [p] and centers [p] in, their costs [p] out."""


class Chosen(NamedTuple):
    """Rows [m] in the order of their centers, and the center of each [m], both int64."""

    row: Tensor
    center: Tensor


def nearest(distance: Distance, x: Tensor, clusters: Clusters, per: int = 1) -> Chosen:
    """The `per` nearest distinct rows of `x` [n, d] for each of its clusters, by a fitted distance.

    A distance may have a `nearest` of its own that chooses the same with less work; else all distances are compared.

    >>> from odedm.selection.distance import DISTANCES
    >>> from odedm.selection.kmeans import Clusters
    >>> x = torch.tensor([[0.0], [1.0], [5.0]])
    >>> nearest(DISTANCES["l2"], x, Clusters(torch.tensor([0, 1, 1]), torch.tensor([[0.9], [1.1]]), 0.0)).row.tolist()
    [1, 0]
    """
    by_itself = getattr(distance, "nearest", None)
    if by_itself is None:
        return greedy_nearest(row_distances(distance, x, clusters), per)
    chosen: Chosen = by_itself(x, clusters.centers, per)
    return chosen


def row_distances(distance: Distance, x: Tensor, clusters: Clusters) -> Tensor:
    """Distances of rows to clusters [n, k]: to their points where the distance knows how, else to their centers."""
    to_clusters = getattr(distance, "to_clusters", None)
    if to_clusters is None:
        return distance.pairwise(x, clusters.centers)
    far: Tensor = to_clusters(x, clusters.labels, len(clusters.centers))
    return far


def greedy_nearest(cost: Tensor, per: int = 1) -> Chosen:
    """Each center in turn takes its `per` nearest rows that no other has taken, by `cost` [n, k].

    Equal costs: the lower row. When the rows run out the last centers get fewer, or none.

    >>> greedy_nearest(torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]))
    Chosen(row=tensor([0, 2]), center=tensor([0, 1]))
    """
    if cost.dim() != 2 or per < 1:
        raise UsageError(f"Costs must be [n, k] and per 1 or more; {list(cost.shape)} and {per} were given.")
    # numpy, since only there an argmin among equals is promised to be the first
    table = np.ascontiguousarray(cost.T.cpu().numpy())
    free = np.arange(table.shape[1])
    taken: list[tuple[int, int]] = []
    for center, column in enumerate(table):
        for _ in range(min(per, len(free))):
            place = int(column[free].argmin())
            taken.append((int(free[place]), center))
            free = np.delete(free, place)
    return _chosen(taken, cost.device)


def nearest_by_estimate(
    estimate: Tensor, sharper: Sequence[Solve], solve: Solve, per: int = 1, *, margin: float = 0.1
) -> Chosen:
    """`greedy_nearest` where a cost is dear, but an `estimate` [n, k] of it, wrong by a factor, is not.

    `sharper` gives better and better estimates at rising prices, all below that of `solve`. The best of each center
    by `estimate`, and some behind them, go through all. Then every free row that could still beat what its center has
    found climbs one step, and again, until no such row is left: one whose sharpest estimate so far, times the
    center's mean factor of such estimates, times their lowest factor so far as a share of such means, less `margin`
    of it, is below. The margin of sharper estimates is smaller, as their factors spread less than those of `estimate`,
    and that of any is no smaller than what the lowest factor is below the mean. What is solved on the way moves these
    factors. So it chooses as all costs would, unless the factor of an unsolved pair is below the lowest seen by more
    than the margin.

    >>> cost = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    >>> exact = lambda row, center: cost.numpy()[row, center]
    >>> nearest_by_estimate(cost + 0.1, [exact], exact)
    Chosen(row=tensor([0, 2]), center=tensor([0, 1]))
    """
    guess = np.ascontiguousarray(estimate.T.cpu().numpy()).astype(np.float64)
    estimated = np.isfinite(guess)
    guess = np.where(estimated, guess, 0.0)
    offset = 1e-6 * guess.mean() + np.finfo(np.float64).tiny  # both may be zero, and then agree
    guess += offset
    tables, known = [guess, *(np.full_like(guess, np.nan) for _ in sharper)], np.full_like(guess, np.inf)
    step = np.zeros(guess.shape, dtype=np.int8)  # how often a pair was asked for, whatever the answers

    def climb(wanted: NDArray[np.int64]) -> None:  # places in a flat table: to find them in a square one takes longer
        for at, find in reversed([*enumerate([*sharper, solve])]):  # from above, so that a pair climbs one step alone
            place = wanted[step.ravel()[wanted] == at]
            if not len(place):
                continue
            center, row = np.divmod(place, guess.shape[1])
            answer = find(row, center) + offset
            # an answer that overflowed says nothing: the estimate stays, or the cost counts as beyond all others
            instead = tables[at].ravel()[place] if at < len(sharper) else FAR
            [*tables, known][at + 1].ravel()[place] = np.where(np.isfinite(answer), answer, instead)
            step.ravel()[place] = at + 1

    taken: list[tuple[int, int]] = []
    bound = np.empty_like(guess)
    first = ~estimated  # these must be solved, and say nothing of the others
    np.put_along_axis(first, _sample(np.where(estimated, guess, np.inf), per), True, axis=1)
    wanted = np.flatnonzero(first)
    for _ in range(len(sharper)):
        climb(wanted)
    while len(wanted):
        climb(wanted)
        solved = np.flatnonzero(known < FAR)
        factors = _lowest(tables, known, solved[estimated.ravel()[solved]], margin)
        for at, (table, factor) in enumerate(zip(tables, factors, strict=True)):
            np.multiply(table, factor, out=bound, where=step == at if at else True)
        bound.ravel()[np.flatnonzero(step == len(tables))] = np.inf
        taken, wanted = _try(known, bound, per)
    return _chosen(taken, estimate.device)


def _sample(guess: NDArray[Any], per: int) -> NDArray[np.int64]:
    """Rows [k, m] to be solved first: the best by `guess` [k, n], and some farther and farther behind them.

    The best alone would not tell how often an estimate is too high.
    """
    k, n = guess.shape
    amount, some = min(max(per + FIRST, -(-SAMPLE // k)), n), min(-(-BEHIND // k), MOST_BEHIND)
    behind = amount * (n / amount) ** ((np.arange(some) + 0.5) / some)
    rank = np.union1d(np.arange(amount), behind[behind < n].astype(np.int64))
    rows: NDArray[np.int64] = np.argsort(guess, axis=1)[:, rank]
    return rows


def _lowest(
    tables: Sequence[NDArray[Any]], known: NDArray[Any], solved: NDArray[np.int64], margin: float
) -> Iterator[NDArray[Any]]:
    """By which factor [k, 1] of each table of estimates [k, n] costs may be as low, going by the `solved` ones."""
    center = solved // known.shape[1]
    amount = np.bincount(center, minlength=len(known))
    blunt = 0.0
    for table in tables:
        factor = known.ravel()[solved] / table.ravel()[solved]
        mean = np.bincount(center, factor, len(known)) / np.maximum(amount, 1)
        share = factor / mean[center]
        spread = float(np.square(share - 1).sum() ** 0.5)
        blunt = blunt or spread
        # sharper estimates need less of a margin, as much less as they spread less; poor ones as much again as was seen
        lowest = share.min(initial=1.0)
        lowest *= 1 - max(margin * min(1.0, spread / blunt if blunt else 1.0), 1 - lowest)
        yield np.where(amount > 0, mean * lowest, 0.0)[:, None]  # nothing solved: anything may win


def _try(known: NDArray[Any], bound: NDArray[Any], per: int) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """Choose by the `known` costs [k, n], and say which others must be known, going by lower bounds [k, n] of them.

    These are places in a flat table, ascending.
    """
    n = known.shape[1]
    gone = np.zeros(min(per * len(known), n), dtype=np.int64)
    wanted: list[NDArray[np.int64]] = []
    taken: list[tuple[int, int]] = []
    for center, (costs, rest) in enumerate(zip(known, bound, strict=True)):
        cost = costs.copy()
        cost[gone[: len(taken)]] = rest[gone[: len(taken)]] = np.inf
        least, few = -np.inf, None
        for _ in range(min(per, n - len(taken))):
            row = int(cost.argmin())
            if not np.isfinite(cost[row]):  # others have taken all that are known: some more of its best
                few = np.argsort(rest, kind="stable")[: per + FIRST]
                break
            least = max(least, cost[row])
            cost[row], gone[len(taken)] = np.inf, row
            taken.append((row, center))
        more = rest < least
        if few is not None:
            more[few] |= np.isfinite(rest[few])
        wanted.append(center * n + np.flatnonzero(more))
    return taken, np.concatenate(wanted)


def _chosen(taken: list[tuple[int, int]], device: torch.device) -> Chosen:
    row, center = torch.tensor(taken, dtype=torch.int64).view(-1, 2).T.contiguous().to(device, non_blocking=True)
    return Chosen(row, center)
