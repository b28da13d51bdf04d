"""The nearest distinct rows of centers: each center in turn takes rows that no other has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError

if TYPE_CHECKING:
    from odedm.selection.distance import Distance
    from odedm.selection.kmeans import Clusters


class Chosen(NamedTuple):
    """Rows [m] in the order of their centers, and the center of each [m], both int64."""

    row: Tensor
    center: Tensor


def nearest(distance: Distance, x: Tensor, clusters: Clusters, per: int = 1) -> Chosen:
    """Choose the `per` nearest distinct rows of `x` [n, d] for each of its clusters, by a fitted distance.

    A distance may have a `nearest` of its own that chooses the same with less work; else all distances are compared.

    >>> from odedm.selection.distance import DISTANCES
    >>> from odedm.selection.kmeans import Clusters
    >>> x = torch.tensor([[0.0], [1.0], [5.0]])
    >>> nearest(DISTANCES["l2"], x, Clusters(torch.tensor([0, 1, 1]), torch.tensor([[0.9], [1.1]]), 0.0)).row.tolist()
    [1, 0]
    """
    search = getattr(distance, "nearest", None)
    if search is None:
        return greedy_nearest(row_distances(distance, x, clusters), per)
    chosen: Chosen = search(x, clusters.centers, per)
    return chosen


def row_distances(distance: Distance, x: Tensor, clusters: Clusters) -> Tensor:
    """Return distances of rows to clusters [n, k]: to their points where the distance knows how, else their centers."""
    to_clusters = getattr(distance, "to_clusters", None)
    if to_clusters is None:
        return distance.pairwise(x, clusters.centers)
    distances: Tensor = to_clusters(x, clusters.labels, len(clusters.centers))
    return distances


def greedy_nearest(cost: Tensor, per: int = 1) -> Chosen:
    """Let each center in turn take its `per` nearest rows that no other has taken, by `cost` [n, k].

    Equal costs: the lower row. When the rows run out the last centers get fewer, or none.

    >>> greedy_nearest(torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]))
    Chosen(row=tensor([0, 2]), center=tensor([0, 1]))
    """
    if cost.dim() != 2 or per < 1:
        raise UsageError(f"Costs must be [n, k] and per 1 or more; {list(cost.shape)} and {per} were given.")
    # numpy, since only there an argmin among equals is promised to be the first
    table = np.ascontiguousarray(cost.T.cpu().numpy())
    free = np.arange(table.shape[1])
    taken: list[tuple[int, int]] = []
    for center, column in enumerate(table):
        for _ in range(min(per, len(free))):
            place = int(column[free].argmin())
            taken.append((int(free[place]), center))
            free = np.delete(free, place)
    rows, centers = torch.tensor(taken, dtype=torch.int64).view(-1, 2).T.contiguous().to(cost.device)
    return Chosen(rows, centers)
