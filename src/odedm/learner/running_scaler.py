"""Means and deviations of all rows so far, for inputs of mean 0 and deviation 1 where nobody knows the data before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from odedm.core.stored_names import stored
from odedm.stream.augment import Transform


@stored("running-scale")
class RunningScaler:
    """A transform whose constants follow the stream, in place: by feature of vectors, by channel of images.

    >>> scaler = RunningScaler((2,), torch.device("cpu"))
    >>> for rows in torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]]).split(1):
    ...     scaler.update(rows)
    >>> scaler.transform.shift.tolist(), round(1 / scaler.transform.scale[0].item() ** 2, 4)
    ([2.0, 5.0], 2.6667)
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        wide = (shape[0], *[1] * (len(shape) - 1))
        self.transform = Transform(torch.zeros(wide, device=device), torch.ones(wide, device=device))
        self.number = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(wide, dtype=torch.float64, device=device)
        self.square = torch.zeros(wide, dtype=torch.float64, device=device)
        """The sum of squared distances to the mean."""

    def update(self, image: Tensor) -> None:
        """Take rows [n, ...] in: two sets of rows have the mean and the squares of both together."""
        over = tuple(axis for axis in range(image.dim()) if axis != 1)
        values = image.double()
        amount = values.numel() // values.shape[1]
        of_rows = values.mean(over).view_as(self.mean)
        squares = _plain((values - of_rows).square_().sum(over).view_as(self.mean))
        number, mean, square = _plain(self.number), _plain(self.mean), _plain(self.square)
        before = float(number)
        apart, total = _plain(of_rows) - mean, before + amount
        squares += apart**2 * (before * amount / total)
        square += squares
        mean += apart * (amount / total)
        number += amount
        deviation = (square / total) ** 0.5
        # a feature that is one number but for rounding counts as constant
        deviation[deviation <= 1e-6 * abs(mean).clip(min=1e-6)] = 1.0
        _plain(self.transform.shift)[...] = mean
        _plain(self.transform.scale)[...] = 1 / deviation


def _plain(tensor: Tensor) -> Any:
    """Return the same memory as numpy's array on a CPU, where numpy takes a third of torch's time for so little."""
    return tensor.numpy() if tensor.is_cpu else tensor
