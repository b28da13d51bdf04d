"""Tells clean labels from wrong ones by a mixture of two Gaussians, and the losses that learn from both (PuriDivER)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

FEW = 2
"""A side of a split with no more rows than this is too small to learn from."""


@dataclass(frozen=True)
class Split:
    """Row numbers of the three kinds, and `trust` [n]: how far the label of each row is believed (π)."""

    clean: Tensor
    ambiguous: Tensor
    incorrect: Tensor
    trust: Tensor


def restarting_rate(epoch: int, lr: float) -> float:
    """The rate of an epoch under cosine annealing with warm restarts: cycles of 1, 2, 4, … epochs from lr to lr/100.

    >>> [restarting_rate(epoch, 1.0) == 1.0 for epoch in range(8)]
    [True, True, False, True, False, False, False, True]
    """
    length = 1 << ((epoch + 1).bit_length() - 1)
    lowest = 0.01 * lr
    return lowest + (lr - lowest) * (1 + math.cos(math.pi * (epoch + 1 - length) / length)) / 2


def split(loss: Tensor, doubt: Tensor, *, roles: str, posterior: str, rng: torch.Generator) -> Split | None:
    """Three kinds of rows by their losses ℓ [n] and doubts u = 1 - max softmax [n]; None where a kind is too small.

    A mixture over ℓ, scaled to [0, 1], gives the clean rows: those of the component with the smaller mean. A second
    one over the doubts of the rest gives the two other kinds: with roles="released" those in little doubt are the
    ambiguous ones, with "swapped" the incorrect ones. Trust is the posterior of the clean component, or with
    posterior="released" that of an arbitrary one: the component of a row drawn at random.
    """
    low, high = loss.aminmax()
    if len(loss) <= FEW or high == low:
        return None
    scaled = (loss.double() - low) / (high - low)
    mixture = fit_mixture(scaled)
    belongs = mixture.posterior(scaled)
    clean = belongs.argmax(1) == mixture.lower()
    rest = (~clean).nonzero().flatten()
    if len(rest) in (0, 1, FEW, len(loss)):
        return None
    doubts = fit_mixture(doubt[rest])
    sure = doubts.posterior(doubt[rest]).argmax(1) == doubts.lower()
    ambiguous, incorrect = rest[sure], rest[~sure]
    if min(len(ambiguous), len(incorrect)) <= FEW:
        return None
    if roles == "swapped":
        ambiguous, incorrect = incorrect, ambiguous
    column = mixture.lower()
    if posterior == "released":
        column = belongs[torch.randint(len(loss), (1,), generator=rng, device=loss.device)].argmax(1)[0]
    return Split(clean.nonzero().flatten(), ambiguous, incorrect, belongs[:, column].to(loss.dtype))


def shuffled(index: Tensor, size: int, rng: torch.Generator) -> Iterator[Tensor]:
    """One pass over row numbers [n] in random order, `size` at a time.

    >>> parts = shuffled(torch.arange(5), 2, torch.Generator().manual_seed(0))
    >>> [len(part) for part in parts]
    [2, 2, 1]
    """
    order = torch.randperm(len(index), generator=rng, device=index.device)
    yield from index[order].split(size)


def endless(index: Tensor, size: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Pass after pass over row numbers [n], each in a new order."""
    while True:
        yield from shuffled(index, size, rng)


def companion_size(size: int, rows: int, clean_rows: int) -> int:
    """Return how many of a kind's `rows` go with `size` of the `clean_rows`: in proportion, but at least 2.

    >>> companion_size(32, 10, 100), companion_size(32, 3, 100)
    (3, 2)
    """
    return max(2, size * rows // clean_rows)


def corrected_loss(strong: Tensor, weak: Tensor, label: Tensor, trust: Tensor) -> Tensor:
    """L_R: cross-entropy of strong-view logits [n, C] towards π · label + (1-π) · what the weak view's logits say."""
    believed = trust[:, None] * F.one_hot(label, strong.shape[1]) + (1 - trust[:, None]) * weak.detach().softmax(1)
    return F.cross_entropy(strong, believed)


def combined_loss(losses: list[Tensor], rows: list[int]) -> Tensor:
    """Return the mean over all rows of losses that are means over `rows` rows each."""
    return torch.stack([n * loss for n, loss in zip(rows, losses, strict=True)]).sum() / sum(rows)


@dataclass(frozen=True)
class Mixture:
    """Two components, in no particular order: `weight`, `mean` and `variance` are [2]."""

    weight: Tensor
    mean: Tensor
    variance: Tensor

    def joint(self, x: Tensor) -> Tensor:
        """Return log-density log p(x, component) [2, n] of numbers [n]."""
        variance = self.variance[:, None]
        square = (x.double() - self.mean[:, None]) ** 2 / variance
        return self.weight[:, None].log() - 0.5 * (square + variance.log() + math.log(2 * math.pi))

    def posterior(self, x: Tensor) -> Tensor:
        """p(component | x) [n, 2] of numbers [n]."""
        return self.joint(x).softmax(0).T

    def lower(self) -> Tensor:
        """Return which component has the smaller mean: an index, 0-d."""
        return self.mean.argmin()


def fit_mixture(x: Tensor, *, iterations: int = 10, tolerance: float = 1e-2, floor: float = 5e-4) -> Mixture:
    """Return the mixture of numbers x [n], n ≥ 2, from the best split into two groups.

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
    """Return the components that explain x [n] best when `share` [2, n] of each number belongs to them."""
    mass = share.sum(1) + 10 * torch.finfo(torch.float64).eps  # an empty component divides by no zero
    mean = share @ x / mass
    variance = (share * (x - mean[:, None]) ** 2).sum(1) / mass + floor
    return Mixture(mass / mass.sum(), mean, variance)
