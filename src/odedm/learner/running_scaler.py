"""Means and deviations of the rows so far, for inputs of mean 0 and deviation 1 where nobody knows the data before."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.core.stored_names import stored
from odedm.stream.augment import Transform

FAR = 10.0
"""So many deviations from the mean a value counts as no further away, for the constants and for the network."""
FIRST = 32
"""So many rows are kept by their moments: values far from those of the others are left out of the first constants."""
FEW = 8
"""Of fewer rows nobody can say which value is far away; of more, one in so many is left out of the look at the rest."""
HORIZON = 10_000
"""Rows that the constants remember. They forget slowly, for a class that rests must find its inputs as they were."""


@stored("running-scale")
class RunningScaler:
    """A transform whose constants follow the stream, in place: by feature of vectors, by channel of images.

    One row moves them by a bounded amount: a value counts as no further from the mean than `FAR` deviations, and of the
    first rows gross outliers are left out. So a broken row costs little, while a column whose scale grows is followed
    within some hundred rows, and one whose scale shrinks within some ten thousand.

    >>> scaler = RunningScaler((2,), torch.device("cpu"))
    >>> for rows in torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]]).split(1):
    ...     scaler.update(rows)
    >>> scaler.transform.shift.tolist(), round(1 / scaler.transform.scale[0].item() ** 2, 4)
    ([2.0, 5.0], 2.6667)
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_far"})

    _far: NDArray[np.float64] | None = None
    """What follows from mean and deviation, see `_limits`."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        wide = (shape[0], *[1] * (len(shape) - 1))
        self.transform = Transform(torch.zeros(wide, device=device), torch.ones(wide, device=device), limit=FAR)
        self.number = torch.zeros((), dtype=torch.float64)
        self.mean = torch.zeros(shape[0], dtype=torch.float64)
        self.square = torch.zeros(shape[0], dtype=torch.float64)
        """The sum over rows of squared distances to the mean, by places of images in the mean."""
        self.first = torch.zeros(2, FIRST, shape[0], dtype=torch.float64)
        """Of the first rows the mean over places, and the mean squared distance to it."""

    def update(self, image: Tensor) -> None:
        """Take rows [n, ...] in, which are on the CPU."""
        values = image.numpy().reshape(len(image), len(self.mean), -1)
        kept = int(self.number)
        if kept < FIRST:
            values = self._keep(values.astype(np.float64), kept)
        if len(values):
            self._follow(values)
        mean, deviation = self.mean.numpy(), self._deviation()
        constant = _is_constant(mean, deviation)
        self._far = _limits(deviation, constant)
        deviation[constant] = 1.0
        for number, value in ((self.transform.shift, mean), (self.transform.scale, 1 / deviation)):
            number.copy_(torch.from_numpy(value).view_as(number))

    def _keep(self, values: NDArray[np.float64], kept: int) -> NDArray[np.float64]:
        """Take the first rows in behind those `kept`; return the rows beyond."""
        new, amount = values[: FIRST - kept], min(FIRST, kept + len(values))
        means, squares = self.first.numpy()[:, :amount]
        means[kept:] = new.mean(2)
        squares[kept:] = ((new - means[kept:, :, None]) ** 2).mean(2)
        near = _near(means)
        weight = near / near.sum(0)
        mean = (means * weight).sum(0)
        self.mean.numpy()[...] = mean
        self.square.numpy()[...] = (((means - mean) ** 2 + squares) * weight).sum(0) * amount
        self.number.fill_(amount)
        self._far = None
        return values[len(new) :]

    def _follow(self, values: NDArray[Any]) -> None:
        """Let the constants follow further rows, by the sums of their distances to the mean so far and of the squares.

        Those about the new mean are less by the square of its shift, for each row.
        """
        mean, square, far = self.mean.numpy(), self.square.numpy(), self._far
        if far is None:  # behind the first rows, or after a load
            deviation = self._deviation()
            far = _limits(deviation, _is_constant(mean, deviation))
        apart = np.subtract(values, mean[:, None], dtype=np.float64)
        np.minimum(apart, far, out=apart)
        np.maximum(apart, -far, out=apart)
        places, total = apart.shape[2], float(self.number) + len(values)
        shift = _sum(apart) / (places * total)
        np.multiply(apart, apart, out=apart)
        square += _sum(apart) / places - total * shift**2
        np.maximum(square, 0, out=square)
        mean += shift
        if total > HORIZON:
            square *= HORIZON / total
        self.number.fill_(min(total, HORIZON))

    def _deviation(self) -> NDArray[np.float64]:
        deviation: NDArray[np.float64] = np.sqrt(self.square.numpy() / float(self.number))
        return deviation


def _sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums [d] of values [n, d, places]; over the rows first, which is much faster than both at once."""
    sums: NDArray[np.float64] = np.add.reduce(values, 0)
    return sums[:, 0] if sums.shape[1] == 1 else np.add.reduce(sums, 1)


def _limits(deviation: NDArray[np.float64], constant: Any) -> NDArray[np.float64]:
    """Return how far from the mean a value of each feature counts [d, 1]; as far as it is where all were one number."""
    return np.where(constant, np.inf, FAR * deviation)[:, None]


def _is_constant(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Any:
    """Return which features [d] are one number but for rounding."""
    return deviation <= 1e-6 * abs(mean).clip(min=1e-6)


def _near(values: NDArray[np.float64]) -> Any:
    """Return which values [n, d] are within `FAR` deviations of the others of their column."""
    rows = len(values)
    if rows < FEW:
        return np.ones(values.shape, dtype=bool)
    away = abs(values - np.median(values, 0))
    inner = np.sort(away, 0)[: rows - rows // FEW]
    deviation = np.sqrt((inner**2).mean(0))
    return (away <= FAR * deviation) | (deviation == 0)
