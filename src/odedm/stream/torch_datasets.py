"""Makes a data set of a torch Dataset or DataLoader, or of anything that gives (image, label) as these do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from odedm.core.array_inputs import Array, as_array
from odedm.core.errors import UsageError, describe_error, short_repr
from odedm.core.validators import refused
from odedm.stream.class_schedule import default_tasks
from odedm.stream.dataset import Dataset, as_class_labels, from_arrays

PLAIN_MODES = ("L", "RGB", "F", "I", "I;16")
"""Modes of PIL images whose numbers are those of pixels."""
DEEPEST = 10


def from_torch(
    data: Any,
    test: Any = None,
    *,
    tasks: int | None = None,
    test_share: float = 0.2,
    class_names: Sequence[str] | None = None,
    pad: int = 0,
    flip: bool = False,
    name: str = "torch",
    seed: int = 0,
) -> Dataset:
    """Return a data set from a torch Dataset or DataLoader; all its rows are read once, and held in memory.

    Images stay bytes, and small, where the data set gives PIL images or uint8: leave out ToTensor and Normalize, for
    rows are normalised here.

    Args:
        data: gives (image, label) by index or in turn, or batches of them: PIL images, arrays or tensors, all of one
            shape and type; labels are whole numbers or words.
        test: the same for testing; without it `test_share` of every class is held out.
        tasks: into how many tasks the classes are split; five where the classes allow it unless given.
        class_names: a name for each class in label order; the data set's own `classes` unless given.
        pad, flip, name, seed: as for `odedm.from_arrays`.

    Returns:
        The data set.

    >>> import torch
    >>> rows = torch.utils.data.TensorDataset(torch.rand(40, 3, 8, 8), torch.arange(40) % 4)
    >>> data = from_torch(torch.utils.data.DataLoader(rows, batch_size=16))
    >>> data.shape, data.classes, data.tasks, len(data.image)
    ((3, 8, 8), 4, 2, 32)
    """
    x, y = _stacked(data, "data")
    classes = np.unique(y)
    return from_arrays(
        x,
        y,
        tasks=default_tasks(len(classes)) if tasks is None else tasks,
        test=None if test is None else _stacked(test, "test"),
        test_share=test_share,
        class_names=_names(data, classes) if class_names is None else class_names,
        pad=pad,
        flip=flip,
        name=name,
        seed=seed,
    )


def _stacked(source: Any, what: str) -> tuple[Array, Array]:
    """Return every image and every label."""
    images: list[Array] = []
    labels: list[Any] = []
    for place, item in enumerate(_items(source, what)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UsageError(f"Item {place} of {what} must be (image, label); {short_repr(item)} was given.")
        label = item[1].tolist() if isinstance(item[1], Tensor | np.ndarray | np.generic) else item[1]
        is_batch = isinstance(label, list | tuple)
        image = _numbers(item[0], f"The image of item {place} of {what}", is_batch=is_batch)
        new_images, new_labels = (list(image), list(label)) if is_batch else ([image], [label])
        if len(new_images) != len(new_labels):
            raise UsageError(
                f"Item {place} of {what} has {len(new_images)} images but {len(new_labels)} labels; give one for each."
            )
        for array in new_images:
            first = images[0] if images else array
            if (array.shape, array.dtype) != (first.shape, first.dtype):
                raise UsageError(
                    f"Row {len(images)} of {what} is {array.shape} of {array.dtype}, the first one {first.shape} of "
                    f"{first.dtype}; resize and convert them to one form first."
                )
            images.append(array)
        labels += new_labels
    if not images:
        raise UsageError(f"{what} gives no rows.")
    return np.stack(images), as_class_labels(labels, f"y of {what}")


def _items(source: Any, what: str) -> Iterator[Any]:
    """Return the items in turn; what the data set of anyone raises becomes a sentence."""
    by_turn, by_index = hasattr(type(source), "__iter__"), hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if isinstance(source, str | bytes | dict | Tensor | np.ndarray) or not (by_turn or by_index):
        raise refused(what, "a Dataset or DataLoader of torch that gives (image, label)", source)
    place = 0
    try:
        for item in iter(source) if by_turn else (source[index] for index in range(len(source))):
            yield item
            place += 1
    except (UsageError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(f"Item {place} of {what} cannot be read ({describe_error(error)}).") from error


def _numbers(image: Any, what: str, *, is_batch: bool) -> Array:
    """Return an image, or a batch of images, as an array."""
    if is_batch and isinstance(image, list | tuple):
        return np.stack([_numbers(part, what, is_batch=False) for part in image]) if image else np.zeros((0,))
    if hasattr(image, "mode") and hasattr(image, "convert"):  # as PIL does it, which need not be here
        image = image.convert("L" if image.mode == "1" else "RGB") if image.mode not in PLAIN_MODES else image
        image = np.asarray(image)
        image = image.transpose(2, 0, 1) if image.ndim == 3 else image  # colours last is theirs, first is ours
    array = as_array(image, what)
    if array.ndim < (2 if is_batch else 1):
        raise UsageError(f"{what} is a single number: {short_repr(image)}.")
    return array


def _names(data: Any, classes: Array) -> list[str] | None:
    """Return the class names that a data set of torchvision's kind brings along, if they are for these labels."""
    for _ in range(DEEPEST):  # of a loader, or of a part of a part
        data = getattr(data, "dataset", data)
    names = getattr(data, "classes", None)
    fine = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if fine and names and classes.tolist() == list(range(len(names))) else None
