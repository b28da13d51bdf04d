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
LABEL_TYPES: dict[str, type] = {"U": str, "b": bool, "i": np.int64, "f": np.float64}
PYTHON_TYPES = {str: "U", bool: "b", int: "i", float: "f"}


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
        except Exception:  # a value's own conversion may raise anything
            pass
    if kind not in "buif":
        dtype = array.dtype if array.ndim else type(x).__name__
        raise UsageError(
            f"{what} must hold numbers; it holds {dtype}. Turn categories, dates and text into numbers first."
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
            column = np.asarray(frame.iloc[:, place].to_numpy())
            if column.dtype.kind in "mM":
                raise TypeError
            columns.append(column.astype(np.float64))
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
        labels = as_array(y, what)
    elif hasattr(y, "__array__"):
        labels = np.asarray(y)
    elif isinstance(y, list | tuple | range):
        labels = _array_of_values([*y], what)
    else:
        raise UsageError(
            f"{what} must be a list or an array of labels, one label for each row; {short_repr(y)} was given."
        )
    if labels.ndim != 1:
        raise UsageError(f"{what} must be one label for each row, [n]; its shape is {list(labels.shape)}.")
    if labels.dtype.kind == "O":
        labels = _array_of_values(labels.tolist(), what)
    kind = "i" if labels.dtype.kind == "u" else labels.dtype.kind
    if kind not in LABEL_KINDS:
        raise UsageError(f"{what} must hold whole numbers, numbers, text, or true and false; it holds {labels.dtype}.")
    wrong = ~np.isfinite(labels) if kind == "f" else np.zeros(0, bool)
    if labels.dtype == np.uint64:
        wrong = labels > np.iinfo(np.int64).max
    if wrong.any():
        raise _refused_label(labels.tolist(), int(wrong.argmax()), what)
    return labels.astype(LABEL_TYPES[kind], copy=False) if kind in "if" else labels


def check_same_length(rows: int, values: int, x: str = "x", y: str = "y") -> None:
    """Refuse labels, or other values, that are not as many as the rows.

    >>> check_same_length(10, 7)
    Traceback (most recent call last):
    odedm.UsageError: x has 10 rows but y has 7; give one for each row.
    """
    if rows != values:
        raise UsageError(f"{x} has {rows} rows but {y} has {values}; give one for each row.")


def _array_of_values(values: list[Any], what: str) -> Array:
    """Return plain values as an array of one type: numpy itself would turn [1, 'a'] into text."""
    plain = [value.item() if isinstance(value, np.generic | Tensor) and value.ndim == 0 else value for value in values]
    for row, value in enumerate(plain):
        legal = math.isfinite(value) if type(value) is float else type(value) in PYTHON_TYPES
        if not legal or (type(value) is int and not -(2**63) <= value < 2**63):
            raise _refused_label(plain, row, what)
    types = [*dict.fromkeys(map(type, plain))] or [int]
    if len(types) > 1 and {*types} != {int, float}:
        rows = [next(row for row, value in enumerate(plain) if type(value) is kind) for kind in types[:2]]
        first, other = (f"{LABEL_KINDS[PYTHON_TYPES[type(plain[row])]]} ({short_repr(plain[row])})" for row in rows)
        raise UsageError(
            f"Labels must be of one type: row {rows[0]} has {first}, row {rows[1]} {other}. Convert them to one."
        )
    return np.array(plain, dtype=LABEL_TYPES["f" if float in types else PYTHON_TYPES[types[0]]])


def _refused_label(values: list[Any], row: int, what: str) -> UsageError:
    return UsageError(
        f"The label of row {row} of {what} is {short_repr(values[row])}; labels are text, whole numbers of 64 bits, "
        "finite numbers, or true and false. Leave rows without a label out."
    )
