"""The labels of a stream as users name them, and the numbers that classes have by the order of their arrival."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from odedm.core.array_inputs import LABEL_KINDS, Array, as_labels, check_same_length
from odedm.core.errors import UsageError, short_repr


def read_labels(y: Any, rows: int) -> tuple[str, list[Any]]:
    """Return which kind of labels [n] these are, and the labels as plain values.

    >>> read_labels(np.array(["cat", "dog"]), 2)
    ('text', ['cat', 'dog'])
    """
    labels = as_labels(y)
    check_same_length(rows, len(labels))
    return LABEL_KINDS[labels.dtype.kind] if rows else "", labels.tolist()


@dataclass
class LabelNames:
    """The labels of a stream by the order in which they came: the number of a class is its place here.

    >>> known = LabelNames()
    >>> known.join("text", ["cat", "dog", "cat"])
    >>> known.names, known.number("dog")
    (['cat', 'dog'], 1)
    """

    kind: str = ""
    names: list[Any] = field(default_factory=list)
    _places: dict[Any, int] = field(default_factory=dict, repr=False)

    def new(self, kind: str, values: list[Any]) -> list[Any]:
        """Return the labels that are not here yet, by arrival; refuse those of another kind than the first ones."""
        if self.kind and kind != self.kind:
            raise UsageError(
                f"The labels so far are {self.kind}, such as {short_repr(self.names[0])}; these are {kind}, such as "
                f"{short_repr(values[0])}. Convert them first."
            )
        return list(dict.fromkeys(label for label in values if label not in self._places))

    def join(self, kind: str, values: list[Any]) -> None:
        """Give every new label a number."""
        for label in self.new(kind, values):
            self._places[label] = len(self.names)
            self.names.append(label)
        self.kind = kind

    def numbers(self, labels: list[Any]) -> list[int]:
        """Return the places of labels that are all here."""
        return [self._places[label] for label in labels]

    def order(self) -> list[int]:
        """Return the numbers of the classes by their sorted labels."""
        return sorted(range(len(self.names)), key=self.names.__getitem__)

    def array(self) -> Array:
        """Return the labels [C] in the type in which they came."""
        return np.array(self.names)

    def number(self, label: Any) -> int:
        """Return the place of a label; -1 where it never came."""
        try:
            plain = label.item() if isinstance(label, np.generic) else label
            return self._places.get(plain, -1)
        except TypeError:
            return -1
