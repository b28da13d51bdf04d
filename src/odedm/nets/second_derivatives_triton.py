"""BatchNorm with the sum and the ReLU that follow it, derivable twice, as Triton kernels.

The forward and the first derivative are the kernels of `grouped_batch_norm_triton`; here are the two of the second:
one that takes three means over every group, and one that goes over everything once. torch itself derives BatchNorm's
second derivative by dozens of passes over memory: POCL's step takes 114 ms on an H200 with these kernels, 289 without.

y = ReLU(γ x̂ + β + residual) with x̂ = rate · (x - centre). dz is dy behind the ReLU, a = mean dz, b = mean(dz · x̂), and
dx = γ · rate · (dz - a - x̂ · b). The second derivative is that of the sum S of u · dx, u2 · dz, u3 · dγ and u4 · dβ. In
x, S changes by x̂ and by the rate, which is -rate² · x̂ / N for a change of x.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from odedm.nets.grouped_batch_norm_triton import (
    HOST,
    MOST_PARTS,
    _descend,
    _is_last,
    _normalise,
    _piece,
    _Plan,
    _plan,
    _rows_of_channels,
    _slopes,
    _statistics,
    _tile,
    counters_for,
)


@triton.jit(do_not_specialize=HOST)
def _means_of_double_backward(
    u, x, y, dy, start, centre, rate, mean_slope, mean_turn, sum_u, sum_turn, sum_both, middle, turn, rest, by_weight,
    counters, channels, parts, groups, relu, ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Take means over every group of u and u · x̂, and what is left of mean(u · dz); summed up, the gradient by γ."""
    part, block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    low, high, first, last, channel, inside = _piece(start, parts, channels, WIDTH)
    center = tl.load(centre + group * channels + channel, mask=inside, other=0.0)
    speed = tl.load(rate + group * channels + channel, mask=inside, other=0.0)
    plain = tl.zeros((WIDTH,), tl.float32)
    turned = tl.zeros((WIDTH,), tl.float32)
    both = tl.zeros((WIDTH,), tl.float32)
    for begin in range(first, last, ROWS):
        row = begin + tl.arange(0, ROWS)
        in_tile = (row < last)[:, None] & inside[None, :]
        at = row[:, None].to(tl.int64) * channels + channel[None, :]
        slope = tl.load(dy + at, mask=in_tile, other=0.0).to(tl.float32)
        if relu:
            slope = tl.where(tl.load(y + at, mask=in_tile, other=0.0) > 0, slope, 0.0)
        way = tl.load(u + at, mask=in_tile, other=0.0).to(tl.float32)
        value = (tl.load(x + at, mask=in_tile, other=0.0).to(tl.float32) - center[None, :]) * speed[None, :]
        plain += tl.sum(way, 0)
        turned += tl.sum(way * value, 0)
        both += tl.sum(way * slope, 0)
    at = (group * PARTS + part) * channels + channel
    tl.store(sum_u + at, plain, mask=inside)
    tl.store(sum_turn + at, turned, mask=inside)
    tl.store(sum_both + at, both, mask=inside)
    counters += block * (groups + 1)
    if _is_last(counters + group, parts):
        parts_index = tl.arange(0, PARTS)
        spot = (group * PARTS + parts_index[:, None]) * channels + channel[None, :]
        known = (parts_index < parts)[:, None] & inside[None, :]
        total = (high - low).to(tl.float32)
        at_group = group * channels + channel
        group_u = tl.sum(tl.load(sum_u + spot, mask=known, other=0.0, cache_modifier=".cg"), 0) / total
        group_turn = tl.sum(tl.load(sum_turn + spot, mask=known, other=0.0, cache_modifier=".cg"), 0) / total
        group_both = tl.sum(tl.load(sum_both + spot, mask=known, other=0.0, cache_modifier=".cg"), 0) / total
        group_both -= group_u * tl.load(mean_slope + at_group, mask=inside, other=0.0)
        group_both -= group_turn * tl.load(mean_turn + at_group, mask=inside, other=0.0)
        tl.store(middle + at_group, group_u, mask=inside)
        tl.store(turn + at_group, group_turn, mask=inside)
        tl.store(rest + at_group, group_both, mask=inside)
        if _is_last(counters + groups, groups):
            gradients = tl.zeros((WIDTH,), tl.float32)
            for one in range(groups):
                rows = (tl.load(start + one + 1) - tl.load(start + one)).to(tl.float32)
                spot_of_one = one * channels + channel
                left = tl.load(rest + spot_of_one, mask=inside, other=0.0, cache_modifier=".cg")
                gradients += rows * left * tl.load(rate + spot_of_one, mask=inside, other=0.0)
            tl.store(by_weight + channel, gradients, mask=inside)


@triton.jit(do_not_specialize=HOST)
def _double_backward(
    u, uresidual, uweight, ubias, x, y, dy, by_dy, by_x, start, centre, rate, weight, mean_slope, mean_turn, middle,
    turn, rest, channels, has_residual, relu, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Take gradients of the first derivative by dy and by x, where every mean is known."""
    at, in_tile, channel, inside, vector = _tile(start, channels, ROWS, WIDTH)
    speed = tl.load(rate + vector, mask=inside, other=0.0)
    scale = speed * tl.load(weight + channel, mask=inside, other=0.0)
    up_weight = tl.load(uweight + channel, mask=inside, other=0.0)
    up_bias = tl.load(ubias + channel, mask=inside, other=0.0)
    a = tl.load(mean_slope + vector, mask=inside, other=0.0)
    b = tl.load(mean_turn + vector, mask=inside, other=0.0)
    group_u = tl.load(middle + vector, mask=inside, other=0.0)
    group_turn = tl.load(turn + vector, mask=inside, other=0.0)
    left = tl.load(rest + vector, mask=inside, other=0.0)
    place = tl.load(centre + vector, mask=inside, other=0.0)
    value = (tl.load(x + at, mask=in_tile, other=0.0).to(tl.float32) - place[None, :]) * speed[None, :]
    way = tl.load(u + at, mask=in_tile, other=0.0).to(tl.float32)
    slope = tl.load(dy + at, mask=in_tile, other=0.0).to(tl.float32)
    by_slope = scale[None, :] * (way - group_u[None, :] - value * group_turn[None, :])
    by_slope += value * up_weight[None, :] + up_bias[None, :]
    if has_residual:
        by_slope += tl.load(uresidual + at, mask=in_tile, other=0.0).to(tl.float32)
    if relu:
        is_open = tl.load(y + at, mask=in_tile, other=0.0) > 0
        slope = tl.where(is_open, slope, 0.0)
        by_slope = tl.where(is_open, by_slope, 0.0)
    tl.store(by_dy + at, by_slope.to(by_dy.dtype.element_ty), mask=in_tile)
    flat = up_weight * a - scale * (group_turn * a + b * group_u)
    tilt = up_weight * b + scale * (left - 2.0 * b * group_turn)
    bend = slope * (up_weight - scale * group_turn)[None, :] - way * (scale * b)[None, :]
    bend -= flat[None, :] + value * tilt[None, :]
    tl.store(by_x + at, (speed[None, :] * bend).to(by_x.dtype.element_ty), mask=in_tile)


class Cotangents(NamedTuple):
    """What is asked of a second derivative: one weight for every entry of the first."""

    dx: Tensor
    dresidual: Tensor | None
    dweight: Tensor
    dbias: Tensor


class TritonNorm:
    """The kernels of one layer for batches of groups: BatchNorm with a sum and a ReLU, and both its derivatives."""

    def __init__(self, sizes: tuple[int, ...], counters: Tensor, starts: Tensor | None = None) -> None:
        self.sizes, self.counters, self.starts = sizes, counters, starts

    def _plan(self, x: Tensor) -> tuple[_Plan, int, Tensor]:
        plan = _plan(self.sizes, *x.shape[1:], x.device)
        return plan, x.shape[1], plan.start if self.starts is None else self.starts * (x.shape[2] * x.shape[3])

    def normalise(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, *, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Maps, means [groups, c] and inverse deviations [groups, c]; no running statistics move."""
        plan, channels, start = self._plan(x)
        y, groups = torch.empty_like(x), len(self.sizes)
        mean, spread = x.new_empty((2, groups, MOST_PARTS, channels), dtype=torch.float32)
        centre, variance, rate = x.new_empty((3, groups, channels), dtype=torch.float32)
        _statistics[plan.parts_grid](
            x, start, mean, spread, centre, variance, rate, centre, variance, self.counters, channels, plan.parts,
            groups, 0.0, eps, PARTS=MOST_PARTS, **plan.tile,
        )  # fmt: skip
        _normalise[plan.tiles_grid](
            x, y, x if residual is None else residual, start, centre, rate, weight, bias, channels,
            int(residual is not None), int(relu), **plan.tile,
        )  # fmt: skip
        return y, centre, rate

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
        """Return gradients by x, residual, weight and bias; means [groups, c] of dz and dz · x̂."""
        plan, channels, start = self._plan(x)
        dy, groups = dy.contiguous(memory_format=torch.channels_last), len(self.sizes)
        shift, scale = x.new_empty((2, groups, MOST_PARTS, channels), dtype=torch.float32)
        mean_slope, mean_turn = x.new_empty((2, groups, channels), dtype=torch.float32)
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        dresidual = torch.empty_like(x) if has_residual else None
        _slopes[plan.parts_grid](
            x, y, dy, start, centre, rate, shift, scale, mean_slope, mean_turn, dweight, dbias, self.counters, channels,
            plan.parts, groups, int(relu), PARTS=MOST_PARTS, **plan.tile,
        )  # fmt: skip
        _descend[plan.tiles_grid](
            x, y, dy, dx, dx if dresidual is None else dresidual, start, centre, rate, weight, mean_slope, mean_turn,
            channels, int(has_residual), int(relu), **plan.tile,
        )  # fmt: skip
        return dx, dresidual, dweight, dbias, mean_slope, mean_turn

    def double_backward(
        self, up: Cotangents, dy: Tensor, x: Tensor, y: Tensor, weight: Tensor, centre: Tensor, rate: Tensor,
        mean_slope: Tensor, mean_turn: Tensor, *, relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return gradients of what `backward` found, by dy, x and weight."""
        plan, channels, start = self._plan(x)
        u, uresidual = _rows_of_channels(up.dx.to(x.dtype), up.dresidual)
        dy, groups = dy.contiguous(memory_format=torch.channels_last), len(self.sizes)
        parts = x.new_empty((3, groups, MOST_PARTS, channels), dtype=torch.float32)
        middle, turn, rest = x.new_empty((3, groups, channels), dtype=torch.float32)
        by_dy, by_x, by_weight = torch.empty_like(x), torch.empty_like(x), torch.empty_like(weight)
        _means_of_double_backward[plan.parts_grid](
            u, x, y, dy, start, centre, rate, mean_slope, mean_turn, *parts, middle, turn, rest, by_weight,
            self.counters, channels, plan.parts, groups, int(relu), PARTS=MOST_PARTS, **plan.tile,
        )  # fmt: skip
        _double_backward[plan.tiles_grid](
            u, u if uresidual is None else uresidual, up.dweight.contiguous(), up.dbias.contiguous(), x, y, dy, by_dy,
            by_x, start, centre, rate, weight, mean_slope, mean_turn, middle, turn, rest, channels,
            int(uresidual is not None), int(relu), **plan.tile,
        )  # fmt: skip
        return by_dy, by_x, by_weight


class Normalised(torch.autograd.Function):
    """Maps [n, c, h, w] normalised by group, plus others, cut by a ReLU: see `double_backward_norm`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, kernels: TritonNorm, *options: Any
    ) -> Tensor:
        """Normalise, add, cut."""
        eps, relu = options
        y, centre, rate = kernels.normalise(x, residual, weight, bias, eps=eps, relu=relu)
        ctx.save_for_backward(x, y, weight, centre, rate)
        ctx.kernels, ctx.has_residual, ctx.relu = kernels, residual is not None, relu
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients by maps, addend, weight and bias, which can be derived again."""
        gradients = NormalisedBack.apply(dy, *ctx.saved_tensors, ctx.kernels, ctx.has_residual, ctx.relu)  # type: ignore[no-untyped-call]
        return (*gradients, None, None, None)


class NormalisedBack(torch.autograd.Function):
    """The gradients of `Normalised`."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
        """Return gradients by maps, addend, weight and bias."""
        *maps, ctx.kernels, has_residual, ctx.relu = rest
        *gradients, mean_slope, mean_turn = ctx.kernels.backward(dy, *maps, has_residual=has_residual, relu=ctx.relu)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, *maps, mean_slope, mean_turn)
        return tuple(gradients)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, ux: Tensor | None, uresidual: Tensor | None, uweight: Tensor | None, ubias: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return gradients by dy, x and weight; the statistics count as what they are of x."""
        _, x, _, weight, *_ = ctx.saved_tensors
        up = Cotangents(
            torch.zeros_like(x) if ux is None else ux,
            uresidual,
            torch.zeros_like(weight) if uweight is None else uweight,
            torch.zeros_like(weight) if ubias is None else ubias,
        )
        by_dy, by_x, by_weight = ctx.kernels.double_backward(up, *ctx.saved_tensors, relu=ctx.relu)
        return by_dy, by_x, None, by_weight, None, None, None, None, None


def double_backward_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, kernels: TritonNorm, *, eps: float, relu: bool
) -> Tensor:
    """Return maps [Σ sizes, c, h, w] normalised by group, with residual and ReLU; derivable twice, statistics stay."""
    x, residual = _rows_of_channels(x, residual)
    y: Tensor = Normalised.apply(x, residual, weight, bias, kernels, eps, relu)  # type: ignore[no-untyped-call]
    return y


def trial(device: torch.device) -> None:
    """Compile and run every kernel once, on next to nothing; raises what stands in the way."""
    one = torch.ones(16, device=device, requires_grad=True)
    with torch.enable_grad():
        x = torch.ones(2, 16, 2, 2, device=device).requires_grad_()
        kernels = TritonNorm((2,), counters_for(16, 1, device))
        y = double_backward_norm(x, x, one, one, kernels, eps=1e-5, relu=True)
        (slope,) = torch.autograd.grad(y.square().sum(), one, create_graph=True)
        torch.autograd.grad(slope.sum(), x)
