"""NCM: the nearest class mean of all rows so far, in the features of a fixed network."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.stored_names import stored
from odedm.methods.class_statistics import StatisticsHead, StatisticsMethod


@stored("method/ncm")
class NCM(StatisticsMethod):
    """Nearest class mean (Mensink et al. 2013): y = argmin_c ‖φ(x) − μ_c‖², where μ_c is the mean of all rows of c."""

    def new_head(self, width: int, classes: int, device: torch.device) -> StatisticsHead:
        return NCMHead(width, classes, device)


@stored("net/ncm-head")
class NCMHead(StatisticsHead):
    """Minus squared distances to the class means, up to ‖φ(x)‖², which is the same for all classes."""

    def solve(self) -> tuple[Tensor, Tensor]:
        """2 μ_c, −‖μ_c‖²."""
        return 2 * self.mean, -self.mean.square().sum(1)
