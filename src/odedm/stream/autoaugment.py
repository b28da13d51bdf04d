"""Applies AutoAugment's CIFAR-10 policy to a whole batch of uint8 images at once, each with draws of its own."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

OPERATIONS = (
    "identity",
    "shearX", "shearY", "translateX", "translateY", "rotate",
    "invert", "posterize", "solarize", "autocontrast", "equalize",
    "color", "contrast", "brightness", "sharpness",
)  # fmt: skip
"""Three families: those that move pixels, those that look every value up in a table, those that blend two images."""

POLICY = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translateX", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shearY", 0.5, 8), ("translateY", 0.7, 9)),
    (("autocontrast", 0.5, 0), ("equalize", 0.9, 0)),
    (("shearY", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 0), ("equalize", 0.5, 0)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translateX", 0.5, 8)),
    (("equalize", 0.3, 0), ("autocontrast", 0.4, 0)),
    (("translateY", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 0)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 0), ("equalize", 0.6, 0)),
    (("color", 0.9, 9), ("equalize", 0.6, 0)),
    (("autocontrast", 0.8, 0), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 0)),
    (("translateY", 0.9, 9), ("translateY", 0.7, 9)),
    (("autocontrast", 0.9, 0), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 0), ("invert", 0.1, 0)),
    (("translateY", 0.7, 9), ("autocontrast", 0.9, 0)),
)
"""25 pairs of (operation, probability, magnitude 0..9); an image goes through one pair, drawn uniformly."""

GREY = 128
"""What shows where a move leaves nothing."""
FIXED = 16
"""Bits behind the point of source coordinates: whole numbers give the same pixel on every device."""


def autoaugment(image: Tensor, rng: torch.Generator) -> Tensor:
    """Return a strong view [n, c, h, w] of uint8 images [n, c, h, w] with 1 or 3 channels.

    The number of draws and every shape depend on n alone: an image that an operation passes by goes through it as
    identity.

    >>> image = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    >>> view = autoaugment(image, torch.Generator().manual_seed(0))
    >>> view.shape, view.dtype
    (torch.Size([4, 3, 8, 8]), torch.uint8)
    """
    pair, *moves = torch.rand(5, len(image), generator=rng, device=image.device)
    operation, probability, magnitude = _policy(image.device)
    chosen = (pair * len(POLICY)).long()
    for step, (coin, side) in enumerate(zip(moves[:2], moves[2:], strict=True)):
        applies = coin < probability[chosen, step]
        sign = torch.where(side < 0.5, -1.0, 1.0)
        image = operate(image, operation[chosen, step].where(applies, 0), magnitude[chosen, step], sign)
    return image


@cache
def _policy(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return operation numbers, probabilities and magnitudes [25, 2] on a device."""
    table = [[(OPERATIONS.index(name), chance, size) for name, chance, size in pair] for pair in POLICY]
    operation, probability, magnitude = torch.tensor(table, dtype=torch.float32, device=device).unbind(2)
    return operation.long(), probability, magnitude


def operate(image: Tensor, operation: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Return images [n, c, h, w] after one operation [n] each, at a magnitude [n] of 0..9 and with a sign [n]."""
    image = warp(image, coefficients(operation, magnitude, sign, *image.shape[2:]))
    image = look_up(image, tables(image, operation, magnitude))
    return blend(image, operation, 1 + sign * magnitude.double() / 10)


def coefficients(operation: Tensor, magnitude: Tensor, sign: Tensor, height: int, width: int) -> Tensor:
    """Return where each output pixel comes from: rows (a, b, c, d, e, f) [n, 6] of source = (ax + by + c, dx + ey + f).

    Shear up to 0.3 of the other coordinate from the corner, shift up to 150/331 of the side, rotation up to 30°
    counter-clockwise around the middle.
    """
    level = magnitude.double() / 9

    def only(name: str, value: Tensor) -> Tensor:
        return value.where(operation == OPERATIONS.index(name), 0.0)

    angle = only("rotate", torch.deg2rad(30 * level))
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    b = only("shearX", 0.3 * level * sign) - sin
    d = only("shearY", 0.3 * level * sign) + sin
    c = only("translateX", 150 / 331 * width * level * sign) + x - cos * x + sin * y
    f = only("translateY", 150 / 331 * height * level * sign) + y - sin * x - cos * y
    return torch.stack([cos, b, c, d, cos, f], 1)


def warp(image: Tensor, coefficient: Tensor) -> Tensor:
    """Return the nearest source pixel of every output pixel, for coefficients [n, 6]; grey beyond the border."""
    n, channels, height, width = image.shape
    a, b, c, d, e, f = coefficient.T
    fixed = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2]).mul(2**FIXED).round().int()[..., None, None]
    column = torch.arange(width, device=image.device, dtype=torch.int32)
    row = torch.arange(height, device=image.device, dtype=torch.int32)[:, None]
    x = (fixed[0] * column + fixed[1] * row + fixed[2]) >> FIXED
    y = (fixed[3] * column + fixed[4] * row + fixed[5]) >> FIXED
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height))[:, None]
    source = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).long().view(n, 1, -1)
    moved = image.flatten(2).gather(2, source.expand(-1, channels, -1)).view_as(image)
    return moved.where(inside, GREY)


def tables(image: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Return what each value of each channel becomes, [n, c, 256], for images [n, c, h, w]."""
    value = torch.arange(256, device=image.device)
    level = magnitude[:, None, None] / 9
    lost = 8 - (8 - 4 * level).round().long()
    choices = {
        "invert": 255 - value,
        "posterize": (value >> lost) << lost,
        "solarize": torch.where(value < 256 - 256 * level.double(), value, 255 - value),
        "autocontrast": stretched(image),
        "equalize": equalised(image),
    }
    table = value.expand(*image.shape[:2], 256)
    for name, choice in choices.items():
        table = torch.where((operation == OPERATIONS.index(name))[:, None, None], choice, table)
    return table


def stretched(image: Tensor) -> Tensor:
    """Return the table [n, c, 256] that spreads the values of each channel over 0..255; one value alone stays."""
    value = torch.arange(256, device=image.device)
    low, high = (edge.long()[..., None] for edge in image.flatten(2).aminmax(dim=2))
    scale = 255 / (high - low).clamp(min=1).double()
    return torch.where(high > low, (value * scale - low * scale).clamp(0, 255).long(), value)


def equalised(image: Tensor) -> Tensor:
    """Return the table [n, c, 256] that makes each channel's values as evenly frequent as a table can."""
    values = image.flatten(2).long()
    histogram = values.new_zeros(*image.shape[:2], 256).scatter_add_(2, values, torch.ones_like(values))
    highest = histogram.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - highest) // 255
    below = histogram.cumsum(2) - histogram
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table, torch.arange(256, device=image.device))


def look_up(image: Tensor, table: Tensor) -> Tensor:
    """Return every value of images [n, c, h, w] replaced by what its channel's table [n, c, 256] says."""
    return table.to(torch.uint8).gather(2, image.flatten(2).long()).view_as(image)


def blend(image: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Return images moved away from, or towards, a plainer version of themselves by factors [n]; 1 leaves them alone.

    Plainer is black for brightness, the mean grey for contrast, the grey image for colour, the smoothed one for
    sharpness.
    """
    whole = image.int()
    grey = luminance(whole)
    pixels = grey[0].numel()
    mean = (2 * grey.sum((1, 2, 3), keepdim=True, dtype=torch.int64) + pixels) // (2 * pixels)
    plainer = {"color": grey, "contrast": mean, "brightness": torch.zeros_like(grey), "sharpness": smooth(whole)}
    plain = whole  # and so it stays where the operation is none of these
    for name, version in plainer.items():
        plain = torch.where((operation == OPERATIONS.index(name))[:, None, None, None], version.int(), plain)
    weight = factor.float()[:, None, None, None]
    return (plain + weight * (whole - plain)).clamp(0, 255).to(torch.uint8)


def luminance(image: Tensor) -> Tensor:
    """Return the grey image [n, 1, h, w] of whole-numbered images [n, c, h, w]: ITU-R 601 weights, halves up."""
    if image.shape[1] == 1:
        return image
    red, green, blue = image.unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16)[:, None]


def smooth(image: Tensor) -> Tensor:
    """Each pixel averaged with its eight neighbours, itself five times, of images [n, c, h, w]; the rim stays."""
    columns = image[..., :-2] + image[..., 1:-1] + image[..., 2:]
    around = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :]
    centre = image[..., 1:-1, 1:-1]
    result = image.clone()
    result[..., 1:-1, 1:-1] = (2 * (around + 4 * centre) + 13) // 26
    return result
