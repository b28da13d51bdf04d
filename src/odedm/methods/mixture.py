"""A mixture of two Gaussians on the line, fitted by expectation and maximisation: it tells two kinds of rows apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """Two components, in no particular order: `weight`, `mean` and `variance` are [2]."""

    weight: Tensor
    mean: Tensor
    variance: Tensor

    def joint(self, x: Tensor) -> Tensor:
        """Log-density log p(x, component) [2, n] of numbers [n]."""
        variance = self.variance[:, None]
        square = (x.double() - self.mean[:, None]) ** 2 / variance
        return self.weight[:, None].log() - 0.5 * (square + variance.log() + math.log(2 * math.pi))

    def posterior(self, x: Tensor) -> Tensor:
        """p(component | x) [n, 2] of numbers [n]."""
        return self.joint(x).softmax(0).T

    def lower(self) -> Tensor:
        """Which component has the smaller mean: an index, 0-d."""
        return self.mean.argmin()


def fit_mixture(x: Tensor, *, iterations: int = 10, tolerance: float = 1e-2, floor: float = 5e-4) -> Mixture:
    """The mixture of numbers x [n], n ≥ 2, from the best split into two groups.

    EM stops once the mean log-likelihood moves by less than `tolerance`; `floor` is added to every variance. The
    number of iterations carried out is fixed: what comes after the stop is discarded, so nothing waits for a device.

    >>> x = torch.tensor([0.0, 0.1, 0.2, 4.8, 5.0, 5.2])
    >>> [round(mean, 3) for mean in fit_mixture(x).mean.tolist()]
    [0.1, 5.0]
    """
    x = x.double()
    upper = two_means(x)
    mixture = _maximise(x, torch.stack([~upper, upper]).double(), floor)
    done = torch.zeros((), dtype=torch.bool, device=x.device)
    before = torch.full((), -torch.inf, dtype=torch.float64, device=x.device)
    for _ in range(iterations):
        joint = mixture.joint(x)
        evidence = joint.logsumexp(0)
        likelihood = evidence.mean()
        better = _maximise(x, (joint - evidence).exp(), floor)
        mixture = Mixture(
            torch.where(done, mixture.weight, better.weight),
            torch.where(done, mixture.mean, better.mean),
            torch.where(done, mixture.variance, better.variance),
        )
        done = done | ((likelihood - before).abs() < tolerance)
        before = likelihood
    return mixture


def two_means(x: Tensor) -> Tensor:
    """Which numbers of x [n] are in the upper of two groups with the least sum of squares: k-means, solved exactly.

    On the line the best groups are the two sides of a cut, and the best cut has the largest n₁m₁² + n₂m₂².

    >>> two_means(torch.tensor([3.0, 0.0, 1.0, 4.0])).tolist()
    [True, False, False, True]
    """
    ordered = x.sort().values
    shifted = ordered - ordered.mean()  # the cut does not depend on the origin, its rounding errors do
    sums = shifted.cumsum(0)
    below = torch.arange(1, len(x), device=x.device)
    gain = sums[:-1] ** 2 / below + (sums[-1] - sums[:-1]) ** 2 / (len(x) - below)
    return x > ordered[gain.argmax(keepdim=True)]


def _maximise(x: Tensor, share: Tensor, floor: float) -> Mixture:
    """The components that explain x [n] best when `share` [2, n] of each number belongs to them."""
    mass = share.sum(1) + 10 * torch.finfo(torch.float64).eps  # an empty component divides by no zero
    mean = share @ x / mass
    variance = (share * (x - mean[:, None]) ** 2).sum(1) / mass + floor
    return Mixture(mass / mass.sum(), mean, variance)
