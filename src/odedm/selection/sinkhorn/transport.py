"""Optimal transport as a distance: of rows read as histograms, and of clouds of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from odedm.core.accel import device
from odedm.core.errors import UsageError, unknown_name_error
from odedm.core.stored_names import stored
from odedm.selection.nearest import Chosen, Solve, greedy_nearest, nearest_by_estimate
from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn.estimate import foresee
from odedm.selection.sinkhorn.kernels import DenseKernel, GridKernel, Kernel

GROUNDS = ("auto", "profile", "grid")
Ground = Literal["auto", "profile", "grid"]

CLOUD_BYTES = 1 << 28
"""Largest batch of cost matrices between clouds; the solver holds a few such arrays at a time."""

FEW_BINS = 64
"""Bins below which all pairs are solved: cheap, and their estimates are too poor (8 to 24 bins: 11 of 900 choices)."""
LEAST_EPSILON = 0.03
"""Below it, and between images under the grid's ground cost, estimates were found too rough to go by."""

SURE = 0.9
"""The share of a lower bound of a transport cost that a solved one keeps to, however roughly it was solved."""

SHARPER = (6, 12)
"""Iterations of sharper and sharper estimates: few rule most pairs out, more are for those that converge slowly."""

SMALL, SMALL_BATCH = 1 << 17, 1 << 26
"""Pairs times dimensions up to which all are solved: finding out which matter takes more passes, dear on a GPU."""


@stored("distance/sinkhorn")
@dataclass(frozen=True)
class Sinkhorn:
    """Entropic optimal transport, reported as the transport cost ⟨P, M⟩ of the regularised plan.

    Clouds: uniform weights, squared Euclidean cost, ε = `epsilon` times the mean cost.
    Pairs: each row and centroid is a histogram over its d dimensions (columns with negative entries are shifted
    to start at zero, a row of zeros counts as uniform), ε = `pair_epsilon` times the mean of the ground cost:
    `profile`, the squared distance of two dimensions' standardised activations over the candidates, so that mass
    moves cheaply between units that fire together; `grid`, the squared distance of pixel positions, where mass
    stays in its channel and channels are averaged; `point`, where a row is one point and the cost between two
    points is their squared Euclidean distance, which ranks exactly as L2. `auto` is `grid` for images and
    `profile` otherwise. Departure from the paper, which leaves the ground cost open.
    `pairs` solves every pair to `tolerance` (L1 marginal error); `nearest` only those that can decide the choice: see
    `nearest_by_estimate` for `margin`, of which infinity solves every pair too. `screen` solves, for each centroid,
    that many rows of the best estimates alone; the others rank behind them by estimate. An approximation.

    >>> float(Sinkhorn().between_sets(torch.zeros(3, 2), torch.ones(4, 2)))
    2.0
    """

    epsilon: float = 0.05
    pair_epsilon: float = 0.1
    ground: Ground = "auto"
    tolerance: float = 1e-4
    iterations: int = 500
    screen: int | None = None
    margin: float = 0.1

    def __post_init__(self) -> None:
        if self.ground not in GROUNDS:
            raise unknown_name_error("ground cost", self.ground, GROUNDS)
        for name in ("epsilon", "pair_epsilon", "tolerance"):
            if not getattr(self, name) > 0:
                raise UsageError(f"Sinkhorn's {name} must be above 0; {getattr(self, name)} was given.")
        if not self.margin >= 0:
            raise UsageError(f"Sinkhorn's margin must be 0 or more, infinity to solve all; {self.margin} was given.")
        if self.pair_epsilon < 0.02:
            raise UsageError(
                f"Sinkhorn's pair_epsilon must be 0.02 or more, since the kernel of far pixels vanishes in float64 "
                f"below; {self.pair_epsilon} was given."
            )
        if self.iterations < 1 or (self.screen is not None and self.screen < 1):
            raise UsageError(
                f"Sinkhorn's iterations and screen must be 1 or more (screen may be None for none); "
                f"iterations={self.iterations}, screen={self.screen} were given."
            )

    def fit(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> FittedSinkhorn:
        """Fit the ground cost to `candidates` [n, d], which are flattened images when `image_shape` is given."""
        ground = self.ground
        if ground == "auto":
            ground = "profile" if image_shape is None else "grid"
        if ground == "grid" and (image_shape is None or len(image_shape) not in (2, 3)):
            raise UsageError(
                f"The ground cost 'grid' needs rows that are images [height, width] or [channels, height, width]; "
                f"the image shape given is {image_shape}. Use ground='profile' for feature vectors."
            )
        return FittedSinkhorn(replace(self, ground=ground), candidates, image_shape)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of histograms, fitted to `x`: [n, d], [k, d] -> [n, k]."""
        return self.fit(x, None).pairwise(x, y)

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Transport cost between uniformly weighted clouds: [n, d], [m, d] -> 0-d."""
        cost = squares(x, y)[None]
        a, b = cost.new_full((1, len(x)), 1 / len(x)), cost.new_full((1, len(y)), 1 / len(y))
        limit, small = self.iterations, self.tolerance
        return sinkhorn.clouds(cost, a, b, epsilon=self.epsilon, tolerance=small, iterations=limit).cost[0]

    def between_sets_at_least(self, clouds: Sequence[Tensor]) -> Tensor:
        """Lower bounds [K, K] of `clouds` between any two, from their means alone.

        Whatever a plan moves where, it moves one mean to the other, and by Jensen's inequality it pays at least what
        that costs. A tenth is left for plans whose sums are not quite the weights.

        >>> Sinkhorn().between_sets_at_least([torch.zeros(3, 2), torch.ones(4, 2)]).tolist()[0]
        [0.0, 1.7999999523162842]
        """
        mean = torch.stack([cloud.mean(0) for cloud in clouds])
        return SURE * (mean[:, None] - mean).square().sum(2)

    def between_many_sets(self, pairs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """`clouds` of each pair, of any classes: side by side, padded, where launches are what costs.

        >>> [float(cost) for cost in Sinkhorn().between_many_sets([(torch.zeros(3, 2), torch.ones(4, 2))])]
        [2.0]
        """
        if not pairs or not device.launch_bound(pairs[0][0].device):
            return [self.between_sets(x, y) for x, y in pairs]
        pairs = [sorted(pair, key=len) for pair in pairs]  # either way round is the same, and so the padding is less
        n, m = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
        d, size = pairs[0][0].shape[1], pairs[0][0].element_size()
        fit = max(1, CLOUD_BYTES // (max(n * m, (n + m) * d) * size))
        return [cost for first in range(0, len(pairs), fit) for cost in self._padded(pairs[first : first + fit])]

    def _padded(self, pairs: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
        (x, a), (y, b) = (_pad([pair[side] for pair in pairs]) for side in (0, 1))
        # about the middle of the two means, as in `squares`; padding has no weight there nor later
        origin = (torch.bmm(a[:, None], x) + torch.bmm(b[:, None], y)) / 2
        x, y = x.sub_(origin), y.sub_(origin)
        norms = (x * x).sum(2)[:, :, None] + (y * y).sum(2)[:, None]
        cost = norms.baddbmm_(x, y.mT, alpha=-2).clamp_(min=0)
        limit, small = self.iterations, self.tolerance
        solved = sinkhorn.clouds(cost, a, b, epsilon=self.epsilon, tolerance=small, iterations=limit)
        return solved.cost.unbind()


@dataclass(frozen=True, eq=False)
class FittedSinkhorn:
    """`Sinkhorn` with the ground cost of one class's candidates [n, d].

    >>> Sinkhorn(ground="grid").fit(torch.eye(4), (2, 2)).pairwise(torch.eye(4), torch.eye(4)[:1]).flatten().tolist()
    [0.0, 1.0, 1.0, 2.0]
    """

    settings: Sinkhorn
    candidates: Tensor
    image_shape: tuple[int, ...] | None

    def fit(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> FittedSinkhorn:
        """Fit the same settings to other candidates."""
        return self.settings.fit(candidates, image_shape)

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Transport cost between uniformly weighted clouds: [n, d], [m, d] -> 0-d."""
        return self.settings.between_sets(x, y)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of rows to centroids: [n, d], [k, d] -> [n, k]."""
        if x.shape[1] == 1:  # a histogram over one bin is always the same: compare the numbers
            return squares(x, y)
        source, target = self._histograms(x), self._histograms(y)
        screen = self.settings.screen
        if screen is None or screen >= len(x):
            sides = zip(source.unbind(1), target.unbind(1), strict=True)
            parts = [sinkhorn.histograms(a, b, self._kernel, **self._limits).cost for a, b in sides]
            return torch.stack(parts).mean(0)
        pair = torch.arange(len(x) * len(y), device=x.device)
        estimate = self._sharpened(source, target, pair // len(y), pair % len(y), SHARPER[0]).view(len(x), -1)
        most = torch.finfo(x.dtype).max / 4
        estimate = estimate.nan_to_num_(nan=most, posinf=most)  # one that could not be made ranks last
        # the estimates keep their order but move behind the solved ones, so a choice of distinct rows that has
        # used up a centroid's solved rows goes on with the next best
        best = estimate.topk(screen, dim=0, largest=False).indices
        column = torch.arange(len(y), device=x.device).expand(screen, -1)
        exact = self._matched(source, target, best.flatten(), column.flatten()).view(screen, -1)
        rest = estimate.scatter(0, best, torch.inf)
        rest = rest - rest.amin(0) + exact.amax(0) * (1 + 1e-6)
        return rest.scatter(0, best, exact)

    def nearest(self, x: Tensor, y: Tensor, per: int = 1) -> Chosen:
        """The rows that `greedy_nearest` would choose by `pairs`, solving only pairs that seem to decide it."""
        settings, margin = self.settings, self.settings.margin
        small = SMALL_BATCH if device.launch_bound(x.device) else SMALL
        few = x.shape[1] < FEW_BINS or len(x) * len(y) * x.shape[1] <= small
        rough = settings.ground != "profile" or settings.pair_epsilon < LEAST_EPSILON
        if few or rough or settings.screen is not None or margin == math.inf:
            return greedy_nearest(self.pairwise(x, y), per)
        source, target = self._histograms(x), self._histograms(y)

        def on_pairs(costs: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Solve:
            def find(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[Any]:
                i, j = torch.from_numpy(np.stack([row, column])).to(x.device, non_blocking=True)
                found: NDArray[Any] = costs(source, target, i, j).cpu().numpy()
                return found

            return find

        sharper = [on_pairs(partial(self._sharpened, iterations=amount)) for amount in SHARPER]
        estimate = foresee(source[:, 0], target[:, 0], self._kernel)  # profiles have one channel
        return nearest_by_estimate(estimate, sharper, on_pairs(self._matched), per, margin=margin)

    def _matched(self, source: Tensor, target: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Costs [p] of chosen pairs of histograms [n, channels, bins]."""
        sides = zip(source.unbind(1), target.unbind(1), strict=True)
        parts = [sinkhorn.matched(a, b, row, column, self._kernel, **self._limits).cost for a, b in sides]
        return torch.stack(parts).mean(0)

    def _sharpened(self, source: Tensor, target: Tensor, row: Tensor, column: Tensor, iterations: int) -> Tensor:
        """Estimates [p] of the costs of chosen pairs, after a few iterations."""
        sides = zip(source.unbind(1), target.unbind(1), strict=True)
        parts = [sinkhorn.rough(a, b, row, column, self._kernel, iterations=iterations) for a, b in sides]
        return torch.stack(parts).mean(0)

    @property
    def _limits(self) -> sinkhorn.Limits:
        return {"tolerance": self.settings.tolerance, "iterations": self.settings.iterations}

    def _histograms(self, x: Tensor) -> Tensor:
        """[n, channels, bins]: non-negative, each channel's sum 1."""
        # a centroid may fall below the smallest candidate by rounding, hence the clamp
        mass = (x - self._floor).clamp_(min=0).reshape(len(x), self._channels, -1)
        total = mass.sum(2, keepdim=True)
        return torch.where(total > 0, mass / total.clamp(min=torch.finfo(x.dtype).tiny), 1 / mass.shape[2])

    @cached_property
    def _floor(self) -> Tensor:
        return self.candidates.amin(0).clamp(max=0)

    @cached_property
    def _channels(self) -> int:
        shape = self.image_shape
        return shape[0] if self.settings.ground == "grid" and shape is not None and len(shape) == 3 else 1

    @cached_property
    def _kernel(self) -> Kernel:
        x, epsilon = self.candidates, self.settings.pair_epsilon
        if self.settings.ground == "grid" and self.image_shape is not None:
            return GridKernel(self.image_shape[-2], self.image_shape[-1], epsilon, x.dtype, x.device)
        z = x - x.mean(0)
        length = z.norm(dim=0)
        # a column that never changes has no profile: it counts as uncorrelated with every other
        z = torch.where(length > 1e-6 * x.abs().amax(0) * len(x) ** 0.5, z / length.clamp(min=1e-30), 0.0)
        cost = (2 - 2 * (z.T @ z)).clamp_(min=0)
        return DenseKernel.relative(cost.fill_diagonal_(0), epsilon)


def _pad(clouds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Clouds as one array [B, n, d], padded with zeros, and their uniform weights [B, n], zero at padding."""
    x = pad_sequence(clouds, batch_first=True)
    amount = torch.tensor([[len(cloud)] for cloud in clouds], dtype=x.dtype).to(x.device, non_blocking=True)
    return x, (torch.arange(x.shape[1], device=x.device) < amount) / amount


def squares(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances [n, m] of `x` [n, d] and `y` [m, d], from inner products about their mean.

    >>> squares(torch.tensor([[0.0]]), torch.tensor([[3.0]])).tolist()
    [[9.0]]
    """
    origin = (x.mean(0) + y.mean(0)) / 2
    x, y = x - origin, y - origin
    norms = (x * x).sum(1)[:, None] + (y * y).sum(1)
    return norms.addmm_(x, y.T, alpha=-2).clamp_(min=0)
