"""Turns stored images into network inputs: normalised, and for training cropped and mirrored at random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.stored_names import stored
from odedm.stream.autoaugment import autoaugment


@stored("transform")
@dataclass(frozen=True)
class Transform:
    """How images of one data set become inputs; `pad` and `flip` say how training views are drawn.

    `shift` and `scale` broadcast against one image and fold the division by 255 in: input = (image - shift) * scale,
    cut to ±`limit` where there is one.
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"unscaled"})

    shift: Tensor
    scale: Tensor
    pad: int = 0
    flip: bool = False
    limit: float | None = None

    def to(self, device: torch.device) -> Transform:
        """Return the same transform with its constants on the device."""
        return Transform(self.shift.to(device), self.scale.to(device), self.pad, self.flip, self.limit)

    def normalize(self, image: Tensor) -> Tensor:
        """Return inputs [n, ...] of images [n, ...] as they are: what evaluation and embedding see."""
        if image.is_cpu and image.dtype == torch.float32 and self.unscaled:
            return image.clone()  # what changes its inputs in place must not change stored rows
        scaled = (image - self.shift).mul_(self.scale)
        return scaled if self.limit is None else scaled.clamp_(-self.limit, self.limit)

    @cached_property
    def unscaled(self) -> bool:
        """Return whether the constants, one for all values, leave them as they are."""
        return self.shift.dim() == self.scale.dim() == 0 and float(self.shift) == 0 and float(self.scale) == 1

    def augment(self, image: Tensor, rng: torch.Generator) -> Tensor:
        """Return inputs [n, ...] of a training view: a crop after zero padding and a mirror image half of the time."""
        return self.normalize(self._view(image, rng))

    def strong_augment(self, image: Tensor, rng: torch.Generator) -> Tensor:
        """Return inputs [n, ...] of a strong view: crop and mirror image, then AutoAugment's CIFAR-10 policy.

        The policy is defined on grey or colour images of whole numbers; other rows get a training view.
        """
        view = self._view(image, rng)
        return self.normalize(autoaugment(view, rng) if policy_fits(image) else view)

    def _view(self, image: Tensor, rng: torch.Generator) -> Tensor:
        return crop_and_flip(image, self.pad, self.flip, rng) if self.pad or self.flip else image


def policy_fits(image: Tensor) -> bool:
    """Return whether AutoAugment's policy is defined on images [n, ...].

    >>> policy_fits(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)), policy_fits(torch.zeros(2, 16))
    (True, False)
    """
    return image.dtype == torch.uint8 and image.dim() == 4 and image.shape[1] in (1, 3)


def crop_and_flip(image: Tensor, pad: int, flip: bool, rng: torch.Generator) -> Tensor:
    """Return an independent view of every image [n, c, h, w]: offset uniform over (2·pad + 1)² places, mirrored or not.

    Zeros are padded before normalising, so the border is black, not grey. The number of draws is the same whatever they
    turn out to be.

    >>> image = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    >>> crop_and_flip(image, 0, False, torch.Generator()).equal(image)
    True
    """
    n = len(image)
    draw = torch.rand(3, n, generator=rng, device=image.device)
    top, left = (draw[:2] * (2 * pad + 1)).long()
    mirrored = draw[2] < 0.5 if flip else torch.zeros(n, dtype=torch.bool, device=image.device)
    views = _sliced if image.is_cpu else _gathered
    return views(F.pad(image, (pad, pad, pad, pad)), top, left, mirrored, image.shape)


def _sliced(padded: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, shape: torch.Size) -> Tensor:
    """Return the views by a slice of each image: on a processor six times as fast as looking up every pixel."""
    height, width = shape[2:]
    source, views = padded.numpy(), torch.empty(shape, dtype=padded.dtype)
    target = views.numpy()
    for i, (row, column, mirror) in enumerate(zip(top.tolist(), left.tolist(), mirrored.tolist(), strict=True)):
        view = source[i, :, row : row + height, column : column + width]
        target[i] = view[..., ::-1] if mirror else view
    return views


def _gathered(padded: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, shape: torch.Size) -> Tensor:
    """Return the views by the place of every pixel: a handful of launches, whatever the number of images."""
    n, channels, height, width = shape
    column = torch.arange(width, device=padded.device).expand(n, width)
    column = torch.where(mirrored[:, None], width - 1 - column, column) + left[:, None]
    row = torch.arange(height, device=padded.device) + top[:, None]
    at = torch.arange(n, device=padded.device)[:, None, None, None]
    channel = torch.arange(channels, device=padded.device)[None, :, None, None]
    return padded[at, channel, row[:, None, :, None], column[:, None, None, :]]
