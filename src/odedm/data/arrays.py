"""Reads arrays from `.npz` and `.npy` files, never a pickled object."""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from odedm.core.errors import UsageError
from odedm.core.files import read_regular
from odedm.core.text import printable
from odedm.data.archives import ArchiveLimits, Zip, open_tree
from odedm.data.contents import LabelledArrays
from odedm.data.images import Array

NAMES = (
    ("x", "y", "x_test", "y_test"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("image", "label", "test_image", "test_label"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
"""Training rows and labels, test rows and labels: the ways people name them."""
KNOWN = ("class_names", *dict.fromkeys(name for names in NAMES for name in names))


def is_array_path(path: Path) -> bool:
    """Whether a path is an array file, or a folder with arrays by one of the known names."""
    if path.is_dir():
        return any((path / f"{names[0]}.npy").is_file() for names in NAMES)
    return path.is_file() and path.suffix.lower() in (".npz", ".npy")


def load_arrays(path: Path, *, seed: int = 0, test_share: float = 0.2) -> LabelledArrays:
    """Rows and labels of an `.npz` file, of `x.npy` with `y.npy` beside it, or of the folder that holds them.

    The test part and `class_names` are optional.
    """
    there, arrays = (_npz if path.is_file() and path.suffix.lower() == ".npz" else _npy)(path)
    names = next((names for names in NAMES if names[0] in arrays and names[1] in arrays), None)
    if names is None:
        raise UsageError(
            f"'{path}' holds {', '.join(sorted(there)) or 'no arrays'}; it needs x and y (and x_test, y_test, if any)."
        )
    x, y, test_x, test_y = (arrays.get(name) for name in names)
    if (test_x is None) != (test_y is None):
        raise UsageError(f"'{path}' holds only one of {names[2]} and {names[3]}; give both or none.")
    words = arrays.get("class_names")
    if words is not None and (words.dtype.kind != "U" or words.ndim != 1):
        raise UsageError(f"class_names in '{path}' must be a list of words.")
    shown = None if words is None else words.tolist()
    y = _labels(y, names[1], path, shown)
    test = None if test_x is None else (test_x, _labels(test_y, names[3], path, shown))
    return from_rows(path, "arrays", x, y, test=test, class_names=shown, seed=seed, test_share=test_share)


def _npz(path: Path) -> tuple[Collection[str], dict[str, Array]]:
    """The names of all arrays in a file, and those arrays whose names are known."""
    tree = open_tree(path)  # refuses what is not an archive, or a dangerous one
    if not isinstance(tree, Zip):
        raise UsageError(f"'{path}' is no .npz file: those are zip archives of arrays.")
    there = {name.removesuffix(".npy"): name for name in tree.sizes if name.endswith(".npy")}
    contents = tree.contents([there[name] for name in KNOWN if name in there], tree.limits.file_bytes)
    return there, {name: _array(contents[there[name]], f"{path}:{name}") for name in KNOWN if name in there}


def _npy(path: Path) -> tuple[Collection[str], dict[str, Array]]:
    """The same of a folder, or of the folder around a file."""
    folder = path if path.is_dir() else path.parent
    there = {each.stem: each for each in sorted(folder.glob("*.npy")) if each.is_file() and not each.is_symlink()}
    if path.is_file() and path.stem not in {names[0] for names in NAMES}:
        raise UsageError(f"'{path}' alone has no labels: name the files x.npy and y.npy (x_test.npy, y_test.npy).")
    most = ArchiveLimits().file_bytes
    return there, {name: _array(read_regular(there[name], most), str(there[name])) for name in KNOWN if name in there}


def _array(content: bytes, where: str) -> Array:
    """The array in a file's bytes, after its header was found to promise no more than there is."""
    file = io.BytesIO(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, columns_first, dtype = header(file)
    except Exception as error:  # a parser meets hostile bytes here: whatever it raises, the file is bad
        raise UsageError(f"'{where}' is not a sound array file ({error or type(error).__name__}).") from error
    if dtype.hasobject:
        raise UsageError(f"'{where}' holds Python objects, which are never loaded. Save it as numbers.")
    rest = memoryview(content)[file.tell() :]
    expected = math.prod(shape) * dtype.itemsize
    if len(shape) > 4 or not all(0 < side <= len(rest) for side in shape) or not 0 < expected <= len(rest):
        raise UsageError(
            f"'{where}' says that it holds {dtype.name} of shape {printable(shape)}, but it has {len(content)} bytes: "
            "empty, truncated or corrupt."
        )
    flat = np.frombuffer(rest[:expected], dtype)
    if dtype.kind == "U" and flat.view(np.dtype("u4").newbyteorder(dtype.byteorder)).max() > sys.maxunicode:
        raise UsageError(f"'{where}' holds words with letters that do not exist: it is corrupt.")
    return flat.reshape(shape, order="F" if columns_first else "C")


def _labels(label: Any, name: str, path: Path, shown: list[str] | None) -> Array:
    """Labels [n] from [n] or [n, 1], in range where a range is known."""
    flat: Array = label[:, 0] if label.ndim == 2 and label.shape[1] == 1 else label
    if flat.dtype.kind in "iuf" and flat.ndim == 1:
        wrong = np.flatnonzero(~((flat >= 0) & (flat < (len(shown) if shown else np.inf))))
        if len(wrong):
            legal = f"0 to {len(shown) - 1}" if shown else "0 and more"
            raise UsageError(f"{name} in '{path}' has the label {flat[wrong[0]]} in row {wrong[0]}; legal are {legal}.")
    return flat


def from_rows(path: Path, kind: str, x: Any, y: Any, **options: Any) -> LabelledArrays:
    """Rows and labels, checked and split as `from_arrays` does it by these options."""
    from odedm.stream.dataset import from_arrays

    try:
        data = from_arrays(x, y, tasks=1, **options)
    except UsageError as error:
        raise UsageError(f"'{path}': {error}") from error
    if data.classes < 2:
        raise UsageError(f"'{path}' holds the single class '{data.class_names[0]}'; two or more are needed.")
    columns = (part.numpy() for part in (data.image, data.label, data.test_image, data.test_label))
    return LabelledArrays(kind, data.class_names, *columns)
