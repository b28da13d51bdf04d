"""A number that a paper prints, beside which a run of ours can be put."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PaperMetric = Literal["acc_last", "acc_mean", "task_il_last"]


@dataclass(frozen=True)
class Published:
    """A number of the paper in per cent, its ± where one is printed, what that ± spreads over, and the table."""

    mean: float
    error: float | None
    spread: Literal["runs", "tasks"]
    table: str
    borrowed: bool = False
    """Whether it comes from another paper, with other batches, optimisers and views of the images."""

    @property
    def comparable(self) -> bool:
        """Whether a run of ours can be told from it: its ± is over runs, and they are runs of the paper's own."""
        return self.spread == "runs" and not self.borrowed
