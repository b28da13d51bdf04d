"""A number that a paper prints, and a run of ours beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from odedm.report.statistics import Estimate

PaperMetric = Literal["acc_last", "acc_mean", "task_il_last"]
Verdict = Literal["reproduced", "better", "worse", "not comparable"]
TOO_FEW = "too few seeds"
"""Where there is no verdict."""


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


@dataclass(frozen=True)
class Comparison:
    """Our mean over seeds beside the paper's number; `same_protocol` where the runs are what the paper ran."""

    ours: Estimate
    paper: Published
    same_protocol: bool = True

    @property
    def gap(self) -> float:
        """Ours minus the paper's."""
        return self.ours.mean - self.paper.mean

    @property
    def allowed(self) -> float | None:
        """The largest gap that chance explains: 2·√(our standard error² + the paper's sd²/3), for it has three runs.

        None where there is no verdict: without a ± of the paper's over runs, and with a single seed of ours.
        """
        if not (self.same_protocol and self.paper.comparable) or self.paper.error is None or self.ours.error is None:
            return None
        return 2 * math.hypot(self.ours.error, self.paper.error / math.sqrt(3))

    @property
    def verdict(self) -> Verdict | None:
        """What our number says of the paper's; None where errors are missing."""
        if not self.same_protocol or not self.paper.comparable:
            return "not comparable"
        if self.allowed is None:
            return None
        return "reproduced" if abs(self.gap) <= self.allowed else "better" if self.gap > 0 else "worse"
