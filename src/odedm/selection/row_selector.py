"""Ways to choose long-term rows that need no clusters: at random, the control for any other choice, and herding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.stored_names import stored

__all__ = ["ROW_SELECTORS", "Herding", "RandomRows", "RowSelector", "herd"]

LARGEST = torch.finfo(torch.float64).max


class RowSelector(ABC):
    """Choose rows at once, without divide-and-conquer, k-means and the nearest rows to its centers.

    It is given where a distance is: to `PrototypeSelector`, to `select`, and by its name to `--distance`.
    """

    needs_points: ClassVar[bool] = True
    """Whether rows are looked at; if not, no network is asked for features and points are [n, 0]."""

    @abstractmethod
    def select(self, points: Tensor, wanted: int, rng: torch.Generator) -> Tensor:
        """Return distinct rows [min(wanted, n)] of `points` [n, d], the most wanted first; `rng` is on the CPU."""


@stored("distance/random")
@dataclass(frozen=True)
class RandomRows(RowSelector):
    """Choose any rows, each equally likely: what a careful choice is worth is what it gains over these.

    >>> len(RandomRows().select(torch.zeros(5, 0), 3, torch.Generator().manual_seed(0)).unique())
    3
    """

    needs_points = False

    def select(self, points: Tensor, wanted: int, rng: torch.Generator) -> Tensor:
        """Return the first rows of a random order, so that fewer are a part of more."""
        return torch.randperm(len(points), generator=rng)[:wanted].to(points.device)


@stored("distance/herding")
@dataclass(frozen=True)
class Herding(RowSelector):
    """Choose rows whose mean stays nearest to the mean of their class, of points of length one (Welling 2009, iCaRL).

    >>> points = torch.tensor([[1.0, 0.0], [3.0, 3.0], [0.0, 1.0]])
    >>> Herding().select(points, 2, torch.Generator()).tolist()
    [1, 0]
    """

    def select(self, points: Tensor, wanted: int, rng: torch.Generator) -> Tensor:
        """Return the first rows in herding order; nothing is drawn."""
        del rng
        return herd(F.normalize(points.to(torch.float64)), wanted)


def herd(features: Tensor, m: int) -> Tensor:
    """Return the row numbers [min(m, n)] of the features [n, d] in herding order.

    The j-th pick is the row that, added to the picks before it, brings their mean closest to the mean μ of all n:
    i* = argmin over unused i of ‖μ − (S + φ_i) / (j + 1)‖. So the first is the row nearest to μ, fewer picks are a
    prefix of more, and n picks have the mean μ. Ties go to the lower row.

    >>> herd(torch.tensor([[0.0], [1.0], [5.0]]), 3).tolist()
    [1, 2, 0]
    """
    # around μ the distance is ‖S + x_i‖ / (j + 1), and its square has no cancellation left where S is small
    x = features.to(torch.float64)
    x = x - x.mean(0)
    square = x.square().sum(1)
    total = x.new_zeros(x.shape[1])
    used = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    chosen = torch.empty(min(m, len(x)), dtype=torch.int64, device=x.device)
    for j in range(len(chosen)):
        distance = square + 2 * (x @ total)  # up to ‖S‖², the same for every row
        # a used row stays behind even those whose distance overflows or is not a number
        distance = distance.nan_to_num(nan=LARGEST, posinf=LARGEST).masked_fill(used, torch.inf)
        pick = distance.argmin(keepdim=True)
        chosen[j : j + 1] = pick
        used.index_fill_(0, pick, True)  # no host value to wait for, unlike an assignment
        total += x[pick].squeeze(0)
    return chosen


ROW_SELECTORS: dict[str, RowSelector] = {"random": RandomRows(), "herding": Herding()}
"""The choices by name."""
