"""Means, standard errors and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` seeds and its standard error, which a single seed does not have."""

    mean: float
    error: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """What changed from one group of runs to another, seed by seed; never empty."""

    by_seed: dict[int, float]
    estimate: Estimate

    @property
    def better(self) -> int:
        """The number of seeds with a difference above zero."""
        return sum(value > 0 for value in self.by_seed.values())

    @property
    def clear(self) -> bool:
        """Whether the mean lies at least two standard errors from zero; never with one seed.

        >>> paired({0: 3.0, 1: 4.0}, {0: 1.0, 1: 1.0}).clear, paired({0: 3.0}, {0: 1.0}).clear
        (True, False)
        """
        error = self.estimate.error
        return error is not None and self.estimate.mean != 0.0 and abs(self.estimate.mean) >= 2.0 * error


def estimate(values: Iterable[float]) -> Estimate:
    """The mean and its standard error, s / √n with n − 1 in the variance.

    >>> estimate([1.0, 3.0])
    Estimate(mean=2.0, error=1.0, n=2)
    >>> estimate([5.0])
    Estimate(mean=5.0, error=None, n=1)
    """
    numbers = [float(value) for value in values]
    n = len(numbers)
    if n == 0:
        raise ValueError("There is no mean of no values.")
    mean = math.fsum(numbers) / n
    if n == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in numbers) / (n - 1)
    return Estimate(mean, math.sqrt(variance / n), n)


def paired(treated: Mapping[int, float], control: Mapping[int, float]) -> Paired | None:
    """Treated minus control for every seed that both have; None where they share no seed.

    >>> paired({0: 10.0, 1: 30.0, 7: 99.0}, {0: 8.0, 1: 29.0}).estimate
    Estimate(mean=1.5, error=0.5, n=2)
    >>> paired({0: 1.0}, {1: 1.0}) is None
    True
    """
    differences = {
        seed: float(treated[seed]) - float(control[seed]) for seed in sorted(treated.keys() & control.keys())
    }
    return Paired(differences, estimate(differences.values())) if differences else None


def chance_of_two_errors(n: int) -> float:
    """How often a mean of `n` normal values around zero lies two standard errors or more from zero: P(|t| ≥ 2).

    Few seeds estimate their own standard error badly, so that mark is passed more easily than in one case of twenty.

    >>> [round(chance_of_two_errors(n), 3) for n in (2, 3, 5, 10, 1000)]
    [0.295, 0.184, 0.116, 0.077, 0.046]
    """
    freedom = n - 1
    # With t = √ν tan θ the density of Student's t is proportional to cos^(ν−1) θ: Simpson's rule up to θ(2).
    edge, steps = math.atan(2.0 / math.sqrt(freedom)), 200
    weights = [1.0, *([4.0, 2.0] * (steps // 2 - 1)), 4.0, 1.0]
    area = math.fsum(w * math.cos(edge * i / steps) ** (freedom - 1) for i, w in enumerate(weights)) * edge / steps / 3
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 1.0 - 2.0 * scale * area
