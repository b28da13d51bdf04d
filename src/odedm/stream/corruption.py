"""What a stream does to a data set's training rows: which are left out, in which task they arrive, whose label lies."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.errors import UsageError, choose
from odedm.core.registry import SETTINGS


def check_shares(classes: int, tasks: int, *, blur: float, noise: float) -> None:
    """Refuse shares that are none, and wishes for which there is no other task or no other label.

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
    choose("setting", setting, SETTINGS)
    place = places(label)
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


def blurred(label: Tensor, share: float, *, tasks: int, per_task: int, rng: torch.Generator) -> Tensor:
    """In which task each row [n] arrives: a share of every class in another one than its own, all others alike likely.

    Labels [n] are numbered by arrival, `per_task` to a task.

    >>> blurred(torch.tensor([0, 1, 2, 3]), 0.0, tasks=2, per_task=2, rng=torch.Generator()).tolist()
    [0, 0, 1, 1]
    """
    home = label // per_task
    return _elsewhere(home, some(label, share, rng), tasks, rng)


def mislabelled(label: Tensor, rate: float, *, per_task: int, rng: torch.Generator) -> Tensor:
    """The labels [n] that rows are given: for a share of every class another one of its task, all alike likely.

    >>> mislabelled(torch.tensor([4, 5, 4, 5]), 0.5, per_task=2, rng=torch.Generator()).sum().item()
    18
    """
    first = label // per_task * per_task
    return first + _elsewhere(label - first, some(label, rate, rng), per_task, rng)


def some(label: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Whether a row [n] is among a random share of its class: round(share · size) rows, though never the whole class.

    From the same generator a larger share marks the same rows and more.

    >>> some(torch.tensor([0] * 10 + [7]), 0.3, torch.Generator()).sum().item()
    3
    """
    order = torch.randperm(len(label), generator=rng)
    place = torch.empty_like(label)
    place[order] = places(label[order])
    size = torch.bincount(label)
    return place < torch.minimum((share * size.double()).round(), size - 1.0)[label]


def places(label: Tensor) -> Tensor:
    """How many rows of the same label [n] come before each row.

    >>> places(torch.tensor([4, 4, 0, 4, 0])).tolist()
    [0, 1, 0, 2, 1]
    """
    by_class = label.argsort(stable=True)
    size = torch.bincount(label)
    place = torch.empty_like(label)
    place[by_class] = torch.arange(len(label)) - (size.cumsum(0) - size)[label[by_class]]
    return place


def _elsewhere(home: Tensor, moved: Tensor, among: int, rng: torch.Generator) -> Tensor:
    """`home` [n] for rows that are not `moved` [n], for the others a uniform draw from the rest of 0 … among - 1."""
    if among < 2:
        return home
    other = torch.randint(among - 1, home.shape, generator=rng)
    return torch.where(moved, other + (other >= home), home)
