"""CIFAR-10 and CIFAR-100 as their makers give them: the binary version, and the python version read as data."""

from __future__ import annotations

from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.archives import Tree
from odedm.data.cifar_pickle import read_batch
from odedm.data.decoded import Array, Arrays
from odedm.data.published import Published

PIXELS = 3 * 32 * 32
Files = tuple[tuple[str, ...], tuple[str, ...]]
"""The files of the training and of the test part."""

TEN = tuple(f"data_batch_{number}" for number in range(1, 6))
BINARY: dict[str, Files] = {
    "cifar10": (tuple(f"{name}.bin" for name in TEN), ("test_batch.bin",)),
    "cifar100": (("train.bin",), ("test.bin",)),
}
PYTHON: dict[str, Files] = {
    "cifar10": (TEN, ("test_batch",)),
    "cifar100": (("train",), ("test",)),
}
LABEL_BYTES = {"cifar10": 1, "cifar100": 2}
"""CIFAR-100 gives the coarse label first, then the fine one."""
LABELS = {"cifar10": "labels", "cifar100": "fine_labels"}


def recognise(tree: Tree) -> tuple[str, str, str] | None:
    """The data set ("cifar10", "cifar100"), version ("binary", "python") and folder of a tree, if it is one."""
    for version, table, marks in (
        ("binary", BINARY, {"cifar10": "data_batch_1.bin", "cifar100": "train.bin"}),
        ("python", PYTHON, {"cifar10": "data_batch_1", "cifar100": "train"}),
    ):
        for name in table:
            for found in tree.sizes:
                folder, _, last = found.rpartition("/")
                if last == marks[name] and (name == "cifar10" or found.replace("train", "test") in tree.sizes):
                    return name, version, folder
    return None


def load(tree: Tree, version: str, folder: str, published: Published) -> Arrays:
    """All rows of either version, labels and sizes checked."""
    table = BINARY if version == "binary" else PYTHON
    prefix = f"{folder}/" if folder else ""
    files = [[prefix + name for name in part] for part in table[published.name]]
    missing = [name for part in files for name in part if name not in tree.sizes]
    if missing:
        raise UsageError(f"'{tree.path}' lacks {', '.join(missing)}, so it is not all of {published.name}.")
    read = _binary if version == "binary" else _python
    contents = tree.contents([name for part in files for name in part])
    parts: list[tuple[Array, Array]] = []
    for part, rows in zip(files, published.rows, strict=True):
        pairs = [read(contents.pop(name), name, published, rows // len(part)) for name in part]
        parts.append((np.concatenate([image for image, _ in pairs]), np.concatenate([label for _, label in pairs])))
    kind = f"{published.name} ({version} version)"
    return Arrays(kind, *parts[0], *parts[1], class_names=published.class_names, published=published)


def _binary(content: bytes, name: str, published: Published, rows: int) -> tuple[Array, Array]:
    """Images [n, 3, 32, 32] and labels [n] of records: one or two label bytes, then red, green and blue."""
    head = LABEL_BYTES[published.name]
    record = head + PIXELS
    if len(content) != rows * record:
        raise UsageError(
            f"'{name}' has {len(content)} bytes; {rows} records of {record} bytes are {rows * record}. "
            "It is truncated or not what its name says. Get it again."
        )
    table = np.frombuffer(content, np.uint8).reshape(rows, record)
    label = table[:, head - 1]
    _check_labels(label, name, published)
    return table[:, head:].reshape(rows, 3, 32, 32), label.astype(np.int64)


def _python(content: bytes, name: str, published: Published, rows: int) -> tuple[Array, Array]:
    """The same from a pickled dictionary, of which nothing is ever run."""
    batch: dict[str, Any] = read_batch(content, name)
    data, labels = batch.get("data"), batch.get(LABELS[published.name])
    if not isinstance(data, np.ndarray) or not isinstance(labels, list):
        raise UsageError(f"'{name}' lacks 'data' or '{LABELS[published.name]}'; it holds {', '.join(batch)}.")
    if data.shape != (rows, PIXELS) or len(labels) != rows:
        raise UsageError(
            f"'{name}' has images {data.shape} and {len(labels)} labels; {rows} of {PIXELS} bytes were expected."
        )
    if not all(type(each) is int for each in labels):
        raise UsageError(f"'{name}' has labels that are not whole numbers.")
    label = np.array(labels, np.int64)
    _check_labels(label, name, published)
    return data.reshape(rows, 3, 32, 32), label


def _check_labels(label: Array, name: str, published: Published) -> None:
    wrong = (label < 0) | (label >= published.classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise UsageError(
            f"'{name}' has labels out of range in {int(wrong.sum())} of {len(label)} records: {int(label[first])} "
            f"in record {first}; legal are 0 to {published.classes - 1}."
        )
