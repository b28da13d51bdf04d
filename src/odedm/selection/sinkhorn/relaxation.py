"""What the solvers of torch and of Triton share: how far an update goes, and what they return."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RELAXATION = 1.6
"""Updates go so many times as far as plain ones in the log domain: half the iterations where plain ones are slow."""

LOOK_EVERY = 5
"""Iterations between two looks at the errors."""


class Transport(NamedTuple):
    """The costs ⟨P, M⟩, how far the plans' marginals are off (L1), and the largest number of iterations."""

    cost: Tensor
    marginal_error: Tensor
    iterations: int


def is_relaxed(done: int, iterations: int) -> bool:
    """Return whether an iteration is over-relaxed: the first has nothing to go beyond, the second half is plain.

    Plain updates converge from anywhere, relaxed ones where the scalings are near enough.
    """
    return 0 < done < iterations // 2


def least(dtype: torch.dtype) -> float:
    """Return the least divisor: its reciprocal leaves room below the largest number of `dtype` for products."""
    return 1e-30 if dtype == torch.float32 else 1e-250
