"""Prediction by the nearest class mean of stored rows' features, in place of the linear head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows, distinct, take

CHUNK = 512
"""Stored images embedded at once: bounds what the class means need."""

Embed = Callable[[Tensor], Tensor]
"""Raw images [n, ...] in, features [n, d] out."""


def means_of_rows(
    rows: Rows, embed: Embed, classes: int, *, normalised: bool = True, flip: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the class means [C, d] of raw rows, each row once, and whether a class has any [C].

    With `flip` an image counts together with its mirror image. With `normalised` features and means have length one.
    """
    rows = take(rows, distinct(rows["index"]))
    # only images have a mirror image; a mean over both views is the mean of the two views' means
    views = [rows["image"], rows["image"].flip(-1)] if flip and rows["image"].dim() == 4 else [rows["image"]]
    points = torch.stack(
        [torch.cat([_points(embed(part), normalised) for part in view.split(CHUNK)]) for view in views]
    )
    mean, known = class_means(points.mean(0), rows["label"], classes)
    return (F.normalize(mean) if normalised else mean), known


def nearest_mean_scores(features: Tensor, means: tuple[Tensor, Tensor], *, normalised: bool = True) -> Tensor:
    """Return scores [n, C] of features [n, d]: minus the squared distance to each class mean."""
    return nearness(_points(features, normalised), *means)


def _points(features: Tensor, normalised: bool) -> Tensor:
    return F.normalize(features) if normalised else features


def class_means(points: Tensor, label: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean [C, d] of the points [n, d] of each class, and whether the class has any [C]; 0 where not.

    >>> class_means(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), 2)
    (tensor([[0.],
            [2.]]), tensor([False,  True]))
    """
    # a product, not a scattered sum: the same bits on every run of a GPU
    member = (torch.arange(classes, device=label.device)[:, None] == label).to(torch.float64)
    amount = member.sum(1)
    mean = member @ points.to(torch.float64) / amount.clamp(min=1)[:, None]
    return mean.to(points.dtype), amount > 0


def nearness(points: Tensor, mean: Tensor, known: Tensor) -> Tensor:
    """Scores [n, C]: −‖x − μ‖² for points [n, d] and class means [C, d], −inf for a class that is not `known` [C].

    A class without exemplars is never the nearest, and takes no other class with it.

    >>> nearness(torch.tensor([[1.0]]), torch.tensor([[0.0], [3.0]]), torch.tensor([False, True])).tolist()
    [[-inf, -4.0]]
    """
    # differences themselves: the expanded square loses digits, the more so in TF32
    distance = torch.cdist(points, mean, compute_mode="donot_use_mm_for_euclid_dist")
    return (-distance.square()).masked_fill(~known, -torch.inf)
