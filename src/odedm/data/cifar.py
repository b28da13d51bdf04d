"""Reads CIFAR-10 and CIFAR-100 as their makers give them, in the binary or the python version."""

from __future__ import annotations

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.archives import Tree
from odedm.data.cifar_pickle import read_batch
from odedm.data.contents import LabelledArrays
from odedm.data.images import MOST_BYTES, Array
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


def recognise(tree: Tree) -> tuple[str, str, str] | None:
    """The data set ("cifar10", "cifar100"), version ("binary", "python") and folder of a tree, if it is one."""
    for version, ending in ENDINGS.items():
        for name, (train, _) in FILES.items():
            for found in tree.sizes:
                folder, _, last = found.rpartition("/")
                if last == train[0] + ending and (name == "cifar10" or found.replace("train", "test") in tree.sizes):
                    return name, version, folder
    return None


def load(tree: Tree, version: str, folder: str, published: PublishedDataset) -> LabelledArrays:
    """All rows of either version, labels and sizes checked."""
    prefix = f"{folder}/" if folder else ""
    files = [[prefix + name + ENDINGS[version] for name in part] for part in FILES[published.name]]
    every = [name for part in files for name in part]
    if missing := [name for name in every if name not in tree.sizes]:
        raise UsageError(f"'{tree.path}' lacks {', '.join(missing)}, so it is not all of {published.name}.")
    read = _binary if version == "binary" else _python
    contents = tree.contents(every, MOST_BYTES)
    columns: list[Array] = []
    for part, rows in zip(files, published.rows, strict=True):
        pairs = [read(contents.pop(name), name, published, rows // len(part)) for name in part]
        columns += [np.concatenate(column) for column in zip(*pairs, strict=True)]
    kind = f"{published.name} ({version} version)"
    return LabelledArrays(kind, published.class_names, *columns, published=published)


def _binary(content: bytes, name: str, published: PublishedDataset, rows: int) -> tuple[Array, Array]:
    """Images [n, 3, 32, 32] and labels [n] of records: one or two label bytes, then red, green and blue."""
    head, _ = LABELS[published.name]
    record = head + PIXELS
    if len(content) != rows * record:
        raise UsageError(
            f"'{name}' has {len(content)} bytes; {rows} records of {record} bytes are {rows * record}. "
            "It is truncated or not what its name says. Get it again."
        )
    table = np.frombuffer(content, np.uint8).reshape(rows, record)
    return table[:, head:].reshape(rows, 3, 32, 32), _checked(table[:, head - 1], name, published)


def _python(content: bytes, name: str, published: PublishedDataset, rows: int) -> tuple[Array, Array]:
    """The same from a pickled dictionary, of which nothing is ever run."""
    batch, (_, column) = read_batch(content, name), LABELS[published.name]
    data, labels = batch.get("data"), batch.get(column)
    if not isinstance(data, np.ndarray) or not isinstance(labels, list):
        raise UsageError(f"'{name}' lacks 'data' or '{column}'; it holds {', '.join(batch)}.")
    if data.shape != (rows, PIXELS) or len(labels) != rows:
        raise UsageError(
            f"'{name}' has images {data.shape} and {len(labels)} labels; {rows} of {PIXELS} bytes were expected."
        )
    if not all(type(each) is int for each in labels):
        raise UsageError(f"'{name}' has labels that are not whole numbers.")
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
