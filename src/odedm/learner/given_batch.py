"""Batches as users have them: arrays, tensors or frames with labels of one type, checked before anything is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.given_arrays import Array, array_of, check_texts
from odedm.stream.given_images import in_stored_type, stored_rows

KINDS: dict[type, str] = {str: "text", bool: "true or false", int: "whole numbers", float: "numbers"}
"""What labels can be; all of a stream are of one kind."""


@dataclass(frozen=True)
class LearnerRowForm:
    """What the first rows were, which all later ones must be: their shape, how they are stored, names of features.

    >>> form, rows = LearnerRowForm.of([[1, 2], [3, 4]])
    >>> form.shape, rows.dtype
    ((2,), torch.float32)
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, x: Any) -> tuple[LearnerRowForm, Tensor]:
        """The form of these rows, and the rows."""
        rows, names = _rows(x)
        return cls(tuple(rows.shape[1:]), rows.dtype, names), rows

    def read(self, x: Any) -> Tensor:
        """Rows of this form, or a sentence on what is other than in the first ones."""
        rows, names = _rows(x)
        if self.names is not None and names is not None:
            _check_names(self.names, names)
        if tuple(rows.shape[1:]) != self.shape:
            raise UsageError(
                f"The first rows had the shape {list(self.shape)}; these have {list(rows.shape[1:])}. A learner takes "
                "rows of one shape."
            )
        rows = in_stored_type(rows, self.dtype)
        if rows.dtype != self.dtype:
            kinds = {torch.uint8: "uint8 from 0 to 255", torch.float32: "floats"}
            what = "images" if len(self.shape) == 3 else "rows"
            raise UsageError(
                f"The first {what} were {kinds[self.dtype]}; these are {kinds[rows.dtype]}. Convert them first."
            )
        return rows


def _rows(x: Any) -> tuple[Tensor, tuple[str, ...] | None]:
    """Rows as they are stored, and the names of their columns where they are a frame's."""
    array, names = _array(x)
    if array.ndim == 1 and array.size and array.dtype.kind in "buif":
        raise UsageError(f"x must be vectors or images; its shape is {list(array.shape)}. One row alone is x[None].")
    return stored_rows(array, "x", "; nothing was done"), names


def _array(x: Any) -> tuple[Array, tuple[str, ...] | None]:
    """Anything array-like, and the names of its columns where it is a frame."""
    if not isinstance(x, Tensor) and hasattr(x, "columns") and hasattr(x, "to_numpy"):
        labels = list(x.columns)
        names = tuple(labels) if all(isinstance(each, str) for each in labels) else None
        array = np.asarray(x.to_numpy())
        return (array if array.dtype.kind in "buif" else _by_column(x, labels)), names
    if hasattr(x, "toarray"):
        raise UsageError("x is a sparse matrix; sparse rows are not supported. Give x.toarray().")
    array = array_of(x, "x")
    try:
        return (array.astype(np.float64) if array.dtype == object else array), None
    except Exception as error:  # objects of anyone's
        raise UsageError(f"x is not an array: {short_repr(str(error), 200)}.") from None


def _by_column(frame: Any, labels: list[Any]) -> Array:
    """A frame of columns of several types as numbers; one that is none is named."""
    columns = []
    for place, label in enumerate(labels):
        try:
            columns.append(np.asarray(frame.iloc[:, place].to_numpy(), dtype=np.float64))
        except (TypeError, ValueError, AttributeError):
            raise UsageError(
                f"The column {short_repr(label)} does not hold numbers alone. Turn it into numbers, fill what is "
                "missing, or leave it out from the first batch on."
            ) from None
    return np.stack(columns, 1)


def _check_names(first: tuple[str, ...], names: tuple[str, ...]) -> None:
    missing, new = [each for each in first if each not in names], [each for each in names if each not in first]
    if missing or new:
        lacks = [f"lacks {short_repr(missing[0])}"] if missing else []
        has = [f"has {short_repr(new[0])}, which is new"] if new else []
        raise UsageError(
            f"The frame {' and '.join([*lacks, *has])}; the first one had {short_repr(list(first), 200)}. Give the "
            "same columns in the same order; nothing was done."
        )
    if first != names:
        place = next(i for i, (one, other) in enumerate(zip(first, names, strict=False)) if one != other)
        raise UsageError(
            f"The frame's columns are in another order: {short_repr(names[place])} where {short_repr(first[place])} "
            "was. Give them in the order of the first frame; nothing was done."
        )


def read_labels(y: Any, rows: int) -> tuple[str, list[Any]]:
    """Which kind of labels [n] these are, and the labels as plain values; mixed or missing ones are refused.

    >>> read_labels(np.array(["cat", "dog"]), 2)
    ('text', ['cat', 'dog'])
    """
    if isinstance(y, Tensor) or hasattr(y, "__array__"):
        given = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
        if given.ndim != 1:
            raise UsageError(f"y must be one label for each row, [n]; its shape is {list(given.shape)}.")
        values = given.tolist()
        if given.dtype.kind in "iu" and len(values) == rows:  # nothing among them to look for
            return KINDS[int], values
    elif isinstance(y, list | tuple):
        values = [each.item() if isinstance(each, np.generic | Tensor) and each.ndim == 0 else each for each in y]
    else:
        raise UsageError(f"y must be a list or an array of labels, one for each row; {short_repr(y)} was given.")
    if len(values) != rows:
        raise UsageError(f"x has {rows} rows and y {len(values)} labels; give one label for each row.")
    values = [str(each) if isinstance(each, str) else each for each in values]
    check_texts(values, "y")
    kinds = {type(each): place for place, each in reversed(list(enumerate(values)))}
    for kind, place in kinds.items():
        if kind not in KINDS or (kind is float and any(isinstance(v, float) and not math.isfinite(v) for v in values)):
            bad = place if kind not in KINDS else next(i for i, v in enumerate(values) if not _finite(v))
            raise UsageError(
                f"The label of row {bad} is {short_repr(values[bad])}; labels are text, whole numbers, numbers, or "
                "true and false. Leave rows without a label out; nothing was done."
            )
    if set(kinds) == {int, float}:
        values, kinds = [float(each) for each in values], {float: 0}
    if len(kinds) > 1:
        first, other = sorted(kinds.items(), key=lambda each: each[1])[:2]
        raise UsageError(
            f"Labels must be of one type: row {first[1]} has {KINDS[first[0]]} ({short_repr(values[first[1]])}), row "
            f"{other[1]} {KINDS[other[0]]} ({short_repr(values[other[1]])}). Convert them to one; nothing was done."
        )
    return (KINDS[next(iter(kinds))] if kinds else ""), values


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


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
        """The labels that are not here yet, by arrival; those of another kind than the first ones are refused."""
        if self.kind and kind != self.kind:
            raise UsageError(
                f"The labels so far are {self.kind}, such as {short_repr(self.names[0])}; these are {kind}, such as "
                f"{short_repr(values[0])}. Convert them first; nothing was done."
            )
        return list(dict.fromkeys(each for each in values if each not in self._places))

    def join(self, kind: str, values: list[Any]) -> None:
        """Give every new label a number."""
        for each in self.new(kind, values):
            self._places[each] = len(self.names)
            self.names.append(each)
        self.kind = kind

    def numbers(self, labels: list[Any]) -> list[int]:
        """The places of labels that are all here."""
        return [self._places[label] for label in labels]

    def order(self) -> list[int]:
        """The numbers of the classes by their sorted labels."""
        return sorted(range(len(self.names)), key=self.names.__getitem__)

    def number(self, label: Any) -> int:
        """The place of a label; -1 where it never came."""
        try:
            plain = label.item() if isinstance(label, np.generic) else label
            return self._places.get(plain, -1)
        except TypeError:
            return -1
