"""Writes what was read from a path into the cache's data file, measures it on the way, and describes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import sync_file
from odedm.core.text import distinct, printable
from odedm.data.cache import Manifest
from odedm.data.contents import Contents, LabelledArrays, LabelledPictures
from odedm.data.image_workers import Watch, decode_all
from odedm.data.images import MOST_BYTES, Array, BadPicture, EncodedImage, Fit, Place, grey_or_colour, probe
from odedm.data.published import PublishedDataset
from odedm.data.tensor_file import TensorFile
from odedm.stream.class_schedule import default_tasks

TICK = 0.05
"""Seconds between two reports of progress."""
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Means and deviations, one per channel or feature."""


def write(found: Contents, file: Path, watch: Watch, *, name: str, path: Path, size: int | None, seed: int) -> Manifest:
    """Write the data file, flushed to the disk; the manifest that goes with it.

    `name`, `path`, `size` and `seed` are how it was asked for, and from where.
    """
    if isinstance(found, LabelledArrays):
        layout, (mean, deviation) = _write_arrays(found, file, watch)
    else:
        layout, (mean, deviation) = _write_pictures(found, file, watch)
    sync_file(file)
    dtype, shape = layout.columns["image"].dtype, layout.columns["image"].shape[1:]
    known = found.published
    if known:
        _check_measured(known, found.kind, shape, mean)
    return Manifest(
        name=name,
        kind=found.kind,
        source=printable(path.resolve().name, 200),
        class_names=distinct(printable(each, 200) for each in found.class_names),
        dtype=dtype,
        shape=shape,
        rows=found.rows,
        mean=known.mean if known else mean,
        deviation=known.deviation if known else deviation,
        measured_mean=mean,
        measured_deviation=deviation,
        tasks=known.tasks if known else default_tasks(len(found.class_names)),
        pad=known.pad if known else min(shape[1:], default=0) // 8,
        flip=known.flip if known else False,
        size=size,
        seed=seed,
        skipped=found.skipped,
        checksum=layout.checksum(file),
    )


def _check_measured(known: PublishedDataset, kind: str, shape: tuple[int, ...], mean: tuple[float, ...]) -> None:
    """Refuse rows whose shape or channel means are not those of the published data set."""
    if shape != known.shape:
        raise UsageError(
            f"'{kind}' has rows of shape {shape}, but those of {known.name} are {known.shape}. Import "
            "it under another name (--as)."
        )
    far = max(abs(a - b) for a, b in zip(mean, known.mean, strict=True))
    if known.tolerance is not None and far > known.tolerance:
        said = ", ".join(f"{each:.4f}" for each in mean)
        raise UsageError(
            f"The channel means are {said}; those of {known.name} are {', '.join(map(str, known.mean))}. These are "
            "other pictures, or their channels are in another order. Import them under another name (--as)."
        )


def _write_arrays(found: LabelledArrays, file: Path, watch: Watch) -> tuple[TensorFile, Statistics]:
    layout = TensorFile("U8" if found.image.dtype == np.uint8 else "F32", found.image.shape[1:], found.rows)
    layout.create(file)
    number = len(layout.columns)
    for done, name in enumerate(layout.columns):
        watch("writing", done, number)
        layout.put(file, name, np.ascontiguousarray(getattr(found, name)).data)
    watch("writing", number, number)
    return layout, statistics(found.image)


def statistics(image: Array) -> Statistics:
    """Mean and deviation per channel of images [n, c, h, w], or per feature of vectors [n, d]; bytes count as 0..1.

    >>> statistics(np.array([[[[0, 255]]]], np.uint8))
    ((0.5,), (0.5,))
    """
    unit = 255.0 if image.dtype == np.uint8 else 1.0
    axes: Any = (0, 2, 3) if image.ndim == 4 else (0,)
    step = max(1, (32 << 20) // max(1, image[0].nbytes * 8))
    parts = [image[start : start + step] for start in range(0, len(image), step)]
    count = image.size // image.shape[1]
    mean = sum(part.sum(axes, dtype=np.float64) for part in parts) / count
    centre = mean[None, :, None, None] if image.ndim == 4 else mean[None]
    variance = sum(np.square(part.astype(np.float64) - centre).sum(axes) for part in parts) / count
    return _rounded(mean / unit, np.sqrt(variance) / unit)


def _rounded(mean: Array, deviation: Array) -> Statistics:
    return tuple(mean.tolist()), tuple(each if each > 1e-6 else 1.0 for each in deviation.tolist())


def _write_pictures(found: LabelledPictures, file: Path, watch: Watch) -> tuple[TensorFile, Statistics]:
    name, first = next(found.tree.payloads(found.train.names[:1], MOST_BYTES))
    try:
        channels, height, width = probe(first)
    except BadPicture as error:
        raise BadPicture(f"'{name}' {error}.") from error
    if found.published:
        channels = 3  # some of their pictures are grey, and the first may be one of them
    fit = Fit(channels, found.size or height, found.size or width, found.resize)
    return grey_or_colour(partial(_decode, found, file, watch), fit)


def _decode(found: LabelledPictures, file: Path, watch: Watch, fit: Fit) -> tuple[TensorFile, Statistics]:
    layout = TensorFile("U8", fit.shape, found.rows)
    layout.create(file)
    layout.put(file, "label", np.array(found.train.labels, np.int64).data)
    layout.put(file, "test_label", np.array(found.test.labels, np.int64).data)
    total, done, last = sum(found.rows), 0, 0.0

    def tell(number: int) -> None:
        nonlocal done, last
        done += number
        if time.monotonic() - last > TICK or done == total:
            last = time.monotonic()
            watch("decoding", done, total)

    # test rows follow the training rows in the file, so that one pass over an archive fills both
    place = Place(str(file), layout.start("image"), measured=found.rows[0])
    train = decode_all(_encoded(found), total, fit, place, tell)
    mean, square = train / (found.rows[0] * fit.height * fit.width)
    return layout, _rounded(mean / 255, np.sqrt((square - mean**2).clip(0)) / 255)


def _encoded(found: LabelledPictures) -> Iterator[EncodedImage]:
    """Every picture with the row it goes to, in the order that is cheapest to read."""
    row = {name: number for number, name in enumerate(found.train.names + found.test.names)}
    if len(row) != sum(found.rows):
        raise UsageError(f"'{found.tree.path}' lists the same picture twice.")
    left = len(row)
    for name, content in found.tree.payloads(row, MOST_BYTES):
        left -= 1
        yield EncodedImage(row[name], name, content)
    if left:
        raise UsageError(f"'{found.tree.path}' changed while it was read: {left} pictures are gone.")
