"""CutMix: a box of one image pasted into another, and a loss that counts both labels by their areas."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cutmix(x: Tensor, label: Tensor, probability: float, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """A mixed copy of inputs [n, c, h, w], the label [n] that came with each box, and λ, the share left of the own one.

    With the given probability, one box for the whole batch: sides ⌊√(1-λ)·side⌋ for λ uniform, around a uniform
    centre and clipped, filled from a permutation of the batch; λ is then the area outside. Otherwise the box is empty
    and λ = 1. Coin and box stay on the device, and the number of draws is always the same. Vectors are not mixed.

    >>> x, other, share = cutmix(torch.zeros(2, 3), torch.tensor([0, 1]), 1.0, torch.Generator())
    >>> share.item()
    1.0
    """
    if x.dim() != 4:
        return x, label, torch.ones((), device=x.device)
    n, _, height, width = x.shape
    coin, mixing, *centre = torch.rand(4, generator=rng, device=x.device)
    order = torch.rand(n, generator=rng, device=x.device).argsort()
    side = torch.where(coin < probability, mixing, 1.0).neg().add(1).sqrt()
    rows = _stretch(height, side, centre[0])
    columns = _stretch(width, side, centre[1])
    box = rows[:, None] & columns
    share = 1 - box.sum() / (height * width)
    return torch.where(box, x[order], x), label[order], share


def _stretch(length: int, share: Tensor, centre: Tensor) -> Tensor:
    """Return which of `length` places are at most half of ⌊share · length⌋, rounded down, from a centre in [0, 1)."""
    half = (share * length).floor().div(2, rounding_mode="floor")
    middle = (centre * length).floor()
    place = torch.arange(length, device=share.device)
    return (place >= middle - half) & (place < middle + half)


def mixed_cross_entropy(logits: Tensor, label: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """λ·CE(·, y) + (1-λ)·CE(·, y') of logits [n, C] and two labels [n]."""
    return share * F.cross_entropy(logits, label) + (1 - share) * F.cross_entropy(logits, other)
