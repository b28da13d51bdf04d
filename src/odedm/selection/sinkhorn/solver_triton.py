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
from odedm.selection.sinkhorn.relaxation import COARSE, LOOK_EVERY, ROUGH_RELAXATION, Pace, Transport, least

ROWS, BINS, DEPTH, WARPS, STAGES = 64, 64, 32, 4, 4
"""Pairs and bins of a tile, how many bins of the other side it takes at a time, and how the GPU works on it."""

FEW = 1 << 14
"""Pairs that leave together: fewer than that keep a GPU less busy than starting the operations keeps the host."""

NEAR = 1e-2
"""While most errors are larger than this, half precision is enough: a third of the products."""


@triton.jit(do_not_specialize=["pairs"])
def _scale(
    other, kernel, mass, index, old, far, new, error, pairs, out_bins, in_bins, tiny,
    ROWS: tl.constexpr, BINS: tl.constexpr, DEPTH: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """Set new = m · (m / old)^far with m = mass / (K other), and error to |old · (K other) − mass| summed by tile.

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
        here = inner < in_bins
        at, there = long[:, None] * in_bins + inner[None, :], real[:, None] & here[None, :]
        spot, known = place[None, :] * in_bins + inner[:, None], here[:, None] & inside[None, :]
        x, k = tl.load(other + at, mask=there, other=0.0), tl.load(kernel + spot, mask=known, other=0.0)
        product = tl.dot(x, k, product)
        if not COARSE:
            product = tl.dot(x, tl.load(kernel_low + spot, mask=known, other=0.0), product)
            product = tl.dot(tl.load(other_low + at, mask=there, other=0.0), k, product)
    there, at = real[:, None] & inside[None, :], long[:, None] * out_bins + place[None, :]
    own = tl.load(index + row, mask=real, other=0)
    wanted = tl.load(mass + own[:, None] * out_bins + place[None, :], mask=there, other=0.0)
    size = pairs.to(tl.int64) * out_bins
    before = tl.load(old + at, mask=there, other=0.0).to(tl.float32)
    before += tl.load(old + size + at, mask=there, other=0.0).to(tl.float32)
    tl.store(error + long * tiles + tile, tl.sum(tl.abs(before * product - wanted), 1), mask=real)
    power = tl.load(far + row, mask=real, other=0.0)
    fresh = wanted / tl.maximum(product, tiny)
    beyond = tl.exp2(power[:, None] * (tl.log2(tl.maximum(fresh, tiny)) - tl.log2(tl.maximum(before, tiny))))
    result = tl.where(fresh > 0, fresh * beyond, 0.0)
    most = result.to(tl.bfloat16)
    tl.store(new + at, most, mask=there)
    tl.store(new + size + at, (result - most.to(tl.float32)).to(tl.bfloat16), mask=there)


def halves(x: Tensor) -> Tensor:
    """Numbers [n, d] in float32 as sums of two in bfloat16 [2, n, d], as tensor cores take them."""
    high = x.bfloat16()
    return torch.stack([high, (x - high).bfloat16()])


def whole(x: Tensor) -> Tensor:
    """The sums [n, d] of `halves`."""
    return x[0].float() + x[1].float()


def scale(
    other: Tensor, kernel: Tensor, mass: Tensor, index: Tensor, old: Tensor, far: Tensor, *, coarse: bool = False
) -> tuple[Tensor, Tensor]:
    """The scalings [p, out] that follow `old` for `other` [p, in], and the errors of `old` in parts [p, tiles].

    Scalings and kernel are given, and found, as `halves`. Pair i is to get `mass`[`index`[i]]; it goes
    (m / old)^`far`[i] beyond m.
    """
    pairs, (out_bins, in_bins) = other.shape[1], kernel.shape[1:]
    tiles = triton.cdiv(out_bins, BINS)
    new, error = torch.empty_like(old), far.new_empty(pairs, tiles)
    _scale[(triton.cdiv(pairs, ROWS) * tiles,)](
        other, kernel, mass, index, old, far, new, error, pairs, out_bins, in_bins, least(mass.dtype),
        ROWS=ROWS, BINS=BINS, DEPTH=DEPTH, COARSE=coarse, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return new, error


def solve(
    source: Tensor, target: Tensor, row: Tensor, column: Tensor, kernel: DenseKernel, tolerance: float, iterations: int
) -> Transport:
    """Pairs `source`[`row`] [p, s] and `target`[`column`] [p, d] in float32: costs and errors [p]."""
    source, target = source.contiguous(), target.contiguous()  # the kernel finds rows by counting
    pairs, coarse = len(row), min(COARSE, iterations - 1)
    first = coarse + 1
    cost, error = source.new_empty(pairs), source.new_full((pairs,), torch.inf)
    pair, pace = torch.arange(pairs, device=row.device), Pace.first(error)
    u, v = (halves(side.new_ones(pairs, side.shape[1])) for side in (source, target))
    forth, back, beyond = halves(kernel.weight), halves(kernel.weight.T), torch.zeros_like(error)
    for done in range(iterations + 1):
        if done == 1 < iterations // 2:
            beyond = pace.far - 1
        if done == iterations // 2:  # plain ones come last, as in `sinkhorn._beyond`
            beyond = torch.zeros_like(beyond)
        fresh, parts = scale(v, forth, source, row, u, beyond, coarse=done < coarse)
        if done == iterations or (done >= first and (done - first) % LOOK_EVERY == 0):
            now = parts.sum(1)
            pace = pace.look(now)
            ready = now < tolerance if done < iterations else torch.ones_like(now, dtype=torch.bool)
            amount, far = torch.stack([ready.sum(), (now > NEAR).sum()]).tolist()
            if far * 2 > len(now) and done < iterations // 4:
                coarse = done + LOOK_EVERY  # until the next look, which is at full precision as all are
            beyond = pace.far - 1 if done < iterations // 2 else beyond
            # moving the others up costs a pass, so a few are carried along; of few pairs all, as starting work is dear
            if amount == len(ready) or (amount * 8 >= len(ready) > FEW):
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (whole(u[:, leave]) * kernel.apply_cost(whole(v[:, leave]))).sum(1)
                error[pair[leave]] = now[leave]
                if amount == len(ready):
                    break
                pair, row, column, pace = pair[stay], row[stay], column[stay], pace.of(stay)
                beyond, fresh, v = beyond[stay], fresh[:, stay], v[:, stay]
        u = fresh
        v, _ = scale(u, back, target, column, v, beyond, coarse=done < coarse)
    return Transport(cost, error, done)


def rough(source: Tensor, target: Tensor, row: Tensor, column: Tensor, kernel: DenseKernel, iterations: int) -> Tensor:
    """Estimates [p] of the costs of the same pairs after a few iterations, all in half precision."""
    source, target = source.contiguous(), target.contiguous()
    u, v = (halves(side.new_ones(len(row), side.shape[1])) for side in (source, target))
    forth, back = halves(kernel.weight), halves(kernel.weight.T)
    far = source.new_zeros(len(row))
    for _ in range(iterations):
        u, _ = scale(v, forth, source, row, u, far, coarse=True)
        v, _ = scale(u, back, target, column, v, far, coarse=True)
        far = torch.full_like(far, ROUGH_RELAXATION - 1)  # the first iteration has nothing to go beyond
    return (whole(u) * kernel.apply_cost(whole(v), coarse=True)).sum(1)


def trial(device: torch.device) -> None:
    """Compile and run the kernel once in either precision, on next to nothing; raises what stands in the way."""
    one, first = torch.ones(16, 16, device=device), torch.zeros(16, dtype=torch.int64, device=device)
    two = halves(one)
    for coarse in (True, False):
        scale(two, two, one, first, two, one[:, 0].contiguous(), coarse=coarse)
