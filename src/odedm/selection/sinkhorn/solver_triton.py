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

from odedm.selection.sinkhorn.kernels import DenseKernel
from odedm.selection.sinkhorn.relaxation import LOOK_EVERY, RELAXATION, Transport, is_relaxed, least

COARSE = 5
"""Iterations in half precision: what they get wrong is below what the remaining ones still correct."""

ROWS, BINS, DEPTH, WARPS, STAGES = 64, 64, 32, 4, 4
"""Pairs and bins of a tile, how many bins of the other side it takes at a time, and how the GPU works on it."""

FEW = 1 << 14
"""Pairs that leave together: fewer than that keep a GPU less busy than starting the operations keeps the host."""

NEAR = 1e-2
"""While most errors are larger than this, half precision is enough: a third of the products."""


@triton.jit(do_not_specialize=["pairs", "power"])
def _scale(
    other, kernel, mass, index, old, power, new, error, pairs, out_bins, in_bins, tiny,
    ROWS: tl.constexpr, BINS: tl.constexpr, DEPTH: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """Set new = m · (m / old)^power with m = mass / (K other), and error to |old · (K other) − mass| summed by tile.

    K and the scalings are sums of two numbers in bfloat16, see `halves`: three products on tensor cores that are off by
    2⁻¹⁶ of each term; for `COARSE` the first of them alone.
    """
    tiles = tl.cdiv(out_bins, BINS)  # those of the same pairs follow each other: they read the same rows of `other`
    row = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(0) % tiles
    place = tile * BINS + tl.arange(0, BINS)
    real, inside, long = row < pairs, place < out_bins, row.to(tl.int64)
    other_low, kernel_low = other + pairs.to(tl.int64) * in_bins, kernel + out_bins * in_bins
    product = tl.zeros((ROWS, BINS), tl.float32)
    for begin in range(0, in_bins, DEPTH):
        inner = begin + tl.arange(0, DEPTH)
        in_depth = inner < in_bins
        at, in_block = long[:, None] * in_bins + inner[None, :], real[:, None] & in_depth[None, :]
        spot, known = place[None, :] * in_bins + inner[:, None], in_depth[:, None] & inside[None, :]
        x, k = tl.load(other + at, mask=in_block, other=0.0), tl.load(kernel + spot, mask=known, other=0.0)
        product = tl.dot(x, k, product)
        if not COARSE:
            product = tl.dot(x, tl.load(kernel_low + spot, mask=known, other=0.0), product)
            product = tl.dot(tl.load(other_low + at, mask=in_block, other=0.0), k, product)
    in_block, at = real[:, None] & inside[None, :], long[:, None] * out_bins + place[None, :]
    source_row = tl.load(index + row, mask=real, other=0)
    wanted = tl.load(mass + source_row[:, None] * out_bins + place[None, :], mask=in_block, other=0.0)
    size = pairs.to(tl.int64) * out_bins
    before = tl.load(old + at, mask=in_block, other=0.0).to(tl.float32)
    before += tl.load(old + size + at, mask=in_block, other=0.0).to(tl.float32)
    tl.store(error + long * tiles + tile, tl.sum(tl.abs(before * product - wanted), 1), mask=real)
    fresh = wanted / tl.maximum(product, tiny)
    beyond = tl.exp2(power * (tl.log2(tl.maximum(fresh, tiny)) - tl.log2(tl.maximum(before, tiny))))
    result = tl.where(fresh > 0, fresh * beyond, 0.0)
    high = result.to(tl.bfloat16)
    tl.store(new + at, high, mask=in_block)
    tl.store(new + size + at, (result - high.to(tl.float32)).to(tl.bfloat16), mask=in_block)


def halves(x: Tensor) -> Tensor:
    """Return numbers [n, d] in float32 as sums of two in bfloat16 [2, n, d], as tensor cores take them."""
    high = x.bfloat16()
    return torch.stack([high, (x - high).bfloat16()])


def whole(x: Tensor) -> Tensor:
    """Return the sums [n, d] of `halves`."""
    return x[0].float() + x[1].float()


def scale(
    other: Tensor, kernel: Tensor, mass: Tensor, index: Tensor, old: Tensor, *, relaxed: bool, coarse: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the scalings [p, out] that follow `old` for `other` [p, in], and the errors of `old` in parts [p, tiles].

    Scalings and kernel are given, and found, as `halves`. Pair i is to get `mass`[`index`[i]].
    """
    pairs, (out_bins, in_bins) = other.shape[1], kernel.shape[1:]
    tiles = triton.cdiv(out_bins, BINS)
    new, error = torch.empty_like(old), mass.new_empty(pairs, tiles)
    power = RELAXATION - 1.0 if relaxed else 0.0
    _scale[(triton.cdiv(pairs, ROWS) * tiles,)](
        other, kernel, mass, index, old, power, new, error, pairs, out_bins, in_bins, least(mass.dtype),
        ROWS=ROWS, BINS=BINS, DEPTH=DEPTH, COARSE=coarse, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return new, error


def solve(
    source: Tensor, target: Tensor, row: Tensor, column: Tensor, kernel: DenseKernel, tolerance: float, iterations: int
) -> Transport:
    """Transport `source`[`row`] [p, s] to `target`[`column`] [p, d] in float32: costs and errors [p]."""
    source, target = source.contiguous(), target.contiguous()  # the kernel finds rows by counting
    pairs, coarse = len(row), min(COARSE, iterations - 1)
    first = coarse + 1
    cost, error = source.new_empty(pairs), source.new_full((pairs,), torch.inf)
    pair = torch.arange(pairs, device=row.device)
    u, v = (halves(side.new_ones(pairs, side.shape[1])) for side in (source, target))
    forth, back = halves(kernel.weight), halves(kernel.weight.T)
    for done in range(iterations + 1):
        relaxed = is_relaxed(done, iterations)
        next_u, parts = scale(v, forth, source, row, u, relaxed=relaxed, coarse=done < coarse)
        if done == iterations or (done >= first and (done - first) % LOOK_EVERY == 0):
            error_now = parts.sum(1)
            ready = error_now < tolerance if done < iterations else torch.ones_like(error_now, dtype=torch.bool)
            amount, far = torch.stack([ready.sum(), (error_now > NEAR).sum()]).tolist()
            if far * 2 > len(error_now) and done < iterations // 4:
                coarse = done + LOOK_EVERY  # until the next look, which is at full precision as all are
            # moving the others up costs a pass, so a few are carried along; of few pairs all, as starting work is dear
            if amount == len(ready) or (amount * 8 >= len(ready) > FEW):
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (whole(u[:, leave]) * kernel.apply_cost(whole(v[:, leave]))).sum(1)
                error[pair[leave]] = error_now[leave]
                if amount == len(ready):
                    break
                pair, row, column = pair[stay], row[stay], column[stay]
                next_u, v = next_u[:, stay], v[:, stay]
        u = next_u
        v, _ = scale(u, back, target, column, v, relaxed=relaxed, coarse=done < coarse)
    return Transport(cost, error, done)


def trial(device: torch.device) -> None:
    """Compile and run the kernel once in either precision, on next to nothing; raises what stands in the way."""
    one, first = torch.ones(16, 16, device=device), torch.zeros(16, dtype=torch.int64, device=device)
    two = halves(one)
    for coarse in (True, False):
        scale(two, two, one, first, two, relaxed=True, coarse=coarse)
