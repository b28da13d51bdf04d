"""Sinkhorn's iterations between clouds on a GPU: half of one is one Triton kernel, and so is a look at the errors.

torch starts eight operations for half an iteration of a few microseconds each, and starting them is what takes the
time. Sums are made in a fixed order: they repeat.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from odedm.consolidate.sinkhorn.relaxation import least

ROWS, COLUMNS = 8, 256
"""The part of a kernel's rows that a program sums up at a time."""
TALL, NARROW = 128, 32
"""The part of its columns."""


@triton.jit
def _relaxed(product, wanted, before, power, tiny, small, cap):
    """Return m · (m / before)^power for m = wanted / product, no larger than `cap`; what is not a number stays so."""
    fresh = wanted / tl.where(product < tiny, tiny, product)
    ratio = fresh / tl.where(before < small, small, before)
    beyond = tl.where(ratio > 0, tl.exp2(power * tl.log2(tl.where(ratio > 0, ratio, 1.0))), ratio)
    result = tl.where(power == 0, fresh, fresh * beyond)
    return tl.where(result > cap, cap, result)


@triton.jit(do_not_specialize=["rows", "columns"])
def _forth(
    kernel, u, v, mass, far, told, rows, columns, tiny, small, cap,
    MOVES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Set u by K v for some rows of a problem; or tell how far u · K v is off, and the largest of u and v."""
    problem, row = tl.program_id(1), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real, at = row < rows, problem * rows + row
    start = kernel + problem.to(tl.int64) * rows * columns
    product, most = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, columns, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        inside = column < columns
        other = tl.load(v + problem * columns + column, mask=inside, other=0.0)
        part = tl.load(
            start + row[:, None].to(tl.int64) * columns + column[None, :],
            mask=real[:, None] & inside[None, :],
            other=0.0,
        )
        product += part * other[None, :]
        if not MOVES:
            most = tl.where(other > most, other, most)
    total = tl.sum(product, 1)
    wanted, before = tl.load(mass + at, mask=real, other=0.0), tl.load(u + at, mask=real, other=0.0)
    if MOVES:
        tl.store(u + at, _relaxed(total, wanted, before, tl.load(far + problem), tiny, small, cap), mask=real)
    else:
        where = problem * tl.num_programs(0) + tl.program_id(0)
        tl.store(told + where, tl.sum(tl.abs(before * total - wanted), 0))
        largest = tl.maximum(tl.max(most, 0), tl.max(before, 0))
        tl.store(told + tl.num_programs(0) * tl.num_programs(1) + where, largest)


@triton.jit(do_not_specialize=["rows", "columns"])
def _back(
    kernel, u, v, mass, far, rows, columns, tiny, small, cap, TALL: tl.constexpr, NARROW: tl.constexpr
):  # fmt: skip
    """Set v by Kᵀ u for some columns of a problem."""
    problem, column = tl.program_id(1), tl.program_id(0) * NARROW + tl.arange(0, NARROW)
    inside, at = column < columns, problem * columns + column
    start = kernel + problem.to(tl.int64) * rows * columns
    product = tl.zeros((TALL, NARROW), tl.float32)
    for begin in range(0, rows, TALL):
        row = begin + tl.arange(0, TALL)
        real = row < rows
        other = tl.load(u + problem * rows + row, mask=real, other=0.0)
        part = tl.load(
            start + row[:, None].to(tl.int64) * columns + column[None, :],
            mask=real[:, None] & inside[None, :],
            other=0.0,
        )
        product += part * other[:, None]
    wanted, before = tl.load(mass + at, mask=inside, other=0.0), tl.load(v + at, mask=inside, other=0.0)
    power = tl.load(far + problem)
    tl.store(v + at, _relaxed(tl.sum(product, 0), wanted, before, power, tiny, small, cap), mask=inside)


def advance(
    kernel: Tensor, u: Tensor, v: Tensor, a: Tensor, b: Tensor, far: Sequence[Tensor | None], cap: float
) -> tuple[Tensor, Tensor]:
    """As many iterations as `far` has entries, on scalings u [B, n] and v [B, m] in place.

    `far` are powers [B, 1] by which updates go beyond the plain ones; None: not at all.

    Returns:
        L1 errors of the first marginal [B], and the largest scaling of each problem [B], both on the CPU.
    """
    problems, rows, columns = kernel.shape
    none = torch.zeros(problems, device=u.device) if any(each is None for each in far) else u
    tiny, small = torch.finfo(kernel.dtype).tiny, least(kernel.dtype)
    blocks, told = triton.cdiv(rows, ROWS), u.new_empty(2, problems, triton.cdiv(rows, ROWS))
    size = {"ROWS": ROWS, "COLUMNS": COLUMNS}
    for power in far:
        own = none if power is None else power
        _forth[(blocks, problems)](
            kernel, u, v, a, own, told, rows, columns, tiny, small, cap, MOVES=True, **size
        )  # fmt: skip
        _back[(triton.cdiv(columns, NARROW), problems)](
            kernel, u, v, b, own, rows, columns, tiny, small, cap, TALL=TALL, NARROW=NARROW
        )  # fmt: skip
    _forth[(blocks, problems)](kernel, u, v, a, u, told, rows, columns, tiny, small, cap, MOVES=False, **size)
    off, most = told.cpu()
    return off.sum(1), most.amax(1)


def trial(device: torch.device) -> None:
    """Compile and run the kernels once, on next to nothing; raises what stands in the way."""
    kernel = torch.ones(1, 2, 3, device=device)
    u, v = torch.ones(1, 2, device=device), torch.ones(1, 3, device=device)
    advance(kernel, u, v, u / 2, v / 3, [None, torch.ones(1, 1, device=device)], 1e20)
