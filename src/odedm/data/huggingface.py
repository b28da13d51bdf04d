"""Hugging Face data sets saved on disk, read by the optional `datasets` package; pictures by our own decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.archives import Folder
from odedm.data.arrays import from_rows
from odedm.data.decoded import Array, Arrays
from odedm.data.images import BadPicture, Fit, NotGrey, decode, need_pillow, probe

MARKS = ("dataset_dict.json", "state.json")
TESTS = ("test", "validation", "valid", "val")


def is_saved_dataset(path: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return any((path / mark).is_file() for mark in MARKS)


def load_saved(path: Path, *, size: int | None = None, seed: int = 0, test_share: float = 0.2) -> Arrays:
    """The pictures or vectors and the labels of a saved data set; without a test part a share is held out."""
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise UsageError(
            "A saved Hugging Face data set needs their package: pip install 'odedm[huggingface]'."
        ) from error
    _ = Folder(path).sizes  # refuses links and the like before anything is read
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # another package reads untrusted files: whatever it raises, the data set is bad
        raise UsageError(f"'{path}' cannot be read as a saved data set ({type(error).__name__}: {error}).") from error
    parts = dict(saved) if isinstance(saved, dict) else {"train": saved}
    if "train" not in parts:
        raise UsageError(f"'{path}' has the parts {', '.join(parts)}; 'train' is needed.")
    train = parts["train"]
    column, label = _columns(train, datasets, path)
    test = next((parts[name] for name in TESTS if name in parts), None)
    rows = _rows(train, column, datasets, size, path)
    held = None if test is None else (_rows(test, column, datasets, size, path), np.array(test[label]))
    names = getattr(train.features[label], "names", None)
    numbers = np.array(train[label])
    if names and set(numbers.tolist()) != set(range(len(names))):
        raise UsageError(f"'{path}': the labels in '{label}' are not all of 0 to {len(names) - 1}.")
    return from_rows(path, "Hugging Face", rows, numbers, held, names, seed=seed, test_share=test_share)


def _columns(part: Any, datasets: Any, path: Path) -> tuple[str, str]:
    features = part.features
    images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    labels = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    labels = labels or [name for name in ("label", "labels", "fine_label") if name in features]
    images = images or [name for name in ("image", "img", "x", "features") if name in features]
    wanted = "fine_label" if "fine_label" in labels else next(iter(labels), None)
    if not images or wanted is None:
        raise UsageError(
            f"'{path}' has the columns {', '.join(features)}; one of pictures and one of labels are needed."
        )
    return images[0], wanted


def _rows(part: Any, column: str, datasets: Any, size: int | None, path: Path) -> Array:
    if not isinstance(part.features[column], datasets.Image):
        return np.array(part.with_format("numpy")[column])
    need_pillow()
    found = part.cast_column(column, datasets.Image(decode=False))[column]
    contents = [_bytes(each, column, row, path) for row, each in enumerate(found)]
    try:
        channels, height, width = probe(contents[0])
        side = (size, size) if size else (height, width)
        try:
            return _decoded(contents, Fit(channels, *side, size))
        except NotGrey:
            return _decoded(contents, Fit(3, *side, size))
    except BadPicture as error:
        raise UsageError(f"'{path}', column '{column}': a picture {error}.") from error


def _bytes(cell: Any, column: str, row: int, path: Path) -> bytes:
    if not isinstance(cell, dict) or not isinstance(cell.get("bytes"), bytes):
        raise UsageError(f"'{path}', column '{column}', row {row}: the picture lies outside; embed it and save again.")
    content: bytes = cell["bytes"]
    return content


def _decoded(contents: list[bytes], fit: Fit) -> Array:
    return np.stack([decode(content, fit) for content in contents])
