"""Holds data sets in memory, images or vectors with labels, and makes them from arrays after checking these."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.accel.device import enough_memory
from odedm.core.array_inputs import Array, as_labels, check_same_length
from odedm.core.errors import UsageError
from odedm.core.held_out_rows import hold_out
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec
from odedm.core.text import counted, number_repeated, printable
from odedm.core.validators import Bool, Int, Share, Text, refused, validate_params
from odedm.stream.augment import Transform
from odedm.stream.class_schedule import check_split


@dataclass(frozen=True)
class Dataset:
    """Images or vectors with their labels, in a training and a test part; `odedm.from_arrays` checks and makes one.

    Args:
        name: what results call it.
        image: training rows: images [n, c, h, w], uint8 or float32, or vectors [n, d], float32.
        label: training labels [n], int64, from 0 to C - 1.
        test_image, test_label: the same of the test part, [m, ...] and [m].
        class_names: the C names, in label order; equal ones get numbers.
        transform: how rows become a network's inputs.
        tasks: into how many tasks the classes are split unless a number is given.
        task, test_task: in which task each row arrives [n] and is tested [m], where the data are a stream in their own
            order (`odedm.from_batches`); its rows are in the order in which they arrive.
        known_checksum: the checksum where it is known already, as of a cache: hashing gigabytes takes seconds.
        labels: the C labels as they were given, in label order, in which trained models answer; else the names.

    >>> from odedm.stream.synthetic import shapes
    >>> data = shapes(classes=6, tasks=3)
    >>> data.classes, data.shape, data.image.dtype, data.label.unique().tolist()
    (6, (3, 12, 12), torch.uint8, [0, 1, 2, 3, 4, 5])
    """

    name: str
    image: Tensor
    label: Tensor
    test_image: Tensor
    test_label: Tensor
    class_names: tuple[str, ...]
    transform: Transform
    tasks: int
    known_checksum: str | None = None
    task: Tensor | None = None
    test_task: Tensor | None = None
    labels: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", number_repeated(self.class_names))  # results tell classes apart by name

    def __repr__(self) -> str:
        rows = f"{counted(len(self.image), 'row')} and {len(self.test_image)} to test, {self.shape} each"
        classes = f"{counted(self.classes, 'class')} in {counted(self.tasks, 'task')}"
        return f"<Dataset '{printable(self.name)}': {rows}, {classes}>"

    @property
    def classes(self) -> int:
        """Return how many classes there are."""
        return len(self.class_names)

    def labels_of(self, names: Sequence[str]) -> list[Any]:
        """Return the labels, as they were given, of classes by their names.

        >>> data = from_arrays(np.eye(4).repeat(5, 0), np.arange(4).repeat(5), tasks=2, class_names=list("abcd"))
        >>> data.labels_of(["c", "a"])
        [2, 0]
        """
        label_of = dict(zip(self.class_names, self.labels or self.class_names, strict=True))
        return [label_of[name] for name in names]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one image or vector."""
        return tuple(self.image.shape[1:])

    @property
    def schema(self) -> RowSchema:
        """Return what rows must be that a network trained on these predicts."""
        return RowSchema((ColumnSpec("image", self.shape, self.image.dtype),))

    @cached_property
    def checksum(self) -> str:
        """Return a fingerprint of every training and test row, for a result's provenance."""
        if self.known_checksum is not None:
            return self.known_checksum
        digest = hashlib.blake2b(digest_size=16)
        order = [part for part in (self.task, self.test_task) if part is not None]
        for part in (self.image, self.label, self.test_image, self.test_label, *order):
            digest.update(f"{tuple(part.shape)}{part.dtype}".encode())
            for rows in part.split(4096):  # in chunks: a data set may be too large to be copied
                digest.update(rows.contiguous().numpy().reshape(-1).view(np.uint8))
        return digest.hexdigest()


def standardise(image: Tensor, *, pad: int = 0, flip: bool = False) -> Transform:
    """Return the transform that gives every channel of images, or every feature, mean 0 and deviation 1."""
    if (pad or flip) and image.dim() != 4:
        raise UsageError("pad and flip are for images; the rows are vectors. Leave both out.")
    return constants(image, *statistics(image), pad=pad, flip=flip)


def statistics(image: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each channel of images [n, c, h, w], or feature of vectors [n, d]; bytes are 0 to 1.

    >>> statistics(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    (tensor([0.5000], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    over, wide = ((0, 2, 3), (-1, 1, 1)) if image.dim() == 4 else ((0,), (-1,))
    number = image.numel() // image.shape[1]
    # in parts: a data set of bytes is too large to be copied as doubles
    parts = image.split(max(1, min(4096, (1 << 25) // image[0].numel())))
    mean = torch.stack([part.double().sum(over) for part in parts]).sum(0) / number
    centre = mean.view(wide)
    square = torch.stack([(part.double() - centre).square().sum(over) for part in parts]).sum(0)
    deviation, unit = (square / number).sqrt(), _unit(image)
    # a column that is one number but for rounding counts as constant
    return mean / unit, (deviation / unit).where(deviation > 1e-12 * mean.abs(), 1.0)


def _unit(image: Tensor) -> float:
    return 255.0 if image.dtype == torch.uint8 else 1.0


def constants(image: Tensor, mean: Tensor, deviation: Tensor, *, pad: int = 0, flip: bool = False) -> Transform:
    """Return a transform of such images, or vectors, by means and deviations as `statistics` gives them."""
    shape, unit = ((-1, 1, 1) if image.dim() == 4 else (-1,)), _unit(image)
    shift, scale = (mean * unit).float().view(shape), (1 / (deviation * unit)).float().view(shape)
    return Transform(shift, scale, pad, flip)


@enough_memory()
@validate_params(tasks=Int(), test_share=Share(), pad=Int(0, 1000), flip=Bool(), name=Text(), seed=Int())
def from_arrays(
    x: Any,
    y: Any,
    *,
    tasks: int,
    test: tuple[Any, Any] | None = None,
    test_share: float = 0.2,
    class_names: Sequence[str] | None = None,
    pad: int = 0,
    flip: bool = False,
    name: str = "arrays",
    seed: int = 0,
) -> Dataset:
    """Return a data set from your own arrays, tensors or lists.

    Args:
        x: vectors [n, d], or images [n, h, w], [n, c, h, w] or, with c = 1, 3 or 4, [n, h, w, c]. What could be
            either has its channels first where they are 1, 3 or 4, or only then are the images square. uint8 images
            are stored as they are, everything else as float32.
        y: one label per row [n]: integers or strings, numbered in sorted order.
        tasks: into how many tasks the classes are split; it divides their number.
        test: a pair (x, y) for testing, of the same shapes and classes.
        test_share: without `test`, the share of every class that is held out, between 0 and 1.
        class_names: a name for each class in label order; the labels themselves unless given.
        pad, flip: training views of images: crops after padding by so many pixels, mirror images half of the time.
        name: what results call it.
        seed: which rows are held out.

    Returns:
        The data set, normalised by the mean and deviation of its training rows.

    >>> data = from_arrays(np.eye(8).repeat(5, 0), np.arange(8).repeat(5), tasks=4)
    >>> data.classes, len(data.image), len(data.test_image)
    (8, 32, 8)
    """
    schema, image = RowSchema.of_inputs(x)
    label = as_class_labels(y)
    check_same_length(len(image), len(label))
    names = np.unique(label)
    check_split(len(names), tasks)
    if class_names is not None:
        if np.ndim(class_names) != 1 or not all(isinstance(title, str) for title in class_names):
            raise refused("class_names", "a list of names", class_names)
        if len(class_names) != len(names):
            raise UsageError(f"{len(class_names)} class names were given for {len(names)} classes; give one for each.")
    number = torch.from_numpy(np.searchsorted(names, label))
    if test is None:
        keep, held = _hold_out(number, names, test_share, seed)
        image, number, test_image, test_number = image[keep], number[keep], image[held], number[held]
    else:
        test_image, test_number = _test_part(test, names, schema)
    titles = tuple(map(str, names if class_names is None else class_names))
    transform = standardise(image, pad=pad, flip=flip)
    labels = tuple(names.tolist())
    return Dataset(name, image, number, test_image, test_number, titles, transform, tasks, labels=labels)


def as_class_labels(y: Any, what: str = "y") -> Array:
    """Return labels [n] of classes, whole numbers or text; floats without a fraction are whole numbers."""
    label = as_labels(y, what)
    if not label.size:
        raise UsageError(f"{what} has 0 labels; give one label for each row.")
    if label.dtype.kind == "f":
        if not (np.array_equal(label, np.floor(label)) and np.abs(label).max() < 2**53):
            raise UsageError(f"{what} must hold whole numbers or text; it holds fractions, or numbers too large.")
        label = label.astype(np.int64)
    return label


def _hold_out(number: Tensor, names: Array, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return rows to train on and rows to test on, of each class."""
    keep, held = hold_out_of_each(number, share, generator(seed, "hold out"))
    tested = number[held].bincount(minlength=len(names))
    if not bool(tested.all()):
        name = names[int(tested.argmin())]
        raise UsageError(
            f"Class '{name}' has a single row, so none can be held out for testing; give test rows, test=(x, y), or "
            "x_test and y_test in a file."
        )
    return keep, held


def hold_out_of_each(group: Tensor, share: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the places of rows to learn from and of a share of each group [n] to test on, in the order of the rows.

    A group of one row has none to spare.

    >>> keep, held = hold_out_of_each(torch.tensor([0, 1, 0, 1, 2]), 0.5, torch.Generator())
    >>> sorted([*keep.tolist(), *held.tolist()]), len(held)
    ([0, 1, 2, 3, 4], 2)
    """
    kept: list[int] = []
    held: list[int] = []
    for rows in group.argsort(stable=True).split(group.unique(return_counts=True)[1].tolist()):
        trained, tested = hold_out(rows[torch.randperm(len(rows), generator=rng)].tolist(), share)
        kept += trained
        held += tested
    return torch.tensor(sorted(kept)), torch.tensor(sorted(held), dtype=torch.int64)


def rows_to_test(pair: Any, schema: RowSchema) -> tuple[Tensor, Array]:
    """Return test rows, of the schema of the others, and their labels."""
    image, label = schema.read_inputs(pair[0], "The test x"), as_class_labels(pair[1], "The test y")
    check_same_length(len(image), len(label), "The test x", "the test y")
    return image, label


def _test_part(test: tuple[Any, Any], names: Array, schema: RowSchema) -> tuple[Tensor, Tensor]:
    if not isinstance(test, Sequence) or len(test) != 2:
        raise refused("test", "a pair (x, y)", test)
    test_image, test_label = rows_to_test(test, schema)
    tested, known = set(test_label.tolist()), set(names.tolist())
    if tested != known:
        strange, missing = sorted(tested - known), sorted(known - tested)
        which = f"has labels that training lacks: {strange[:5]}" if strange else f"lacks the labels {missing[:5]}"
        raise UsageError(f"The test y {which}; both parts must hold the same classes.")
    return test_image, torch.from_numpy(np.searchsorted(names, test_label))
