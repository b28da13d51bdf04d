"""Reads arrays from `.npy` files and from unpacked `.npz` archives, never a pickled object."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError, is_out_of_memory
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


def has_arrays(folder: Path) -> bool:
    """Return whether a folder holds training rows by one of the known names."""
    return any((folder / f"{names[0]}.npy").is_file() for names in NAMES)


def load_arrays(folder: Path, source: Path, *, seed: int = 0, test_share: float = 0.2) -> LabelledArrays:
    """Read rows and labels from the arrays of a folder; the test part and `class_names` are optional.

    Args:
        folder: where `x.npy`, `y.npy` and the like are.
        source: what the user gave, which messages name.
        seed, test_share: what is held out where there is no test part.
    """
    arrays = {name: _load(folder / f"{name}.npy", source) for name in KNOWN if (folder / f"{name}.npy").is_file()}
    names = next((names for names in NAMES if names[0] in arrays and names[1] in arrays), None)
    if names is None:
        present = ", ".join(sorted(path.stem for path in folder.glob("*.npy")))
        raise UsageError(f"'{source}' holds {present or 'no arrays'}; it needs x and y (and x_test, y_test, if any).")
    x, y, test_x, test_y = (arrays.get(name) for name in names)
    if (test_x is None) != (test_y is None):
        raise UsageError(f"'{source}' holds only one of {names[2]} and {names[3]}; give both or none.")
    class_names = arrays["class_names"].tolist() if "class_names" in arrays else None
    test = None if test_y is None else (test_x, _flat(test_y))
    from odedm.stream.dataset import from_arrays  # torch is imported where rows are read, not where a run is planned

    try:
        data = from_arrays(x, _flat(y), tasks=1, test=test, class_names=class_names, seed=seed, test_share=test_share)
    except UsageError as error:
        raise UsageError(f"'{source}': {error}") from error
    if data.classes < 2:
        raise UsageError(f"'{source}' holds the single class '{data.class_names[0]}'; two or more are needed.")
    columns = (column.numpy() for column in (data.image, data.label, data.test_image, data.test_label))
    return LabelledArrays("arrays", data.class_names, *columns)


def _load(path: Path, source: Path) -> Array:
    """Map an array into memory: a header that promises more than the file has is refused, and nothing is allocated."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array: Array = np.lib.format.open_memmap(path, mode="r")
        if array.dtype.kind == "U":
            array.tolist()  # which raises where a letter does not exist
    except Exception as error:  # a parser meets hostile bytes here: whatever else it raises, the file is bad
        if is_out_of_memory(error):
            raise UsageError(f"There is no memory left for '{path.name}' of '{source}'; free some.") from error
        raise UsageError(f"'{path.name}' of '{source}' is no sound array of numbers or text ({error}).") from error
    return array


def _flat(labels: Any) -> Array:
    """Return labels [n] from [n] or [n, 1], as some libraries keep them."""
    flat: Array = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return flat
