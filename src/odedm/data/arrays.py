"""Arrays on disk: `.npz` and `.npy` files, and Hugging Face data sets where that package is installed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from odedm.core.errors import UsageError
from odedm.data.archives import Limits, Zip, open_tree
from odedm.data.decoded import Array, Arrays

NAMES = (
    ("x", "y", "x_test", "y_test"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("image", "label", "test_image", "test_label"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
"""Training rows and labels, test rows and labels: the ways people name them."""


def load_npz(path: Path, *, seed: int = 0, test_share: float = 0.2) -> Arrays:
    """The arrays of an `.npz` file; the test part and `class_names` are optional."""
    tree = open_tree(path)  # refuses what is not an archive, or a dangerous one
    if not isinstance(tree, Zip):
        raise UsageError(f"'{path}' is no .npz file: those are zip archives of arrays.")
    members = {name.removesuffix(".npy"): name for name in tree.sizes if name.endswith(".npy")}
    wanted = [name for names in NAMES for name in names] + ["class_names"]
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in wanted:
            if name in members and name not in arrays:
                with archive.open(members[name]) as file:
                    arrays[name] = _array(file, tree.sizes[members[name]], f"{path}:{name}")
    return _assemble(arrays, list(members), path, seed, test_share)


def load_npy(path: Path, *, seed: int = 0, test_share: float = 0.2) -> Arrays:
    """`x.npy` with `y.npy` beside it, or the folder that holds them; test files are optional."""
    folder = path if path.is_dir() else path.parent
    there = {each.stem: each for each in sorted(folder.glob("*.npy")) if each.is_file() and not each.is_symlink()}
    if path.is_file() and path.stem not in {names[0] for names in NAMES}:
        raise UsageError(f"'{path}' alone has no labels: name the files x.npy and y.npy (x_test.npy, y_test.npy).")
    arrays = {}
    for name in {name for names in NAMES for name in names} | {"class_names"}:
        if name in there:
            with there[name].open("rb") as file:
                arrays[name] = _array(file, there[name].stat().st_size, str(there[name]))
    return _assemble(arrays, list(there), path, seed, test_share)


def is_npy_folder(path: Path) -> bool:
    """Whether a folder holds arrays by one of the known names."""
    return path.is_dir() and any((path / f"{names[0]}.npy").is_file() for names in NAMES)


def _array(file: IO[bytes], size: int, where: str) -> Array:
    """One array, after its header was found to promise no more than the file holds; never a pickled object."""
    if size > Limits().file_bytes:
        raise UsageError(f"'{where}' has {size} bytes; {Limits().file_bytes} are allowed.")
    try:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, columns_first, dtype = header(file)
        if dtype.hasobject:
            raise UsageError(f"'{where}' holds Python objects, which are never loaded. Save it as numbers.")
        expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if expected > size or min(shape, default=0) < 0:
            raise UsageError(
                f"'{where}' says that its shape is {shape}, but it has {size} bytes: truncated or corrupt."
            )
        content = file.read(expected)
        if len(content) != expected:
            raise UsageError(f"'{where}' is truncated: {len(content)} of {expected} bytes.")
    except (ValueError, EOFError, zipfile.BadZipFile, OSError, RuntimeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"'{where}' is not a sound array file ({error}).") from error
    flat = np.frombuffer(content, dtype)
    return flat.reshape(shape, order="F" if columns_first else "C")


def _assemble(arrays: Mapping[str, Array], there: list[str], path: Path, seed: int, share: float) -> Arrays:
    names = next((names for names in NAMES if names[0] in arrays and names[1] in arrays), None)
    if names is None:
        raise UsageError(
            f"'{path}' holds {', '.join(sorted(there)) or 'no arrays'}; it needs x and y (and x_test, y_test, if any)."
        )
    x, y, test_x, test_y = (arrays.get(name) for name in names)
    if (test_x is None) != (test_y is None):
        raise UsageError(f"'{path}' holds only one of {names[2]} and {names[3]}; give both or none.")
    shown = None
    if "class_names" in arrays:
        if arrays["class_names"].dtype.kind != "U" or arrays["class_names"].ndim != 1:
            raise UsageError(f"class_names in '{path}' must be a list of words.")
        shown = [str(name) for name in arrays["class_names"]]
    test = None if test_x is None else (test_x, _labels(test_y, names[3], path, shown))
    return from_rows(path, "arrays", x, _labels(y, names[1], path, shown), test, shown, seed=seed, test_share=share)


def _labels(label: Any, name: str, path: Path, shown: list[str] | None) -> Array:
    """Labels [n] from [n] or [n, 1], in range where a range is known."""
    flat: Array = label[:, 0] if label.ndim == 2 and label.shape[1] == 1 else label
    if flat.dtype.kind in "iuf" and flat.ndim == 1 and len(flat):
        wrong = ~((flat >= 0) & (flat < (len(shown) if shown else np.inf)))
        if wrong.any():
            legal = f"0 to {len(shown) - 1}" if shown else "0 and more"
            row = int(wrong.argmax())
            raise UsageError(f"{name} in '{path}' has the label {flat[row]} in row {row}; legal are {legal}.")
    return flat


def from_rows(
    path: Path,
    kind: str,
    x: Any,
    y: Any,
    test: tuple[Any, Any] | None,
    class_names: list[str] | None,
    *,
    seed: int,
    test_share: float,
) -> Arrays:
    """Rows and labels, checked and split as `from_arrays` does it."""
    from odedm.stream.dataset import from_arrays

    try:
        data = from_arrays(x, y, tasks=1, test=test, class_names=class_names, seed=seed, test_share=test_share)
    except UsageError as error:
        raise UsageError(f"'{path}': {error}") from error
    if data.classes < 2:
        raise UsageError(f"'{path}' holds the single class '{data.class_names[0]}'; two or more are needed.")
    train, test_part = (data.image.numpy(), data.label.numpy()), (data.test_image.numpy(), data.test_label.numpy())
    return Arrays(kind, *train, *test_part, class_names=data.class_names)
