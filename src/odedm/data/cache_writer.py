"""Writes what was read from a path into the columns of a cache, measures it on the way, and describes it."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import sync_file
from odedm.core.processes import cores
from odedm.core.text import number_repeated, printable
from odedm.data.cache import COLUMNS, Manifest, checksum, column_files
from odedm.data.contents import Contents, LabelledArrays, LabelledPictures, OnProgress
from odedm.data.images import Array, BadPicture, Fit, NotGrey, decode_rows, probe
from odedm.data.published import PublishedDataset
from odedm.stream.class_schedule import default_tasks

BLOCK_PICTURES, BLOCK_BYTES = 256, 4 << 20
"""As many pictures are decoded at once by one thread: memory is bounded by bytes."""
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Means and deviations, one per channel or feature."""


def write(
    contents: Contents, folder: Path, on_progress: OnProgress, *, name: str, path: Path, size: int | None, seed: int
) -> Manifest:
    """Write the columns into a folder, flushed to the disk, and return the manifest that goes with them.

    `name`, `path`, `size` and `seed` are how it was asked for, and from where.
    """
    if isinstance(contents, LabelledArrays):
        mean, deviation = _write_arrays(contents, folder, on_progress)
        dtype, shape = str(contents.image.dtype), contents.image.shape[1:]
    else:
        fit, (mean, deviation) = _write_pictures(contents, folder, on_progress)
        dtype, shape = "uint8", fit.shape
    for file in column_files(folder):
        sync_file(file)
    known = contents.published
    if known:
        _check_measured(known, contents.kind, shape, mean)
    return Manifest(
        name=name,
        kind=contents.kind,
        source=printable(path.resolve().name, 200),
        class_names=number_repeated(printable(class_name, 200) for class_name in contents.class_names),
        dtype=dtype,
        shape=shape,
        rows=contents.rows,
        mean=known.mean if known else mean,
        deviation=known.deviation if known else deviation,
        tasks=known.tasks if known else default_tasks(len(contents.class_names)),
        pad=known.pad if known else min(shape[1:], default=0) // 8,
        flip=known.flip if known else False,
        size=size,
        seed=seed,
        skipped=contents.skipped,
        file_bytes=tuple(file.stat().st_size for file in column_files(folder)),
        checksum=checksum(folder),
    )


def _check_measured(known: PublishedDataset, kind: str, shape: tuple[int, ...], mean: tuple[float, ...]) -> None:
    """Refuse rows whose shape or channel means are not those of the published data set."""
    if shape != known.shape:
        raise UsageError(
            f"'{kind}' has rows of shape {shape}, but those of {known.name} are {known.shape}. Import "
            "it under another name (--as)."
        )
    distance = max(abs(a - b) for a, b in zip(mean, known.mean, strict=True))
    if known.tolerance is not None and distance > known.tolerance:
        means = ", ".join(f"{value:.4f}" for value in mean)
        raise UsageError(
            f"The channel means are {means}; those of {known.name} are {', '.join(map(str, known.mean))}. These are "
            "other pictures, or their channels are in another order. Import them under another name (--as)."
        )


def _write_arrays(arrays: LabelledArrays, folder: Path, on_progress: OnProgress) -> Statistics:
    import torch  # here, where rows are read, and not where a run is planned

    from odedm.stream.dataset import statistics

    columns = [np.ascontiguousarray(getattr(arrays, column)) for column in COLUMNS]
    _check_free(folder, sum(column.nbytes for column in columns))
    for done, (file, column) in enumerate(zip(column_files(folder), columns, strict=True)):
        on_progress("writing", done, len(columns))
        np.save(file, column, allow_pickle=False)
    on_progress("writing", len(columns), len(columns))
    mean, deviation = statistics(torch.from_numpy(columns[0]))
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _check_free(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"The data set needs {needed} bytes in '{folder.parent}', but {free} are free there. Make room, or set "
            "ODEDM_DATA to a folder on another disk."
        )


def byte_moments(rows: Array) -> Array:
    """Return sum and sum of squares of every channel of uint8 images: exact whole numbers [2, c].

    >>> byte_moments(np.array([[[[1, 2]]]], np.uint8)).tolist()
    [[3], [5]]
    """
    return np.stack([values.sum((0, 2, 3), dtype=np.int64) for values in (rows, np.square(rows, dtype=np.uint16))])


def _of_bytes(moments: Any, count: int) -> Statistics:
    """Return mean and deviation of so many bytes a channel, which count as 0..1."""
    mean, square = moments / count
    deviation = np.sqrt((square - mean**2).clip(0)) / 255
    return tuple((mean / 255).tolist()), tuple(value if value > 1e-6 else 1.0 for value in deviation.tolist())


def _write_pictures(pictures: LabelledPictures, folder: Path, on_progress: OnProgress) -> tuple[Fit, Statistics]:
    first = pictures.train[0][0]
    with warnings.catch_warnings():  # what Pillow remarks on odd pictures, in whichever thread: filters are global
        warnings.simplefilter("ignore")
        try:
            channels, height, width = probe(pictures.folder.path / first)
        except BadPicture as error:
            raise BadPicture(f"'{first}' {error}.") from error
        if pictures.published:
            channels = 3  # some of their pictures are grey, and the first may be one of them
        fit = Fit(channels, pictures.size or height, pictures.size or width, pictures.resize)
        try:
            return _write_decoded(pictures, folder, on_progress, fit)
        except NotGrey:
            return _write_decoded(pictures, folder, on_progress, replace(fit, channels=3))


def _write_decoded(
    pictures: LabelledPictures, folder: Path, on_progress: OnProgress, fit: Fit
) -> tuple[Fit, Statistics]:
    """Write all columns, the pictures decoded to one shape; means and deviations are of the training part."""
    _check_free(folder, sum(pictures.rows) * (math.prod(fit.shape) + 8))
    image, label, test_image, test_label = column_files(folder)
    for file, classes in ((label, pictures.train), (test_label, pictures.test)):
        np.save(file, np.repeat(np.arange(len(classes)), [len(names) for names in classes]))
    total, done = sum(pictures.rows), 0
    moments = np.zeros((2, fit.channels), np.int64)
    with ThreadPoolExecutor(cores()) as pool:  # threads are enough: decoders let go of the interpreter's lock
        for file, classes in ((image, pictures.train), (test_image, pictures.test)):
            names = [*chain.from_iterable(classes)]
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(names), *fit.shape)}
            with file.open("wb") as column:  # not mapped: on a full disk a mapped page kills the process
                np.lib.format.write_array_header_1_0(column, header)
                for rows, block_moments in _decoded(pool, pictures.folder.path, names, fit):
                    column.write(rows.data)
                    moments += block_moments if file == image else 0
                    done += len(rows)
                    on_progress("decoding", done, total)
    return fit, _of_bytes(moments, pictures.rows[0] * fit.height * fit.width)


def _decoded(pool: ThreadPoolExecutor, folder: Path, names: list[str], fit: Fit) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of rows in the order of their names, with their moments; a few blocks for each thread at a time."""

    def decode_block(names: list[str]) -> tuple[Array, Array]:
        rows = decode_rows(folder, names, fit)
        return rows, byte_moments(rows)

    size = min(BLOCK_PICTURES, max(1, BLOCK_BYTES // math.prod(fit.shape)))
    blocks = [names[start : start + size] for start in range(0, len(names), size)]
    step = 2 * cores()
    for start in range(0, len(blocks), step):
        yield from pool.map(decode_block, blocks[start : start + step])
