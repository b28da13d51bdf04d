"""Triton kernels for the squares of single rows' gradients: a convolution's, and BatchNorm over one image's places.

torch would write every row's gradient by the weights to memory, 45 MB a row for ResNet-18, only to square it and add
it up. Here a tile of it stays where it was made. Maps are rows of channels (channels_last). Sums are made in float32 in
a fixed order: they repeat bit for bit.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

HOST = (
    "rows", "splits", "height", "width", "out_height", "out_width", "taps", "across",
    "step_down", "step_right", "pad_up", "pad_left", "apart_down", "apart_right",
)  # fmt: skip
"""Numbers of the host that are not worth a kernel of their own: each costs a second or two to compile."""
PROGRAMS = 528
"""How many programs a convolution's squares aim at: four for each multiprocessor of an H200."""
TILE, FEWEST, PLACES = 128, 16, 64
"""Most and fewest channels of either side that a program works on, and places that it takes at a time."""
STRETCH, WIDTH = 128, 32
"""Places and channels that a program of BatchNorm takes at a time."""

Told = Callable[[Tensor, Tensor], None]
"""Told the gradients [n, c] of every row by BatchNorm's weight and by its bias."""


@triton.jit(do_not_specialize=HOST)
def _squares(
    x, slope, part, rows, splits, height, width, channels, out_height, out_width, out_channels,
    taps, across, step_down, step_right, pad_up, pad_left, apart_down, apart_right,
    OUT: tl.constexpr, IN: tl.constexpr, PLACES: tl.constexpr, ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add up (Σ over places of slope · x)² over some rows, for a tile of channels and one tap of the kernel."""
    outs, tap, split = tl.cdiv(out_channels, OUT), tl.program_id(1), tl.program_id(2)
    o = tl.program_id(0) % outs * OUT + tl.arange(0, OUT)
    c = tl.program_id(0) // outs * IN + tl.arange(0, IN)
    up, left = tap // across * apart_down - pad_up, tap % across * apart_right - pad_left
    places = out_height * out_width
    share = tl.cdiv(rows, splits)
    total = tl.zeros((OUT, IN), tl.float32)
    for row in range(split * share, tl.minimum(split * share + share, rows)):
        long = tl.cast(row, tl.int64)
        gone, come = slope + long * places * out_channels, x + long * height * width * channels
        gradient = tl.zeros((OUT, IN), tl.float32)
        if ONE:  # no inner loop, so that the loads of the next row can begin early
            g, v = _pair(
                gone, come, 0, o, c, up, left, places, height, width, channels, out_width, out_channels,
                step_down, step_right, PLACES,
            )  # fmt: skip
            gradient = tl.dot(tl.trans(g), v, gradient, input_precision=PRECISION)
        else:
            for begin in range(0, places, PLACES):
                g, v = _pair(
                    gone, come, begin, o, c, up, left, places, height, width, channels, out_width, out_channels,
                    step_down, step_right, PLACES,
                )  # fmt: skip
                gradient = tl.dot(tl.trans(g), v, gradient, input_precision=PRECISION)
        total += gradient * gradient
    at = ((split * out_channels + o[:, None]).to(tl.int64) * taps + tap) * channels + c[None, :]
    tl.store(part + at, total, mask=(o < out_channels)[:, None] & (c < channels)[None, :])


@triton.jit
def _pair(
    gone, come, begin, o, c, up, left, places, height, width, channels, out_width, out_channels, step_down, step_right,
    PLACES: tl.constexpr,
):  # fmt: skip
    """Gradients of some places of a row [PLACES, o], and what entered there [PLACES, c]; zeros beyond the border."""
    place = begin + tl.arange(0, PLACES)
    real = place < places
    down, right = place // out_width * step_down + up, place % out_width * step_right + left
    seen = real & (down >= 0) & (down < height) & (right >= 0) & (right < width)
    g = tl.load(
        gone + place[:, None] * out_channels + o[None, :], mask=real[:, None] & (o < out_channels)[None, :], other=0.0
    )
    v = tl.load(
        come + (down * width + right)[:, None] * channels + c[None, :],
        mask=seen[:, None] & (c < channels)[None, :],
        other=0.0,
    )
    return g, v


def conv_squares(x: Tensor, slope: Tensor, layer: nn.Conv2d) -> Tensor:
    """Squares of single rows' gradients by the weights, added up over rows: float32, like the weights.

    `x` [n, c, h, w] enters the convolution, `slope` [n, o, h', w'] is the gradient of what leaves it.
    """
    x, slope = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, slope.to(x.dtype)))
    (n, channels, height, width), (_, out_channels, out_height, out_width) = x.shape, slope.shape
    down, across = layer.kernel_size
    out, into = (max(FEWEST, min(TILE, triton.next_power_of_2(number))) for number in (out_channels, channels))
    tiles = triton.cdiv(out_channels, out) * triton.cdiv(channels, into)
    splits = max(1, min(n, PROGRAMS // (tiles * down * across)))
    places = max(FEWEST, min(PLACES, triton.next_power_of_2(out_height * out_width)))
    part = x.new_empty((splits, out_channels, down, across, channels), dtype=torch.float32)
    _squares[(tiles, down * across, splits)](
        x, slope, part, n, splits, height, width, channels, out_height, out_width, out_channels,
        down * across, across, *layer.stride, *layer.padding, *layer.dilation,
        OUT=out, IN=into, PLACES=places, ONE=out_height * out_width <= places,
        PRECISION="tf32" if torch.backends.cudnn.allow_tf32 else "ieee", num_warps=8 if out * into > 4096 else 4,
    )  # fmt: skip
    return part.sum(0).permute(0, 3, 1, 2)


@triton.jit(do_not_specialize=["places", "has_residual", "relu"])
def _normalise(
    x, y, residual, centre, rate, weight, bias, places, channels, eps, has_residual, relu,
    STRETCH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Set y = relu((x − mean) · rate · weight + bias + residual) for some channels of one image."""
    image, channel = tl.program_id(0), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside, start = channel < channels, image.to(tl.int64) * places * channels
    middle, square = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for begin in range(0, places, STRETCH):
        place = begin + tl.arange(0, STRETCH)
        is_place = (place < places)[:, None] & inside[None, :]
        value = tl.load(x + start + place[:, None] * channels + channel[None, :], mask=is_place, other=0.0)
        middle += tl.sum(value.to(tl.float32), 0)
    middle /= places
    for begin in range(0, places, STRETCH):
        place = begin + tl.arange(0, STRETCH)
        is_place = (place < places)[:, None] & inside[None, :]
        value = tl.load(x + start + place[:, None] * channels + channel[None, :], mask=is_place, other=0.0)
        off = tl.where(is_place, value.to(tl.float32) - middle[None, :], 0.0)
        square += tl.sum(off * off, 0)
    speed = 1.0 / tl.sqrt(square / places + eps)
    tl.store(centre + image * channels + channel, middle, mask=inside)
    tl.store(rate + image * channels + channel, speed, mask=inside)
    scale = speed * tl.load(weight + channel, mask=inside, other=0.0)
    shift = tl.load(bias + channel, mask=inside, other=0.0)
    for begin in range(0, places, STRETCH):
        place = begin + tl.arange(0, STRETCH)
        is_place = (place < places)[:, None] & inside[None, :]
        at = start + place[:, None] * channels + channel[None, :]
        value = tl.load(x + at, mask=is_place, other=0.0).to(tl.float32)
        value = (value - middle[None, :]) * scale[None, :] + shift[None, :]
        if has_residual:
            value += tl.load(residual + at, mask=is_place, other=0.0).to(tl.float32)
        if relu:
            value = tl.where(value < 0.0, 0.0, value)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=is_place)


@triton.jit
def _slope(x, y, dy, at, is_place, middle, speed, relu):
    """The gradient behind the cut, and x̂, of some places."""
    slope = tl.load(dy + at, mask=is_place, other=0.0).to(tl.float32)
    if relu:
        slope = tl.where(tl.load(y + at, mask=is_place, other=0.0) > 0, slope, 0.0)
    value = tl.load(x + at, mask=is_place, other=0.0).to(tl.float32)
    return slope, tl.where(is_place, (value - middle[None, :]) * speed[None, :], 0.0)


@triton.jit(do_not_specialize=["places", "has_residual", "relu"])
def _descend(
    x, y, dy, dx, dresidual, centre, rate, weight, by_weight, by_bias, places, channels, has_residual, relu,
    STRETCH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One image's gradients by its maps, by the addend, and by weight and bias, for some channels."""
    image, channel = tl.program_id(0), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside, start = channel < channels, image.to(tl.int64) * places * channels
    middle = tl.load(centre + image * channels + channel, mask=inside, other=0.0)
    speed = tl.load(rate + image * channels + channel, mask=inside, other=0.0)
    shift, turn = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for begin in range(0, places, STRETCH):
        place = begin + tl.arange(0, STRETCH)
        is_place = (place < places)[:, None] & inside[None, :]
        at = start + place[:, None] * channels + channel[None, :]
        slope, value = _slope(x, y, dy, at, is_place, middle, speed, relu)
        shift += tl.sum(slope, 0)
        turn += tl.sum(slope * value, 0)
    tl.store(by_weight + image * channels + channel, turn, mask=inside)
    tl.store(by_bias + image * channels + channel, shift, mask=inside)
    scale = speed * tl.load(weight + channel, mask=inside, other=0.0)
    for begin in range(0, places, STRETCH):
        place = begin + tl.arange(0, STRETCH)
        is_place = (place < places)[:, None] & inside[None, :]
        at = start + place[:, None] * channels + channel[None, :]
        slope, value = _slope(x, y, dy, at, is_place, middle, speed, relu)
        if has_residual:
            tl.store(dresidual + at, slope.to(dresidual.dtype.element_ty), mask=is_place)
        slope -= (shift / places)[None, :] + value * (turn / places)[None, :]
        tl.store(dx + at, (scale[None, :] * slope).to(dx.dtype.element_ty), mask=is_place)


class RowNormalised(torch.autograd.Function):
    """Maps [n, c, h, w] in channels_last, every image normalised over its own places; see `row_norm`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, *rest: Any) -> Tensor:
        """Normalise, add, cut."""
        weight, bias, eps, relu, told = rest
        n, channels, height, width = x.shape
        y, (centre, rate) = torch.empty_like(x), x.new_empty((2, n, channels), dtype=torch.float32)
        _normalise[(n, triton.cdiv(channels, WIDTH))](
            x, y, x if residual is None else residual, centre, rate, weight, bias, height * width, channels, eps,
            int(residual is not None), int(relu), STRETCH=STRETCH, WIDTH=WIDTH, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, y, weight, centre, rate)
        ctx.has_residual, ctx.relu, ctx.told = residual is not None, relu, told
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by maps and addend; those by weight and bias are told row by row."""
        x, y, weight, centre, rate = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        n, channels, height, width = x.shape
        dx, dresidual = torch.empty_like(x), torch.empty_like(x) if ctx.has_residual else None
        by_weight, by_bias = torch.empty_like(centre), torch.empty_like(centre)
        _descend[(n, triton.cdiv(channels, WIDTH))](
            x, y, dy, dx, dx if dresidual is None else dresidual, centre, rate, weight, by_weight, by_bias,
            height * width, channels, int(ctx.has_residual), int(ctx.relu), STRETCH=STRETCH, WIDTH=WIDTH, num_warps=4,
        )  # fmt: skip
        ctx.told(by_weight, by_bias)
        return dx, dresidual, None, None, None, None, None


def row_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, eps: float, relu: bool, told: Told
) -> Tensor:
    """Maps [n, c, h, w], every image normalised over its own places; `residual` is added, then the ReLU taken."""
    x = x.contiguous(memory_format=torch.channels_last)
    residual = None if residual is None else residual.to(x.dtype).contiguous(memory_format=torch.channels_last)
    result: Tensor = RowNormalised.apply(x, residual, weight, bias, eps, relu, told)  # type: ignore[no-untyped-call]
    return result


def trial(device: torch.device) -> None:
    """Compile and run every kernel once, on next to nothing; raises what stands in the way."""
    one = torch.ones(16, device=device)
    layer = nn.utils.skip_init(nn.Conv2d, 16, 16, 3, padding=1, device=device)  # drawn weights would disturb a run
    with torch.enable_grad():
        x = torch.ones(1, 16, 2, 2, device=device).requires_grad_()
        row_norm(x, None, one, one, 1e-5, True, lambda *_: None).sum().backward()
    for side in (4, 16):
        maps = torch.ones(1, 16, side, side, device=device)
        conv_squares(maps, maps, layer)
