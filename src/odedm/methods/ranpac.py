"""RanPAC: random projections of a fixed network's features, and class prototypes that a Gram matrix decorrelates."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.methods.class_statistics import StatisticsHead, StatisticsMethod, check_matrix, solve_positive_definite


@stored("method/ranpac")
class RanPAC(StatisticsMethod):
    """RanPAC (McDonnell et al. 2023): h = ReLU(φ(x) W) with a random W of `units` columns, y = argmax h (G + λI)⁻¹ C.

    G = Σ h ⊗ h is the Gram matrix, C = Σ h ⊗ y has the sum of each class's rows. λ is `ridge` times the mean of G's
    diagonal; the paper chooses λ anew after each task, by rows that it holds out. The paper has 10 000 units, and the
    state grows with their square.
    """

    units: int = 2000
    ridge: float = 0.01

    def new_head(self, width: int, classes: int, device: torch.device) -> StatisticsHead:
        if self.units < 1 or not self.ridge > 0:
            raise UsageError("ranpac needs 1 or more units and a ridge above 0.")
        check_matrix("ranpac", self.units, "units")
        host = torch.Generator().manual_seed(self.rng("projection").initial_seed())
        projection = torch.randn(width, self.units, dtype=torch.float64, generator=host).to(device)
        return RanPACHead(projection, classes, self.ridge)


@stored("net/ranpac-head")
class RanPACHead(StatisticsHead):
    """Scores by ridge regression on projected features: C is kept as class means and counts."""

    of_scores = frozenset({"count", "projection"})

    projection: Tensor
    gram: Tensor

    def __init__(self, projection: Tensor, classes: int, ridge: float) -> None:
        units = projection.shape[1]
        super().__init__(units, classes, projection.device)
        self.ridge = ridge
        self.register_buffer("projection", projection)
        self.register_buffer("gram", torch.zeros(units, units, dtype=torch.float64, device=projection.device))

    def points(self, features: Tensor) -> Tensor:
        """Return h [n, units]."""
        return F.relu(features.double() @ self.projection)

    def update_statistics(self, points: Tensor, label: Tensor) -> None:
        """Let G and C follow."""
        super().update_statistics(points, label)
        self.gram.addmm_(points.T, points)

    def solve(self) -> tuple[Tensor, Tensor]:
        """(G + λI)⁻¹ C, 0."""
        regularised = self.gram.clone()
        regularised.diagonal().add_(self.ridge * self.gram.diagonal().mean().clamp(min=1e-30))
        sums = (self.mean * self.count[:, None]).T
        return solve_positive_definite(regularised, sums).T, torch.zeros_like(self.count)
