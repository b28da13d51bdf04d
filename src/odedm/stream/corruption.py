"""Applies imbalance, blurry task borders and label noise to the training rows of a data set."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.configuration import OneOf
from odedm.core.errors import UsageError
from odedm.core.registry import SETTINGS
from odedm.core.rows import rank_within


def check_shares(classes: int, tasks: int, *, blur: float, noise: float) -> None:
    """Refuse shares outside 0 to 1, blur where there is no other task, and noise where a task has no other label.

    >>> check_shares(10, 10, blur=0.1, noise=0.2)
    Traceback (most recent call last):
    odedm.UsageError: noise swaps labels within a task, but with 10 tasks each has one class. Use fewer tasks.
    """
    for name, share in (("blur", blur), ("noise", noise)):
        if not 0 <= share < 1:
            raise UsageError(f"{name} is a share of every class's rows, 0 or more and below 1; {share} was given.")
    if blur and tasks == 1:
        raise UsageError("blur sends rows to other tasks, but there is one task. Use more tasks, or leave blur out.")
    if noise and classes == tasks:
        raise UsageError(
            f"noise swaps labels within a task, but with {tasks} tasks each has one class. Use fewer tasks."
        )


def keep(label: Tensor, setting: str, factor: float, classes: int) -> Tensor:
    """Which training rows [n] a setting leaves in; positions count within each class in the data set's order.

    >>> keep(torch.tensor([0, 0, 1, 1, 0]), "imbalanced", 1.0, 2)
    tensor([False,  True,  True,  True, False])
    """
    OneOf("setting", SETTINGS).read("setting", setting)
    place = rank_within(label)
    if setting == "imbalanced":
        return (label % 2 == 1) | (place % 2 == 1)
    if setting == "imbalanced-all":
        return place % 2 == 1
    if setting == "long-tail":
        if not 1 <= factor < float("inf"):
            raise UsageError(f"The long-tail factor must be 1 or more; {factor} was given.")
        share = factor ** (-torch.arange(classes, dtype=torch.float64) / max(1, classes - 1))
        size = torch.bincount(label, minlength=classes)
        return place < (size * share).round().clamp(min=1)[label]
    return torch.ones_like(label, dtype=torch.bool)


def first_rows(label: Tensor, limit: int | None) -> Tensor:
    """The rows [m] that are left where each class has its first `limit` rows alone; all without a limit.

    >>> first_rows(torch.tensor([0, 1, 0, 0, 1]), 1).tolist(), first_rows(torch.tensor([0, 1, 0]), None).tolist()
    ([0, 1], [0, 1, 2])
    """
    if limit is None:
        return torch.arange(len(label))
    return (rank_within(label) < limit).nonzero().flatten()


def blurred(label: Tensor, share: float, *, tasks: int, per_task: int, rng: torch.Generator) -> Tensor:
    """Task numbers [n]: where each row arrives, a share of every class in another task than its own, drawn uniformly.

    Labels [n] are numbered by arrival, `per_task` to a task.

    >>> blurred(torch.tensor([0, 1, 2, 3]), 0.0, tasks=2, per_task=2, rng=torch.Generator()).tolist()
    [0, 0, 1, 1]
    """
    home = label // per_task
    return _elsewhere(home, random_share(label, share, rng), tasks, rng)


def mislabelled(label: Tensor, rate: float, *, per_task: int, rng: torch.Generator) -> Tensor:
    """The labels [n] that rows are given: for a share of every class another label of its task, drawn uniformly.

    >>> mislabelled(torch.tensor([4, 5, 4, 5]), 0.5, per_task=2, rng=torch.Generator()).sum().item()
    18
    """
    first = label // per_task * per_task
    return first + _elsewhere(label - first, random_share(label, rate, rng), per_task, rng)


def random_share(label: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Marks [n] a random share of every class: round(share · size) of its rows, though never the whole class.

    From the same generator a larger share marks the same rows and more.

    >>> random_share(torch.tensor([0] * 10 + [7]), 0.3, torch.Generator()).sum().item()
    3
    """
    order = torch.randperm(len(label), generator=rng)
    place = torch.empty_like(label)
    place[order] = rank_within(label[order])
    size = torch.bincount(label)
    return place < torch.minimum((share * size.double()).round(), size - 1.0)[label]


def _elsewhere(home: Tensor, moved: Tensor, among: int, rng: torch.Generator) -> Tensor:
    """`home` [n] for rows that are not `moved` [n], for the others a uniform draw from the rest of 0 … among - 1."""
    if among < 2:
        return home
    other = torch.randint(among - 1, home.shape, generator=rng)
    return torch.where(moved, other + (other >= home), home)
