"""Rows and labels as people have them: arrays, tensors, lists of lists, frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr

Array = np.ndarray[Any, Any]


def array_of(x: Any, what: str) -> Array:
    """Return anything array-like as an array of its own type; `what` is its name in a sentence.

    >>> array_of([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x
    elif isinstance(x, list | tuple) or (isinstance(x, np.ndarray) and x.dtype.hasobject):
        check_texts(x, what)
    try:
        return np.asarray(x)
    except Exception as error:  # lists of lists, and objects of anyone's
        raise UsageError(f"{what} is not an array: {' '.join(str(error).split())[:200]}.") from None


def check_texts(values: Iterable[Any], what: str) -> None:
    r"""Refuse text that ends in NUL, which numpy drops: two labels would become one.

    >>> check_texts(["a", "a\0"], "y")
    Traceback (most recent call last):
    odedm.UsageError: y holds 'a\x00', and arrays of text drop a NUL at the end; give another label.
    """
    wrong = next((value for value in values if isinstance(value, str) and value.endswith("\0")), None)
    if wrong is not None:
        raise UsageError(
            f"{what} holds {short_repr(wrong)}, and arrays of text drop a NUL at the end; give another label."
        )
