"""Scenarios: imbalance, blurred task boundaries, label noise, and what rows look like in each task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from odedm.core.choices import IMBALANCES
from odedm.core.errors import UsageError
from odedm.core.rng import generator
from odedm.core.rows import rank_within
from odedm.core.text import counted
from odedm.core.validators import Choice
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import hold_out_of_each


def check_shares(labels: Labels, *, blur: float, noise: float) -> None:
    """Refuse shares outside 0 to 1, blur where there is no other task, and noise where a task has no other label.

    >>> check_shares(((0,), (1,), (2, 3)), blur=0.1, noise=0.2)
    Traceback (most recent call last):
    odedm.UsageError: noise swaps labels within a task, but task 1 has one class. Use fewer tasks.
    """
    for name, share in (("blur", blur), ("noise", noise)):
        if not 0 <= share < 1:
            raise UsageError(f"{name} is a share of every class's rows, 0 or more and below 1; {share} was given.")
    if blur and len(labels) == 1:
        raise UsageError("blur sends rows to other tasks, but there is one task. Use more tasks, or leave blur out.")
    single = [task for task, classes in enumerate(labels, start=1) if len(classes) == 1]
    if noise and single:
        raise UsageError(f"noise swaps labels within a task, but task {single[0]} has one class. Use fewer tasks.")


def check_rows(tasks: int, rows: int) -> None:
    """Refuse a class that comes in more tasks than it has rows.

    >>> check_rows(3, 2)
    Traceback (most recent call last):
    odedm.UsageError: A class comes in 3 tasks but has 2 training row(s); one a task is the least. Use fewer tasks.
    """
    if rows < tasks:
        raise UsageError(
            f"A class comes in {tasks} tasks but has {rows} training row(s); one a task is the least. Use fewer tasks."
        )


def imbalance_mask(label: Tensor, imbalance: str, factor: float, classes: int) -> Tensor:
    """Return which training rows [n] an imbalance leaves in; positions count within each class in the data set's order.

    >>> imbalance_mask(torch.tensor([0, 0, 1, 1, 0]), "imbalanced", 1.0, 2)
    tensor([False,  True,  True,  True, False])
    """
    Choice("imbalance", IMBALANCES).validate("imbalance", imbalance)
    place = rank_within(label)
    if imbalance == "imbalanced":
        return (label % 2 == 1) | (place % 2 == 1)
    if imbalance == "imbalanced-all":
        return place % 2 == 1
    if imbalance == "long-tail":
        if not 1 <= factor < float("inf"):
            raise UsageError(f"The long-tail factor must be 1 or more; {factor} was given.")
        share = factor ** (-torch.arange(classes, dtype=torch.float64) / max(1, classes - 1))
        size = torch.bincount(label, minlength=classes)
        return place < (size * share).round().clamp(min=1)[label]
    return torch.ones_like(label, dtype=torch.bool)


def first_rows(label: Tensor, limit: int | None) -> Tensor:
    """Return the rows [m] that are left where each class has its first `limit` rows alone; all without a limit.

    >>> first_rows(torch.tensor([0, 1, 0, 0, 1]), 1).tolist(), first_rows(torch.tensor([0, 1, 0]), None).tolist()
    ([0, 1], [0, 1, 2])
    """
    if limit is None:
        return torch.arange(len(label))
    return (rank_within(label) < limit).nonzero().flatten()


def validation_split(
    rows: Tensor, label: Tensor, fraction: float, *, order: Tensor, seed: int, names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Return the rows to train on and those to validate by, in their order: a fraction of each class, by the seed.

    Args:
        rows: training rows [n] that arrive, by their place in the data set; `label` [n] are theirs.
        fraction: of each class, between 0 and 1; at least one row of a class stays on either side.
        order: the labels in the order in which classes arrive, in which they draw.
        seed: from which the draw follows.
        names: of the classes, for errors.
    """
    keep, held = hold_out_of_each(order.argsort()[label], fraction, generator(seed, "held-out rows"))
    for number in sorted({*order.tolist()} - {*label[held].tolist()}):
        size = int((label == number).sum())
        raise UsageError(f"Class '{names[number]}' has {counted(size, 'row')}, too few to hold one out.")
    return rows[keep], rows[held]


def assign_tasks(label: Tensor, labels: Labels, *, shuffle: bool, rng: torch.Generator) -> Tensor:
    """Return which task each row belongs to [n]; a class of several tasks gives each of them equally many of its rows.

    Which ones is drawn, or with `shuffle=False` its first rows go to its first task, and so on.

    >>> rows = torch.tensor([0, 1, 0, 1, 1])
    >>> assign_tasks(rows, ((0,), (1,), (1,)), shuffle=False, rng=torch.Generator()).tolist()
    [0, 1, 0, 1, 2]
    """
    tasks_of: dict[int, list[int]] = {}
    for task, classes in enumerate(labels):
        for number in classes:
            tasks_of.setdefault(number, []).append(task)
    most = max(map(len, tasks_of.values()))
    owner = torch.tensor([tasks_of[number] + [-1] * (most - len(tasks_of[number])) for number in sorted(tasks_of)])
    if most == 1:
        return owner[label, 0]
    times = (owner >= 0).sum(1)
    size = torch.bincount(label, minlength=len(owner))
    for num_tasks, num_rows in zip(times.tolist(), size.tolist(), strict=True):
        check_rows(num_tasks, num_rows)
    order = torch.randperm(len(label), generator=rng) if shuffle else torch.arange(len(label))
    place = torch.empty_like(label)
    place[order] = rank_within(label[order])
    return owner[label, place * times[label] // size[label]]


def blur_boundaries(label: Tensor, share: float, *, home: Tensor, tasks: int, rng: torch.Generator) -> Tensor:
    """Return task numbers [n]: where each row arrives, a share of every class in another task than its `home` [n].

    Which other task is drawn uniformly. A class that comes in several tasks keeps a row in each.

    >>> rows = torch.tensor([0, 1, 2, 3])
    >>> blur_boundaries(rows, 0.0, home=rows // 2, tasks=2, rng=torch.Generator()).tolist()
    [0, 0, 1, 1]
    """
    return _elsewhere(home, random_share(label * tasks + home, share, rng), tasks, rng)


def add_label_noise(label: Tensor, rate: float, *, home: Tensor, labels: Labels, rng: torch.Generator) -> Tensor:
    """Return the labels [n] that rows are given: for a share of every class another label of its `home` [n].

    >>> rows = torch.tensor([0, 1, 0, 1])
    >>> add_label_noise(rows, 0.5, home=rows * 0, labels=((0, 1),), rng=torch.Generator()).sum().item()
    2
    """
    moved = random_share(label, rate, rng)
    first, size = (torch.tensor([function(classes) for classes in labels])[home] for function in (min, len))
    noisy = label
    for num_classes in sorted(set(map(len, labels))):  # tasks of one size share their draws
        other = first + _elsewhere(label - first, moved, num_classes, rng)
        noisy = torch.where(size == num_classes, other, noisy)
    return noisy


def random_share(label: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Return marks [n] a random share of every class: round(share · size) of its rows, though never the whole class.

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
    """Return `home` [n] of rows not `moved` [n], for others a uniform draw from the rest of 0 … among - 1."""
    if among < 2:
        return home
    other = torch.randint(among - 1, home.shape, generator=rng)
    return torch.where(moved, other + (other >= home), home)


def check_domain(domain: str | None, shape: tuple[int, ...], tasks: int) -> None:
    """Refuse a change that rows of this shape, or so many tasks, cannot have.

    >>> check_domain("rotated", (64,), 3)
    Traceback (most recent call last):
    odedm.UsageError: domain='rotated' turns square images; rows here have the shape (64,). Use 'permuted'.
    """
    if domain != "rotated":
        return
    if len(shape) != 3 or shape[1] != shape[2]:
        raise UsageError(f"domain='rotated' turns square images; rows here have the shape {shape}. Use 'permuted'.")
    if tasks > 4:
        raise UsageError(f"domain='rotated' has 4 quarter turns, so 4 tasks at most; {tasks} were asked for.")


def in_domain(image: Tensor, domain: str | None, task: int, seed: int) -> Tensor:
    """Return rows [n, ...] as they look in a task: their values at other places; the first task's as they are.

    >>> in_domain(torch.tensor([[[[1, 2], [3, 4]]]]), "rotated", 1, seed=0).tolist()
    [[[[2, 4], [1, 3]]]]
    """
    if task == 0 or domain in (None, "same"):
        return image
    if domain == "rotated":
        return torch.rot90(image, task, (2, 3)).contiguous()
    # pixels move with all their channels
    places = image[0, 0].numel() if image.dim() == 4 else image[0].numel()
    order = torch.randperm(places, generator=generator(seed, f"pixels of task {task}"))
    flat = image.flatten(2) if image.dim() == 4 else image
    return flat[..., order.to(image.device)].view_as(image)
