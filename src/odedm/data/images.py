"""Decodes pictures with Pillow, which is used nowhere else; run as a program it is one worker of an import.

Imported without torch: a worker must be there in a moment.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import read_regular

T = TypeVar("T")
Array = np.ndarray[Any, Any]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
ANIMATED = ("PNG", "GIF", "WEBP", "TIFF")
GREY, COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MOST_BYTES, MOST_PIXELS = 256 << 20, 64_000_000
BLOCK_BYTES, SUM_PIXELS = 32 << 20, 1 << 20
"""Rows are decoded, and pixels summed up, so many at a time: memory is bounded by bytes, not by numbers of pictures."""
DEEP = re.compile(r";(16|32)[A-Z]")
"""How Pillow marks channels of more than 8 bits that it would cut to 8 without a word; `BGR;16` is 16 bits a pixel."""


class BadPicture(ValueError):
    """One picture cannot be used; says why, and whoever knows its name says which."""


class NotGrey(BadPicture):
    """A colour picture among grey ones."""


@dataclass(frozen=True)
class EncodedImage:
    """One picture before it is decoded: the row it goes to, its name, and its bytes or where they are."""

    row: int
    name: str
    content: bytes | Path


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
        """The shape of a row."""
        return (self.channels, self.height, self.width)


@dataclass(frozen=True)
class Place:
    """Where rows go: a file that is there already, the byte at which row 0 starts, and how many rows to measure."""

    file: str
    start: int
    measured: int


def picture_name(name: str) -> bool:
    """Whether a file's name says that it is a picture.

    >>> picture_name("a/B.JPEG"), picture_name("readme.md")
    (True, False)
    """
    return os.path.splitext(name)[1].lower() in SUFFIXES


def need_pillow() -> None:
    """Refuse early where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UsageError("Reading pictures needs Pillow: pip install pillow.") from error


def probe(content: bytes | Path) -> tuple[int, int, int]:
    """Channels, height and width of a picture, as its header says."""
    with _opened(content) as image:
        return (1 if image.mode in GREY else 3, image.height, image.width)


def decode(content: bytes | Path, fit: Fit) -> Array:
    """One picture as uint8 [c, h, w], from its bytes or its path."""
    with _opened(content) as image:
        if fit.channels == 1 and image.mode not in GREY:
            raise NotGrey("is a colour picture among grey ones")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image.load()
            picture = _fitted(image, fit)
        except BadPicture:
            raise
        except Exception as error:  # decoders meet hostile bytes here: whatever they raise, the picture is bad
            raise BadPicture(f"cannot be decoded ({error or type(error).__name__})") from error
    array = np.asarray(picture)
    return array[None] if fit.channels == 1 else array.transpose(2, 0, 1)


def grey_or_colour(work: Callable[[Fit], T], fit: Fit) -> T:
    """Do what decodes many pictures; where they are meant to be grey and one is not, once more with all in colour."""
    try:
        return work(fit)
    except NotGrey:
        return work(replace(fit, channels=3))


def _opened(content: bytes | Path) -> Any:
    from PIL import Image

    if isinstance(content, Path):
        try:
            content = read_regular(content, MOST_BYTES)
        except UsageError as error:
            raise BadPicture(f"is not a file of at most {MOST_BYTES} bytes") from error
    if not content:
        raise BadPicture("is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            frames = getattr(image, "n_frames", 1) if image.format in ANIMATED else 1
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadPicture("says that it has far more pixels than a picture has") from error
    except Exception as error:  # as above
        raise BadPicture(f"is not a picture of a known kind ({', '.join(FORMATS)}), or its start is broken") from error
    if image.width * image.height > MOST_PIXELS:
        raise BadPicture(f"has {image.width}×{image.height} pixels; at most {MOST_PIXELS} are read")
    if frames > 1:
        raise BadPicture(f"has {frames} frames; one picture per file, please")
    if image.mode not in GREY + COLOUR or any(_is_deep(tile.codec_name, tile.args) for tile in image.tile):
        raise BadPicture(f"has more than 8 bits a channel (mode {image.mode}); convert it to 8 bits")
    return image


def _is_deep(codec: str, how: Any) -> bool:
    """Whether the pixels behind a part of a picture have more than 8 bits a channel."""
    mode, *rest = how if isinstance(how, tuple) else (how,)
    return bool(DEEP.search(str(mode))) or (codec.startswith("ppm") and bool(rest) and rest[0] > 255)


def _fitted(image: Any, fit: Fit) -> Any:
    from PIL import Image

    wanted = "L" if fit.channels == 1 else "RGB"
    picture = image if image.mode == wanted else image.convert(wanted)
    size = f"{picture.width}×{picture.height}"
    if fit.resize is None:
        if picture.size != (fit.width, fit.height):
            raise BadPicture(
                f"is {size} where the first picture is {fit.width}×{fit.height}; give a size N (--size N) to make all "
                "of them N×N"
            )
        return picture
    short = min(picture.size)
    if short != fit.resize:
        sides = [max(fit.resize, round(side * fit.resize / short)) for side in picture.size]
        if max(sides) > MOST_PIXELS // fit.resize:
            raise BadPicture(f"is {size}, too long and thin to be made {fit.width}×{fit.height}")
        picture = picture.resize(sides, Image.Resampling.BILINEAR)
    left, top = (picture.width - fit.width) // 2, (picture.height - fit.height) // 2
    return picture.crop((left, top, left + fit.width, top + fit.height))


def decode_rows(images: Sequence[EncodedImage], fit: Fit, place: Place) -> Array:
    """Decode pictures and write each at its row; every error names the file. The `sums` are over measured rows."""
    total = np.zeros((2, fit.channels), np.int64)
    many = max(1, BLOCK_BYTES // math.prod(fit.shape))
    for first in range(0, len(images), many):
        total += _decode_block(images[first : first + many], fit, place)
    return total


def _decode_block(images: Sequence[EncodedImage], fit: Fit, place: Place) -> Array:
    block = np.empty((len(images), *fit.shape), np.uint8)
    for picture, image in zip(block, images, strict=True):
        try:
            picture[:] = decode(image.content, fit)
        except BadPicture as error:
            raise type(error)(f"'{image.name}' {error}.") from error
        except OSError as error:
            raise BadPicture(f"'{image.name}' cannot be read: {error.strerror or error}.") from error
    with open(place.file, "r+b") as file:
        for picture, image in zip(block, images, strict=True):
            file.seek(place.start + image.row * picture.nbytes)
            file.write(picture.data)
    return sums(block[[image.row < place.measured for image in images]])


def sums(block: Array) -> Array:
    """Sum and sum of squares of every channel of uint8 rows [n, c, h, w]: exact whole numbers [2, c].

    >>> sums(np.array([[[[1, 2]]]], np.uint8)).tolist()
    [[3], [5]]
    """
    channels = block.swapaxes(0, 1).reshape(block.shape[1], -1)
    total = np.zeros((2, len(channels)), np.int64)
    for first in range(0, channels.shape[1], SUM_PIXELS):
        wide = channels[:, first : first + SUM_PIXELS].astype(np.float64)  # exact: squares of 2³⁷ pixels fit into it
        total += np.array([wide.sum(1), [row @ row for row in wide]]).astype(np.int64)
    return total


def serve(read: IO[bytes], write: IO[bytes]) -> None:
    """Answer jobs until there are no more: a line of JSON and the bytes it announces in, a line of JSON out."""
    while (line := read.readline()).endswith(b"\n"):  # one cut short is the last of a parent that was killed
        job = json.loads(line)
        images = [
            EncodedImage(row, name, Path(at) if isinstance(at, str) else read.read(at))
            for row, name, at in job["images"]
        ]
        answer: dict[str, Any]
        try:
            answer = {"sums": decode_rows(images, Fit(**job["fit"]), Place(**job["place"])).tolist()}
        except BadPicture as error:
            answer = {"error": type(error).__name__, "details": [str(error)]}
        except OSError as error:
            answer = {"error": "OSError", "details": [error.errno, error.strerror or str(error)]}
        write.write(json.dumps(answer).encode() + b"\n")
        write.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it closes our input
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the parent was killed; an end as usual would try the pipe once more, and complain
        os._exit(1)
