"""From stored images to network inputs: normalise, crop and flip a whole batch by index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.stream.autoaugment import autoaugment


@dataclass(frozen=True)
class Transform:
    """How images of one data set become inputs; `pad` and `flip` say how training views are drawn.

    `shift` and `scale` broadcast against one image and fold the division by 255 in: input = (image - shift) * scale.
    """

    shift: Tensor
    scale: Tensor
    pad: int = 0
    flip: bool = False

    def to(self, device: torch.device) -> Transform:
        """The same transform with its constants on the device."""
        return Transform(self.shift.to(device), self.scale.to(device), self.pad, self.flip)

    def normalise(self, image: Tensor) -> Tensor:
        """Inputs [n, ...] of images [n, ...] as they are: what evaluation and embedding see."""
        return (image - self.shift) * self.scale

    def augment(self, image: Tensor, rng: torch.Generator) -> Tensor:
        """Inputs [n, ...] of a training view: a crop after zero padding and a mirror image half of the time."""
        if self.pad or self.flip:
            image = crop_and_flip(image, self.pad, self.flip, rng)
        return self.normalise(image)

    def strengthen(self, image: Tensor, rng: torch.Generator) -> Tensor:
        """Inputs [n, ...] of a strong view: crop and mirror image, then AutoAugment's CIFAR-10 policy.

        The policy is defined on grey or colour images of whole numbers; other rows get a training view.
        """
        if image.dtype != torch.uint8 or image.dim() != 4 or image.shape[1] not in (1, 3):
            return self.augment(image, rng)
        if self.pad or self.flip:
            image = crop_and_flip(image, self.pad, self.flip, rng)
        return self.normalise(autoaugment(image, rng))


def crop_and_flip(image: Tensor, pad: int, flip: bool, rng: torch.Generator) -> Tensor:
    """An independent view of every image [n, c, h, w]: offset uniform over (2·pad + 1)² places, mirrored or not.

    Zeros are padded before normalising, so the border is black, not grey. One gather does both moves, and the
    number of draws is the same whatever they turn out to be.

    >>> image = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    >>> crop_and_flip(image, 0, False, torch.Generator()).equal(image)
    True
    """
    n, channels, height, width = image.shape
    draw = torch.rand(3, n, generator=rng, device=image.device)
    top, left = (draw[:2] * (2 * pad + 1)).long()
    column = torch.arange(width, device=image.device).expand(n, width)
    if flip:
        column = torch.where(draw[2, :, None] < 0.5, width - 1 - column, column)
    row = torch.arange(height, device=image.device) + top[:, None]
    column = column + left[:, None]
    padded = F.pad(image, (pad, pad, pad, pad))
    at = torch.arange(n, device=image.device)[:, None, None, None]
    channel = torch.arange(channels, device=image.device)[None, :, None, None]
    return padded[at, channel, row[:, None, :, None], column[:, None, None, :]]
