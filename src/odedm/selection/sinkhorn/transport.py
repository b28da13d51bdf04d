"""Optimal transport as a distance: of rows read as histograms, and of clouds of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from odedm.core.accel import device, threads
from odedm.core.choices import GROUNDS
from odedm.core.errors import UsageError, unknown_name_error
from odedm.core.stored_names import stored
from odedm.selection.nearest import Chosen, greedy_nearest
from odedm.selection.sinkhorn import solver
from odedm.selection.sinkhorn.kernels import DenseKernel, GridKernel, Kernel
from odedm.selection.sinkhorn.search import blur_and_separation, nearest_by_estimate

Ground = Literal["auto", "profile", "grid"]

CLOUD_BYTES = 1 << 28
"""Largest batch of cost matrices between clouds; the solver holds a few such arrays at a time."""

SMALL, FEW_BINS, LEAST_EPSILON = 1 << 17, 64, 0.03
"""Pairs times bins up to which all pairs are solved, and bins and ε below which: there estimates are too poor."""


@stored("distance/sinkhorn")
@dataclass(frozen=True)
class Sinkhorn:
    """Entropic optimal transport, reported as the transport cost ⟨P, M⟩ of the regularised plan.

    Between sets: uniform weights, squared Euclidean cost, ε = `epsilon` times the mean cost.
    Pairs: each row and center is a histogram over its d dimensions (columns with negative entries are shifted
    to start at zero, a row of zeros counts as uniform), ε = `pair_epsilon` times the mean of the ground cost:
    `profile`, the squared distance of two dimensions' standardised activations over the candidates, so that mass
    moves cheaply between units that fire together; `grid`, the squared distance of pixel positions, where mass
    stays in its channel and channels are averaged. `auto` is `grid` for images and `profile` otherwise. Departure
    from the paper, which leaves the ground cost open.
    `pairwise` solves every pair to `tolerance` (L1 marginal error), `nearest` only those that can decide the choice:
    see `nearest_by_estimate` for `margin`, of which infinity solves every pair too. `screen` solves, for each center,
    that many rows of the best estimates alone: an approximation.

    >>> float(Sinkhorn().between_sets(torch.zeros(3, 2), torch.ones(4, 2)))
    2.0
    """

    epsilon: float = 0.05
    pair_epsilon: float = 0.1
    ground: Ground = "auto"
    tolerance: float = 1e-4
    iterations: int = 500
    screen: int | None = None
    margin: float = 0.8

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
        """Return distances of histograms, fitted to `x`: [n, d], [k, d] -> [n, k]."""
        return self.fit(x, None).pairwise(x, y)

    def between_sets(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the transport cost between uniformly weighted sets: [n, d], [m, d] -> 0-d."""
        cost = squares(x, y)[None]
        a, b = cost.new_full((1, len(x)), 1 / len(x)), cost.new_full((1, len(y)), 1 / len(y))
        return solver.clouds(cost, a, b, epsilon=self.epsilon, **self.limits).cost[0]

    def between_many_sets(self, pairs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return `between_sets` of each pair: on a processor one per thread, on a GPU side by side, padded.

        >>> [float(cost) for cost in Sinkhorn().between_many_sets([(torch.zeros(3, 2), torch.ones(4, 2))])]
        [2.0]
        """
        if not pairs or not device.launch_bound(pairs[0][0].device):
            return threads.thread_map(lambda pair: self.between_sets(*pair), pairs)
        pairs = [sorted(pair, key=len) for pair in pairs]  # either way round is the same, and so the padding is less
        n, m = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
        d, size = pairs[0][0].shape[1], pairs[0][0].element_size()
        fit = max(1, CLOUD_BYTES // (max(n * m, (n + m) * d) * size))
        return [cost for first in range(0, len(pairs), fit) for cost in self._padded(pairs[first : first + fit])]

    @property
    def limits(self) -> solver.Limits:
        """When the solver stops."""
        return {"tolerance": self.tolerance, "iterations": self.iterations}

    def _padded(self, pairs: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
        (x, a), (y, b) = (_pad([pair[side] for pair in pairs]) for side in (0, 1))
        # about the middle of the two means, as in `squares`; padding has no weight there nor later
        origin = (torch.bmm(a[:, None], x) + torch.bmm(b[:, None], y)) / 2
        x, y = x.sub_(origin), y.sub_(origin)
        norms = (x * x).sum(2)[:, :, None] + (y * y).sum(2)[:, None]
        cost = norms.baddbmm_(x, y.mT, alpha=-2).clamp_(min=0)
        return solver.clouds(cost, a, b, epsilon=self.epsilon, **self.limits).cost.unbind()


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
        """Return the transport cost between uniformly weighted sets: [n, d], [m, d] -> 0-d."""
        return self.settings.between_sets(x, y)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Return distances of rows to centers: [n, d], [k, d] -> [n, k]."""
        if x.shape[1] == 1:  # a histogram over one bin is always the same: compare the numbers
            return squares(x, y)
        sides = zip(self._histograms(x).unbind(1), self._histograms(y).unbind(1), strict=True)
        parts = [solver.histograms(a, b, self._kernel, **self.settings.limits).cost for a, b in sides]
        return torch.stack(parts).mean(0)

    def nearest(self, x: Tensor, y: Tensor, per: int = 1) -> Chosen:
        """Choose the rows that `greedy_nearest` would by `pairwise`, solving only pairs that seem to decide it."""
        settings = self.settings
        few = x.shape[1] < FEW_BINS or len(x) * len(y) * x.shape[1] <= SMALL
        rough = settings.ground != "profile" or settings.pair_epsilon < LEAST_EPSILON
        exact = settings.screen is None and (few or rough or settings.margin == math.inf)
        if exact or x.shape[1] == 1 or len(x) <= (settings.screen or per):
            return greedy_nearest(self.pairwise(x, y), per)
        source, target = self._histograms(x), self._histograms(y)

        def solve(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[Any]:
            i, j = torch.from_numpy(np.stack([row, column])).to(x.device, non_blocking=True)
            costs: NDArray[Any] = self._solve(source, target, i, j).cpu().numpy()
            return costs

        sides = zip(source.unbind(1), target.unbind(1), strict=True)
        blurs, separations = zip(*(blur_and_separation(a, b, self._kernel) for a, b in sides), strict=True)
        blur, separation = torch.stack(blurs).mean(0), torch.stack(separations).mean(0)
        return nearest_by_estimate(blur, separation, solve, per, margin=settings.margin, screen=settings.screen)

    def _solve(self, source: Tensor, target: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return costs [p] of chosen pairs of histograms [n, channels, bins], the mean over channels."""
        sides = zip(source.unbind(1), target.unbind(1), strict=True)
        parts = [solver.matched(a, b, row, column, self._kernel, **self.settings.limits).cost for a, b in sides]
        return torch.stack(parts).mean(0)

    def _histograms(self, x: Tensor) -> Tensor:
        """Return rows as [n, channels, bins]: non-negative, each channel's sum 1."""
        # a center may fall below the smallest candidate by rounding, hence the clamp
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


def _pad(sets: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return sets as one array [B, n, d], padded with zeros, and their uniform weights [B, n], zero at padding."""
    padded = pad_sequence(sets, batch_first=True)
    amount = torch.tensor([[len(x)] for x in sets], dtype=padded.dtype).to(padded.device, non_blocking=True)
    return padded, (torch.arange(padded.shape[1], device=padded.device) < amount) / amount


def squares(x: Tensor, y: Tensor) -> Tensor:
    """Return squared Euclidean distances [n, m] of `x` [n, d] and `y` [m, d], from inner products about their mean.

    >>> squares(torch.tensor([[0.0]]), torch.tensor([[3.0]])).tolist()
    [[9.0]]
    """
    origin = (x.mean(0) + y.mean(0)) / 2
    x, y = x - origin, y - origin
    norms = (x * x).sum(1)[:, None] + (y * y).sum(1)
    return norms.addmm_(x, y.T, alpha=-2).clamp_(min=0)
