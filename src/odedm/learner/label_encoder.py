"""The labels of a stream as users name them, and the numbers that classes have by the order of their arrival."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.array_inputs import LABEL_KINDS, Array, as_labels, check_same_length
from odedm.core.errors import UsageError, short_repr


def read_labels(y: Any, rows: int) -> tuple[str, list[Any]]:
    """Return which kind of labels [n] these are, and the labels as plain values.

    >>> read_labels(np.array(["cat", "dog"]), 2)
    ('text', ['cat', 'dog'])
    """
    if type(y) is Tensor and y.dtype is torch.int64 and y.shape == (rows,) and rows:  # nothing in it to look for
        return LABEL_KINDS["i"], y.tolist()
    labels = as_labels(y)
    check_same_length(rows, len(labels))
    return LABEL_KINDS[labels.dtype.kind] if rows else "", labels.tolist()


def read_announced(classes: Any, kind: str) -> list[Any]:
    """Return the labels of classes that may come, which are of the kind of those that did."""
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise UsageError(f"classes must be a list of labels that may come; {short_repr(classes)} was given.")
    listed = list(classes)
    other, announced = read_labels(listed, len(listed))
    if announced and other != kind:
        raise UsageError(f"classes are {other} and the labels {kind}; give both of one type.")
    return announced


@dataclass(frozen=True)
class LabelEncoder:
    """The classes of a stream by arrival: the number of a class is its place among them. It never changes itself.

    >>> labels = LabelEncoder().joined("text", ["cat", "dog", "cat"])
    >>> labels.classes, labels.transform(["dog"]), labels.inverse_transform(np.array([1, 0])).tolist()
    (('cat', 'dog'), [1], ['dog', 'cat'])
    """

    kind: str = ""
    classes: tuple[Any, ...] = ()

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """The number of each class."""
        return {label: number for number, label in enumerate(self.classes)}

    @cached_property
    def order(self) -> list[int]:
        """The numbers of the classes by their sorted labels."""
        return sorted(range(len(self.classes)), key=self.classes.__getitem__)

    @cached_property
    def _array(self) -> Array:
        return np.array(self.classes)

    def check_kind(self, kind: str, values: list[Any]) -> None:
        """Refuse labels of another kind than the first ones."""
        if self.kind and kind and kind != self.kind:
            raise UsageError(
                f"The labels so far are {self.kind}, such as {short_repr(self.classes[0])}; these are {kind}, such as "
                f"{short_repr(values[0])}. Convert them first."
            )

    def knows(self, kind: str, values: list[Any]) -> bool:
        """Return whether all of these labels have come; refuse those of another kind than the first ones."""
        self.check_kind(kind, values)
        return all(map(self.numbers.__contains__, values))

    def joined(self, kind: str, values: Iterable[Any]) -> LabelEncoder:
        """Return the same with the labels that are new behind the others."""
        return LabelEncoder(kind, tuple(dict.fromkeys([*self.classes, *values])))

    def transform(self, values: list[Any]) -> list[int]:
        """Return the numbers of labels that are all known; `KeyError` else."""
        numbers = self.numbers
        return [numbers[label] for label in values]

    def inverse_transform(self, numbers: Array) -> Array:
        """Return the labels of class numbers, in the type in which they came."""
        return np.asarray(self._array[numbers])

    def sorted_classes(self) -> Array:
        """Return the labels [C], sorted."""
        return self.inverse_transform(np.array(self.order, dtype=np.int64))

    def number(self, label: Any) -> int:
        """Return the number of a label; -1 where it never came."""
        try:
            return self.numbers.get(label.item() if isinstance(label, np.generic) else label, -1)
        except TypeError:
            return -1
