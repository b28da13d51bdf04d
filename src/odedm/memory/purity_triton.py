"""The purity memory's choice on a GPU: one Triton kernel removes row after row, where torch starts thirty for each.

Sums are float64 in a fixed order: they repeat, and differ from torch's in the last digits.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _standard(value, is_member, amount, tiny):
    """`odedm.memory.purity.z_score`."""
    known = tl.where(is_member, value, 0.0)
    off = tl.where(is_member, value - tl.sum(known, 0) / amount, 0.0)
    deviation = tl.sqrt(tl.sum(off * off, 0) / amount)
    differs = deviation > tiny * tl.max(tl.abs(known), 0)
    return tl.where(differs, off / tl.where(differs, deviation, 1.0), 0.0)


@triton.jit(do_not_specialize=["rows", "classes", "excess"])
def _remove(
    label, loss, cosines, cosine, counts, noise, alpha, stays, rows, classes, excess, tiny,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Let `excess` rows go, one at a time; see `odedm.memory.purity.survivors`."""
    row, class_ = tl.arange(0, ROWS), tl.arange(0, CLASSES)
    real, known = row < rows, class_ < classes
    row_label = tl.load(label + row, mask=real, other=-1).to(tl.int32)
    row_loss = tl.load(loss + row, mask=real, other=0.0)
    near = tl.load(cosines + row, mask=real, other=0.0)
    size = tl.load(counts + class_, mask=known, other=0).to(tl.float64)
    weight = tl.load(alpha)
    stays_now = real
    for turn in range(0, excess):
        chance = tl.load(noise + turn * classes + class_, mask=known, other=0.0)
        largest = tl.argmax(tl.where(known, size + chance, -1.0), 0)
        amount = tl.sum(tl.where(class_ == largest, size, 0.0), 0)
        is_member = stays_now & (row_label == largest)
        score = (1 - weight) * _standard(row_loss, is_member, amount, tiny)
        score += weight * _standard(near / amount, is_member, amount, tiny)
        score = tl.where(score == score, score, float("inf"))  # noqa: PLR0124 - not a number: as good as any
        gone = tl.argmax(tl.where(is_member, score, -float("inf")), 0)
        near -= tl.where(is_member, tl.load(cosine + gone.to(tl.int64) * rows + row, mask=real, other=0.0), 0.0)
        stays_now = stays_now & (row != gone)
        size -= tl.where(class_ == largest, 1.0, 0.0)
    tl.store(stays + row, stays_now.to(tl.int8), mask=real)


def remove(
    label: Tensor, loss: Tensor, cosines: Tensor, direction: Tensor, counts: Tensor, noise: Tensor, alpha: Tensor,
    tiny: float,
) -> Tensor:  # fmt: skip
    """Return which rows [n] stay; labels, losses and sums of cosines are [n], directions [n, d], noise [excess, C]."""
    label, loss, cosines, counts, noise = (x.contiguous() for x in (label, loss, cosines, counts, noise))
    stays = torch.empty_like(label, dtype=torch.int8)
    cosine = direction @ direction.T
    _remove[(1,)](
        label, loss, cosines, cosine, counts, noise, alpha, stays, len(label), len(counts), len(noise), tiny,
        ROWS=triton.next_power_of_2(len(label)), CLASSES=triton.next_power_of_2(len(counts)), num_warps=8,
    )  # fmt: skip
    return stays.bool()


def trial(device: torch.device) -> None:
    """Compile and run the kernel once, on next to nothing; raises what stands in the way."""
    label, one = torch.tensor([0, 1, 1, 1], device=device), torch.ones(4, dtype=torch.float64, device=device)
    noise, counts = torch.zeros(1, 2, dtype=torch.float64, device=device), torch.tensor([1, 3], device=device)
    remove(label, one, one, torch.eye(4, dtype=torch.float64, device=device), counts, noise, one[:1], 1e-6)
