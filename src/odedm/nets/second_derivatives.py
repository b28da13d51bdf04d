"""Convolution and BatchNorm whose gradients can be derived once more, at the price of a few plain operations.

torch can derive everything twice, but the second time slowly. The second derivative of a convolution by its weights is
to it a convolution whose kernel is as large as the picture, and that of BatchNorm is dozens of passes over memory. Here
both know their own: a convolution derived twice is six plain ones, two forward and two each by maps and by weights, and
BatchNorm, with the sum and the ReLU that follow it, is one pass for three means and one that uses them.

Only convolutions without a bias are done here, as before a BatchNorm; torch does the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten


class Strides(NamedTuple):
    """How a convolution goes over its maps."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Maps [n, o, h', w'] of maps x [n, i, h, w]."""
        y: Tensor = aten.convolution(x, weight, None, *self[:3], False, [0, 0], self.groups)
        return y

    def backward(self, dy: Tensor, x: Tensor, weight: Tensor, *wanted: bool) -> tuple[Tensor | None, Tensor | None]:
        """Gradients by x and by the weight, each where it is wanted; what is not needed for them lends its shape."""
        dx, dweight, _ = aten.convolution_backward(
            dy, x, weight, None, *self[:3], False, [0, 0], self.groups, [*wanted, False]
        )
        return dx, dweight


class Convolved(torch.autograd.Function):
    """Maps x [n, i, h, w] convolved with weights [o, i, k, k]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, strides: Strides) -> Tensor:
        """One convolution."""
        ctx.strides = strides
        ctx.save_for_backward(x, weight)
        return strides.forward(x, weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Two, which can be derived again."""
        found = ConvolvedBack.apply(dy, *ctx.saved_tensors, ctx.strides, *ctx.needs_input_grad[:2])  # type: ignore[no-untyped-call]
        return (*found, None)


class ConvolvedBack(torch.autograd.Function):
    """The gradients of a convolution, which are linear in dy and each in one of x and weight."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, x: Tensor, weight: Tensor, strides: Strides, *wanted: bool) -> Any:
        """By x and by the weight."""
        ctx.strides = strides
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, x, weight)
        return strides.backward(dy, x, weight, *wanted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ux: Tensor | None, uweight: Tensor | None) -> tuple[Tensor | None, ...]:
        """Four more: what remains of six are the two of the way back through the forward."""
        dy, x, weight = ctx.saved_tensors
        by_dy = by_x = by_weight = None
        if ux is not None:
            by_dy = ctx.strides.forward(ux, weight)
            if ctx.needs_input_grad[2]:
                _, by_weight = ctx.strides.backward(dy, ux, weight, False, True)
        if uweight is not None:
            uweight = _laid_out_like(uweight, weight)
            part = ctx.strides.forward(x, uweight)
            by_dy = part if by_dy is None else by_dy + part
            if ctx.needs_input_grad[1]:
                by_x, _ = ctx.strides.backward(dy, x, uweight, True, False)
        return by_dy, by_x, by_weight, None, None, None


def _laid_out_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Converted once, and not by each of the convolutions that read it."""
    last = other.is_contiguous(memory_format=torch.channels_last)
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """As `torch.nn.functional.conv2d`.

    >>> x, weight = torch.ones(1, 1, 3, 3, dtype=torch.double), torch.ones(1, 1, 2, 2, dtype=torch.double)
    >>> convolved(x, weight).flatten().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    if bias is not None or x.dim() != 4 or isinstance(padding, str):
        return F.conv2d(x, weight, bias, stride, padding, dilation, groups)
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    strides = Strides(_pair(stride), _pair(padding), _pair(dilation), groups)
    y: Tensor = Convolved.apply(x, weight, strides)  # type: ignore[no-untyped-call]
    return y


def _pair(given: Any) -> list[int]:
    return [given] * 2 if isinstance(given, int) else [*given]


class ConvolutionsDerivedTwice(TorchFunctionMode):
    """Inside the block, and in this thread, convolutions of any module are those of this file."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch calls in the place of each of its functions."""
        return (convolved if func is torch.conv2d else func)(*args, **(kwargs or {}))


class NormKernels(Protocol):
    """BatchNorm with a sum and a ReLU, and its first and second derivative, each written out."""

    def normalise(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, *, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Maps y, and the means and the inverse deviations that they were normalised by."""
        ...

    def backward(
        self,
        dy: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        centre: Tensor,
        rate: Tensor,
        *,
        has_residual: bool,
        relu: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor]:
        """Gradients by x, residual, weight and bias; the means of dz and dz · x̂, where dz is dy behind the ReLU."""
        ...

    def double_backward(
        self, up: Cotangents, dy: Tensor, x: Tensor, y: Tensor, weight: Tensor, centre: Tensor, rate: Tensor,
        mean_slope: Tensor, mean_turn: Tensor, *, relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Gradients of what `backward` found, by dy, x and weight."""
        ...


class Cotangents(NamedTuple):
    """What is asked of a second derivative: one weight for every entry of the first."""

    dx: Tensor
    dresidual: Tensor | None
    dweight: Tensor
    dbias: Tensor


class Normalised(torch.autograd.Function):
    """Maps [n, c, h, w] normalised by their own statistics, plus others, cut by a ReLU: see `normalised`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, kernels: NormKernels, *how: Any
    ) -> Tensor:
        """Normalise, add, cut."""
        eps, relu = how
        y, centre, rate = kernels.normalise(x, residual, weight, bias, eps=eps, relu=relu)
        ctx.save_for_backward(x, y, weight, centre, rate)
        ctx.kernels, ctx.has_residual, ctx.relu = kernels, residual is not None, relu
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by maps, addend, weight and bias, which can be derived again."""
        found = NormalisedBack.apply(dy, *ctx.saved_tensors, ctx.kernels, ctx.has_residual, ctx.relu)  # type: ignore[no-untyped-call]
        return (*found, None, None, None)


class NormalisedBack(torch.autograd.Function):
    """The gradients of `Normalised`."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
        """By maps, addend, weight and bias."""
        *maps, ctx.kernels, has_residual, ctx.relu = rest
        *found, mean_slope, mean_turn = ctx.kernels.backward(dy, *maps, has_residual=has_residual, relu=ctx.relu)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, *maps, mean_slope, mean_turn)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, ux: Tensor | None, uresidual: Tensor | None, uweight: Tensor | None, ubias: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """By dy, x and weight; the statistics count as what they are of x."""
        _, x, _, weight, *_ = ctx.saved_tensors
        up = Cotangents(
            torch.zeros_like(x) if ux is None else ux,
            uresidual,
            torch.zeros_like(weight) if uweight is None else uweight,
            torch.zeros_like(weight) if ubias is None else ubias,
        )
        by_dy, by_x, by_weight = ctx.kernels.double_backward(up, *ctx.saved_tensors, relu=ctx.relu)
        return by_dy, by_x, None, by_weight, None, None, None, None, None


def normalised(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, *, eps: float, relu: bool,
    kernels: NormKernels | None = None,
) -> Tensor:  # fmt: skip
    """Maps [n, c, h, w] normalised by their own statistics, scaled and shifted; `residual` is added, then the ReLU.

    >>> x = torch.tensor([1.0, 3.0], dtype=torch.double).view(2, 1, 1, 1)
    >>> one = torch.ones(1, dtype=torch.double)
    >>> normalised(x, None, one, one, eps=0.0, relu=True).flatten().tolist()
    [0.0, 2.0]
    """
    kernels = kernels or TorchNorm()
    y: Tensor = Normalised.apply(x, residual, weight, bias, kernels, eps, relu)  # type: ignore[no-untyped-call]
    return y


class TorchNorm:
    """The formulas in torch's operations, where no kernels do them, and to judge those by."""

    def normalise(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, *, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take y = ReLU(γ x̂ + β + residual) with x̂ = rate · (x - centre)."""
        centre, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        rate = (variance + eps).rsqrt()
        y = (x - _wide(centre)) * _wide(rate * weight) + _wide(bias)
        y = y if residual is None else y + residual
        return (y.relu() if relu else y), centre, rate

    def backward(
        self,
        dy: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        centre: Tensor,
        rate: Tensor,
        *,
        has_residual: bool,
        relu: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor]:
        """Take dx = γ · rate · (dz - mean dz - x̂ · mean(dz · x̂))."""
        dz, hat = dy * (y > 0) if relu else dy, (x - _wide(centre)) * _wide(rate)
        a, b = _mean(dz), _mean(dz * hat)
        dx = _wide(rate * weight) * (dz - _wide(a) - hat * _wide(b))
        many = x.numel() // x.shape[1]
        return dx, dz if has_residual else None, many * b, many * a, a, b

    def double_backward(
        self, up: Cotangents, dy: Tensor, x: Tensor, y: Tensor, weight: Tensor, centre: Tensor, rate: Tensor,
        mean_slope: Tensor, mean_turn: Tensor, *, relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Of S = Σ u · dx + Σ u' · dz + u'' · dγ + u''' · dβ, with a = mean dz, b = mean(dz · x̂) and means of u.

        In x, S changes by x̂ and by the rate, which is -rate² · x̂ / N for a change of x.
        """
        u, a, b = up.dx, mean_slope, mean_turn
        dz, hat, scale = dy * (y > 0) if relu else dy, (x - _wide(centre)) * _wide(rate), rate * weight
        middle, turn = _mean(u), _mean(u * hat)
        rest = _mean(u * dz) - middle * a - turn * b
        by_dz = _wide(scale) * (u - _wide(middle) - hat * _wide(turn)) + hat * _wide(up.dweight) + _wide(up.dbias)
        by_dz = by_dz if up.dresidual is None else by_dz + up.dresidual
        of_dz = up.dweight - scale * turn
        flat = up.dweight * a - scale * (turn * a + b * middle)
        tilt = up.dweight * b + scale * (rest - 2 * b * turn)
        by_x = _wide(rate) * (dz * _wide(of_dz) - u * _wide(scale * b) - _wide(flat) - hat * _wide(tilt))
        many = x.numel() // x.shape[1]
        return by_dz * (y > 0) if relu else by_dz, by_x, many * rate * rest


def _wide(vector: Tensor) -> Tensor:
    return vector[None, :, None, None]


def _mean(maps: Tensor) -> Tensor:
    return maps.mean((0, 2, 3))
