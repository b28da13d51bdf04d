"""BatchNorm by group with the sum and the ReLU that follow it, as two Triton kernels forward and two backward.

A step's forwards share their convolutions as one batch, but each must be normalised by its own statistics. torch has no
kernel for that, and one call a group costs a launch and a pass over memory for each. Maps are rows of channels
(channels_last), so a group is a block of rows. Sums are made in float32 over fixed parts in a fixed order: a run
repeats bit for bit.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

HOST = ("parts", "groups", "has_residual", "relu")
"""Numbers of the host that are not worth a kernel of their own: each costs about a second to compile."""
ROWS, WIDTH, WARPS = 64, 32, 2
"""Rows and channels of a tile, and the warps that work on it: the fastest of 42 settings for ResNet-18 on an H200."""
LONG, WIDE, MANY = 32, 128, 4
"""Rows, channels and warps of a tile in evaluation, whose batches are large: the fastest of 13 settings on an H200."""
PROGRAMS, MOST_PARTS = 1024, 128
"""How many programs a reduction aims at, and into how many parts it may cut a group's rows."""


@triton.jit
def _piece(start, parts, channels, WIDTH: tl.constexpr):
    """Return which rows and channels a program of a reduction works on."""
    part, block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    low, high = tl.load(start + group), tl.load(start + group + 1)
    size = (high - low + parts - 1) // parts
    first = low + part * size
    channel = block * WIDTH + tl.arange(0, WIDTH)
    return low, high, first, tl.minimum(first + size, high), channel, channel < channels


@triton.jit
def _is_last(counter, amount):
    """Return whether this program is the last of `amount` to come; what the others wrote is then visible."""
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1) == amount - 1
    if last:
        tl.store(counter, 0)  # ready for the next call
    return last


@triton.jit(do_not_specialize=HOST)
def _statistics(
    x, start, mean, spread, centre, variance, rate, running_mean, running_var, counters, channels, parts, groups,
    momentum, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Take mean and variance of every group, part by part; the last program merges them and moves the running ones."""
    part, block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    low, high, first, last, channel, inside = _piece(start, parts, channels, WIDTH)
    amount = 0.0
    middle = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for begin in range(first, last, ROWS):
        row = begin + tl.arange(0, ROWS)
        in_tile = (row < last)[:, None] & inside[None, :]
        value = tl.load(x + row[:, None].to(tl.int64) * channels + channel[None, :], mask=in_tile, other=0.0)
        value = value.to(tl.float32)
        fresh = tl.minimum(last - begin, ROWS).to(tl.float32)
        tile_mean = tl.sum(value, 0) / fresh
        off = tl.where(in_tile, value - tile_mean[None, :], 0.0)
        # two means and two spreads become one; sums of squares would cancel
        both = amount + fresh
        apart = tile_mean - middle
        square += tl.sum(off * off, 0) + apart * apart * (amount * fresh / both)
        middle += apart * (fresh / both)
        amount = both
    at = (group * PARTS + part) * channels + channel
    tl.store(mean + at, middle, mask=inside)
    tl.store(spread + at, square, mask=inside)
    counters += block * (groups + 1)
    if _is_last(counters + group, parts):
        parts_index = tl.arange(0, PARTS)
        size = (high - low + parts - 1) // parts
        sizes = tl.minimum(tl.maximum(high - low - parts_index * size, 0), size).to(tl.float32)[:, None]
        spot = (group * PARTS + parts_index[:, None]) * channels + channel[None, :]
        known = (parts_index < parts)[:, None] & inside[None, :]
        means = tl.load(mean + spot, mask=known, other=0.0, cache_modifier=".cg")
        spreads = tl.load(spread + spot, mask=known, other=0.0, cache_modifier=".cg")
        total = (high - low).to(tl.float32)
        group_mean = tl.sum(means * sizes, 0) / total
        gap = means - group_mean[None, :]
        group_var = (tl.sum(spreads, 0) + tl.sum(gap * gap * sizes, 0)) / total
        tl.store(centre + group * channels + channel, group_mean, mask=inside)
        tl.store(variance + group * channels + channel, group_var, mask=inside)
        tl.store(rate + group * channels + channel, 1.0 / tl.sqrt(group_var + eps), mask=inside)
        if _is_last(counters + groups, groups) & (momentum != 0.0):
            old_mean = tl.load(running_mean + channel, mask=inside, other=0.0)
            old_var = tl.load(running_var + channel, mask=inside, other=0.0)
            for one in range(groups):  # group after group, as separate forwards would
                rows = (tl.load(start + one + 1) - tl.load(start + one)).to(tl.float32)
                new_mean = tl.load(centre + one * channels + channel, mask=inside, other=0.0, cache_modifier=".cg")
                new_var = tl.load(variance + one * channels + channel, mask=inside, other=0.0, cache_modifier=".cg")
                old_mean += momentum * (new_mean - old_mean)
                old_var += momentum * (new_var * (rows / (rows - 1.0)) - old_var)
            tl.store(running_mean + channel, old_mean, mask=inside)
            tl.store(running_var + channel, old_var, mask=inside)


@triton.jit
def _tile(start, channels, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return which entries a program that goes over everything once works on, and its group's vectors."""
    piece, block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(start + group) + piece * ROWS + tl.arange(0, ROWS)
    channel = block * WIDTH + tl.arange(0, WIDTH)
    inside = channel < channels
    in_tile = (row < tl.load(start + group + 1))[:, None] & inside[None, :]
    return row[:, None].to(tl.int64) * channels + channel[None, :], in_tile, channel, inside, group * channels + channel


@triton.jit(do_not_specialize=HOST)
def _normalise(
    x, y, residual, start, centre, rate, weight, bias, channels, has_residual, relu,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Set y = relu(scale · x + shift + residual)."""
    at, in_tile, channel, inside, vector = _tile(start, channels, ROWS, WIDTH)
    scale = tl.load(rate + vector, mask=inside, other=0.0) * tl.load(weight + channel, mask=inside, other=0.0)
    middle = tl.load(centre + vector, mask=inside, other=0.0)
    shift = tl.load(bias + channel, mask=inside, other=0.0)
    value = tl.load(x + at, mask=in_tile, other=0.0).to(tl.float32)
    value = (value - middle[None, :]) * scale[None, :] + shift[None, :]
    if has_residual:
        value += tl.load(residual + at, mask=in_tile, other=0.0).to(tl.float32)
    if relu:
        value = tl.where(value < 0.0, 0.0, value)  # a NaN stays one, as in torch
    tl.store(y + at, value.to(y.dtype.element_ty), mask=in_tile)


@triton.jit(do_not_specialize=HOST)
def _slopes(
    x, y, dy, start, centre, rate, by_shift, by_scale, mean_slope, mean_turn, dweight, dbias, counters,
    channels, parts, groups, relu, ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Take means of dz and dz · x̂ over every group, dz being dy behind the cut; their sums are gradients."""
    part, block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    low, high, first, last, channel, inside = _piece(start, parts, channels, WIDTH)
    center = tl.load(centre + group * channels + channel, mask=inside, other=0.0)
    speed = tl.load(rate + group * channels + channel, mask=inside, other=0.0)
    shift = tl.zeros((WIDTH,), tl.float32)
    turn = tl.zeros((WIDTH,), tl.float32)
    for begin in range(first, last, ROWS):
        row = begin + tl.arange(0, ROWS)
        in_tile = (row < last)[:, None] & inside[None, :]
        at = row[:, None].to(tl.int64) * channels + channel[None, :]
        slope = tl.load(dy + at, mask=in_tile, other=0.0).to(tl.float32)
        if relu:
            slope = tl.where(tl.load(y + at, mask=in_tile, other=0.0) > 0, slope, 0.0)
        value = (tl.load(x + at, mask=in_tile, other=0.0).to(tl.float32) - center[None, :]) * speed[None, :]
        shift += tl.sum(slope, 0)
        turn += tl.sum(slope * value, 0)
    at = (group * PARTS + part) * channels + channel
    tl.store(by_shift + at, shift, mask=inside)
    tl.store(by_scale + at, turn, mask=inside)
    counters += block * (groups + 1)
    if _is_last(counters + group, parts):
        parts_index = tl.arange(0, PARTS)
        spot = (group * PARTS + parts_index[:, None]) * channels + channel[None, :]
        known = (parts_index < parts)[:, None] & inside[None, :]
        total = (high - low).to(tl.float32)
        group_shift = tl.sum(tl.load(by_shift + spot, mask=known, other=0.0, cache_modifier=".cg"), 0)
        group_turn = tl.sum(tl.load(by_scale + spot, mask=known, other=0.0, cache_modifier=".cg"), 0)
        tl.store(mean_slope + group * channels + channel, group_shift / total, mask=inside)
        tl.store(mean_turn + group * channels + channel, group_turn / total, mask=inside)
        if _is_last(counters + groups, groups):
            all_shift = tl.zeros((WIDTH,), tl.float32)
            all_turn = tl.zeros((WIDTH,), tl.float32)
            for one in range(groups):
                rows = (tl.load(start + one + 1) - tl.load(start + one)).to(tl.float32)
                at_group = one * channels + channel
                all_shift += rows * tl.load(mean_slope + at_group, mask=inside, other=0.0, cache_modifier=".cg")
                all_turn += rows * tl.load(mean_turn + at_group, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(dbias + channel, all_shift, mask=inside)
            tl.store(dweight + channel, all_turn, mask=inside)


@triton.jit(do_not_specialize=HOST)
def _descend(
    x, y, dy, dx, dresidual, start, centre, rate, weight, mean_slope, mean_turn, channels, has_residual, relu,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Set dx = scale · (dz − mean dz − x̂ · mean(dz · x̂)) and dresidual = dz."""
    at, in_tile, channel, inside, vector = _tile(start, channels, ROWS, WIDTH)
    speed = tl.load(rate + vector, mask=inside, other=0.0)
    scale = speed * tl.load(weight + channel, mask=inside, other=0.0)
    slope = tl.load(dy + at, mask=in_tile, other=0.0).to(tl.float32)
    if relu:
        slope = tl.where(tl.load(y + at, mask=in_tile, other=0.0) > 0, slope, 0.0)
    if has_residual:
        tl.store(dresidual + at, slope.to(dresidual.dtype.element_ty), mask=in_tile)
    middle = tl.load(centre + vector, mask=inside, other=0.0)
    value = (tl.load(x + at, mask=in_tile, other=0.0).to(tl.float32) - middle[None, :]) * speed[None, :]
    slope -= tl.load(mean_slope + vector, mask=inside, other=0.0)[None, :]
    slope -= value * tl.load(mean_turn + vector, mask=inside, other=0.0)[None, :]
    tl.store(dx + at, (scale[None, :] * slope).to(dx.dtype.element_ty), mask=in_tile)


class GroupNormalised(torch.autograd.Function):
    """Maps [n, c, h, w] in channels_last, normalised group by group; see `group_norm`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        """Normalise, add, cut, and move the running statistics."""
        running_mean, running_var, counters, sizes, momentum, eps, relu = rest
        plan, channels = _plan(sizes, *x.shape[1:], x.device), x.shape[1]
        y = torch.empty_like(x)
        mean, spread = x.new_empty((2, len(sizes), MOST_PARTS, channels), dtype=torch.float32)
        centre, variance, rate = x.new_empty((3, len(sizes), channels), dtype=torch.float32)
        _statistics[plan.parts_grid](
            x, plan.start, mean, spread, centre, variance, rate, running_mean, running_var, counters, channels,
            plan.parts, len(sizes), momentum, eps, PARTS=MOST_PARTS, **plan.tile,
        )  # fmt: skip
        _normalise[plan.tiles_grid](
            x, y, x if residual is None else residual, plan.start, centre, rate, weight, bias, channels,
            int(residual is not None), int(relu), **plan.tile,
        )  # fmt: skip
        ctx.save_for_backward(x, y, weight, centre, rate)
        ctx.plan, ctx.groups, ctx.counters = plan, len(sizes), counters
        ctx.has_residual, ctx.relu = residual is not None, relu
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients by maps, addend, weight and bias."""
        x, y, weight, centre, rate = ctx.saved_tensors
        plan, channels = ctx.plan, x.shape[1]
        dy = dy.contiguous(memory_format=torch.channels_last)
        shift, scale = x.new_empty((2, ctx.groups, MOST_PARTS, channels), dtype=torch.float32)
        mean_slope, mean_turn = x.new_empty((2, ctx.groups, channels), dtype=torch.float32)
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        dresidual = torch.empty_like(x) if ctx.has_residual else None
        _slopes[plan.parts_grid](
            x, y, dy, plan.start, centre, rate, shift, scale, mean_slope, mean_turn, dweight, dbias, ctx.counters,
            channels, plan.parts, ctx.groups, int(ctx.relu), PARTS=MOST_PARTS, **plan.tile,
        )  # fmt: skip
        _descend[plan.tiles_grid](
            x, y, dy, dx, dx if dresidual is None else dresidual, plan.start, centre, rate, weight,
            mean_slope, mean_turn, channels, int(ctx.has_residual), int(ctx.relu), **plan.tile,
        )  # fmt: skip
        return dx, dresidual, dweight, dbias, None, None, None, None, None, None, None


class _Plan:
    """Where the groups' rows begin, on the device, and how a launch is cut into programs."""

    def __init__(self, sizes: tuple[int, ...], channels: int, places: int, device: torch.device) -> None:
        rows = torch.tensor([0, *sizes], dtype=torch.int32).cumsum(0, dtype=torch.int32) * places
        self.start = rows.to(device)
        width = min(WIDTH, triton.next_power_of_2(channels))
        self.tile = {"ROWS": ROWS, "WIDTH": width, "num_warps": WARPS}
        blocks, tiles = triton.cdiv(channels, width), triton.cdiv(max(sizes) * places, ROWS)
        self.parts = max(1, min(MOST_PARTS, tiles, PROGRAMS // (blocks * len(sizes))))
        self.parts_grid = (self.parts, blocks, len(sizes))
        self.tiles_grid = (tiles, blocks, len(sizes))


@lru_cache(maxsize=4096)
def _plan(sizes: tuple[int, ...], channels: int, height: int, width: int, device: torch.device) -> _Plan:
    return _Plan(sizes, channels, height * width, device)


def counters_for(channels: int, groups: int, device: torch.device) -> Tensor:
    """Return zeros by which programs find out who is last; they are zeros again after every call.

    They belong to one layer: two calls at once, in runs side by side, must not count together.
    """
    return torch.zeros(triton.cdiv(channels, min(WIDTH, channels)) * (groups + 1), dtype=torch.int32, device=device)


def _rows_of_channels(x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Maps, and what is to be added to them, as the kernels read them."""
    x = x.contiguous(memory_format=torch.channels_last)
    return x, None if residual is None else residual.to(x.dtype).contiguous(memory_format=torch.channels_last)


def group_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    counters: Tensor,
    *,
    sizes: tuple[int, ...],
    momentum: float,
    eps: float,
    relu: bool,
) -> Tensor:
    """Return maps [Σ sizes, c, h, w], each group of rows normalised by its statistics; `residual` is added, then ReLU.

    Running statistics move in place, group after group. `counters` come from `counters_for`.
    """
    x, residual = _rows_of_channels(x, residual)
    result: Tensor = GroupNormalised.apply(  # type: ignore[no-untyped-call]
        x, residual, weight, bias, running_mean, running_var, counters, sizes, momentum, eps, relu
    )
    return result


def batch_norm_eval(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    eps: float,
    relu: bool,
) -> Tensor:
    """Return maps [n, c, h, w] normalised by the running statistics; `residual` is added, then ReLU. No gradients."""
    x, residual = _rows_of_channels(x, residual)
    y, (n, channels, height, width) = torch.empty_like(x), x.shape
    block = min(WIDE, triton.next_power_of_2(channels))
    # made on the device: a recording may keep it, and every number of rows would else be one more to remember
    start = torch.arange(2, dtype=torch.int32, device=x.device) * (n * height * width)
    _normalise[(triton.cdiv(n * height * width, LONG), triton.cdiv(channels, block), 1)](
        x, y, x if residual is None else residual, start, running_mean, (running_var.float() + eps).rsqrt(),
        weight, bias, channels, int(residual is not None), int(relu), ROWS=LONG, WIDTH=block, num_warps=MANY,
    )  # fmt: skip
    return y


def trial(device: torch.device) -> None:
    """Compile and run every kernel once, on next to nothing; raises what stands in the way."""
    one, zero = torch.ones(16, device=device), torch.zeros(16, device=device)
    with torch.enable_grad():
        x = torch.ones(2, 16, 2, 2, device=device).requires_grad_()
        y = group_norm(
            x, None, one, zero, zero.clone(), one.clone(), counters_for(16, 1, device),
            sizes=(2,), momentum=0.1, eps=1e-5, relu=True,
        )  # fmt: skip
        y.sum().backward()
    batch_norm_eval(x.detach(), None, one, zero, zero, one, eps=1e-5, relu=True)
