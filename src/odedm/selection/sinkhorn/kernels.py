"""The kernels K = exp(−M/ε) that entropic transport between histograms multiplies with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from odedm.core.errors import UsageError


@dataclass(frozen=True)
class DenseKernel:
    """Hold any ground cost M [s, d] with ε (`scale`) in the units of M.

    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.5)
    >>> kernel.apply(torch.tensor([[1.0, 0.0]])).tolist() == [[1.0, torch.tensor(-4.0).exp().item()]]
    True
    """

    cost: Tensor
    scale: float

    @classmethod
    def relative(cls, cost: Tensor, epsilon: float) -> DenseKernel:
        """Make the kernel with ε given as a share of the mean cost."""
        mean = float(cost.mean())
        return cls(cost, epsilon * mean if mean > 0 else 1.0)

    @cached_property
    def weight(self) -> Tensor:
        """K [s, d]."""
        return (self.cost / -self.scale).exp_()

    @cached_property
    def priced(self) -> Tensor:
        """K∘M [s, d]."""
        return self.weight * self.cost

    def apply(self, v: Tensor) -> Tensor:
        """Return K v for each row: [p, d] -> [p, s]."""
        return v @ self.weight.T

    def back(self, u: Tensor) -> Tensor:
        """Return Kᵀ u for each row: [p, s] -> [p, d]."""
        return u @ self.weight

    def apply_cost(self, v: Tensor) -> Tensor:
        """Return (K∘M) v for each row: [p, d] -> [p, s]."""
        return v @ self.priced.T

    def double(self) -> DenseKernel:
        """Return the same kernel in float64."""
        return DenseKernel(self.cost.double(), self.scale)


@dataclass(frozen=True)
class GridKernel:
    """Cost mass the squared distance between positions of a height × width grid, with ε as a share of the mean.

    The cost is a sum over the two axes, so K is a product of two small kernels, K = Ky ⊗ Kx, and
    K∘M = (Ky∘My) ⊗ Kx + Ky ⊗ (Kx∘Mx): height + width multiplications per pixel instead of height × width.

    >>> GridKernel(1, 2, 0.5).apply(torch.tensor([[1.0, 0.0]])).shape
    torch.Size([1, 2])
    """

    height: int
    width: int
    epsilon: float
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise UsageError(f"A grid needs at least 1 × 1 positions; {self.height} × {self.width} was given.")

    @cached_property
    def _axes(self) -> tuple[DenseKernel, DenseKernel]:
        squares = [_line(length).to(self.device, self.dtype) for length in (self.height, self.width)]
        mean = sum(float(square.mean()) for square in squares)
        scale = self.epsilon * mean if mean > 0 else 1.0
        return DenseKernel(squares[0], scale), DenseKernel(squares[1], scale)

    def apply(self, v: Tensor) -> Tensor:
        """Return K v for each row: [p, height·width] -> the same shape."""
        y, x = self._axes
        return self._product(y.weight, x.weight, v)

    def back(self, u: Tensor) -> Tensor:
        """Return Kᵀ u, the same as K u since the cost is symmetric."""
        return self.apply(u)

    def apply_cost(self, v: Tensor) -> Tensor:
        """Return (K∘M) v for each row: [p, height·width] -> the same shape."""
        y, x = self._axes
        return self._product(y.priced, x.weight, v) + self._product(y.weight, x.priced, v)

    def double(self) -> GridKernel:
        """Return the same kernel in float64."""
        return GridKernel(self.height, self.width, self.epsilon, torch.float64, self.device)

    def _product(self, y: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return (y @ (v.view(-1, self.height, self.width) @ x)).flatten(1)


Kernel = DenseKernel | GridKernel


def _line(length: int) -> Tensor:
    """Return squared distances [length, length] between positions on a line, in float64."""
    place = torch.arange(length, dtype=torch.float64)
    return (place[:, None] - place) ** 2
