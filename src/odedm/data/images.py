"""Decodes pictures with Pillow, which is used nowhere else."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import InvalidFileError, UsageError
from odedm.core.files import read_bytes

Array = np.ndarray[Any, Any]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
ANIMATED = ("PNG", "GIF", "WEBP", "TIFF")
GREY, COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MAX_BYTES, MAX_PIXELS = 256 << 20, 64_000_000
DEEP = re.compile(r";(16|32)[A-Z]")
"""How Pillow marks channels of more than 8 bits that it would cut to 8 without a word; `BGR;16` is 16 bits a pixel."""


class BadPicture(ValueError):
    """One picture cannot be used; says why, and whoever knows its name says which."""


class NotGrey(BadPicture):
    """A colour picture among grey ones."""


@dataclass(frozen=True)
class Fit:
    """What every picture becomes: [channels, height, width].

    `resize` None asks for exactly that size; a number makes the shorter side that long and cuts out the middle.
    """

    channels: int
    height: int
    width: int
    resize: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of a row."""
        return (self.channels, self.height, self.width)


def is_picture_name(name: str) -> bool:
    """Return whether a file's name says that it is a picture.

    >>> is_picture_name("a/B.JPEG"), is_picture_name("readme.md")
    (True, False)
    """
    return os.path.splitext(name)[1].lower() in SUFFIXES


def require_pillow() -> None:
    """Refuse early where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UsageError("Reading pictures needs Pillow: pip install pillow.") from error


def probe(content: bytes | Path) -> tuple[int, int, int]:
    """Return channels, height and width of a picture, as its header says."""
    with _opened(content) as image:
        return (1 if image.mode in GREY else 3, image.height, image.width)


def decode(content: bytes | Path, fit: Fit) -> Array:
    """Return one picture as uint8 [c, h, w], from its bytes or its path."""
    with _opened(content) as image:
        if fit.channels == 1 and image.mode not in GREY:
            raise NotGrey("is a colour picture among grey ones")
        try:
            image.load()
            picture = _fitted(image, fit)
        except BadPicture:
            raise
        except Exception as error:  # decoders meet hostile bytes here: whatever they raise, the picture is bad
            raise BadPicture(f"cannot be decoded ({error or type(error).__name__})") from error
    array = np.asarray(picture)
    return array[None] if fit.channels == 1 else array.transpose(2, 0, 1)


def decode_rows(folder: Path, names: Sequence[str], fit: Fit) -> Array:
    """Return the pictures of these names as rows [n, c, h, w]; errors name the file."""
    rows = np.empty((len(names), *fit.shape), np.uint8)
    for row, name in zip(rows, names, strict=True):
        try:
            row[:] = decode(folder / name, fit)
        except BadPicture as error:
            raise type(error)(f"'{name}' {error}.") from error
        except InvalidFileError as error:
            raise BadPicture(f"'{name}' cannot be read: {error}.") from error
    return rows


def _opened(content: bytes | Path) -> Any:
    from PIL import Image

    if isinstance(content, Path):
        content = read_bytes(content, MAX_BYTES)
    if not content:
        raise BadPicture("is empty")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        frames = getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
    except Image.DecompressionBombError as error:
        raise BadPicture(f"says that it has far more than {MAX_PIXELS} pixels, the most that are read") from error
    except Exception as error:  # as above
        raise BadPicture(f"is not a picture of a known kind ({', '.join(FORMATS)}), or its start is broken") from error
    if image.width * image.height > MAX_PIXELS:
        raise BadPicture(f"has {image.width}×{image.height} pixels; at most {MAX_PIXELS} are read")
    if frames > 1:
        raise BadPicture(f"has {frames} frames; one picture per file, please")
    if image.mode not in GREY + COLOUR or any(_is_deep(tile.codec_name, tile.args) for tile in image.tile):
        raise BadPicture(f"has more than 8 bits a channel (mode {image.mode}); convert it to 8 bits")
    return image


def _is_deep(codec: str, arguments: Any) -> bool:
    """Return whether the pixels behind a part of a picture have more than 8 bits a channel."""
    mode, *rest = arguments if isinstance(arguments, tuple) else (arguments,)
    return bool(DEEP.search(str(mode))) or (codec.startswith("ppm") and bool(rest) and rest[0] > 255)


def _fitted(image: Any, fit: Fit) -> Any:
    from PIL import Image

    mode = "L" if fit.channels == 1 else "RGB"
    picture = image if image.mode == mode else image.convert(mode)
    size = f"{picture.width}×{picture.height}"
    if fit.resize is None:
        if picture.size != (fit.width, fit.height):
            raise BadPicture(
                f"is {size} where the first picture is {fit.width}×{fit.height}; give a size N (odedm data import "
                "--size N) to make all of them N×N"
            )
        return picture
    short = min(picture.size)
    if short != fit.resize:
        sides = [max(fit.resize, round(side * fit.resize / short)) for side in picture.size]
        if max(sides) > MAX_PIXELS // fit.resize:
            raise BadPicture(f"is {size}, too long and thin to be made {fit.width}×{fit.height}")
        picture = picture.resize(sides, Image.Resampling.BILINEAR)
    left, top = (picture.width - fit.width) // 2, (picture.height - fit.height) // 2
    return picture.crop((left, top, left + fit.width, top + fit.height))
