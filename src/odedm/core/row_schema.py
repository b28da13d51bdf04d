"""What the first rows of a user were, which all later ones must be: the one reader of rows from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from odedm.core.array_inputs import Array, as_array, as_labels, check_same_length, is_frame
from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.rows import ColumnSpec, Rows

LABEL = ColumnSpec("label", dtype=torch.int64)
USER_PREFIX = "own."
"""Stands before the names of users' columns inside a store, so that none can be mistaken for ours."""
RESERVED_COLUMNS = ("images", "labels", "prototype")
TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    )
}  # fmt: skip
"""What can be stored, by name."""
CHANNELS = (1, 3, 4)
"""How many channels images commonly have: grey, RGB, RGBA."""


@dataclass(frozen=True)
class RowSchema:
    """The columns of a user's rows, with their shapes and types, which the first rows fix.

    A network's inputs are one column: images [n, c, h, w], uint8 or float32, or vectors [n, d], float32 (`of_inputs`,
    `read_inputs`). A memory's rows keep the types in which they came, and come back as arrays or tensors like the first
    ones (`of_rows`, `read_rows`, `to_user`).

    Args:
        columns: the images or vectors first.
        feature_names: of the columns of the first frame.
        numpy: whether the first rows were no tensors.
        labelled: whether the first rows came with labels; a store has 0 for rows without.

    >>> schema, rows = RowSchema.of_inputs([[1, 2], [3, 4]])
    >>> schema.shape, schema.dtype
    ((2,), torch.float32)
    >>> schema, rows = RowSchema.of_rows(np.zeros((2, 3)), [0, 1], {"logits": np.zeros((2, 4))})
    >>> schema.names, schema.to_user(rows)["logits"].shape
    (['image', 'label', 'own.logits'], (2, 4))
    """

    columns: tuple[ColumnSpec, ...]
    feature_names: tuple[str, ...] | None = None
    numpy: bool = True
    labelled: bool = True

    @classmethod
    def of_inputs(cls, x: Any, what: str = "x") -> tuple[RowSchema, Tensor]:
        """Return the schema of a network's inputs, and the inputs [n, ...]; `what` is their name in a sentence."""
        rows = _as_inputs(as_array(x, what), what)
        return cls((_column("image", rows),), _feature_names(x)), rows

    def read_inputs(self, x: Any, what: str = "x", *, copy: bool = True) -> Tensor:
        """Return inputs [n, ...] of this schema, or refuse them in a sentence; a tensor itself only without `copy`."""
        first = self.columns[0]
        if _is_stored_form(x, first):  # what a stream mostly brings takes no longer than a copy
            rows = x.detach()
            _check_finite(rows, what)
            return rows.clone() if copy else rows
        rows, names = _as_inputs(as_array(x, what), what), _feature_names(x)
        if names is not None or rows.dtype is not first.dtype or rows.shape[1:] != first.shape:
            self.check_inputs(RowSchema((_column("image", rows),), names), what)
        return rows

    def check_inputs(self, other: RowSchema, what: str) -> None:
        """Refuse inputs of another schema."""
        if self.feature_names is not None and other.feature_names is not None:
            _check_feature_names(self.feature_names, other.feature_names)
        _check_column(self.columns[0], other.columns[0], what)

    @classmethod
    def of_rows(cls, images: Any, labels: Any, columns: Mapping[str, Any]) -> tuple[RowSchema, Rows]:
        """Return the schema of a memory's rows, and the rows by the names of the store."""
        for name in columns:
            if name in RESERVED_COLUMNS:
                raise UsageError(f"A column cannot be called '{name}': the memory has one of its own. Rename it.")
        rows = _as_rows(images, labels, columns)
        if rows["image"].dim() < 2:
            shape = list(rows["image"].shape)
            raise UsageError(f"images must be vectors [n, d] or images [n, c, h, w]; their shape is {shape}.")
        columns_of = tuple(_column(name, value) for name, value in rows.items())
        return cls(columns_of, None, not isinstance(images, Tensor), labels is not None), rows

    def read_rows(self, images: Any, labels: Any, columns: Mapping[str, Any]) -> Rows:
        """Return rows of this schema by the names of the store, or refuse them in a sentence."""
        expected = self._user_columns()
        if different := {*expected} ^ {*columns}:
            name, known = min(different), ", ".join(expected) or "no further columns"
            what = "missing" if name in expected else "new"
            raise UsageError(f"The column '{name}' is {what}: the first rows had {known}. Give the same with all rows.")
        if (labels is not None) != self.labelled:
            have, had = ("have labels", "had none") if labels is not None else ("have no labels", "had some")
            raise UsageError(f"These rows {have}, and the first rows {had}. Give labels with all rows or with none.")
        rows = _as_rows(images, labels, columns)
        return {column.name: _cast(column, rows[column.name]) for column in self.columns}

    def read_column(self, name: str, value: Any, amount: int) -> Tensor:
        """Return new values [amount, ...] of a user's column for rows that are stored already."""
        known = self._user_columns()
        if name not in known:
            raise UsageError(f"annotate gave '{name}', which is no column; there are {', '.join(known) or 'none'}.")
        column = self.columns[self.names.index(USER_PREFIX + name)]
        values = as_tensor(value, name)
        if len(values) != amount:
            raise UsageError(f"annotate gave {len(values)} entries of '{name}' for {amount} images.")
        return _cast(column, values)

    def column_of(self, name: str) -> ColumnSpec:
        """Return the column that a user calls so, or refuse the name."""
        for column in self.columns:
            if public(column.name) == name:
                return column
        raise unknown_name_error("column", name, [public(column.name) for column in self.columns])

    def _user_columns(self) -> list[str]:
        return [name.removeprefix(USER_PREFIX) for name in self.names if name.startswith(USER_PREFIX)]

    @property
    def names(self) -> list[str]:
        """The columns as stores call them."""
        return [column.name for column in self.columns]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image or vector."""
        return self.columns[0].shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of images or vectors."""
        return self.columns[0].dtype

    def to_user(self, rows: Rows) -> dict[str, Any]:
        """Return rows under the names, and of the kind, that users know."""
        hidden = () if self.labelled else (LABEL.name,)
        names = {*self.names, "prototype"}.difference(hidden)
        known = {name: column for name, column in rows.items() if name in names}
        return {public(name): self.like_given(column) for name, column in known.items()}

    def like_given(self, column: Tensor) -> Any:
        """Return an array where arrays were given, a tensor otherwise."""
        return column.cpu().numpy() if self.numpy else column


def public(name: str) -> str:
    """Return what users call a column.

    >>> public("image"), public("own.logits")
    ('images', 'logits')
    """
    return {"image": "images", "label": "labels"}.get(name, name.removeprefix(USER_PREFIX))


def as_tensor(value: Any, what: str) -> Tensor:
    """Return anything array-like as a tensor of finite real numbers of its own type, without its gradients' history."""
    numbers = value if isinstance(value, Tensor) else as_array(value, what)
    if str(numbers.dtype).removeprefix("torch.") not in TYPES:
        raise UsageError(f"{what} cannot be of type {numbers.dtype}; give one of {', '.join(TYPES)}.")
    tensor = numbers.detach() if isinstance(numbers, Tensor) else torch.from_numpy(numbers.copy(order="C"))
    if tensor.dim() == 0:
        raise UsageError(f"{what} must have one entry for each row; the single value {short_repr(value)} was given.")
    _check_finite(tensor, what)
    return tensor


def _as_rows(images: Any, labels: Any, columns: Mapping[str, Any]) -> Rows:
    """Return rows of equal number by the names of the store."""
    image = as_tensor(images, "images")
    rows = {"image": image, "label": image.new_zeros(len(image), dtype=torch.int64)}
    if labels is not None:
        rows["label"] = _as_class_numbers(labels)
    rows |= {USER_PREFIX + name: as_tensor(value, name) for name, value in columns.items()}
    _check_any(rows["image"], "images")
    for name, column in rows.items():
        check_same_length(len(rows["image"]), len(column), "images", public(name))
    return rows


def _as_class_numbers(labels: Any) -> Tensor:
    if isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.dim() == 1:
        return labels.detach()
    array = as_labels(labels, "labels")
    if array.dtype.kind != "i":
        raise UsageError(f"labels must be whole numbers; {array.dtype} was given. Number your classes first.")
    return torch.from_numpy(array.astype(np.int64))


def _as_inputs(array: Array, what: str) -> Tensor:
    """Return images [n, c, h, w], uint8 or float32, or vectors [n, d], float32.

    >>> _as_inputs(np.zeros((2, 5, 4, 3)), "x").shape
    torch.Size([2, 3, 5, 4])
    """
    if array.ndim not in (2, 3, 4) or 0 in array.shape[1:]:
        single = f" One row alone is {what}[None]." if array.ndim == 1 and array.size else ""
        raise UsageError(
            f"{what} must be vectors [n, d] or images [n, h, w], [n, c, h, w] or [n, h, w, c], with none of them 0; "
            f"its shape is {list(array.shape)}.{single}"
        )
    _check_any(array, what)
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and _has_channels_last(*array.shape[1:]):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim == 4 and array.dtype == np.uint8:
        return torch.from_numpy(np.array(array, order="C"))
    with np.errstate(over="ignore"):  # values beyond float32 become inf and are refused with the others
        rows = torch.from_numpy(np.array(array, np.float32, order="C"))
    _check_finite(rows, what, cast=array.dtype != np.float32)
    return rows


def _has_channels_last(first: int, second: int, third: int) -> bool:
    """Return whether images of this shape are [h, w, c]: c is 1, 3 or 4, and [c, h, w] would look less like images.

    >>> [_has_channels_last(*shape) for shape in ((32, 32, 3), (5, 6, 3), (3, 32, 4), (12, 4, 4))]
    [True, True, False, False]
    """
    square_as_channels_first = second == third and first != second
    return third in CHANNELS and first not in CHANNELS and not square_as_channels_first


def _is_stored_form(x: Any, column: ColumnSpec) -> TypeGuard[Tensor]:
    """Return whether something is a tensor of rows just as a column has them."""
    if type(x) is not Tensor or x.dtype is not column.dtype or x.shape[1:] != column.shape or not x.shape[0]:
        return False
    return x.is_cpu and x.is_contiguous() and not (len(column.shape) == 3 and _has_channels_last(*column.shape))


def _column(name: str, values: Tensor) -> ColumnSpec:
    return ColumnSpec(name, tuple(values.shape[1:]), values.dtype)


def _cast(column: ColumnSpec, values: Tensor) -> Tensor:
    """Return values in the type of a column; what a float type cannot hold is refused."""
    name = public(column.name)
    _check_column(column, _column(column.name, values), name)
    cast = values.to(column.dtype)
    if cast.dtype != values.dtype:
        _check_finite(cast, name, cast=True)
    return cast


def _check_column(first: ColumnSpec, other: ColumnSpec, what: str) -> None:
    """Refuse rows of another shape or type than the first; a memory's floats may be of any width."""
    if other.shape != first.shape:
        raise UsageError(
            f"A row of {what} has the shape {list(other.shape)}, and in the first rows it had {list(first.shape)}. "
            "Rows must be of one shape."
        )
    floats = other.dtype.is_floating_point and first.dtype.is_floating_point
    if other.dtype != first.dtype and not floats:
        raise UsageError(
            f"{what} holds {_word(other.dtype)}, and in the first rows {_word(first.dtype)}. Convert it first."
        )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_any(rows: Tensor | Array, what: str) -> None:
    if not len(rows):
        raise UsageError(f"{what} has 0 rows; give 1 or more.")


def _check_finite(rows: Tensor, what: str, *, cast: bool = False) -> None:
    """Refuse rows with a NaN or an infinity, or that have one since they were cast to their type."""
    # the sum is infinite, or no number, if any row is; it takes a fifth of the time of a look at each number
    if not rows.is_floating_point() or math.isfinite(rows.sum()) or bool(rows.isfinite().all()):
        return
    bad = (~rows.isfinite()).reshape(len(rows), -1).any(1)
    stored_as = f", stored as {_word(rows.dtype)}" if cast else ""
    raise UsageError(
        f"{what} has a NaN or an infinity in {int(bad.sum())} of {len(rows)} rows, first in row "
        f"{int(bad.int().argmax())}{stored_as}. Remove or repair such rows."
    )


def _feature_names(x: Any) -> tuple[str, ...] | None:
    if not is_frame(x):
        return None
    names = tuple(x.columns)
    return names if all(isinstance(name, str) for name in names) else None


def _check_feature_names(first: tuple[str, ...], names: tuple[str, ...]) -> None:
    if first == names:
        return
    differences = [f"lacks {short_repr(name)}" for name in first if name not in names][:1]
    differences += [f"has {short_repr(name)}, which is new" for name in names if name not in first][:1]
    how = " and ".join(differences) or f"has its columns in another order: {short_repr([*names], 200)}"
    raise UsageError(
        f"The frame {how}; the first one had {short_repr([*first], 200)}. Give the same columns in the same order."
    )
