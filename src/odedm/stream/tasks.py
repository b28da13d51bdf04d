"""Cuts a data set into a stream of tasks: which classes come when, and in which order their rows arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from odedm.core.choices import CLASS_ORDERS
from odedm.core.errors import UsageError
from odedm.core.rng import generator
from odedm.core.rows import Rows, Task
from odedm.core.text import counted
from odedm.core.validators import Bool, Choice, Float, Int, Share, refused, validate_params
from odedm.stream.augment import Transform
from odedm.stream.class_schedule import Labels, Sizes, classes_return, is_regular, schedule
from odedm.stream.dataset import Dataset
from odedm.stream.scenarios import (
    add_label_noise,
    assign_tasks,
    blur_boundaries,
    check_domain,
    check_rows,
    check_shares,
    first_rows,
    imbalance_mask,
    in_domain,
    validation_split,
)

ORDERED = {
    "imbalance": "standard",
    "limit": None,
    "blur": 0.0,
    "noise": 0.0,
    "class_order": "natural",
    "task_classes": None,
    "recurring": 1,
    "domain": None,
    "validation": None,
}
"""Settings of a stream that data in an order of their own do not take, with the value that changes nothing."""
ARRANGEMENT = ("tasks", "task_classes", "recurring", "domain")
"""The settings that decide which classes each task has."""
STREAM_SETTINGS = ("tasks", *ORDERED, "first_tasks", "shuffle")
"""Settings of an experiment that are keywords of `split`."""


@dataclass(frozen=True)
class Stream:
    """Tasks in order, each with its training rows in arrival order and its test rows; `odedm.split` makes one.

    Labels are numbered by arrival: of C classes in T tasks of equally many, task t owns the labels t · C/T to
    (t + 1) · C/T - 1. Tasks may also be of unequal size or share classes. Where borders are blurry a task has rows of
    other tasks' classes too.

    Args:
        tasks: the T tasks. Their rows are columns: "image" [n, ...], "label" [n], "task" [n], in which task a row
            arrives, and "index" [n], which row of the data set it is.
        tests: the test rows of each task's classes, in the same columns.
        class_names: the C names, in label order.
        transform: how rows become a network's inputs.
        schedule: the labels of each task's own classes, of those too that `first_tasks` leaves out.

    >>> from odedm.stream.synthetic import blobs
    >>> stream = split(blobs(), tasks=2)
    >>> stream.classes_per_task, sorted(stream.tasks[1].rows)
    (5, ['image', 'index', 'label', 'task'])
    """

    tasks: tuple[Task, ...]
    tests: tuple[Rows, ...]
    class_names: tuple[str, ...]
    transform: Transform
    schedule: Labels = ()

    def __repr__(self) -> str:
        rows = (
            f"{counted(sum(map(len, self.tasks)), 'row')} and {sum(len(rows['label']) for rows in self.tests)} to test"
        )
        return f"<Stream of {counted(len(self.tasks), 'task')}, {counted(len(self.class_names), 'class')}: {rows}>"

    @property
    def labels(self) -> Labels:
        """Return the labels of each task's own classes."""
        return tuple(task.classes for task in self.tasks)

    @property
    def classes_per_task(self) -> int:
        """Return how many classes a task has, in the largest."""
        return max(len(task.classes) for task in self.tasks)

    @property
    def is_regular(self) -> bool:
        """Return whether equally many classes for each task, each in one, say which labels are whose."""
        return self.labels == self.schedule and is_regular(self.labels)

    @property
    def classes_return(self) -> bool:
        """Return whether a class belongs to more than one task; Task-IL accuracy has no meaning then."""
        return classes_return(self.labels)


@validate_params(
    tasks=Int(),
    task_classes=Sizes(),
    recurring=Int(1),
    factor=Float(1),
    blur=Float(),
    noise=Float(),
    validation=Share(),
    first_tasks=Int(1),
    shuffle=Bool(),
    seed=Int(),
)
def split(
    data: Dataset,
    *,
    tasks: int | None = None,
    task_classes: Sequence[int] | None = None,
    recurring: int = 1,
    domain: str | None = None,
    imbalance: str = "standard",
    factor: float = 10.0,
    limit: int | None = None,
    blur: float = 0.0,
    noise: float = 0.0,
    class_order: str = "natural",
    validation: float | None = None,
    first_tasks: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Stream:
    """Cut a data set into tasks, of equally many classes unless said otherwise; but for a limit, test rows stay.

    Args:
        data: the data set.
        tasks: how many tasks in all; the data set's own, in each pass, unless given.
        task_classes: how many classes each task of a pass has; equally many unless given.
        recurring: in how many passes the classes come: so often each class returns, with other rows of it.
        domain: every task has all classes, and this changes from task to task, a name in `odedm list domains`.
        imbalance: which training rows take part, a name in `odedm list imbalances`; `factor` is the long tail's.
        limit: so many training and test rows of each class, the first ones, before anything else; all unless given.
        blur: the share of every class that arrives in other tasks than its own, at least 0 and below 1.
        noise: the share of every class that has the label of another class of its task, at least 0 and below 1.
        class_order: "natural", by label, or "seed".
        validation: the share of each class's training rows that is held out and takes the place of the test rows.
        first_tasks: the stream ends after so many tasks; all unless given. What comes until then is the same.
        shuffle: whether a task's rows arrive in random order; else in that of the data set.
        seed: from which the order of rows, and of classes if asked for, passes, blur and noise follow.
        device: where the rows will be read.

    Returns:
        The stream.

    >>> from odedm.stream.synthetic import blobs
    >>> [task.classes for task in split(blobs(), tasks=5).tasks][:2]
    [(0, 1), (2, 3)]
    >>> [task.classes for task in split(blobs(classes=5, tasks=5), task_classes=(2, 3), recurring=2).tasks]
    [(0, 1), (2, 3, 4), (0, 1), (2, 3, 4)]
    """
    if not isinstance(data, Dataset):
        raise refused("data", "a Dataset (see odedm.from_arrays)", data)
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise refused("device", "a device of torch, e.g. 'cpu'", device) from None
    limit = None if limit is None else Int(1).validate("limit", limit)
    labels = check_stream(
        data,
        tasks=tasks,
        task_classes=task_classes,
        recurring=recurring,
        domain=domain,
        imbalance=imbalance,
        limit=limit,
        blur=blur,
        noise=noise,
        class_order=class_order,
        validation=validation,
        first_tasks=first_tasks,
        shuffle=shuffle,
    )
    order = arrival(data.classes, class_order, seed)
    kept, tested = first_rows(data.label, limit), first_rows(data.test_label, limit)
    kept = kept[imbalance_mask(data.label[kept], imbalance, factor, data.classes)]
    test = data.test_image, data.test_label
    if validation is not None:
        kept, tested = validation_split(
            kept, data.label[kept], validation, order=order, seed=seed, names=data.class_names
        )
        test = data.image, data.label
    rank = order.argsort()  # new label of each old one
    true = rank[data.label[kept]]
    home = data.task  # of each row, before some go elsewhere
    if home is None:
        home = assign_tasks(true, labels, shuffle=shuffle, rng=generator(seed, "passes"))
    task = blur_boundaries(true, blur, home=home, tasks=len(labels), rng=generator(seed, "blurry borders"))
    if noise:
        true = add_label_noise(true, noise, home=home, labels=labels, rng=generator(seed, "label noise"))
    cut = _Cut(data, labels, domain, seed, device)
    mix = generator(seed, "order") if shuffle and data.task is None else None
    parts = cut.tasks(first_tasks, true, kept, task, mix)
    tests = cut.tests(first_tasks, test[0], rank[test[1][tested]], tested)
    names = tuple(data.class_names[number] for number in order.tolist())
    return Stream(parts, tests, names, data.transform.to(device), labels)


@dataclass(frozen=True)
class _Cut:
    """Cuts rows into tasks with these labels."""

    data: Dataset
    labels: Labels
    domain: str | None
    seed: int
    device: torch.device

    def tasks(
        self, first_tasks: int | None, label: Tensor, rows: Tensor, task: Tensor, mix: torch.Generator | None
    ) -> tuple[Task, ...]:
        """Return the first tasks, of training rows [n] with labels [n] in tasks [n], mixed within each if asked for."""
        parts = []
        for index, classes in enumerate(self.labels[:first_tasks]):
            indices = (task == index).nonzero().flatten()
            if mix is not None:
                indices = indices[torch.randperm(len(indices), generator=mix)]
            columns = self._columns(index, self.data.image, label[indices], rows[indices])
            parts.append(Task(index, len(self.labels), classes, columns))
        return tuple(parts)

    def tests(self, first_tasks: int | None, image: Tensor, label: Tensor, rows: Tensor) -> tuple[Rows, ...]:
        """Return the rows [m] with labels [m] by which each of the first tasks is tested."""
        tests: list[Rows] = []
        test_task = self.data.test_task
        for index, classes in enumerate(self.labels[:first_tasks]):
            if test_task is None and self.domain in (None, "same") and classes in self.labels[:index]:
                tests.append(tests[self.labels.index(classes)])  # the very rows, which are then looked at once
                continue
            held = torch.isin(label, torch.tensor(classes)) if test_task is None else test_task == index
            tests.append(self._columns(index, image, label[held], rows[held]))
        return tuple(tests)

    def _columns(self, index: int, image: Tensor, label: Tensor, rows: Tensor) -> Rows:
        return {
            "image": in_domain(image[rows].to(self.device), self.domain, index, self.seed),
            "label": label.to(self.device),
            "task": torch.full_like(rows, index).to(self.device),
            "index": rows.to(self.device),
        }


def task_labels(
    data: Dataset,
    *,
    tasks: int | None = None,
    task_classes: Sequence[int] | None = None,
    recurring: int = 1,
    domain: str | None = None,
) -> Labels:
    """Return the labels of each task's classes: by the settings, or as data with an order of their own say.

    >>> from odedm.stream.synthetic import blobs
    >>> task_labels(blobs(), task_classes=(4, 6))
    ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))
    """
    if data.task is None:
        return schedule(
            data.classes, tasks, dataset_tasks=data.tasks, task_classes=task_classes, recurring=recurring, domain=domain
        )
    _check_ordered(data, task_classes=task_classes, recurring=recurring, domain=domain)
    if tasks not in (None, data.tasks):
        raise UsageError(f"The stream '{data.name}' has {data.tasks} task(s) of its own; leave out tasks={tasks}.")
    return tuple(tuple(data.label[data.task == task].unique().tolist()) for task in range(data.tasks))


def check_stream(data: Dataset, **settings: Any) -> Labels:
    """Return the labels of each task's own classes, or what of `STREAM_SETTINGS` the data cannot have."""
    arrangement = {name: settings[name] for name in ARRANGEMENT}
    labels = task_labels(data, **arrangement)
    _check_ordered(data, **{name: settings[name] for name in ORDERED})
    check_shares(labels, blur=settings["blur"], noise=settings["noise"])
    first_tasks = settings["first_tasks"]
    if first_tasks is not None and first_tasks > len(labels):
        raise UsageError(f"The stream has {counted(len(labels), 'task')}; first_tasks={first_tasks} was given.")
    check_domain(settings["domain"], data.shape, len(labels))
    if settings["domain"] is not None and settings["blur"]:
        raise UsageError("blur sends rows to other tasks than their class's, but with a domain every task has all.")
    if data.task is None and classes_return(labels):
        fewest = int(data.label.bincount(minlength=data.classes).min())
        check_rows(sum(0 in classes for classes in labels), min(fewest, settings["limit"] or fewest))
    return labels


def _check_ordered(data: Dataset, **settings: object) -> None:
    """Refuse settings that would rearrange data in an order of their own."""
    for name, value in settings.items():
        if data.task is not None and value != ORDERED[name]:
            raise UsageError(f"The rows of the stream '{data.name}' have their own order and tasks; leave out {name}.")


def arrival(classes: int, class_order: str, seed: int) -> Tensor:
    """Return the old labels [C] in the order in which they arrive."""
    Choice("class order", CLASS_ORDERS).validate("class_order", class_order)
    if class_order == "natural":
        return torch.arange(classes)
    return torch.randperm(classes, generator=generator(seed, "class order"))
