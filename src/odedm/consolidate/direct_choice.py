"""Ways to choose long-term rows that need no clusters: at random, the control that any other choice must beat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

__all__ = ["DIRECT_CHOICES", "DirectChoice", "RandomRows"]


class DirectChoice(ABC):
    """A choice of rows that is made at once, without divide-and-conquer, k-means and the nearest rows to its centres.

    It is given where a distance is: to `Consolidator`, to `select`, and by its name to `--distance`.
    """

    needs_points: ClassVar[bool] = True
    """Whether rows are looked at; if not, no network is asked for features and points are [n, 0]."""

    @abstractmethod
    def pick(self, points: Tensor, wanted: int, rng: torch.Generator) -> Tensor:
        """Numbers of distinct rows [min(wanted, n)] of `points` [n, d], the most wanted first; `rng` is on the CPU."""


@dataclass(frozen=True)
class RandomRows(DirectChoice):
    """Any rows, each equally likely: what a careful choice is worth is what it gains over these.

    >>> len(RandomRows().pick(torch.zeros(5, 0), 3, torch.Generator().manual_seed(0)).unique())
    3
    """

    needs_points = False

    def pick(self, points: Tensor, wanted: int, rng: torch.Generator) -> Tensor:
        """The first rows of a random order, so that fewer are a part of more."""
        return torch.randperm(len(points), generator=rng)[:wanted].to(points.device)


DIRECT_CHOICES: dict[str, DirectChoice] = {"random": RandomRows()}
"""The choices by name."""
