"""SLDA: streaming linear discriminant analysis on the features of a fixed network."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.methods.class_statistics import StatisticsHead, StatisticsMethod, check_matrix, solve_positive_definite


@stored("method/slda")
class SLDA(StatisticsMethod):
    """Deep streaming LDA (Hayes and Kanan 2020): class means μ_c, and one covariance Σ that all classes share.

    With the precision Λ = [(1 − ε) Σ + ε I]⁻¹, where ε is the `shrinkage`, the scores are
    w_c = Λ μ_c, b_c = −½ μ_c · Λ μ_c. Σ is that of rows around the mean of their class, exactly and in any order; the
    paper's update takes the mean as it was when the row came.
    """

    shrinkage: float = 1e-4

    def new_head(self, width: int, classes: int, device: torch.device) -> StatisticsHead:
        if not 0 < self.shrinkage <= 1:
            raise UsageError(f"slda's shrinkage must be above 0 and at most 1; {self.shrinkage} was given.")
        check_matrix("slda", width, "features")
        return SLDAHead(width, classes, device, self.shrinkage)


@stored("net/slda-head")
class SLDAHead(StatisticsHead):
    """Scores by Λ, from the sum of all rows' outer products around the mean of their class."""

    scatter: Tensor

    def __init__(self, width: int, classes: int, device: torch.device, shrinkage: float) -> None:
        super().__init__(width, classes, device)
        self.shrinkage = shrinkage
        self.register_buffer("scatter", torch.zeros(width, width, dtype=torch.float64, device=device))

    def update_scatter(self, points: Tensor, mean: Tensor, moved: Tensor, weight: Tensor) -> None:
        """Add the batch's scatter, and that of the two means."""
        self.scatter.addmm_((points - mean).T, points - mean).addmm_(moved.T * weight, moved)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Λ μ_c, −½ μ_c · Λ μ_c."""
        covariance = (1 - self.shrinkage) * self.scatter / self.count.sum().clamp(min=1)
        covariance.diagonal().add_(self.shrinkage)
        weight = solve_positive_definite(covariance, self.mean.T).T
        return weight, -0.5 * (weight * self.mean).sum(1)
