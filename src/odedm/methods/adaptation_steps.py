"""The two moves that meta-learning makes with vectors as long as the network has weights, there and back.

Each is a handful of operations; where kernels can be had, it is one pass over memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from odedm.core.accel.triton_support import has_kernels

Rates = Tensor | float
"""Step sizes: [P], or one for all."""


class WayBack(NamedTuple):
    """What is known of a path's end so far: all vectors [P]."""

    adjoint: Tensor
    """The gradient by the weights at this place."""
    by_rates: Tensor
    """The gradient by the step sizes."""
    direction: Tensor
    """What the Hessian of the step is to be multiplied with."""


def advance(start: Tensor, slope: Tensor, rates: Rates, clip: float) -> Tensor:
    """The weights [P] after a step down a slope whose entries are cut to ±clip.

    >>> advance(torch.tensor([1.0, 1.0]), torch.tensor([5.0, -0.5]), 0.1, 2.0)
    tensor([0.8000, 1.0500])
    """
    if _has_kernels(start):
        from odedm.methods.adaptation_steps_triton import advance as fused  # Triton comes with torch for GPUs alone

        return fused(start, slope, rates, clip)
    return start - rates * slope.clamp(-clip, clip)


def retreat(
    back: WayBack | None, bend: Tensor | None, pull: Tensor, slope: Tensor, rates: Rates, clip: float
) -> WayBack:
    """One step of the way back: λ ← λ - bend + pull, ∇_A ← ∇_A - λ · ĝ, and A · λ where nothing was cut.

    Args:
        back: where the way back stands; None at its beginning, where all is 0.
        bend: the Hessian-vector product of the step before; None where there was none.
        pull: the gradient of the loss at this step's end.
        slope: the inner gradient, from which ĝ is cut.
        rates: the step sizes A.
        clip: where it is cut.
    """
    if _has_kernels(pull):
        from odedm.methods.adaptation_steps_triton import retreat as fused

        return WayBack(*fused(back and back[:2], bend, pull, slope, rates, clip))
    adjoint, by_rates = (torch.zeros_like(pull), torch.zeros_like(pull)) if back is None else back[:2]
    adjoint = (adjoint if bend is None else adjoint - bend) + pull
    by_rates = by_rates - adjoint * slope.clamp(-clip, clip)
    return WayBack(adjoint, by_rates, torch.where(slope.abs() <= clip, rates * adjoint, 0.0))


def _has_kernels(vector: Tensor) -> bool:
    return vector.dtype == torch.float32 and has_kernels("odedm.methods.adaptation_steps_triton", vector.device)
