"""Opens data sets: those built in, those imported before, and paths, which are imported first."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.core.errors import UsageError
from odedm.core.files import expand_user
from odedm.core.plugins import discover
from odedm.core.registry import DATASETS
from odedm.core.validators import Int, refused, validate_params
from odedm.data import cache
from odedm.data.cache import Manifest
from odedm.data.importer import import_path, no_progress
from odedm.data.published import PUBLISHED

if TYPE_CHECKING:
    from odedm.data.contents import OnProgress
    from odedm.stream.dataset import Dataset


@validate_params(tasks=Int(1), size=Int(1), seed=Int())
def load_dataset(
    name_or_path: str | Path,
    tasks: int | None = None,
    size: int | None = None,
    seed: int = 0,
    *,
    on_progress: OnProgress = no_progress,
) -> Dataset:
    """Open a data set by its name, built in or imported, or straight from a folder, archive or array file.

    A path is imported first, under a name made of its own and its content's; the next time it opens at once.

    Args:
        name_or_path: a name in `odedm data list`, or where pictures or arrays are.
        tasks: into how many tasks the classes are split; what the import noted unless given.
        size: makes pictures [c, size, size]; without it all must have one size.
        seed: which rows are held out where there is no test part.
        on_progress: is called with what is going on, how much of it is done, and how much there is in all.

    Returns:
        The data set: images [n, c, h, w], uint8 or float32, or vectors [n, d], float32, mapped from the disk.

    >>> import tempfile, unittest.mock
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict("os.environ", ODEDM_DATA=folder):
    ...     np.savez(f"{folder}/mine.npz", x=np.zeros((40, 28, 28), np.uint8), y=np.arange(40) % 4)
    ...     data = load_dataset(f"{folder}/mine.npz")
    >>> data.classes, data.shape, len(data.image), len(data.test_image), data.tasks
    (4, (1, 28, 28), 32, 8, 2)
    """
    if not isinstance(name_or_path, str | Path):
        raise refused("A data set's name or path", "text or a Path", name_or_path)
    name = str(name_or_path)
    if name not in DATASETS and not cache.is_cached(name) and not os.path.exists(expand_user(name_or_path)):
        discover()
    if name in DATASETS:
        data = _registered(name)
    else:
        data = _mapped(find_or_import(name_or_path, size, seed, on_progress=on_progress))
    return data if tasks is None else replace(data, tasks=tasks)


def find_or_import(
    name_or_path: str | Path, size: int | None = None, seed: int = 0, *, on_progress: OnProgress = no_progress
) -> Manifest:
    """Return the manifest of an imported data set by its name, or of a path, which is imported unless it was."""
    name, path = str(name_or_path), expand_user(name_or_path)
    if not name.strip():
        raise UsageError("The data set's name is empty. Give one of `odedm data list`, or a path.")
    if not cache.is_cached(name) and name not in DATASETS and name not in PUBLISHED and os.path.exists(path):
        return import_path(path, size=size, seed=seed, on_progress=on_progress)
    manifest = cache.find(name)
    if size is not None and manifest.shape[1:] != (size, size):
        raise UsageError(
            f"'{name}' was imported with rows of shape {manifest.shape}, not at size {size}: import it once more, "
            f"`odedm data import PATH --as NAME --size {size}`."
        )
    return manifest


def _registered(name: str) -> Dataset:
    """Return a data set that is built in or that a plug-in makes, under the name that it is registered by."""
    from odedm.stream.dataset import Dataset

    data = DATASETS[name].load()()
    if not isinstance(data, Dataset):
        raise refused(f"What the data set '{name}' gives", "an odedm.Dataset (see odedm.from_arrays)", data)
    return data if data.name == name else replace(data, name=name)


def _mapped(manifest: Manifest) -> Dataset:
    """Return the cached columns, mapped into memory: nothing is read before it is used."""
    import torch

    from odedm.stream.dataset import Dataset, constants

    folder = cache.root() / manifest.name
    again = f"Remove '{folder}' and import it again."
    try:
        columns = cache.open_columns(folder)
    except (ValueError, OSError) as error:
        raise UsageError(f"The arrays of '{manifest.name}' cannot be read ({error}). {again}") from error
    for rows, labels, length in zip(columns[::2], columns[1::2], manifest.rows, strict=True):
        same = rows.shape == (length, *manifest.shape) and str(rows.dtype) == manifest.dtype
        integers = labels.shape == (length,) and labels.dtype == "int64"
        if not (same and integers and labels.min() >= 0 and labels.max() < len(manifest.class_names)):
            raise UsageError(f"The arrays of '{manifest.name}' are not what its manifest says. {again}")
    x, y, test_x, test_y = map(torch.from_numpy, columns)
    mean, deviation = (torch.tensor(values, dtype=torch.float64) for values in (manifest.mean, manifest.deviation))
    transform = constants(x, mean, deviation, pad=manifest.pad, flip=manifest.flip)
    tasks, checksum = manifest.tasks, manifest.checksum
    return Dataset(manifest.name, x, y, test_x, test_y, manifest.class_names, transform, tasks, checksum)
