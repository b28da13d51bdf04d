"""Reads Hugging Face data sets saved on disk with the optional `datasets` package, their pictures with our decoder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.arrays import from_rows
from odedm.data.contents import DataFolder, LabelledArrays
from odedm.data.images import Array, BadPicture, Fit, decode, grey_or_colour, no_decoder_warnings, probe, require_pillow

MARKS = ("dataset_dict.json", "state.json")
TESTS = ("test", "validation", "valid", "val")


def is_saved_dataset(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote this folder."""
    return any((folder / mark).is_file() for mark in MARKS)


def load_saved(
    folder: DataFolder, *, size: int | None = None, seed: int = 0, test_share: float = 0.2
) -> LabelledArrays:
    """Read pictures or vectors and the labels of a saved data set; without a test part a share is held out."""
    try:
        import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise UsageError(
            "A saved Hugging Face data set needs their package: pip install 'odedm[huggingface]'."
        ) from error
    path = folder.source
    try:
        saved = datasets.load_from_disk(str(folder.path))
    except Exception as error:  # another package reads untrusted files: whatever it raises, the data set is bad
        raise UsageError(f"'{path}' cannot be read as a saved data set ({type(error).__name__}: {error}).") from error
    parts = dict(saved) if isinstance(saved, dict) else {"train": saved}
    if "train" not in parts:
        raise UsageError(f"'{path}' has the parts {', '.join(parts)}; 'train' is needed.")
    train, test = parts["train"], next((parts[name] for name in TESTS if name in parts), None)
    column, label = _columns(train, datasets, path)
    rows = partial(_rows, column=column, datasets=datasets, size=size, path=path)
    x, y = rows(train), np.array(train[label])
    test_rows = None if test is None else (rows(test), np.array(test[label]))
    names = getattr(train.features[label], "names", None)
    if names and set(y.tolist()) != set(range(len(names))):
        raise UsageError(f"'{path}': the labels in '{label}' are not all of 0 to {len(names) - 1}.")
    return from_rows(path, "Hugging Face", x, y, test=test_rows, class_names=names, seed=seed, test_share=test_share)


def _columns(part: Any, datasets: Any, path: Path) -> tuple[str, str]:
    """Return the names of the column of pictures or vectors, and of the column of labels."""
    features = part.features
    images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    labels = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    labels = labels or [name for name in ("label", "labels", "fine_label") if name in features]
    images = images or [name for name in ("image", "img", "x", "features") if name in features]
    if not images or not labels:
        raise UsageError(
            f"'{path}' has the columns {', '.join(features)}; one of pictures and one of labels are needed."
        )
    return images[0], "fine_label" if "fine_label" in labels else labels[0]


def _rows(part: Any, column: str, datasets: Any, size: int | None, path: Path) -> Array:
    if not isinstance(part.features[column], datasets.Image):
        return np.array(part.with_format("numpy")[column])
    require_pillow()
    contents: list[bytes] = []
    for row, cell in enumerate(part.cast_column(column, datasets.Image(decode=False))[column]):
        if not isinstance(cell, dict) or not isinstance(cell.get("bytes"), bytes):
            raise UsageError(
                f"'{path}', column '{column}', row {row}: the picture lies outside; embed it and save again."
            )
        contents.append(cell["bytes"])

    def decode_all(fit: Fit) -> Array:
        return np.stack([decode(content, fit) for content in contents])

    try:
        with no_decoder_warnings():
            channels, height, width = probe(contents[0])
            return grey_or_colour(decode_all, Fit(channels, size or height, size or width, size))
    except BadPicture as error:
        raise UsageError(f"'{path}', column '{column}': a picture {error}.") from error
