"""Reads CIFAR-10 and CIFAR-100 as their makers give them, in the binary or the python version."""

from __future__ import annotations

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.cifar_pickle import read_batch
from odedm.data.contents import DataFolder, LabelledArrays
from odedm.data.images import Array, read_bounded
from odedm.data.published import PublishedDataset

PIXELS = 3 * 32 * 32
FILES = {
    "cifar10": ([f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]),
    "cifar100": (["train"], ["test"]),
}
"""The files of the training and of the test part."""
ENDINGS = {"binary": ".bin", "python": ""}
LABELS = {"cifar10": (1, "labels"), "cifar100": (2, "fine_labels")}
"""Label bytes of a record, and the labels' name; CIFAR-100 gives the coarse label first, then the fine one."""


def recognise(folder: DataFolder) -> tuple[str, str, str] | None:
    """Return data set ("cifar10", "cifar100"), version ("binary", "python") and where its files are, if it is one.

    The place is the start of their names, with a slash at its end where there is one.
    """
    files = set(folder.files)
    for version, ending in ENDINGS.items():
        for name, (train, test) in FILES.items():
            for file in folder.files:
                place = file[: file.rfind("/") + 1]
                if file == place + train[0] + ending and (name == "cifar10" or place + test[0] + ending in files):
                    return name, version, place
    return None


def load(folder: DataFolder, version: str, place: str, published: PublishedDataset) -> LabelledArrays:
    """Read all rows of either version; labels and sizes are checked."""
    parts = [[place + name + ENDINGS[version] for name in part] for part in FILES[published.name]]
    if missing := [name for part in parts for name in part if name not in folder.files]:
        raise UsageError(f"'{folder.source}' lacks {', '.join(missing)}, so it is not all of {published.name}.")
    read = _binary if version == "binary" else _python
    columns: list[Array] = []
    for names, rows in zip(parts, published.rows, strict=True):
        pairs = [read(folder, name, published, rows // len(names)) for name in names]
        columns += [np.concatenate(column) for column in zip(*pairs, strict=True)]
    kind = f"{published.name} ({version} version)"
    return LabelledArrays(kind, published.class_names, *columns, published=published)


def _binary(folder: DataFolder, name: str, published: PublishedDataset, rows: int) -> tuple[Array, Array]:
    """Return images [n, 3, 32, 32] and labels [n] of records: one or two label bytes, then red, green and blue."""
    head, _ = LABELS[published.name]
    record, size = head + PIXELS, (folder.path / name).stat().st_size
    if size != rows * record:
        raise UsageError(
            f"'{name}' has {size} bytes; {rows} records of {record} bytes are {rows * record}. "
            "It is truncated or not what its name says. Get it again."
        )
    table = np.fromfile(folder.path / name, np.uint8).reshape(rows, record)
    return table[:, head:].reshape(rows, 3, 32, 32), _checked(table[:, head - 1], name, published)


def _python(folder: DataFolder, name: str, published: PublishedDataset, rows: int) -> tuple[Array, Array]:
    """Return the same from a pickled dictionary, of which nothing is ever run."""
    batch, (_, column) = read_batch(read_bounded(folder.path / name), name), LABELS[published.name]
    data, labels = batch.get("data"), batch.get(column)
    if not isinstance(data, np.ndarray) or not isinstance(labels, list):
        raise UsageError(f"'{name}' lacks 'data' or '{column}'; it holds {', '.join(batch)}.")
    if data.shape != (rows, PIXELS) or len(labels) != rows:
        raise UsageError(
            f"'{name}' has images {data.shape} and {len(labels)} labels; {rows} of {PIXELS} bytes were expected."
        )
    if not all(type(label) is int for label in labels):
        raise UsageError(f"'{name}' has labels that are not integers.")
    return data.reshape(rows, 3, 32, 32), _checked(np.array(labels, np.int64), name, published)


def _checked(label: Array, name: str, published: PublishedDataset) -> Array:
    wrong = (label < 0) | (label >= published.classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise UsageError(
            f"'{name}' has labels out of range in {int(wrong.sum())} of {len(label)} records: {int(label[first])} "
            f"in record {first}; legal are 0 to {published.classes - 1}."
        )
    return label.astype(np.int64)
