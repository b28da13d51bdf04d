"""The kernels K = exp(−M/ε) that entropic transport between histograms multiplies with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from odedm.core.errors import UsageError


class Kernel(Protocol):
    """K [s, d] for a ground cost M [s, d] between source and target bins, used as a product only."""

    def apply(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """K v for each row: [p, d] -> [p, s]; `coarse` allows half precision where that is faster."""
        ...

    def back(self, u: Tensor, *, coarse: bool = False) -> Tensor:
        """Kᵀ u for each row: [p, s] -> [p, d]."""
        ...

    def apply_cost(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """(K∘M) v for each row: [p, d] -> [p, s]."""
        ...

    def restrict(self, support: Tensor) -> Kernel | None:
        """The kernel of the source bins `support` [s] alone, or None where that would save nothing."""
        ...

    def double(self) -> Kernel:
        """The same kernel in float64."""
        ...


@dataclass(frozen=True)
class DenseKernel:
    """Any ground cost M [s, d] with ε (`scale`) in the units of M.

    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.5)
    >>> kernel.apply(torch.tensor([[1.0, 0.0]])).tolist() == [[1.0, torch.tensor(-4.0).exp().item()]]
    True
    """

    cost: Tensor
    scale: float

    @classmethod
    def relative(cls, cost: Tensor, epsilon: float) -> DenseKernel:
        """The kernel with ε given as a share of the mean cost."""
        mean = float(cost.mean())
        return cls(cost, epsilon * mean if mean > 0 else 1.0)

    @cached_property
    def weight(self) -> Tensor:
        """K [s, d]."""
        return (self.cost / -self.scale).exp_()

    @cached_property
    def _priced(self) -> Tensor:
        return self.weight * self.cost

    @cached_property
    def _half(self) -> Tensor:
        return self._halved(self.weight)

    @cached_property
    def _half_priced(self) -> Tensor:
        return self._halved(self._priced)

    def _halved(self, matrix: Tensor) -> Tensor:
        return matrix.bfloat16() if matrix.dtype == torch.float32 and half_is_fast(matrix.device) else matrix

    def apply(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """K v for each row: [p, d] -> [p, s]."""
        weight = self._half if coarse else self.weight
        return (v.to(weight.dtype) @ weight.T).to(v.dtype)

    def back(self, u: Tensor, *, coarse: bool = False) -> Tensor:
        """Kᵀ u for each row: [p, s] -> [p, d]."""
        weight = self._half if coarse else self.weight
        return (u.to(weight.dtype) @ weight).to(u.dtype)

    def apply_cost(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """(K∘M) v for each row: [p, d] -> [p, s]."""
        weight = self._half_priced if coarse else self._priced
        return (v.to(weight.dtype) @ weight.T).to(v.dtype)

    def restrict(self, support: Tensor) -> DenseKernel:
        """The kernel of the source bins `support` [s] alone."""
        part = DenseKernel(self.cost[support], self.scale)
        # taken from the whole, not computed again: exponentials cost more than the gather
        part.__dict__["weight"] = self.weight[support]
        part.__dict__["_priced"] = self._priced[support]
        part.__dict__["_half"] = self._half[support]
        return part

    def double(self) -> DenseKernel:
        """The same kernel in float64."""
        return DenseKernel(self.cost.double(), self.scale)


@dataclass(frozen=True)
class GridKernel:
    """Squared distance between the positions of a height × width grid, with ε as a share of its mean.

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

    def apply(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """K v for each row: [p, height·width] -> the same shape; never coarse, it is cheap as it is."""
        del coarse
        y, x = self._axes
        return self._product(y.weight, x.weight, v)

    def back(self, u: Tensor, *, coarse: bool = False) -> Tensor:
        """Kᵀ u, the same as K u since the cost is symmetric."""
        return self.apply(u, coarse=coarse)

    def apply_cost(self, v: Tensor, *, coarse: bool = False) -> Tensor:
        """(K∘M) v for each row: [p, height·width] -> the same shape."""
        del coarse
        y, x = self._axes
        return self._product(y._priced, x.weight, v) + self._product(y.weight, x._priced, v)

    def restrict(self, support: Tensor) -> None:
        """None: a part of a grid is no grid, and the product would lose its two factors."""
        del support

    def double(self) -> GridKernel:
        """The same kernel in float64."""
        return GridKernel(self.height, self.width, self.epsilon, torch.float64, self.device)

    def _product(self, y: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return (y @ (v.view(-1, self.height, self.width) @ x)).flatten(1)


def half_is_fast(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware on `device`; elsewhere they are slower than float32.

    >>> isinstance(half_is_fast(torch.device("cpu")), bool)
    True
    """
    if device.type == "cuda":
        return bool(torch.cuda.get_device_capability(device) >= (8, 0))
    known = getattr(torch.cpu, "get_capabilities", None)  # newer than the oldest torch we accept
    return device.type == "cpu" and known is not None and bool(known().get("avx512_bf16", False))


def _line(length: int) -> Tensor:
    """Squared distances [length, length] between positions on a line, in float64."""
    place = torch.arange(length, dtype=torch.float64)
    return (place[:, None] - place) ** 2
