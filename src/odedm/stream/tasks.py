"""From a data set to a stream of tasks: class split, class order, imbalance, seeded arrival order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from odedm.catalogue import CLASS_ORDERS, SETTINGS
from odedm.errors import UsageError, choose
from odedm.randomness import generator
from odedm.rows import Rows, Task
from odedm.stream.augment import Transform
from odedm.stream.datasets import Dataset


@dataclass(frozen=True)
class Stream:
    """Tasks in order, each with its training rows in arrival order and its test rows.

    Labels are numbered by arrival: task t owns the labels t·c to (t+1)·c - 1, and `class_names` follows them.
    """

    tasks: tuple[Task, ...]
    tests: tuple[Rows, ...]
    class_names: tuple[str, ...]
    transform: Transform

    @property
    def classes_per_task(self) -> int:
        """How many classes every task has."""
        return len(self.class_names) // len(self.tasks)


def split(
    data: Dataset,
    *,
    tasks: int | None = None,
    setting: str = "standard",
    factor: float = 10.0,
    class_order: str = "natural",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Stream:
    """Cut a data set into tasks of equally many classes, on the device where it will be read.

    >>> from odedm.stream.synthetic import blobs
    >>> stream = split(blobs(), tasks=5)
    >>> [task.classes for task in stream.tasks][:2]
    [(0, 1), (2, 3)]
    """
    number = data.tasks if tasks is None else tasks
    check_split(data.classes, number)
    order = arrival(data.classes, class_order, seed)
    rank = order.argsort()  # new label of each old one
    kept = keep(data.label, setting, factor, data.classes)
    label, test_label = rank[data.label], rank[data.test_label]
    shuffle = generator(seed, "order")
    device, per_task = torch.device(device), data.classes // number
    parts, tests = [], []
    for index in range(number):
        classes = tuple(range(index * per_task, (index + 1) * per_task))
        chosen = (kept & (label // per_task == index)).nonzero().flatten()
        chosen = chosen[torch.randperm(len(chosen), generator=shuffle)]
        held = (test_label // per_task == index).nonzero().flatten()
        parts.append(Task(index, number, classes, _rows(data.image, label, chosen, index, device)))
        tests.append(_rows(data.test_image, test_label, held, index, device))
    names = tuple(data.class_names[each] for each in order.tolist())
    return Stream(tuple(parts), tuple(tests), names, data.transform.to(device))


def check_split(classes: int, tasks: int) -> None:
    """Refuse a number of tasks that does not divide the classes evenly.

    >>> check_split(10, 3)
    Traceback (most recent call last):
    odedm.errors.UsageError: 10 classes do not split into 3 tasks of equally many; legal numbers of tasks: 1, 2, 5, 10.
    """
    if tasks < 1 or classes % tasks:
        legal = ", ".join(str(each) for each in range(1, classes + 1) if classes % each == 0)
        raise UsageError(
            f"{classes} classes do not split into {tasks} tasks of equally many; legal numbers of tasks: {legal}."
        )


def arrival(classes: int, class_order: str, seed: int) -> Tensor:
    """The old labels [C] in the order in which they arrive."""
    choose("class order", class_order, CLASS_ORDERS)
    if class_order == "natural":
        return torch.arange(classes)
    return torch.randperm(classes, generator=generator(seed, "class order"))


def keep(label: Tensor, setting: str, factor: float, classes: int) -> Tensor:
    """Which training rows [n] a setting leaves in; positions count within each class in the data set's order.

    >>> keep(torch.tensor([0, 0, 1, 1, 0]), "imbalanced", 1.0, 2)
    tensor([False,  True,  True,  True, False])
    """
    choose("setting", setting, SETTINGS)
    size = torch.bincount(label, minlength=classes)
    by_class = label.argsort(stable=True)
    place = torch.empty_like(label)
    place[by_class] = torch.arange(len(label)) - (size.cumsum(0) - size)[label[by_class]]
    if setting == "imbalanced":
        return (label % 2 == 1) | (place % 2 == 1)
    if setting == "imbalanced-all":
        return place % 2 == 1
    if setting == "long-tail":
        if not 1 <= factor < float("inf"):
            raise UsageError(f"The long-tail factor must be 1 or more; {factor} was given.")
        share = factor ** (-torch.arange(classes, dtype=torch.float64) / max(1, classes - 1))
        return place < (size * share).round().clamp(min=1)[label]
    return torch.ones_like(label, dtype=torch.bool)


def _rows(image: Tensor, label: Tensor, chosen: Tensor, task: int, device: torch.device) -> Rows:
    return {
        "image": image[chosen].to(device),
        "label": label[chosen].to(device),
        "task": torch.full_like(chosen, task).to(device),
        "index": chosen.to(device),
    }
