"""Which classes each task of a stream has: equally many or not, once or returning, or all of them in every task.

Labels are numbered by arrival here, and nothing needs torch, so plans and results can be checked without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from odedm.core.choices import DOMAINS
from odedm.core.errors import UsageError
from odedm.core.validators import Choice, Int, Validator

Labels = tuple[tuple[int, ...], ...]
"""The labels of each task's own classes."""
MOST_TASKS = 100_000


@dataclass(frozen=True)
class Sizes(Validator):
    """Whole numbers from 1 on; on the command line and in a study 2,3,5.

    >>> Sizes().validate("task_classes", "2,3,5"), Sizes().validate("task_classes", [4, 6])
    ((2, 3, 5), (4, 6))
    """

    expected = "how many classes each task has, whole numbers from 1 on such as '2,3,5'"

    def convert(self, value: Any) -> tuple[int, ...]:
        """Return a tuple of plain ints, at least one."""
        parts = value.split(",") if isinstance(value, str) else value
        sizes = tuple(Int(1).convert(int(part) if isinstance(part, str) else part) for part in parts)
        if not sizes or len(sizes) > MOST_TASKS:
            raise ValueError
        return sizes


def schedule(
    classes: int,
    tasks: int | None = None,
    *,
    dataset_tasks: int = 1,
    task_classes: Sequence[int] | None = None,
    recurring: int = 1,
    domain: str | None = None,
) -> Labels:
    """Return the labels of each task of a stream.

    Args:
        classes: how many classes the data set has.
        tasks: how many tasks the stream has in all; unless given `dataset_tasks` in each pass, or one for each size.
        dataset_tasks: into how many tasks the data set is split unless somebody says otherwise.
        task_classes: how many classes each task of a pass has; equally many unless given.
        recurring: in how many passes the classes come, each pass with the same tasks.
        domain: how the tasks' images differ where each task has all classes; None where each has classes of its own.

    >>> schedule(4, 2), schedule(4, task_classes=(1, 3)), schedule(2, dataset_tasks=2, recurring=2)
    (((0, 1), (2, 3)), ((0,), (1, 2, 3)), ((0,), (1,), (0,), (1,)))
    >>> schedule(3, 2, domain="same")
    ((0, 1, 2), (0, 1, 2))
    """
    for name, value in (("tasks", tasks or 1), ("recurring", recurring)):
        if value > MOST_TASKS:
            raise UsageError(f"A stream has {MOST_TASKS} tasks at most; {name}={value} was given.")
    if domain is not None:
        Choice("domain change", DOMAINS).validate("domain", domain)
        if task_classes is not None or recurring > 1:
            other = "task_classes" if task_classes is not None else "recurring"
            raise UsageError(f"With domain='{domain}' every task has all classes, so leave out {other}.")
        return (tuple(range(classes)),) * (dataset_tasks if tasks is None else tasks)
    passes = len(task_classes) if task_classes is not None else dataset_tasks
    total = passes * recurring if tasks is None else tasks
    if total % recurring:
        raise UsageError(
            f"{total} tasks in {recurring} passes: each pass has the same tasks, so give a multiple of {recurring}."
        )
    once = total // recurring
    if task_classes is None:
        check_split(classes, once)
        task_classes = [classes // once] * once
    if len(task_classes) != once:
        what = f"{total} tasks" + (f" in {recurring} passes" if recurring > 1 else "")
        raise UsageError(f"task_classes gives {len(task_classes)} sizes for {what}; give {once}, or leave tasks out.")
    if sum(task_classes) != classes:
        sizes = " + ".join(map(str, task_classes[:12])) + (" + …" if len(task_classes) > 12 else "")
        raise UsageError(
            f"task_classes must add up to the {classes} classes of the data; {sizes} = {sum(task_classes)} was given."
        )
    edges = [0, *accumulate(task_classes)]
    return tuple(tuple(range(low, high)) for low, high in pairwise(edges)) * recurring


def check_split(classes: int, tasks: int) -> None:
    """Refuse a number of tasks that does not divide the classes evenly.

    >>> check_split(10, 3)
    Traceback (most recent call last):
    odedm.UsageError: 10 classes do not split into 3 tasks of equally many; legal numbers of tasks: 1, 2, 5, 10. \
Or say how many classes each task has: task_classes.
    """
    if tasks < 1 or classes % tasks:
        legal = ", ".join(str(number) for number in range(1, classes + 1) if classes % number == 0)
        raise UsageError(
            f"{classes} classes do not split into {tasks} tasks of equally many; legal numbers of tasks: {legal}. "
            "Or say how many classes each task has: task_classes."
        )


def default_tasks(classes: int) -> int:
    """Return five tasks where the classes allow it, or else the most, up to ten, that leave two classes to each.

    >>> [default_tasks(classes) for classes in (10, 100, 6, 9, 2, 7)]
    [5, 5, 3, 3, 1, 1]
    """
    if classes % 5 == 0 and classes >= 10:
        return 5
    return max(tasks for tasks in range(1, 11) if classes % tasks == 0 and (tasks == 1 or classes // tasks >= 2))


def is_regular(labels: Labels) -> bool:
    """Return whether tasks have equally many classes, each class once, in the order of labels: the ordinary stream.

    >>> is_regular(((0, 1), (2, 3))), is_regular(((0,), (1, 2))), is_regular(((0, 1), (0, 1)))
    (True, False, False)
    """
    size = len(labels[0])
    return all(classes == tuple(range(i * size, (i + 1) * size)) for i, classes in enumerate(labels))


def classes_return(labels: Labels) -> bool:
    """Return whether a class belongs to more than one task.

    >>> classes_return(((0, 1), (2,))), classes_return(((0, 1), (1, 2)))
    (False, True)
    """
    return len({number for classes in labels for number in classes}) < sum(map(len, labels))
