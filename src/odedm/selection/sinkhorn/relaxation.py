"""How far beyond the plain ones Sinkhorn's updates go, pair by pair, as each converges; and what a solver returns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RELAXATION, MOST_RELAXATION = 1.4, 1.75
"""Each update goes 1.4 times as far in the log domain, and farther for pairs that are found to converge slowly."""

ROUGH_RELAXATION = 1.6
"""That of estimates, which are taken long before convergence: best for slow pairs at 4 to 12 iterations."""

STUCK, LESS = 4.0, 0.75
"""A pair that goes farther than others and whose error grows by this factor may go less far beyond plain updates."""

LOOK_EVERY = 5
"""Iterations between two looks at how fast a pair converges."""


COARSE = 5
"""Iterations in half precision: what they get wrong is below what the remaining ones still correct."""


class Transport(NamedTuple):
    """The costs ⟨P, M⟩, how far the plans' marginals are off (L1), and the largest number of iterations."""

    cost: Tensor
    marginal_error: Tensor
    iterations: int


def least(dtype: torch.dtype) -> float:
    """The least divisor: its reciprocal leaves room below the largest number of `dtype` for products."""
    return 1e-30 if dtype == torch.float32 else 1e-250


class Pace(NamedTuple):
    """How far the updates of each pair [p] go in the log domain, how far they may, and the error at the last look."""

    far: Tensor
    most: Tensor
    error: Tensor

    @classmethod
    def first(cls, like: Tensor) -> Pace:
        """Before anything is known."""
        far, most = (torch.full_like(like, value) for value in (RELAXATION, MOST_RELAXATION))
        return cls(far, most, torch.full_like(like, torch.inf))

    def of(self, which: Tensor) -> Pace:
        """That of some pairs."""
        return Pace(*(each[which] for each in self))

    def look(self, now: Tensor) -> Pace:
        """What follows from the marginal errors [p] `LOOK_EVERY` iterations later.

        Near the solution plain updates shrink the error by a factor η. Those that go ω times as far shrink it by a μ
        with (μ + ω − 1)² = ω² η μ, as in the theory of over-relaxation, which gives η; best is 2 / (1 + √(1 − η)).
        Away from the solution that may be too far: a pair whose error has grown then goes less far, for good.

        >>> far, most, error = torch.tensor([1.4, 1.4, 1.75]).double(), torch.full((3,), 1.75).double(), torch.ones(3)
        >>> Pace(far, most, error).look(torch.tensor([0.6, 0.0, 5.0])).far.round(decimals=2).tolist()
        [1.66, 1.4, 1.4]
        """
        rate = (now / self.error).clamp(1e-6, 0.9999) ** (1 / LOOK_EVERY)
        eta = ((rate + self.far - 1).square() / (self.far.square() * rate)).clamp(max=0.9999)
        best = 2 / (1 + (1 - eta).sqrt())
        # beyond the best the error shrinks by ω − 1, whatever η is
        far = torch.where(rate > self.far - 1 + 0.02, torch.maximum(self.far, best), self.far)
        too_far = (self.far > RELAXATION) & (now > STUCK * self.error)
        most = torch.where(too_far, 1 + LESS * (self.most - 1), self.most)
        return Pace(torch.minimum(torch.where(too_far, RELAXATION, far), most), most, now)
