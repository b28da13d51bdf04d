"""Optimal transport as a distance: of rows read as histograms, and of clouds of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from odedm.consolidate import sinkhorn
from odedm.consolidate.kernels import DenseKernel, GridKernel, Kernel
from odedm.errors import UsageError, unknown

GROUNDS = ("auto", "profile", "grid", "point")
Ground = Literal["auto", "profile", "grid", "point"]


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
    `screen`: three iterations for all pairs, and full convergence only for that many best rows per centroid; the
    others rank behind them in screened order. None solves every pair to `tolerance` (L1 marginal error).

    >>> float(Sinkhorn().clouds(torch.zeros(3, 2), torch.ones(4, 2)))
    2.0
    """

    epsilon: float = 0.05
    pair_epsilon: float = 0.1
    ground: Ground = "auto"
    tolerance: float = 1e-4
    iterations: int = 500
    screen: int | None = None

    def __post_init__(self) -> None:
        if self.ground not in GROUNDS:
            raise unknown("ground cost", self.ground, GROUNDS)
        for name in ("epsilon", "pair_epsilon", "tolerance"):
            if not getattr(self, name) > 0:
                raise UsageError(f"Sinkhorn's {name} must be above 0; {getattr(self, name)} was given.")
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

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> FittedSinkhorn:
        """Fit the ground cost to `candidates` [n, d], which are flattened images when `image_shape` is given."""
        ground = self.ground
        if ground == "auto":
            ground = "profile" if image_shape is None else "grid"
            if candidates.shape[1] == 1:  # a histogram over one dimension is always the same: compare the numbers
                ground = "point"
        if ground == "grid" and (image_shape is None or len(image_shape) not in (2, 3)):
            raise UsageError(
                f"The ground cost 'grid' needs rows that are images [height, width] or [channels, height, width]; "
                f"the image shape given is {image_shape}. Use ground='profile' for feature vectors."
            )
        return FittedSinkhorn(replace(self, ground=ground), candidates, image_shape)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of histograms, fitted to `x`: [n, d], [k, d] -> [n, k]."""
        return self.prepare(x, None).pairs(x, y)

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Transport cost between uniformly weighted clouds: [n, d], [m, d] -> 0-d."""
        cost = squares(x, y)[None]
        a, b = cost.new_full((1, len(x)), 1 / len(x)), cost.new_full((1, len(y)), 1 / len(y))
        limit, small = self.iterations, self.tolerance
        return sinkhorn.clouds(cost, a, b, epsilon=self.epsilon, tolerance=small, iterations=limit).cost[0]


@dataclass(frozen=True, eq=False)
class FittedSinkhorn:
    """`Sinkhorn` with the ground cost of one class's candidates [n, d].

    >>> Sinkhorn(ground="grid").prepare(torch.eye(4), (2, 2)).pairs(torch.eye(4), torch.eye(4)[:1]).flatten().tolist()
    [0.0, 1.0, 1.0, 2.0]
    """

    settings: Sinkhorn
    candidates: Tensor
    image_shape: tuple[int, ...] | None

    def prepare(self, candidates: Tensor, image_shape: tuple[int, ...] | None) -> FittedSinkhorn:
        """Fit the same settings to other candidates."""
        return self.settings.prepare(candidates, image_shape)

    def clouds(self, x: Tensor, y: Tensor) -> Tensor:
        """Transport cost between uniformly weighted clouds: [n, d], [m, d] -> 0-d."""
        return self.settings.clouds(x, y)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of rows to centroids: [n, d], [k, d] -> [n, k]."""
        if self.settings.ground == "point":
            return squares(x, y)
        limit, screen = self.settings.iterations, self.settings.screen
        if screen is None or screen >= len(x):
            return self._transport(x, y, limit)
        rank = self._transport(x, y, 3)
        # the screened values keep their order but move behind the refined ones, so a choice of distinct rows
        # that has used up a centroid's refined rows goes on with the next best
        best = rank.topk(screen, dim=0, largest=False).indices
        exact = torch.cat([self._transport(x[best[:, j]], y[j : j + 1], limit) for j in range(len(y))], 1)
        rest = rank.scatter(0, best, torch.inf)
        rest = rest - rest.amin(0) + exact.amax(0) * (1 + 1e-6)
        return rest.scatter(0, best, exact)

    def _transport(self, x: Tensor, y: Tensor, iterations: int) -> Tensor:
        small, kernel = self.settings.tolerance, self._kernel
        source, target = self._histograms(x), self._histograms(y)
        parts = [
            sinkhorn.histograms(source[:, c], target[:, c], kernel, tolerance=small, iterations=iterations).cost
            for c in range(source.shape[1])
        ]
        return torch.stack(parts).mean(0)

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


def squares(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances [n, m] of `x` [n, d] and `y` [m, d], from inner products about their mean.

    >>> squares(torch.tensor([[0.0]]), torch.tensor([[3.0]])).tolist()
    [[9.0]]
    """
    origin = (x.mean(0) + y.mean(0)) / 2
    x, y = x - origin, y - origin
    norms = (x * x).sum(1)[:, None] + (y * y).sum(1)
    return norms.addmm_(x, y.T, alpha=-2).clamp_(min=0)
