"""Means over seeds, differences paired by seed, and how far chance alone would carry them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, combinations_with_replacement
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Of every interval."""
FEWEST = 5
"""Seeds below which no change is called clear: even where all four of four agree, sign flips give p = 0.125.

Nor is there enough to resample: a bootstrap interval over two, three or four normal differences holds the true mean in
50, 75 and 87 of 100 cases, so there the interval is Student's; from five on it holds in about 93.
"""
ENUMERATED_RESAMPLES, RESAMPLES = 10, 20_000
"""Up to so many seeds the bootstrap goes through every resample; beyond, it draws so many from a fixed seed."""
ENUMERATED_FLIPS, FLIPS = 20, 99_999
"""The same for the signs of the permutation test."""


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` seeds and its standard error, which a single seed does not have."""

    mean: float
    error: float | None
    n: int

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds, n − 1 in the variance.

        >>> estimate([1.0, 3.0, 5.0, 7.0, 9.0]).sd == 10**0.5
        True
        """
        return None if self.error is None else self.error * math.sqrt(self.n)


@dataclass(frozen=True)
class Paired:
    """What changed from one group of runs to another, seed by seed; never empty."""

    by_seed: dict[int, float]
    estimate: Estimate

    @property
    def better(self) -> int:
        """The number of seeds with a difference above zero."""
        return sum(value > 0 for value in self.by_seed.values())

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean difference (see `mean_interval`); None with one seed."""
        return mean_interval(list(self.by_seed.values()))

    @cached_property
    def p(self) -> float | None:
        """The two-sided sign-flip permutation p of the mean difference; None with one seed."""
        return sign_flip(list(self.by_seed.values()))

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out; never with fewer than `FEWEST` seeds.

        >>> control = dict.fromkeys(range(5), 0.0)
        >>> paired({0: 3.0, 1: 4.0, 2: 3.5, 3: 2.0, 4: 5.0}, control).clear, paired({0: 3.0, 1: 4.0}, control).clear
        (True, False)
        """
        low, high = self.interval or (0.0, 0.0)
        return self.estimate.n >= FEWEST and (low > 0.0 or high < 0.0)


def estimate(values: Iterable[float]) -> Estimate:
    """Return the mean and its standard error, s / √n with n − 1 in the variance.

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
    """Return treated minus control for every seed that both have; None where they share no seed.

    >>> paired({0: 10.0, 1: 30.0, 7: 99.0}, {0: 8.0, 1: 29.0}).estimate
    Estimate(mean=1.5, error=0.5, n=2)
    >>> paired({0: 1.0}, {1: 1.0}) is None
    True
    """
    shared = sorted(treated.keys() & control.keys())
    differences = {seed: float(treated[seed]) - float(control[seed]) for seed in shared}
    return Paired(differences, estimate(differences.values())) if differences else None


def mean_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return the interval of the mean: Student's below `FEWEST` values, else the bootstrap's; None for fewer than two.

    >>> low, high = mean_interval([1.0, 4.0])
    >>> round(low, 1), round(high, 1)
    (-16.6, 21.6)
    """
    return student_interval(values, level) if len(values) < FEWEST else bootstrap(values, level)


def student_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return the mean and Student's t times its standard error to either side; None for fewer than two values.

    It keeps its level for normal values, however few: the price of two is an interval 25 times their standard error.
    """
    if len(values) < 2:
        return None
    mean = estimate(values)
    reach = student_quantile(level, len(values) - 1) * (mean.error or 0.0)
    return mean.mean - reach, mean.mean + reach


def bootstrap(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return the expanded percentile interval of the mean; None for fewer than two values.

    A plain percentile interval is too narrow for few values: resampling uses n where the variance has n − 1, and the
    normal tail where Student's t applies. Its tail α/2 is therefore replaced by Φ(−√(n/(n−1)) t_{α/2, n−1}), after
    Hesterberg, "What teachers should know about the bootstrap" (2015). With three values or fewer that is their range,
    which no resample can leave, and too short: see `mean_interval`.

    >>> bootstrap([1.0, 4.0]), bootstrap([3.0]) is None
    ((1.0, 4.0), True)
    """
    n = len(values)
    if n < 2:
        return None
    means, weights = _resampled(np.asarray(values, dtype=np.float64))
    order = np.argsort(means, kind="stable")
    means, weights = means[order], weights[order]
    tail = _tail(n, level) - 1e-12  # sums of weights carry rounding
    low = int(np.searchsorted(np.cumsum(weights), tail))
    high = int(np.searchsorted(np.cumsum(weights[::-1]), tail))
    return float(means[low]), float(means[::-1][high])


def _resampled(values: Floats) -> tuple[Floats, Floats]:
    """Return means of resamples with replacement, and how likely each is."""
    n = len(values)
    if n <= ENUMERATED_RESAMPLES:
        counts, weights = _multisets(n)
        return counts @ values / n, weights
    drawn = np.random.default_rng(n).integers(0, n, (RESAMPLES, n))
    return values[drawn].mean(axis=1), np.full(RESAMPLES, 1.0 / RESAMPLES)


@cache
def _multisets(n: int) -> tuple[Floats, Floats]:
    """Return how often each of n values occurs in each resample [resamples, n], and the resample's probability."""
    flat = chain.from_iterable(combinations_with_replacement(range(n), n))
    members = np.fromiter(flat, np.int8).reshape(-1, n)
    counts = (members[:, :, None] == np.arange(n)).sum(axis=1)
    factorial = np.array([math.factorial(i) for i in range(n + 1)], dtype=np.float64)
    return counts.astype(np.float64), factorial[n] / factorial[counts].prod(axis=1) / float(n) ** n


@cache
def _tail(n: int, level: float) -> float:
    """Return the share of resamples to leave out at each end."""
    return NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_quantile(level, n - 1))


def student_tail(t: float, freedom: int) -> float:
    """Return how often Student's t lies `t` or more from zero: P(|T| ≥ t).

    >>> [round(student_tail(2.0, freedom), 3) for freedom in (1, 2, 4, 9, 999)]
    [0.295, 0.184, 0.116, 0.077, 0.046]
    """
    # With t = √ν tan θ the density of Student's t is proportional to cos^(ν−1) θ: Simpson's rule up to θ(t).
    edge, steps = math.atan(t / math.sqrt(freedom)), 200
    weights = [1.0, *([4.0, 2.0] * (steps // 2 - 1)), 4.0, 1.0]
    area = math.fsum(w * math.cos(edge * i / steps) ** (freedom - 1) for i, w in enumerate(weights)) * edge / steps / 3
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 1.0 - 2.0 * scale * area


@cache
def student_quantile(level: float, freedom: int) -> float:
    """Return the t with P(|T| ≤ t) = level, by bisection.

    >>> [round(student_quantile(0.95, freedom), 3) for freedom in (1, 4, 9)]
    [12.706, 2.776, 2.262]
    """
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > 1.0 - level else (low, middle)
    return (low + high) / 2


def sign_flip(values: Sequence[float]) -> float | None:
    """Return how often random signs give a mean as far from zero: the two-sided permutation p of no difference.

    Exact over all signs up to 20 values; beyond, (1 + hits) / (1 + draws) over signs from a fixed seed, which is never
    zero. None for fewer than two values.

    >>> sign_flip([1.0, 2.0, 4.0]), sign_flip([1.0, -1.0]), sign_flip([2.0]) is None
    (0.25, 1.0, True)
    """
    n = len(values)
    if n < 2:
        return None
    numbers = np.asarray(values, dtype=np.float64)
    reach = abs(math.fsum(values)) - 1e-9 * float(np.abs(numbers).sum())  # equal sums may differ in the last bit
    if n <= ENUMERATED_FLIPS:
        sums = numbers[:1]  # the first sign fixed: turning all signs changes no absolute sum
        for value in numbers[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= reach))
    rng, hits, left = np.random.default_rng(n), 0, FLIPS
    while left:
        rows = min(left, 10_000)
        signs: NDArray[Any] = rng.integers(0, 2, (rows, n)) * 2 - 1
        hits += int(np.count_nonzero(np.abs(signs @ numbers) >= reach))
        left -= rows
    return (1 + hits) / (1 + FLIPS)


def smallest_p(n: int) -> float:
    """Return the smallest p that `n` seeds can give: all of them agree, and of 2^n choices of signs two are as extreme.

    >>> [smallest_p(n) for n in (2, 3, 5, 10)]
    [0.5, 0.25, 0.0625, 0.001953125]
    """
    return max(2.0 / 2.0**n, 1.0 / (1 + FLIPS) if n > ENUMERATED_FLIPS else 0.0)


def holm(p: Sequence[float]) -> list[float]:
    """Return p values after Holm's correction, which keep the chance of any false alarm among all below the level.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, floor = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        floor = max(floor, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = floor
    return corrected
