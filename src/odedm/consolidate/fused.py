"""Sinkhorn's iterations between histograms on a GPU: half an iteration is one Triton kernel.

torch takes nine passes over [pairs, bins] for what follows each product; here it happens where the product is made. The
rows of the histograms are looked up there too, so that pairs which have converged can leave without moving them.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from odedm.consolidate.kernels import DenseKernel
from odedm.consolidate.pace import LOOK_EVERY, Pace
from odedm.consolidate.sinkhorn import COARSE, Transport, least

ROWS, BINS, DEPTH, WARPS, STAGES = 64, 64, 32, 4, 4
"""Pairs and bins of a tile, how many bins of the other side it takes at a time, and how the GPU works on it."""


NEAR = 1e-2
"""While most errors are larger than this, half precision is enough: a third of the products."""


@triton.jit(do_not_specialize=["pairs"])
def _scale(
    other_high, other_low, high, low, mass, index, old_high, old_low, far, new_high, new_low, error, pairs, out_bins,
    in_bins, tiny, ROWS: tl.constexpr, BINS: tl.constexpr, DEPTH: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """Set new = m · (m / old)^far with m = mass / (K other), and error to |old · (K other) − mass| summed by tile.

    K and the scalings are `high` + `low`, both bfloat16: three products on tensor cores that are off by 2⁻¹⁶ of each
    term; for `COARSE` the first of them alone.
    """
    tiles = tl.cdiv(out_bins, BINS)  # those of the same pairs follow each other: they read the same rows of `other`
    row = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(0) % tiles
    place = tile * BINS + tl.arange(0, BINS)
    real, inside, long = row < pairs, place < out_bins, row.to(tl.int64)
    product = tl.zeros((ROWS, BINS), tl.float32)
    for begin in range(0, in_bins, DEPTH):
        inner = begin + tl.arange(0, DEPTH)
        here = inner < in_bins
        at, there = long[:, None] * in_bins + inner[None, :], real[:, None] & here[None, :]
        spot, known = place[None, :] * in_bins + inner[:, None], here[:, None] & inside[None, :]
        x, k = tl.load(other_high + at, mask=there, other=0.0), tl.load(high + spot, mask=known, other=0.0)
        product = tl.dot(x, k, product)
        if not COARSE:
            product = tl.dot(x, tl.load(low + spot, mask=known, other=0.0), product)
            product = tl.dot(tl.load(other_low + at, mask=there, other=0.0), k, product)
    there, at = real[:, None] & inside[None, :], long[:, None] * out_bins + place[None, :]
    own = tl.load(index + row, mask=real, other=0)
    wanted = tl.load(mass + own[:, None] * out_bins + place[None, :], mask=there, other=0.0)
    before = tl.load(old_high + at, mask=there, other=0.0).to(tl.float32)
    before += tl.load(old_low + at, mask=there, other=0.0).to(tl.float32)
    tl.store(error + long * tiles + tile, tl.sum(tl.abs(before * product - wanted), 1), mask=real)
    power = tl.load(far + row, mask=real, other=0.0)
    fresh = wanted / tl.maximum(product, tiny)
    beyond = tl.exp2(power[:, None] * (tl.log2(tl.maximum(fresh, tiny)) - tl.log2(tl.maximum(before, tiny))))
    result = tl.where(fresh > 0, fresh * beyond, 0.0)
    most = result.to(tl.bfloat16)
    tl.store(new_high + at, most, mask=there)
    tl.store(new_low + at, (result - most.to(tl.float32)).to(tl.bfloat16), mask=there)


class Halves(NamedTuple):
    """Numbers as the sum of two in bfloat16, as tensor cores take them."""

    high: Tensor
    low: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Halves:
        """Split numbers in float32, to be read row by row."""
        high = x.bfloat16().contiguous()
        return cls(high, (x - high).bfloat16().contiguous())

    def of_rows(self, index: Tensor) -> Halves:
        """Those of some rows."""
        return Halves(self.high[index], self.low[index])

    def whole(self) -> Tensor:
        """The sums, in float32."""
        return self.high.float() + self.low.float()


def scale(
    other: Halves, kernel: Halves, mass: Tensor, index: Tensor, old: Halves, far: Tensor, *, coarse: bool = False
) -> tuple[Halves, Tensor]:
    """The scalings [p, out] that follow `old` for `other` [p, in], and the errors of `old` in parts [p, tiles].

    Pair i is to get `mass`[`index`[i]]; it goes (m / old)^`far`[i] beyond m.
    """
    pairs, (out_bins, in_bins) = len(other.high), kernel.high.shape
    tiles = triton.cdiv(out_bins, BINS)
    new, error = Halves(*(torch.empty_like(half) for half in old)), far.new_empty(pairs, tiles)
    _scale[(triton.cdiv(pairs, ROWS) * tiles,)](
        *other, *kernel, mass, index, *old, far, *new, error, pairs, out_bins, in_bins, least(mass.dtype),
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
    u, v = (Halves.of(side.new_ones(pairs, side.shape[1])) for side in (source, target))
    plain, forth, back = torch.zeros_like(error), Halves.of(kernel.weight), Halves.of(kernel.weight.T)
    for done in range(iterations + 1):
        beyond = plain[: len(row)] if done == 0 or done >= iterations // 2 else pace.far - 1
        fresh, parts = scale(v, forth, source, row, u, beyond, coarse=done < coarse)
        if done == iterations or (done >= first and (done - first) % LOOK_EVERY == 0):
            now = parts.sum(1)
            pace = pace.look(now)
            ready = now < tolerance if done < iterations else torch.ones_like(now, dtype=torch.bool)
            amount, far = torch.stack([ready.sum(), (now > NEAR).sum()]).tolist()
            if far * 2 > len(now) and done < iterations // 4:
                coarse = done + LOOK_EVERY  # until the next look, which is at full precision as all are
            if amount * 8 >= len(ready):  # moving the others up costs a pass, so a few are carried along
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (u.of_rows(leave).whole() * kernel.apply_cost(v.of_rows(leave).whole())).sum(1)
                error[pair[leave]] = now[leave]
                if amount == len(ready):
                    break
                pair, row, column, pace = pair[stay], row[stay], column[stay], pace.of(stay)
                beyond, fresh, v = beyond[stay], fresh.of_rows(stay), v.of_rows(stay)
        u = fresh
        v, _ = scale(u, back, target, column, v, beyond, coarse=done < coarse)
    return Transport(cost, error, done)


def trial(device: torch.device) -> None:
    """Compile and run the kernel once in either precision, on next to nothing; raises what stands in the way."""
    one, first = torch.ones(16, 16, device=device), torch.zeros(16, dtype=torch.int64, device=device)
    halves = Halves.of(one)
    for coarse in (True, False):
        scale(halves, halves, one, first, halves, one[:, 0].contiguous(), coarse=coarse)
