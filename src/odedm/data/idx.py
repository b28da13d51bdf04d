"""Reads MNIST and Fashion-MNIST as their makers give them: images and labels in idx files, packed by gzip or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import read_bytes
from odedm.data.contents import DataFolder, LabelledArrays
from odedm.data.images import MAX_BYTES, Array
from odedm.data.published import PublishedDataset

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
BYTES = 8
"""The code of unsigned bytes in an idx header."""


def recognise(folder: DataFolder) -> dict[str, str] | None:
    """Return where each of the four files is, if all are there, by its name without the end."""
    places = {Path(name).name.removesuffix(".gz").replace(".idx", "-idx"): name for name in folder.files}
    return {name: places[name] for name in FILES} if all(name in places for name in FILES) else None


def load(folder: DataFolder, places: dict[str, str], published: PublishedDataset | None) -> LabelledArrays:
    """Read all rows; labels and sizes are checked."""
    train, label, test, test_label = (_read(folder.path / places[name], places[name]) for name in FILES)
    for images, labels, name in ((train, label, FILES[0]), (test, test_label, FILES[2])):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise UsageError(
                f"'{folder.source}' has images of shape {list(images.shape)} in '{places[name]}' and labels of shape "
                f"{list(labels.shape)}: give images [n, h, w] with one label each."
            )
    classes = published.classes if published else int(max(label.max(), test_label.max())) + 1
    if max(label.max(), test_label.max()) >= classes:
        raise UsageError(f"'{folder.source}' has labels out of range; legal are 0 to {classes - 1}.")
    names = published.class_names if published else tuple(map(str, range(classes)))
    columns = train[:, None], label.astype(np.int64), test[:, None], test_label.astype(np.int64)
    return LabelledArrays("idx files", names, *columns, published=published)


def _read(path: Path, name: str) -> Array:
    """Return the array of an idx file: two zeros, a type, how many sides, the sides, then the numbers."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                content = file.read(MAX_BYTES)
        else:
            content = read_bytes(path, MAX_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"'{name}' is no sound gzip file ({error}): get it again.") from error
    sides = content[3] if content[:3] == bytes((0, 0, BYTES)) else 0
    head = 4 + 4 * sides
    shape = tuple(np.frombuffer(content[4:head], ">u4").tolist()) if sides and len(content) >= head else ()
    if not shape or 0 in shape or len(content) != head + math.prod(shape):
        raise UsageError(
            f"'{name}' is no idx file of bytes, or is cut short: it has {len(content)} bytes. Get it again."
        )
    return np.array(np.frombuffer(content, np.uint8, offset=head)).reshape(shape)  # torch wants it writable
