"""Random views for contrastive methods: resized crops, mirror images, colours, and images in many turns."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

GREY = (0.299, 0.587, 0.114)
"""How bright red, green and blue are."""
JITTERED = 0.8
"""The share of images whose colours change, where any do."""
TRIES = 10
"""How often a crop's area and sides are drawn, until it fits into its image; the whole image if none does."""


@torch.no_grad()
def random_view(
    image: Tensor, rng: torch.Generator, *, area: float, grey: float, colours: tuple[float, float] | None = None
) -> Tensor:
    """A view of every raw image [n, c, h, w] on its own scale: mirrored or not, colours, then a crop resized to h × w.

    A crop has between `area` and all of the image's area and sides between 3:4 and 4:3. `grey` is the share of colour
    images that lose their colours. `colours` are by how much brightness, contrast and saturation, and the hue, may
    change. Vectors stay as they are.

    >>> random_view(torch.zeros(2, 5), torch.Generator(), area=0.2, grey=0.2).shape
    torch.Size([2, 5])
    """
    if image.dim() != 4:
        return image
    x = image.float()
    draw = torch.rand(9 + 2 * TRIES, len(x), generator=rng, device=x.device)
    x = torch.where(_per_image(draw[0] < 0.5), x.flip(-1), x)
    if x.shape[1] == 3:
        if colours is not None:
            changed = _recoloured(x, 2 * draw[1:5] - 1, *colours)
            x = torch.where(_per_image(draw[5] < JITTERED), changed, x)
        x = torch.where(_per_image(draw[6] < grey), _brightness(x).expand_as(x), x)
    x = _resized_crop(x, draw[7:], area)
    return x.clamp(0, 255) if image.dtype == torch.uint8 else x


def in_turns(x: Tensor, turns: int) -> list[Tensor]:
    """Images [n, c, h, w] in up to 16 turns, the first as they are: quarter turns of the image, 4, and of each with the
    left half, the right half or both upside down, 16.

    Quarter turns are for square images, halves for an even width; vectors have one turn.

    >>> [len(in_turns(torch.zeros(1, 1, *size), 16)) for size in ((4, 4), (5, 5), (4, 6))]
    [16, 4, 1]
    """
    if turns == 1 or x.dim() != 4 or x.shape[2] != x.shape[3]:
        return [x]
    kinds = [x]
    if turns == 16 and x.shape[3] % 2 == 0:
        left, right = x.chunk(2, 3)
        over, under = left.rot90(2, (2, 3)), right.rot90(2, (2, 3))
        kinds += [torch.cat(parts, 3) for parts in ((over, right), (over, under), (left, under))]
    return [kind.rot90(quarter, (2, 3)) for quarter in range(4) for kind in kinds]


def _per_image(of_image: Tensor) -> Tensor:
    """Return a number of each image, to be used on its pixels."""
    return of_image[:, None, None, None]


def _brightness(x: Tensor) -> Tensor:
    red, green, blue = x.split(1, 1)
    grey: Tensor = GREY[0] * red + GREY[1] * green + GREY[2] * blue
    return grey


def _recoloured(x: Tensor, change: Tensor, most: float, hue: float) -> Tensor:
    """Brightness, contrast, saturation and hue by changes [4, n] between −1 and 1."""
    bright, contrast, saturation = (_per_image(1 + most * entry) for entry in change[:3])
    x = x * bright
    x = (x - _brightness(x).mean((2, 3), keepdim=True)) * contrast + _brightness(x).mean((2, 3), keepdim=True)
    grey = _brightness(x)
    chroma = (x - grey) * saturation
    # a turn of the colour circle around the grey axis: Rodrigues' formula for a vector that is nearly normal to it
    angle = 2 * math.pi * hue * change[3]
    across = chroma.roll(-1, 1) - chroma.roll(1, 1)
    return grey + chroma * _per_image(angle.cos()) + across / math.sqrt(3) * _per_image(angle.sin())


def _resized_crop(x: Tensor, draw: Tensor, area: float) -> Tensor:
    """Crops by draws [2 + 2 · TRIES, n] in [0, 1): place, and areas and ratios of the sides."""
    part = area + (1 - area) * draw[2 : 2 + TRIES]
    ratio = ((2 * draw[2 + TRIES :] - 1) * math.log(4 / 3)).exp()
    sides = torch.stack([part * ratio, part / ratio]).sqrt()
    fits = (sides <= 1).all(0)
    first = fits.to(torch.uint8).argmax(0, keepdim=True)
    width, height = torch.where(fits.any(0), sides.gather(1, first.expand(2, 1, -1)).squeeze(1), 1.0)
    left, top = (2 * draw[0] - 1) * (1 - width), (2 * draw[1] - 1) * (1 - height)
    none = torch.zeros_like(width)
    theta = torch.stack([torch.stack([width, none, left], 1), torch.stack([none, height, top], 1)], 1)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)
