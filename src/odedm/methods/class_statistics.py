"""What methods without exemplars share: statistics of a fixed network's features, solved for a linear head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.rows import Rows
from odedm.methods.base import Method, Replay

LARGEST_MATRIX = 1 << 14
"""Rows of a square matrix of statistics: in float64 so many take 2 GiB."""


class StatisticsHead(nn.Module, ABC):
    """Scores [n, C] of features [n, d] by statistics of all rows so far, in float64; -inf of a class without rows."""

    TRANSIENT = frozenset({"_solution"})
    of_scores: ClassVar[frozenset[str]] = frozenset({"count"})
    """Buffers that scores need beside the solution."""

    count: Tensor
    mean: Tensor

    def __init__(self, width: int, classes: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(classes, dtype=torch.float64, device=device))
        self.register_buffer("mean", torch.zeros(classes, width, dtype=torch.float64, device=device))
        self._solution: tuple[Tensor, Tensor] | None = None

    def points(self, features: Tensor) -> Tensor:
        """Return features [n, d] as the vectors of which statistics are taken."""
        return features.double()

    @abstractmethod
    def solve(self) -> tuple[Tensor, Tensor]:
        """Return the weight [C, d] and the bias [C] that the statistics come to."""

    def update(self, features: Tensor, label: Tensor) -> None:
        """Take rows in: features [n, d] with labels [n]."""
        self._solution = None
        self.update_statistics(self.points(features), label)

    def update_statistics(self, points: Tensor, label: Tensor) -> None:
        """Let the class means follow (Welford's update, by batches)."""
        classes = label.unique()
        member = (classes[:, None] == label).to(points.dtype)  # a product, not a scattered sum: the same bits on a GPU
        count, before = member.sum(1), self.count[classes]
        mean = member @ points / count[:, None]
        self.update_scatter(points, member.T @ mean, mean - self.mean[classes], count * before / (count + before))
        self.mean[classes] += (mean - self.mean[classes]) * (count / (count + before))[:, None]
        self.count[classes] += count

    def update_scatter(self, points: Tensor, mean: Tensor, moved: Tensor, weight: Tensor) -> None:
        """Let second moments follow.

        `mean` [n, d] is that of each row's class in the batch, `moved` [c, d] how far it is from that of all rows so
        far, and `weight` [c] what the square of that counts.
        """

    def forward(self, features: Tensor) -> Tensor:
        """Return scores [n, C] of features [n, d]."""
        if self._solution is None:
            self._solution = self.solve()
        weight, bias = self._solution
        return (self.points(features) @ weight.T + bias).masked_fill(self.count == 0, -torch.inf)

    def keep_solution_alone(self) -> None:
        """Drop the statistics that scores do not need, once they are solved for."""
        self._solution = self.solve()
        for name in dict(self.named_buffers()).keys() - self.of_scores:
            setattr(self, name, torch.zeros(0))

    def grow(self, classes: int) -> None:
        """Make room for so many classes; no row has come of the new ones."""
        self._solution, joining = None, classes - len(self.count)
        self.count, self.mean = F.pad(self.count, (0, joining)), F.pad(self.mean, (0, 0, 0, joining))


class StatisticsMethod(Method):
    """A method that trains nothing: it takes statistics of the features of rows as they are, each row once.

    The network is a pretrained backbone, or `linear`, which takes rows themselves as features. Statistics are float64
    and the same in any order of the rows, up to rounding.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"no memory"})
    unsupported: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("stream_loss", "predict", "weight_average", "views", "retrieval", "momentum", "schedule"),
        "it trains no network and takes statistics of features",
    )
    default_net: ClassVar[str] = "linear"
    scales_rows: ClassVar[bool] = False

    lr: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr or self.weight_decay:
            raise UsageError(f"{type(self).__name__} trains no network, so it takes no lr and no weight_decay.")
        weight = self.net.head_weight()
        self.net.head = self.new_head(weight.shape[1], self.net.classes, weight.device)
        self.net.requires_grad_(requires_grad=False)

    def new_head(self, width: int, classes: int, device: torch.device) -> StatisticsHead:
        """Return the head without any rows."""
        raise NotImplementedError

    def trained(self) -> list[nn.Parameter]:
        """Nothing is trained, and torch's optimizers refuse an empty list."""
        return [nn.Parameter(torch.zeros(0))]

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Take the batch's features in."""
        head: StatisticsHead = self.net.head  # type: ignore[assignment]
        head.update(self.embed(replay.normalize(batch["image"])), batch["label"])
        return {}


def solve_positive_definite(matrix: Tensor, right: Tensor) -> Tensor:
    """Return A⁻¹ B, by the pseudo-inverse where A has no Cholesky factor for rounding."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return torch.linalg.pinv(matrix, hermitian=True) @ right if failed else torch.cholesky_solve(right, factor)


def check_matrix(name: str, size: int, source: str) -> None:
    """Refuse square matrices of statistics that are too large to be solved."""
    if size > LARGEST_MATRIX:
        raise UsageError(
            f"{name} keeps a matrix of {size} × {size} numbers, for as many {source}; at most {LARGEST_MATRIX} are "
            "legal. Give a network with fewer features, a pretrained backbone say."
        )
