"""Means and deviations of all rows so far, for inputs of mean 0 and deviation 1 where nobody knows the data before."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.stored_names import stored
from odedm.stream.augment import Transform


@stored("running-scale")
class RunningScale:
    """A transform whose constants follow the stream, in place: by feature of vectors, by channel of images.

    >>> scale = RunningScale((2,), torch.device("cpu"))
    >>> for part in torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]]).split(1):
    ...     scale.see(part)
    >>> scale.transform.shift.tolist(), round(1 / scale.transform.scale[0].item() ** 2, 4)
    ([2.0, 5.0], 2.6667)
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        wide = (shape[0], *[1] * (len(shape) - 1))
        self.transform = Transform(torch.zeros(wide, device=device), torch.ones(wide, device=device))
        self.number = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(wide, dtype=torch.float64, device=device)
        self.square = torch.zeros(wide, dtype=torch.float64, device=device)
        """The sum of squared distances to the mean."""

    def see(self, image: Tensor) -> None:
        """Take rows [n, ...] in: two sets of rows have the mean and the squares of both together."""
        over = tuple(each for each in range(image.dim()) if each != 1)
        values = image.double()
        amount = values.numel() // values.shape[1]
        mean = values.mean(over).view_as(self.mean)
        square = (values - mean).square().sum(over).view_as(self.mean)
        before = float(self.number)
        apart, total = mean - self.mean, before + amount
        self.square += square + apart.square() * (before * amount / total)
        self.mean += apart * (amount / total)
        self.number += amount
        deviation = (self.square / total).sqrt()
        # a feature that is one number but for rounding counts as constant
        scale = (1 / deviation).where(deviation > 1e-6 * self.mean.abs().clamp(min=1e-6), 1.0)
        self.transform.shift.copy_(self.mean)
        self.transform.scale.copy_(scale)
