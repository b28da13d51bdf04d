"""Rows as users give them, checked, and turned into what is stored: images [n, c, h, w] or vectors [n, d]."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.given_arrays import Array

CHANNELS = (1, 3, 4)
"""How many channels images commonly have: grey, RGB, RGBA."""


def stored_rows(array: Array, what: str, unharmed: str = "") -> Tensor:
    """Rows as they are stored: images [n, c, h, w], uint8 or float32, or vectors [n, d], float32.

    `unharmed` is what a sentence on bad rows ends with, where it is good to know that nothing has happened.

    >>> stored_rows(np.zeros((2, 5, 4, 3)), "x").shape
    torch.Size([2, 3, 5, 4])
    """
    if array.dtype.kind not in "buif":
        raise UsageError(
            f"{what} must hold numbers; it holds {array.dtype}. Turn categories and text into numbers first."
        )
    if array.ndim not in (2, 3, 4) or 0 in array.shape[1:]:
        raise UsageError(
            f"{what} must be vectors [n, d] or images [n, h, w], [n, c, h, w] or [n, h, w, c], with none of them 0; "
            f"its shape is {list(array.shape)}."
        )
    if not len(array):
        raise UsageError(f"{what} has 0 rows; give 1 or more.")
    if array.ndim == 2 or array.dtype != np.uint8:
        if array.dtype != np.float32:
            with np.errstate(over="ignore"):  # values beyond float32 become inf and are refused with the others
                array = array.astype(np.float32)
        if not np.isfinite(array).all():
            bad = ~np.isfinite(array.reshape(len(array), -1)).all(1)
            raise UsageError(
                f"{what} has a NaN or an infinity in {int(bad.sum())} of {len(array)} rows, first in row "
                f"{int(bad.argmax())}. Remove or repair such rows{unharmed}."
            )
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and _has_channels_last(*array.shape[1:]):
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(array, order="C"))


def _has_channels_last(first: int, second: int, third: int) -> bool:
    """Whether images of this shape are [h, w, c]: c is 1, 3 or 4, and as [c, h, w] they would look less like images.

    >>> [_has_channels_last(*shape) for shape in ((32, 32, 3), (5, 6, 3), (3, 32, 4), (12, 4, 4))]
    [True, True, False, False]
    """
    square_as_channels_first = second == third and first != second
    return third in CHANNELS and first not in CHANNELS and not square_as_channels_first


def in_stored_type(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of `stored_rows` as ones of a file of before hold them: there vectors of whole numbers may be uint8.

    What does not fit that type is given back as it is.

    >>> [in_stored_type(torch.tensor([[0.0, last]]), torch.uint8).dtype for last in (255.0, 0.5)]
    [torch.uint8, torch.float32]
    """
    if dtype != torch.uint8 or rows.dim() != 2:
        return rows
    whole = bool(((rows >= 0) & (rows <= 255) & (rows == rows.floor())).all())
    return rows.to(torch.uint8) if whole else rows
