"""The nearest distinct rows of centers by transport costs, of which only those are solved that can decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.selection.nearest import Chosen
from odedm.selection.sinkhorn.kernels import Kernel
from odedm.selection.sinkhorn.relaxation import least
from odedm.selection.sinkhorn.solver import in_chunks

SELF_ITERATIONS = 4
"""Iterations of histograms to themselves: so symmetric a problem converges at once."""

FIRST, LEAST_FIRST, BEHIND = 8, 96, 8
"""Rows of each center that are solved first: the best, of few centers more of them, and some farther and farther."""

LOW = 0.01
"""The quantile of costs divided by estimates that counts as lowest: a minimum would fall with the number of pairs."""

FAR = np.finfo(np.float64).max
"""The cost of a pair that could not be solved: behind all others, and still a number."""

Array = NDArray[Any]
Solve = Callable[[Array, Array], Array]
"""Rows [p] and centers [p] in, their costs [p] out."""


def blur_and_separation(source: Tensor, target: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Return what the costs between `source` [n, d] and `target` [k, d] are made of, for a symmetric kernel, as [n, k].

    A plan pays for the blur of ε, as it does from a histogram to itself: the mean of the two costs to themselves. And
    it pays for the separation, ⟨a − b, f_b − f_a⟩, where f are the potentials of histograms to themselves: the
    Hausdorff divergence of Feydy et al. 2019, for near histograms as good as Sinkhorn's. All pairs take two products.

    >>> from odedm.selection.sinkhorn.kernels import DenseKernel
    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> blur_and_separation(torch.eye(2), torch.eye(2), kernel)[1].round().tolist()
    [[0.0, 80.0], [80.0, 0.0]]
    """
    (f_a, cost_a), (f_b, cost_b) = self_transport(source, kernel), self_transport(target, kernel)
    separation = source @ f_b.T + f_a @ target.T - (source * f_a).sum(1)[:, None] - (target * f_b).sum(1)
    return (cost_a[:, None] + cost_b) / 2, separation.clamp_(min=0)  # it is below by rounding alone


def self_transport(mass: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Transport histograms [n, d] to themselves: the potentials of all bins [n, d], in units of ε, and the costs [n].

    Both scalings are the same then, so each update meets the last one half way, and few are enough.

    >>> from odedm.selection.sinkhorn.kernels import DenseKernel
    >>> kernel = DenseKernel(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.5)
    >>> self_transport(torch.eye(2)[:1], kernel)[0].abs().tolist()
    [[0.0, 2.0]]
    """
    tiny = least(mass.dtype)
    potential, cost = torch.empty_like(mass), mass.new_empty(len(mass))

    def solve(part: Tensor) -> None:
        a = mass[part]
        v = a.sqrt()
        for _ in range(SELF_ITERATIONS):
            v = (v * a / kernel.apply(v).clamp_(min=tiny)).sqrt_()
        sent = kernel.apply(v).clamp_(min=tiny)
        potential[part], cost[part] = -sent.log(), (a * kernel.apply_cost(v) / sent).sum(1)

    in_chunks(solve, len(mass), mass)
    return potential, cost


def nearest_by_estimate(
    blur: Tensor, separation: Tensor, solve: Solve, per: int = 1, *, margin: float = 0.8, screen: int | None = None
) -> Chosen:
    """Choose as `greedy_nearest` would by all costs, which grow with `blur` and `separation` [n, k], by solving few.

    1. The rows of each center with the least separation are solved, and some farther and farther behind them.
    2. They tell how costs grow with separation, which estimates all others.
    3. Costs divided by estimates have a mean for each center, and one in a hundred of all falls below it by some share.
       An unsolved cost is taken to be no lower than its estimate times this mean, less that share, less `margin` times
       as much again.
    4. Free rows that could so be nearer than what their center has found are solved, until there are none.

    So it is wrong only where an unsolved cost is farther below its estimate than that. `screen` solves that many rows
    of each center alone.

    >>> cost = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    >>> nearest_by_estimate(torch.ones(3, 2), cost, lambda row, center: cost.numpy()[row, center])
    Chosen(row=tensor([0, 2]), center=tensor([0, 1]))
    """
    blurs, separations = (np.ascontiguousarray(x.T.cpu().numpy()).astype(np.float64) for x in (blur, separation))
    k, n = blurs.shape
    order = np.argsort(separations, axis=1)  # what is no number comes last
    first = min(n, screen or max(FIRST + per, -(-LEAST_FIRST // k)))
    behind = np.geomspace(first, n, 1 if screen else BEHIND + 1)[1:].astype(np.int64) - 1
    wanted = np.zeros((k, n), dtype=bool)
    np.put_along_axis(wanted, order[:, np.union1d(np.arange(first), behind)], True, axis=1)
    wanted |= ~np.isfinite(blurs + separations)
    known = np.full((k, n), np.inf)
    estimate = None
    taken: list[tuple[int, int]] = []
    while wanted.any():
        center, row = np.nonzero(wanted)
        cost = solve(row, center).astype(np.float64)
        known[center, row] = np.where(np.isfinite(cost), cost, FAR)
        if estimate is None:
            estimate = _estimate(blurs, separations, known, order[:, :first])
        bound = np.where(known < np.inf, np.inf, estimate * _lowest_factors(known, estimate, margin))
        taken, wanted = _choose(known, bound, per, only_missing=screen is not None)
    rows, centers = torch.tensor(taken, dtype=torch.int64).view(-1, 2).T.contiguous().to(blur.device)
    return Chosen(rows, centers)


def _estimate(blur: Array, separation: Array, known: Array, near: Array) -> Array:
    """Estimate all costs [k, n], going by the `known` ones of the rows `near` [k, m].

    In cubes, since costs grow less and less with separation, and a far row that is not so dear would be missed.
    """
    solved = np.take_along_axis(known, near, 1)
    solved = np.where(solved < FAR, solved, 0.0)
    floor = max(1e-3 * float(solved.mean()), np.finfo(np.float64).tiny)  # where nothing is blurred
    blur, solved = np.maximum(np.nan_to_num(blur), floor), np.maximum(solved, floor)
    relative = np.nan_to_num(separation) / blur
    # least squares of the relative errors of cubes
    share = (np.take_along_axis(blur, near, 1) / solved) ** 3
    grown = share * np.take_along_axis(relative, near, 1)
    pace = max(0.0, ((1 - share) * grown).sum() / max(np.square(grown).sum(), np.finfo(np.float64).tiny))
    estimate: Array = blur * np.cbrt(1 + pace * relative)
    return estimate


def _lowest_factors(known: Array, estimate: Array, margin: float) -> Array:
    """Return by which factor [k, 1] of its estimate a cost may be as low, going by the `known` ones [k, n]."""
    solved = known < FAR
    factor = np.divide(known, estimate, out=np.zeros_like(known), where=solved)
    mean = factor.sum(1, keepdims=True) / np.maximum(solved.sum(1, keepdims=True), 1)
    share = np.divide(factor, mean, out=np.ones_like(known), where=mean > 0)[solved]
    lowest = min(1.0, float(np.quantile(share, LOW))) if len(share) else 0.0  # nothing solved: anything may win
    factors: Array = mean * max(0.0, lowest * (1 - margin * (1 - lowest)))
    return factors


def _choose(known: Array, bound: Array, per: int, *, only_missing: bool) -> tuple[list[tuple[int, int]], Array]:
    """Choose by the `known` costs [k, n], and say which others must be known, going by lower bounds [k, n] of them."""
    free = np.ones(known.shape[1], dtype=bool)
    wanted = np.zeros(known.shape, dtype=bool)
    taken: list[tuple[int, int]] = []
    for center, costs in enumerate(known):
        cost, rest = np.where(free, costs, np.inf), np.where(free, bound[center], np.inf)
        farthest = -np.inf
        for _ in range(min(per, int(free.sum()))):
            row = int(cost.argmin())
            if not np.isfinite(cost[row]):  # others have taken all that are known: some more of its best
                wanted[center, np.argsort(rest, kind="stable")[: per + FIRST]] = True
                wanted[center] &= np.isfinite(rest)
                break
            farthest, cost[row], free[row] = max(farthest, cost[row]), np.inf, False
            taken.append((row, center))
        if not only_missing:
            wanted[center] |= rest < farthest
    return taken, wanted
