"""The moves of `adaptation_steps` as one Triton kernel each."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Entries for each program."""


@triton.jit
def _cut(slope, clip):
    """Entries between ±clip; a NaN stays one, as in torch."""
    return tl.where(slope > clip, clip, tl.where(slope < -clip, -clip, slope))


@triton.jit
def _advance(start, slope, rates, end, rate, clip, size, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Set end = start − rate · ĝ; with EACH every entry has a rate of its own."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    move = _cut(tl.load(slope + at, mask=inside, other=0.0), clip)
    if EACH:
        rate = tl.load(rates + at, mask=inside, other=0.0)
    tl.store(end + at, tl.load(start + at, mask=inside, other=0.0) - rate * move, mask=inside)


@triton.jit
def _retreat(
    adjoint, by_rates, bend, pull, slope, rates, new_adjoint, new_by_rates, direction, rate, clip, size,
    EACH: tl.constexpr, FIRST: tl.constexpr, BENDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of the way back, with the first of which everything is 0."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    here = tl.load(pull + at, mask=inside, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    if not FIRST:
        before = tl.load(adjoint + at, mask=inside, other=0.0)
        total = tl.load(by_rates + at, mask=inside, other=0.0)
        if BENDS:
            before -= tl.load(bend + at, mask=inside, other=0.0)
        here += before
    own = tl.load(slope + at, mask=inside, other=0.0)
    if EACH:
        rate = tl.load(rates + at, mask=inside, other=0.0)
    tl.store(new_adjoint + at, here, mask=inside)
    tl.store(new_by_rates + at, total - here * _cut(own, clip), mask=inside)
    tl.store(direction + at, tl.where(tl.abs(own) <= clip, rate * here, 0.0), mask=inside)


def advance(start: Tensor, slope: Tensor, rates: Tensor | float, clip: float) -> Tensor:
    """See `odedm.methods.adaptation_steps.advance`."""
    start, slope = start.contiguous(), slope.contiguous()
    vector, rate = _split_rates(rates, start)
    end = torch.empty_like(start)
    _advance[(triton.cdiv(len(start), BLOCK),)](
        start, slope, vector, end, rate, clip, len(start), EACH=isinstance(rates, Tensor), BLOCK=BLOCK
    )
    return end


def retreat(
    back: tuple[Tensor, ...] | None,
    bend: Tensor | None,
    pull: Tensor,
    slope: Tensor,
    rates: Tensor | float,
    clip: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `odedm.methods.adaptation_steps.retreat`."""
    pull, slope = pull.contiguous(), slope.contiguous()
    adjoint, by_rates = (pull, pull) if back is None else (x.contiguous() for x in back)
    found = torch.empty_like(pull), torch.empty_like(pull), torch.empty_like(pull)
    vector, rate = _split_rates(rates, pull)
    _retreat[(triton.cdiv(len(pull), BLOCK),)](
        adjoint, by_rates, pull if bend is None else bend.contiguous(), pull, slope, vector, *found, rate, clip,
        len(pull), EACH=isinstance(rates, Tensor), FIRST=back is None, BENDS=bend is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return found


def _split_rates(rates: Tensor | float, unused: Tensor) -> tuple[Tensor, float]:
    """Return step sizes as a vector and as a number; a kernel reads one of the two."""
    return (rates.contiguous(), 0.0) if isinstance(rates, Tensor) else (unused, rates)


def trial(device: torch.device) -> None:
    """Compile and run every kernel once, on next to nothing; raises what stands in the way."""
    one = torch.ones(8, device=device)
    for rates in (one, 0.5):
        back = retreat(None, None, advance(one, one, rates, 1.0), one, rates, 1.0)
        retreat(back[:2], one, one, one, rates, 1.0)
