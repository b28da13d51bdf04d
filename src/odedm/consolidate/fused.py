"""Sinkhorn's iterations between histograms on a GPU: half an iteration is one Triton kernel.

torch takes nine passes over [pairs, bins] for what follows each product; here it happens where the product is made. The
rows of the histograms are looked up there too, so that pairs which have converged can leave without moving them.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from odedm.consolidate.kernels import DenseKernel
from odedm.consolidate.sinkhorn import COARSE, LOOK_EVERY, Pace, Transport, least

ROWS, BINS, DEPTH, WARPS, STAGES = 128, 128, 32, 8, 3
"""Pairs and bins of a tile, how many bins of the other side it takes at a time, and how the GPU works on it."""


@triton.jit(do_not_specialize=["pairs"])
def _scale(
    other, weight, mass, index, old, far, new, error, pairs, out_bins, in_bins, out_stride, in_stride, tiny,
    ROWS: tl.constexpr, BINS: tl.constexpr, DEPTH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Set new = m · (m / old)^far with m = mass / (K other), and error to |old · (K other) − mass| summed by tile."""
    tiles = tl.cdiv(out_bins, BINS)  # those of the same pairs follow each other: they read the same rows of `other`
    row = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(0) % tiles
    place = tile * BINS + tl.arange(0, BINS)
    real, inside, long = row < pairs, place < out_bins, row.to(tl.int64)
    product = tl.zeros((ROWS, BINS), tl.float32)
    for begin in range(0, in_bins, DEPTH):
        inner = begin + tl.arange(0, DEPTH)
        here = inner < in_bins
        x = tl.load(other + long[:, None] * in_bins + inner[None, :], mask=real[:, None] & here[None, :], other=0.0)
        spot = inner[:, None] * in_stride + place[None, :] * out_stride
        w = tl.load(weight + spot, mask=here[:, None] & inside[None, :], other=0.0)
        if HALF:  # noqa: SIM108 - decided when the kernel is compiled
            product = tl.dot(x.to(tl.bfloat16), w, product)
        else:
            product = tl.dot(x, w, product, input_precision="tf32x3")  # as good as float32, by tensor cores
    there, at = real[:, None] & inside[None, :], long[:, None] * out_bins + place[None, :]
    own = tl.load(index + row, mask=real, other=0)
    wanted = tl.load(mass + own[:, None] * out_bins + place[None, :], mask=there, other=0.0)
    before = tl.load(old + at, mask=there, other=0.0)
    tl.store(error + long * tiles + tile, tl.sum(tl.abs(before * product - wanted), 1), mask=real)
    power = tl.load(far + row, mask=real, other=0.0)
    fresh = wanted / tl.maximum(product, tiny)
    beyond = tl.exp2(power[:, None] * tl.log2(tl.maximum(fresh, tiny) / tl.maximum(before, tiny)))
    tl.store(new + at, tl.where(fresh > 0, fresh * beyond, 0.0), mask=there)


def scale(
    other: Tensor, weight: Tensor, mass: Tensor, index: Tensor, old: Tensor, far: Tensor
) -> tuple[Tensor, Tensor]:
    """The scalings [p, out] that follow `old` for `other` [p, in] under K = `weight` [out, in], and the errors [p].

    Pair i is to get `mass`[`index`[i]]; it goes (m / old)^`far`[i] beyond m. The error is that of `old`.
    """
    pairs, (out_bins, in_bins) = len(other), weight.shape
    tiles = triton.cdiv(out_bins, BINS)
    new, error = torch.empty_like(old), old.new_empty(pairs, tiles)
    _scale[(triton.cdiv(pairs, ROWS) * tiles,)](
        other, weight, mass, index, old, far, new, error, pairs, out_bins, in_bins, *weight.stride(), least(old.dtype),
        ROWS=ROWS, BINS=BINS, DEPTH=DEPTH, HALF=weight.dtype == torch.bfloat16, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return new, error.sum(1)


def solve(
    source: Tensor, target: Tensor, row: Tensor, column: Tensor, kernel: DenseKernel, tolerance: float, iterations: int
) -> Transport:
    """Pairs `source`[`row`] [p, s] and `target`[`column`] [p, d] in float32: costs and errors [p]."""
    pairs, coarse = len(row), min(COARSE, iterations - 1)
    cost, error = source.new_empty(pairs), source.new_full((pairs,), torch.inf)
    pair, pace = torch.arange(pairs, device=row.device), Pace.first(error)
    u, v = source.new_ones(pairs, source.shape[1]), target.new_ones(pairs, target.shape[1])
    plain = torch.zeros_like(error)
    for done in range(iterations + 1):
        weight = kernel.weight_for(coarse=done < coarse)
        beyond = plain[: len(row)] if done == 0 or done >= iterations // 2 else pace.far - 1
        fresh, now = scale(v, weight, source, row, u, beyond)
        if done == iterations or (done > coarse and (done - coarse - 1) % LOOK_EVERY == 0):
            pace = pace.look(now)
            ready = now < tolerance if done < iterations else torch.ones_like(now, dtype=torch.bool)
            amount = int(ready.sum())
            if amount * 8 >= len(ready):  # moving the others up costs a pass, so a few are carried along
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (u[leave] * kernel.apply_cost(v[leave])).sum(1)
                error[pair[leave]] = now[leave]
                if amount == len(ready):
                    break
                pair, row, column, pace = pair[stay], row[stay], column[stay], pace.of(stay)
                beyond, fresh, v = beyond[stay], fresh[stay], v[stay]
        u = fresh
        v, _ = scale(u, weight.T, target, column, v, beyond)
    return Transport(cost, error, done)


def trial(device: torch.device) -> None:
    """Compile and run the kernel once in either precision, on next to nothing; raises what stands in the way."""
    one, first = torch.ones(2, 16, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    for weight in (torch.ones(16, 16, device=device), torch.ones(16, 16, device=device, dtype=torch.bfloat16)):
        scale(one, weight, one / 16, first, one, one[:, 0].contiguous())
