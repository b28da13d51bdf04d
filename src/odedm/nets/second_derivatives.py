"""Convolutions whose gradients can be derived once more, at the price of a few plain ones.

torch can derive a convolution twice, but its second derivative by the weights is to torch a convolution whose kernel is
as large as the picture. Here it is six plain ones: two forward and two each by maps and by weights. Only convolutions
without a bias are done here, as before a BatchNorm; torch does the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
        """Return maps [n, o, h', w'] of maps x [n, i, h, w]."""
        y: Tensor = aten.convolution(x, weight, None, *self[:3], False, [0, 0], self.groups)
        return y

    def backward(self, dy: Tensor, x: Tensor, weight: Tensor, *needed: bool) -> tuple[Tensor | None, Tensor | None]:
        """Return gradients by x and by the weight, each where needed; what is not needed for them lends its shape."""
        dx, dweight, _ = aten.convolution_backward(
            dy, x, weight, None, *self[:3], False, [0, 0], self.groups, [*needed, False]
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
        gradients = ConvolvedBack.apply(dy, *ctx.saved_tensors, ctx.strides, *ctx.needs_input_grad[:2])  # type: ignore[no-untyped-call]
        return (*gradients, None)


class ConvolvedBack(torch.autograd.Function):
    """The gradients of a convolution, which are linear in dy and each in one of x and weight."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, x: Tensor, weight: Tensor, strides: Strides, *needed: bool) -> Any:
        """By x and by the weight."""
        ctx.strides = strides
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, x, weight)
        return strides.backward(dy, x, weight, *needed)

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
    """Return what `torch.nn.functional.conv2d` does.

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


def _pair(sizes: Any) -> list[int]:
    return [sizes] * 2 if isinstance(sizes, int) else [*sizes]


class ConvolutionsDerivedTwice(TorchFunctionMode):
    """Inside the block, and in this thread, convolutions of any module are those of this file."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run what torch calls in the place of each of its functions."""
        return (convolved if func is torch.conv2d else func)(*args, **(kwargs or {}))
