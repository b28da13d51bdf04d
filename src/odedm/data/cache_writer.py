"""Writes what was decoded into the cache's data file, and measures it on the way."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.cache import TENSORS, Manifest
from odedm.data.decoded import Array, Arrays, Pictures
from odedm.data.image_workers import Shot, Watch, decode_all
from odedm.data.images import BadPicture, Fit, NotGrey, Place, as_source, probe
from odedm.data.tensor_file import Column, checksum, total_bytes

TICK = 0.05
"""Seconds between two reports of progress."""
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Means and deviations, one per channel or feature."""


def write(
    found: Arrays | Pictures, staging: Path, name: str, path: Path, size: int | None, seed: int, watch: Watch
) -> Manifest:
    """Write the data file into a folder, flushed to the disk; the manifest that goes with it."""
    manifest = Manifest(
        name=name,
        kind=found.kind,
        source=path.resolve().name,
        class_names=found.class_names,
        dtype="U8",
        shape=(),
        rows=(0, 0),
        mean=(),
        deviation=(),
        measured_mean=(),
        measured_deviation=(),
        tasks=default_tasks(len(found.class_names)),
        pad=0,
        flip=False,
        size=size,
        seed=seed,
        skipped=found.skipped,
        checksum="",
    )
    file = staging / TENSORS
    if isinstance(found, Arrays):
        manifest, (mean, deviation) = _write_arrays(found, manifest, file, watch)
    else:
        manifest, (mean, deviation) = _write_pictures(found, manifest, file, watch)
    manifest = replace(manifest, mean=mean, deviation=deviation, measured_mean=mean, measured_deviation=deviation)
    if found.published:
        manifest = _with_constants(manifest, found)
    elif len(manifest.shape) == 3:
        manifest = replace(manifest, pad=min(manifest.shape[1:]) // 8)
    with file.open("rb+") as written:
        os.fsync(written.fileno())
    return replace(manifest, checksum=checksum(file, manifest.columns()[1]))


def default_tasks(classes: int) -> int:
    """Five tasks where the classes allow it, or else the most, up to ten, that leave two classes to each.

    >>> [default_tasks(classes) for classes in (10, 100, 6, 9, 2, 7)]
    [5, 5, 3, 3, 1, 1]
    """
    if classes % 5 == 0 and classes >= 10:
        return 5
    return max(tasks for tasks in range(1, 11) if classes % tasks == 0 and (tasks == 1 or classes // tasks >= 2))


def _with_constants(manifest: Manifest, found: Arrays | Pictures) -> Manifest:
    known = found.published
    if known is None:
        return manifest
    if manifest.shape != known.shape:
        raise UsageError(
            f"'{found.kind}' has rows of shape {manifest.shape}, but those of {known.name} are {known.shape}. Import "
            "it under another name (--as)."
        )
    far = max(abs(a - b) for a, b in zip(manifest.measured_mean, known.mean, strict=True))
    if known.tolerance is not None and far > known.tolerance:
        said = ", ".join(f"{each:.4f}" for each in manifest.measured_mean)
        raise UsageError(
            f"The channel means are {said}; those of {known.name} are {', '.join(map(str, known.mean))}. These are "
            "other pictures, or their channels are in another order. Import them under another name (--as)."
        )
    return replace(
        manifest, mean=known.mean, deviation=known.deviation, tasks=known.tasks, pad=known.pad, flip=known.flip
    )


def _create(file: Path, manifest: Manifest) -> dict[str, Column]:
    """The file at its full length, if the disk has room for it."""
    head, placed = manifest.columns()
    length = total_bytes(head, placed)
    free = shutil.disk_usage(file.parent).free
    if length > free:
        raise OSError(errno.ENOSPC, f"{length} bytes are needed, {free} are free")
    with file.open("wb") as new:
        new.write(head)
        new.truncate(length)
    return placed


def _put(file: Path, column: Column, array: Array) -> None:
    with file.open("rb+") as opened:
        opened.seek(column.start)
        opened.write(np.ascontiguousarray(array).data)


def _write_arrays(found: Arrays, manifest: Manifest, file: Path, watch: Watch) -> tuple[Manifest, Statistics]:
    kind = "U8" if found.image.dtype == np.uint8 else "F32"
    rows = (len(found.label), len(found.test_label))
    manifest = replace(manifest, dtype=kind, shape=tuple(found.image.shape[1:]), rows=rows)
    placed = _create(file, manifest)
    for done, (name, column) in enumerate(placed.items()):
        watch("writing", done, len(placed))
        _put(file, column, getattr(found, name))
    watch("writing", len(placed), len(placed))
    return manifest, statistics(found.image)


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


def _rounded(mean: Any, deviation: Any) -> Statistics:
    sound = [float(each) if each > 1e-6 else 1.0 for each in np.atleast_1d(deviation)]
    return tuple(float(each) for each in np.atleast_1d(mean)), tuple(sound)


def _write_pictures(found: Pictures, manifest: Manifest, file: Path, watch: Watch) -> tuple[Manifest, Statistics]:
    first = next(found.tree.payloads([found.train.names[0]]))
    try:
        channels, height, width = probe(as_source(first[1]))
    except BadPicture as error:
        raise BadPicture(f"'{first[0]}' {error}.") from error
    if found.published:
        channels = 3  # some of their pictures are grey, and the first may be one of them
    if found.size:
        height = width = found.size
    fit = Fit(channels, height, width, found.resize)
    rows = (len(found.train.names), len(found.test.names))
    try:
        return _decode(found, replace(manifest, shape=fit.shape, rows=rows), fit, file, watch)
    except NotGrey:
        fit = replace(fit, channels=3)  # grey and colour mixed: all become colour, from the start
        return _decode(found, replace(manifest, shape=fit.shape, rows=rows), fit, file, watch)


def _decode(found: Pictures, manifest: Manifest, fit: Fit, file: Path, watch: Watch) -> tuple[Manifest, Statistics]:
    placed = _create(file, manifest)
    _put(file, placed["label"], np.array(found.train.labels, np.int64))
    _put(file, placed["test_label"], np.array(found.test.labels, np.int64))
    total, done, last = sum(manifest.rows), 0, 0.0

    def tell(number: int) -> None:
        nonlocal done, last
        done += number
        if time.monotonic() - last > TICK or done == total:
            last = time.monotonic()
            watch("decoding", done, total)

    # test rows follow the training rows in the file, so that one pass over an archive fills both
    train = decode_all(_shots(found), total, fit, Place(str(file), placed["image"].start, manifest.rows[0]), tell)
    mean = np.array(train.total) / train.pixels
    variance = np.array(train.squares) / train.pixels - mean**2
    return manifest, _rounded(mean / 255, np.sqrt(variance.clip(0)) / 255)


def _shots(found: Pictures) -> Iterator[Shot]:
    names = found.train.names + found.test.names
    row = {name: number for number, name in enumerate(names)}
    if len(row) != len(names):
        raise UsageError(f"'{found.tree.path}' lists the same picture twice.")
    seen = 0
    for name, payload in found.tree.payloads(names):
        seen += 1
        yield Shot(row[name], name, payload)
    if seen != len(row):
        raise UsageError(f"'{found.tree.path}' changed while it was read: {len(row) - seen} pictures are gone.")
