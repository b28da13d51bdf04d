"""Reads CIFAR-10 and CIFAR-100 as their makers give them, in the binary or the python version."""

from __future__ import annotations

from pickletools import genops
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import read_bytes
from odedm.core.text import printable
from odedm.data.contents import DataFolder, LabelledArrays
from odedm.data.images import MAX_BYTES, Array
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
OPCODES = (
    *("PROTO", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("SHORT_BINSTRING", "BINSTRING", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("GLOBAL", "REDUCE", "BUILD"),
)
"""The instructions of the pickles of the python version."""
LEGAL = {"PROTO": (0, 1, 2), "GLOBAL": ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")}
"""Their arguments, where not any will do."""
MAX_OPCODES = 1_000_000


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
    """Return the same from a pickled dictionary, of which nothing is ever run.

    Raises:
        UsageError: it is no such file, or damaged, or has instructions or names that the format has no use for.
    """
    try:
        content, labels = _pickled_columns(read_bytes(folder.path / name, MAX_BYTES), LABELS[published.name][1])
    except UsageError:
        raise
    except Exception as error:  # whatever the parser trips over, the file is not what it should be
        raise UsageError(
            f"'{name}' is no sound batch of CIFAR's python version: {error or type(error).__name__}. Nothing of it "
            "was run. Get it again, or take the binary version (cifar-10-binary.tar.gz)."
        ) from error
    if len(content) != rows * PIXELS or len(labels) != rows:
        raise UsageError(
            f"'{name}' has {len(content)} bytes of images and {len(labels)} labels; {rows} × {PIXELS} and {rows} were "
            "expected."
        )
    image = np.frombuffer(content, np.uint8).reshape(rows, 3, 32, 32)
    return image, _checked(np.array(labels, np.int64), name, published)


def _pickled_columns(content: bytes, label_key: str) -> tuple[bytes, list[int]]:
    """Pick the images and the labels out of a pickle's instructions as they stand there: none of them is followed.

    A `pickle.Unpickler` with an allow-list in `find_class` would not do. It takes an index of its memo, or a shape or
    type for the allowed numpy functions, out of the file, and allocates gigabytes for it; it hashes nested tuples
    without end.
    """
    images: bytes | None = None
    labels: list[int] = []
    types, key, before = set[str](), "", ""
    for count, (opcode, value, _) in enumerate(genops(content)):
        argument: Any = value
        if count > MAX_OPCODES or opcode.name not in OPCODES or argument not in LEGAL.get(opcode.name, (argument,)):
            raise ValueError(f"it has the instruction {opcode.name} {printable(argument)}, or too many of them")
        if opcode.name == "BINSTRING" and key == "data":
            if before != "NEWFALSE" or not types & {"u1", "|u1"}:
                raise ValueError("it holds an array that is not of bytes, row by row")
            key, images = "", argument.encode("latin-1")
        elif opcode.name == "SHORT_BINSTRING" and key == "data":
            types.add(argument)
        elif opcode.name.endswith("BINSTRING"):
            key = argument if argument in ("data", label_key) else ""
        elif opcode.name.startswith("BININT") and key == label_key:
            labels.append(argument)
        before = opcode.name
    if images is None:
        raise ValueError("it holds no images")
    return images, labels


def _checked(label: Array, name: str, published: PublishedDataset) -> Array:
    wrong = (label < 0) | (label >= published.classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise UsageError(
            f"'{name}' has labels out of range in {int(wrong.sum())} of {len(label)} records: {int(label[first])} "
            f"in record {first}; legal are 0 to {published.classes - 1}."
        )
    return label.astype(np.int64)
