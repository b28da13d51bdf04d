"""Rows as users have them, numpy's or torch's: checked on the way in, of the same kind on the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.rows import ColumnSpec, Rows

LABEL = ColumnSpec("label", dtype=torch.int64)
TASK = ColumnSpec("task", dtype=torch.int64)
OWN = "own."
"""Stands before the names of users' columns inside a store, so that none can be mistaken for ours."""
TAKEN = ("images", "labels", "prototype")
TYPES = {
    str(each).removeprefix("torch."): each
    for each in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    )
}  # fmt: skip
"""What can be stored, by name."""


def tensor_of(name: str, value: Any) -> Tensor:
    """Anything array-like as a tensor of finite real numbers, without its history of gradients."""
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise UsageError(f"{name} must be an array or a tensor of real numbers; {short_repr(value)} was given.")
        try:
            value = torch.from_numpy(array.copy(order="C"))
        except (TypeError, ValueError):
            raise UsageError(f"{name} cannot be of type {array.dtype}; give one of {', '.join(TYPES)}.") from None
    tensor: Tensor = value.detach()
    if tensor.dtype not in TYPES.values():
        raise UsageError(f"{name} cannot be of type {tensor.dtype}; give one of {', '.join(TYPES)}.")
    if tensor.dim() == 0:
        raise UsageError(f"{name} must have one entry for each row; the single value {short_repr(value)} was given.")
    if tensor.is_floating_point():
        bad = (~tensor.isfinite()).flatten(1).any(1) if tensor.dim() > 1 else ~tensor.isfinite()
        if bool(bad.any()):
            first = int(bad.nonzero()[0])
            raise UsageError(
                f"{name} must be finite; row {first} of {len(tensor)} holds a NaN or an infinity. "
                "Remove or repair such rows; nothing was added."
            )
    return tensor


def labels_of(value: Any) -> Tensor:
    """Class numbers [n] as int64."""
    label = tensor_of("labels", value)
    if label.is_floating_point() or label.dtype == torch.bool or label.dim() != 1:
        raise UsageError(
            f"labels must be whole numbers [n], one for each row; {label.dtype} {list(label.shape)} was given. "
            "Number your classes first."
        )
    return label.to(torch.int64)


@dataclass(frozen=True)
class MemoryRowFormat:
    """The columns that the first rows had, which all later ones must have, and whether they were numpy's.

    >>> form, rows = MemoryRowFormat.of(np.zeros((2, 3), np.float32), [0, 1], {"logits": np.zeros((2, 4), np.float32)})
    >>> [field.name for field in form.fields], form.give(rows)["logits"].shape
    (['image', 'label', 'own.logits'], (2, 4))
    """

    fields: tuple[ColumnSpec, ...]
    numpy: bool

    @classmethod
    def of(cls, images: Any, labels: Any, columns: Mapping[str, Any]) -> tuple[MemoryRowFormat, Rows]:
        """The format of these rows, and the rows."""
        for name in columns:
            if name in TAKEN:
                raise UsageError(f"A column cannot be called '{name}': the memory has one of its own. Rename it.")
        rows = _rows(images, labels, columns)
        if rows["image"].dim() < 2:
            raise UsageError(
                f"images must be vectors [n, d] or images [n, c, h, w]; {list(rows['image'].shape)} was given."
            )
        fields = tuple(ColumnSpec(name, tuple(column.shape[1:]), column.dtype) for name, column in rows.items())
        return cls(fields, not isinstance(images, Tensor)), rows

    def read(self, images: Any, labels: Any, columns: Mapping[str, Any]) -> Rows:
        """Rows in this format, or a sentence on what is other than in the first ones."""
        own = [name for name in map(public, self.names) if name not in TAKEN]
        for name in own:
            if name not in columns:
                raise UsageError(f"The column '{name}' is missing: the first rows had {', '.join(own)}. Give it again.")
        for name in columns:
            if name not in own:
                had = ", ".join(own) or "no further columns"
                raise UsageError(f"The column '{name}' is new: the first rows had {had}. Give it from the first on.")
        rows = _rows(images, labels, columns)
        for field in self.fields:
            self._check(field, rows[field.name])
        return rows

    @property
    def names(self) -> list[str]:
        """Of the columns, as stores call them."""
        return [field.name for field in self.fields]

    def column(self, name: str, value: Any, amount: int) -> Tensor:
        """New values for a user's column of rows that are here already."""
        field = next((field for field in self.fields if field.name == OWN + name), None)
        if field is None:
            own = [public(each) for each in self.names if each.startswith(OWN)]
            raise UsageError(f"annotate gave '{name}', which is no column; there are {', '.join(own) or 'none'}.")
        column = tensor_of(name, value)
        if len(column) != amount:
            raise UsageError(f"annotate gave {len(column)} entries of '{name}' for {amount} images.")
        self._check(field, column)
        return column.to(field.dtype)

    def give(self, rows: Rows) -> dict[str, Any]:
        """Rows under the names, and of the kind, that users know."""
        known = {name: column for name, column in rows.items() if name in self.names or name == "prototype"}
        return {public(name): self.like_given(column) for name, column in known.items()}

    def like_given(self, column: Tensor) -> Any:
        """An array where arrays were given, a tensor otherwise."""
        return column.cpu().numpy() if self.numpy else column

    def _check(self, field: ColumnSpec, column: Tensor) -> None:
        name, shape = public(field.name), tuple(column.shape[1:])
        if shape != field.shape:
            raise UsageError(
                f"A row of {name} has the shape {list(shape)}, and in the first rows it had {list(field.shape)}. "
                "A memory keeps rows of one shape."
            )
        both = column.is_floating_point() and field.dtype.is_floating_point
        if column.dtype != field.dtype and not both:
            raise UsageError(
                f"{name} are {column.dtype}, and in the first rows they were {field.dtype}. Convert them first."
            )


def public(name: str) -> str:
    """What users call a column.

    >>> public("image"), public("own.logits")
    ('images', 'logits')
    """
    return {"image": "images", "label": "labels"}.get(name, name.removeprefix(OWN))


def _rows(images: Any, labels: Any, columns: Mapping[str, Any]) -> Rows:
    """Rows of equal number by the names of the store."""
    rows = {"image": tensor_of("images", images), "label": labels_of(labels)}
    rows |= {OWN + name: tensor_of(name, value) for name, value in columns.items()}
    amount = len(rows["image"])
    if amount == 0:
        raise UsageError("There are 0 rows to add; give 1 or more.")
    for name, column in rows.items():
        if len(column) != amount:
            raise UsageError(f"There are {amount} images and {len(column)} {public(name)}; give one for each row.")
    return rows
