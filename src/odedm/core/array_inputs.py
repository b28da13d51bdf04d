"""Reads what users give, arrays, tensors, lists and frames: numbers by `as_array`, labels by `as_labels`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr

Array = np.ndarray[Any, Any]

LABEL_KINDS = {"U": "text", "b": "true or false", "i": "whole numbers", "f": "numbers"}
"""What labels can be, by the kind of their array; all of a stream are of one kind."""
_KIND_OF_TYPE = {str: "U", bool: "b", int: "i", float: "f"}


def as_array(x: Any, what: str) -> Array:
    """Return anything array-like as an array of real numbers of its own type; `what` is its name in a sentence.

    >>> as_array([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if is_frame(x):
        return _frame_as_array(x)
    if hasattr(x, "toarray"):
        raise UsageError(f"{what} is a sparse matrix; sparse rows are not supported. Give {what}.toarray().")
    try:
        if isinstance(x, Tensor):
            x = x.detach().cpu()
            x = x.float() if x.dtype == torch.bfloat16 else x
        array = np.asarray(x)
    except Exception as error:  # lists of lists, and objects of anyone's
        raise UsageError(f"{what} is not an array: {' '.join(str(error).split())[:200]}.") from None
    kind = array.dtype.kind
    if kind == "O" and not any(isinstance(value, np.datetime64 | np.timedelta64) for value in array.flat):
        try:
            return array.astype(np.float64)
        except Exception:
            pass
    if kind not in "buif":
        raise UsageError(
            f"{what} must hold numbers; it holds {array.dtype}. Turn categories, dates and text into numbers first."
        )
    return array


def is_frame(x: Any) -> bool:
    """Return whether something is a table with named columns, as pandas and polars have them."""
    return not isinstance(x, Tensor | np.ndarray) and hasattr(x, "columns") and hasattr(x, "to_numpy")


def _frame_as_array(frame: Any) -> Array:
    """Return a frame as numbers; a column that holds none is named."""
    array = np.asarray(frame.to_numpy())
    if array.dtype.kind in "buif":
        return array
    columns = []
    for place, name in enumerate(frame.columns):
        try:
            column = frame.iloc[:, place].to_numpy()
            if np.asarray(column).dtype.kind in "mM":
                raise TypeError("dates are no numbers")
            columns.append(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError, AttributeError):
            raise UsageError(
                f"The column {short_repr(name)} does not hold numbers alone. Turn it into numbers, fill what is "
                "missing, or leave it out from the first batch on."
            ) from None
    return np.stack(columns, 1)


def as_labels(y: Any, what: str = "y") -> Array:
    """Return labels [n] as an array of text, bools, int64 or float64; mixed, missing and other ones are refused.

    >>> as_labels(["cat", "dog"]).tolist(), as_labels([1, 2.5]).tolist()
    (['cat', 'dog'], [1.0, 2.5])
    """
    if isinstance(y, Tensor):
        label = as_array(y, what)
    elif hasattr(y, "__array__"):
        label = np.asarray(y)
    elif isinstance(y, list | tuple | range):
        label = _array_of_values(y, what) if len(y) else np.zeros(0, np.int64)
    else:
        raise UsageError(
            f"{what} must be a list or an array of labels, one label for each row; {short_repr(y)} was given."
        )
    if label.ndim != 1:
        raise UsageError(f"{what} must be one label for each row, [n]; its shape is {list(label.shape)}.")
    if label.dtype.kind == "O":
        label = _array_of_values(label.tolist(), what)
    if label.dtype.kind in "iu":
        if label.dtype == np.uint64 and label.size and label.max() > np.iinfo(np.int64).max:
            raise _refused_label(label.tolist(), int(label.argmax()), what)
        label = label.astype(np.int64, copy=False)
    if label.dtype.kind == "f":
        _check_finite(label.tolist(), what)
        label = label.astype(np.float64)
    if label.dtype.kind not in LABEL_KINDS:
        raise UsageError(f"{what} must hold whole numbers, numbers, text, or true and false; it holds {label.dtype}.")
    return label


def check_same_length(rows: int, values: int, x: str = "x", y: str = "y") -> None:
    """Refuse labels, or other values, that are not as many as the rows.

    >>> check_same_length(10, 7)
    Traceback (most recent call last):
    odedm.UsageError: x has 10 rows but y has 7; give one for each row.
    """
    if rows != values:
        raise UsageError(f"{x} has {rows} rows but {y} has {values}; give one for each row.")


def _array_of_values(given: Any, what: str) -> Array:
    """Return plain values as an array of one type: numpy itself would turn [1, 'a'] into text."""
    values = [value.item() if isinstance(value, np.generic | Tensor) and value.ndim == 0 else value for value in given]
    values = [str(value) if isinstance(value, str) else value for value in values]
    first: dict[type, int] = {}
    for place, value in enumerate(values):
        first.setdefault(type(value), place)
    for kind, place in first.items():
        if kind not in _KIND_OF_TYPE:
            raise _refused_label(values, place, what)
    if float in first:
        _check_finite(values, what)
    if set(first) == {int, float}:
        first = {float: 0}
    if len(first) > 1:
        (one, at), (other, later) = [*first.items()][:2]
        raise UsageError(
            f"Labels must be of one type: row {at} has {_word(one)} ({short_repr(values[at])}), row {later} "
            f"{_word(other)} ({short_repr(values[later])}). Convert them to one."
        )
    kind = next(iter(first))
    for place, value in enumerate(values):
        ends_in_nul = isinstance(value, str) and value.endswith("\0")
        if ends_in_nul or (kind is int and not -(2**63) <= value < 2**63):
            raise _refused_label(values, place, what)
    return np.array(values, dtype={int: np.int64, float: np.float64}.get(kind, kind))


def _check_finite(values: list[Any], what: str) -> None:
    for place, value in enumerate(values):
        if isinstance(value, float) and not math.isfinite(value):
            raise _refused_label(values, place, what)


def _word(kind: type) -> str:
    return LABEL_KINDS[_KIND_OF_TYPE[kind]]


def _refused_label(values: list[Any], place: int, what: str) -> UsageError:
    return UsageError(
        f"The label of row {place} of {what} is {short_repr(values[place])}; labels are text that does not end in a "
        "NUL, whole numbers of 64 bits, finite numbers, or true and false. Leave rows without a label out."
    )
