"""Decodes pictures, the only place that asks Pillow to; as a program it is one worker of an import.

Imported without torch: a worker must be there in a moment.
"""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

Array = np.ndarray[Any, Any]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
ANIMATED = ("PNG", "GIF", "WEBP", "TIFF")
GREY, COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MOST_BYTES, MOST_PIXELS = 256 << 20, 64_000_000


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
        """The shape of a row."""
        return (self.channels, self.height, self.width)


def picture_name(name: str) -> bool:
    """Whether a file's name says that it is a picture.

    >>> picture_name("a/B.JPEG"), picture_name("readme.md")
    (True, False)
    """
    return os.path.splitext(name)[1].lower() in SUFFIXES


def need_pillow() -> None:
    """Refuse early, and name the extra, where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        from odedm.core.errors import UsageError

        raise UsageError("Reading pictures needs Pillow: pip install 'odedm[images]'.") from error


def probe(source: bytes | str) -> tuple[int, int, int]:
    """Channels, height and width of a picture, as its header says."""
    with _opened(source) as image:
        return (1 if image.mode in GREY else 3, image.height, image.width)


def decode(source: bytes | str, fit: Fit) -> Array:
    """One picture as uint8 [c, h, w], from its bytes or its path."""
    with _opened(source) as image:
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


def _opened(source: bytes | str) -> Any:
    from PIL import Image

    content = source if isinstance(source, bytes) else _content(source)
    if not content:
        raise BadPicture("is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(content), formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadPicture("says that it has far more pixels than a picture has") from error
    except Exception as error:  # as above
        raise BadPicture(f"is not a picture of a known kind ({', '.join(FORMATS)}), or its start is broken") from error
    if image.width * image.height > MOST_PIXELS:
        raise BadPicture(f"has {image.width}×{image.height} pixels; at most {MOST_PIXELS} are read")
    if image.format in ANIMATED and getattr(image, "n_frames", 1) > 1:
        raise BadPicture(f"has {getattr(image, 'n_frames', 1)} frames; one picture per file, please")
    if image.mode not in GREY + COLOUR:
        raise BadPicture(f"has more than 8 bits a channel (mode {image.mode}); convert it to 8 bits")
    return image


def _content(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise BadPicture(f"is not a file of at most {MOST_BYTES} bytes")
        return file.read()


def _fitted(image: Any, fit: Fit) -> Any:
    from PIL import Image

    wanted = "L" if fit.channels == 1 else "RGB"
    picture = image if image.mode == wanted else image.convert(wanted)
    if fit.resize is None:
        if picture.size != (fit.width, fit.height):
            raise BadPicture(
                f"is {picture.width}×{picture.height} where the first picture is {fit.width}×{fit.height}; "
                "give --size N to make all of them N×N"
            )
        return picture
    short = min(picture.size)
    if short != fit.resize:
        sides = [max(fit.resize, round(side * fit.resize / short)) for side in picture.size]
        if max(sides) > MOST_PIXELS // fit.resize:
            raise BadPicture(
                f"is {picture.width}×{picture.height}, too long and thin to be made {fit.width}×{fit.height}"
            )
        picture = picture.resize(sides, Image.Resampling.BILINEAR)
    left, top = (picture.width - fit.width) // 2, (picture.height - fit.height) // 2
    return picture.crop((left, top, left + fit.width, top + fit.height))


@dataclass(frozen=True)
class Place:
    """Where rows go: a file that is there already, the byte at which row 0 starts, and how many rows to measure."""

    file: str
    start: int
    measured: int


@dataclass(frozen=True)
class Sums:
    """Per channel, over all pixels: how many, their sum and the sum of their squares; exact whole numbers."""

    pixels: int
    total: tuple[int, ...]
    squares: tuple[int, ...]

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.pixels + other.pixels,
            tuple(a + b for a, b in zip(self.total, other.total, strict=True)),
            tuple(a + b for a, b in zip(self.squares, other.squares, strict=True)),
        )


def sums(block: Array) -> Sums:
    """The sums of uint8 rows [n, c, h, w].

    >>> sums(np.array([[[[1, 2]]]], np.uint8))
    Sums(pixels=2, total=(3,), squares=(5,))
    """
    flat = block.swapaxes(0, 1).reshape(block.shape[1], -1)
    wide = flat.astype(np.float64)  # exact: squares of 2³⁷ pixels fit into 53 bits
    return Sums(flat.shape[1], tuple(int(each) for each in wide.sum(1)), tuple(int(row @ row) for row in wide))


def decode_rows(
    rows: Sequence[int], names: Sequence[str], sources: Sequence[bytes | str], fit: Fit, place: Place
) -> Sums:
    """Decode pictures and write each at its row; every error names the file. The sums are over measured rows."""
    block = np.empty((len(rows), *fit.shape), np.uint8)
    for index, (name, source) in enumerate(zip(names, sources, strict=True)):
        try:
            block[index] = decode(source, fit)
        except NotGrey as error:
            raise NotGrey(f"'{name}' {error}.") from error
        except BadPicture as error:
            raise BadPicture(f"'{name}' {error}.") from error
        except OSError as error:
            raise BadPicture(f"'{name}' cannot be read: {error.strerror or error}.") from error
    with open(place.file, "r+b", buffering=0) as file:
        if rows and rows[-1] - rows[0] == len(rows) - 1 and list(rows) == sorted(rows):
            _put(file, place.start + rows[0] * block[0].nbytes, block)
        else:
            for row, picture in zip(rows, block, strict=True):
                _put(file, place.start + row * picture.nbytes, picture)
    return sums(block[np.asarray(rows) < place.measured])


def _put(file: IO[bytes], at: int, content: Array) -> None:
    file.seek(at)
    left = memoryview(content.tobytes())
    while left:
        left = left[file.write(left) :]


def serve(read: IO[bytes], write: IO[bytes]) -> None:
    """Answer jobs until there are no more: a line of JSON and the bytes it announces in, a line of JSON out."""
    while line := read.readline():
        job = json.loads(line)
        sources: list[bytes | str] = job["paths"] or [read.read(size) for size in job["sizes"]]
        try:
            found = decode_rows(job["rows"], job["names"], sources, Fit(**job["fit"]), Place(**job["place"]))
            answer: dict[str, Any] = {"sums": asdict(found)}
        except BadPicture as error:
            answer = {"bad": str(error), "grey": not isinstance(error, NotGrey)}
        except OSError as error:
            answer = {"errno": error.errno, "system": error.strerror or str(error)}
        write.write(json.dumps(answer).encode() + b"\n")
        write.flush()


def main() -> None:
    """A worker: jobs on standard input, answers on standard output, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it closes our input
    serve(sys.stdin.buffer, sys.stdout.buffer)


def as_source(payload: bytes | Path) -> bytes | str:
    """A payload of a tree as something to decode."""
    return payload if isinstance(payload, bytes) else str(payload)


if __name__ == "__main__":
    main()
