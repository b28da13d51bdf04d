"""Cuts a data set into a stream of tasks: which classes come when, and in which order their rows arrive."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from odedm.core.configuration import Number, OneOf, Whole, checked, refused
from odedm.core.registry import CLASS_ORDERS
from odedm.core.rng import generator
from odedm.core.rows import Rows, Task
from odedm.stream.augment import Transform
from odedm.stream.corruption import blurred, check_shares, first_rows, keep, mislabelled
from odedm.stream.dataset import Dataset, check_split


@dataclass(frozen=True)
class Stream:
    """Tasks in order, each with its training rows in arrival order and its test rows; `odedm.split` makes one.

    Labels are numbered by arrival: of C classes in T tasks, task t owns the labels t · C/T to (t + 1) · C/T - 1. Where
    borders are blurry a task has rows of other tasks' classes too.

    Args:
        tasks: the T tasks. Their rows are columns: "image" [n, ...], "label" [n], "task" [n], in which task a row
            arrives, and "index" [n], which row of the data set it is.
        tests: the test rows of each task's classes, in the same columns.
        class_names: the C names, in label order.
        transform: how rows become a network's inputs.

    >>> from odedm.stream.synthetic import blobs
    >>> stream = split(blobs(), tasks=2)
    >>> stream.classes_per_task, sorted(stream.tasks[1].rows)
    (5, ['image', 'index', 'label', 'task'])
    """

    tasks: tuple[Task, ...]
    tests: tuple[Rows, ...]
    class_names: tuple[str, ...]
    transform: Transform

    @property
    def classes_per_task(self) -> int:
        """How many classes every task has."""
        return len(self.class_names) // len(self.tasks)


@checked(tasks=Whole(), factor=Number(1), blur=Number(), noise=Number(), seed=Whole())
def split(
    data: Dataset,
    *,
    tasks: int | None = None,
    setting: str = "standard",
    factor: float = 10.0,
    limit: int | None = None,
    blur: float = 0.0,
    noise: float = 0.0,
    class_order: str = "natural",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Stream:
    """Cut a data set into tasks of equally many classes; but for a limit, test rows stay as they are.

    Args:
        data: the data set.
        tasks: how many tasks, a divisor of the number of classes; the data set's own unless given.
        setting: which training rows take part, a name in `odedm list settings`; `factor` is the long tail's.
        limit: so many training and test rows of each class, the first ones, before anything else; all unless given.
        blur: the share of every class that arrives in other tasks than its own, at least 0 and below 1.
        noise: the share of every class that has the label of another class of its task, at least 0 and below 1.
        class_order: "natural", by label, or "seed".
        seed: from which the order of rows, and of classes if asked for, blur and noise follow.
        device: where the rows will be read.

    Returns:
        The stream.

    >>> from odedm.stream.synthetic import blobs
    >>> stream = split(blobs(), tasks=5)
    >>> [task.classes for task in stream.tasks][:2]
    [(0, 1), (2, 3)]
    """
    if not isinstance(data, Dataset):
        raise refused("data", "a Dataset (see odedm.from_arrays)", data)
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise refused("device", "a device of torch, e.g. 'cpu'", device) from None
    number = data.tasks if tasks is None else tasks
    check_split(data.classes, number)
    check_shares(data.classes, number, blur=blur, noise=noise)
    limit = None if limit is None else Whole(1).read("limit", limit)
    per_task = data.classes // number
    order = arrival(data.classes, class_order, seed)
    rank = order.argsort()  # new label of each old one
    kept, tested = first_rows(data.label, limit), first_rows(data.test_label, limit)
    kept = kept[keep(data.label[kept], setting, factor, data.classes)]
    true, test_label = rank[data.label[kept]], rank[data.test_label[tested]]
    task = blurred(true, blur, tasks=number, per_task=per_task, rng=generator(seed, "blurry borders"))
    label = mislabelled(true, noise, per_task=per_task, rng=generator(seed, "label noise"))
    shuffle = generator(seed, "order")
    parts, tests = [], []
    for index in range(number):
        classes = tuple(range(index * per_task, (index + 1) * per_task))
        own = (task == index).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=shuffle)]
        held = (test_label // per_task == index).nonzero().flatten()
        parts.append(Task(index, number, classes, _rows(data.image, label[own], kept[own], index, device)))
        tests.append(_rows(data.test_image, test_label[held], tested[held], index, device))
    names = tuple(data.class_names[each] for each in order.tolist())
    return Stream(tuple(parts), tuple(tests), names, data.transform.to(device))


def arrival(classes: int, class_order: str, seed: int) -> Tensor:
    """The old labels [C] in the order in which they arrive."""
    OneOf("class order", CLASS_ORDERS).read("class_order", class_order)
    if class_order == "natural":
        return torch.arange(classes)
    return torch.randperm(classes, generator=generator(seed, "class order"))


def _rows(image: Tensor, label: Tensor, chosen: Tensor, task: int, device: torch.device) -> Rows:
    return {
        "image": image[chosen].to(device),
        "label": label.to(device),
        "task": torch.full_like(chosen, task).to(device),
        "index": chosen.to(device),
    }
