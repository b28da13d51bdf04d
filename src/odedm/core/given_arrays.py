"""Rows and labels as people have them: arrays, tensors, lists of lists, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError

Array = np.ndarray[Any, Any]


def array_of(x: Any, what: str) -> Array:
    """Return anything array-like as an array of its own type; `what` is its name in a sentence.

    >>> array_of([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x
    try:
        return np.asarray(x)
    except Exception as error:  # lists of lists, and objects of anyone's
        raise UsageError(f"{what} is not an array: {' '.join(str(error).split())[:200]}.") from None
