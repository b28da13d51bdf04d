"""Makes a stream of any iterable of batches: rows in the order in which they come, with the borders they come with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.array_inputs import Array, check_same_length
from odedm.core.errors import UsageError, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.validators import Bool, Float, Int, Text, refused, validate_params
from odedm.stream.dataset import Dataset, as_class_labels, hold_out_of_each, rows_to_test, standardise


@validate_params(
    rows_per_task=Int(1),
    rows=Int(1),
    test_share=Float(),
    pad=Int(0, 1000),
    flip=Bool(),
    name=Text(),
    seed=Int(),
)
def from_batches(
    batches: Iterable[Any],
    *,
    rows_per_task: int | None = None,
    rows: int | None = None,
    test: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
    test_share: float = 0.2,
    classes: Sequence[Any] | None = None,
    pad: int = 0,
    flip: bool = False,
    name: str = "stream",
    seed: int = 0,
) -> Dataset:
    """Return a stream from batches of your own, for `odedm.train` and `odedm.split`; its rows keep their order.

    Tasks may be of any size and share classes. A task's classes are those whose rows arrive in it, and labels are
    numbered by the task in which they come first.

    Args:
        batches: gives (x, y) or (x, y, task): rows as for `odedm.from_arrays`, one label per row [n], and the number
            of their task, from 0 on and never falling.
        rows_per_task: where batches have no task, a new one begins after so many rows; unless given all are one task.
        rows: stop after so many rows, for an iterable without end.
        test: a pair (x, y), of which each task is tested on the rows of its classes; or a list with a pair for each
            task, for streams whose rows change from task to task.
        test_share: without `test`, the share of every class in every task that is held out to test the task on.
        classes: every label that may come; others are refused. Those that come unless given.
        pad, flip: training views of images, as for `odedm.from_arrays`.
        name: what results call it.
        seed: which rows are held out.

    Returns:
        The data set, with the task of every row.

    >>> calm, storm = np.zeros((9, 2)), np.ones((9, 2))
    >>> label = np.array(["rain", "sun", "rain"] * 3)
    >>> data = from_batches([(calm, label, 0), (storm, label, 1)])
    >>> data.class_names, data.tasks, len(data.image), len(data.test_image)
    (('rain', 'sun'), 2, 14, 4)
    """
    schema, image, label, task = _read(batches, rows_per_task, rows)
    names = np.unique(label)
    _check_classes(names, classes)
    number = torch.from_numpy(np.searchsorted(names, label))
    first = torch.stack([task[number == place].min() for place in range(len(names))])
    order = first.argsort(stable=True)  # by arrival
    number = order.argsort()[number]
    names = names[order.numpy()]
    test_task: Tensor | None
    if test is None:
        keep, held = _hold_out(number, task, test_share, seed)
        test_image, test_label, test_task = image[held], number[held], task[held]
        image, number, task = image[keep], number[keep], task[keep]
    else:
        test_image, test_label, test_task = _tests(test, names, schema, int(task.max()) + 1)
        _check_tested(number, task, test_label, test_task, names)
    if (pad or flip) and image.dim() != 4:
        raise UsageError("pad and flip are for images; the batches hold vectors. Leave both out.")
    transform = standardise(image, pad=pad, flip=flip)
    return Dataset(
        name,
        image,
        number,
        test_image,
        test_label,
        tuple(map(str, names)),
        transform,
        int(task.max()) + 1,
        task=task,
        test_task=test_task,
        labels=tuple(names.tolist()),
    )


def _read(
    batches: Iterable[Any], rows_per_task: int | None, limit: int | None
) -> tuple[RowSchema, Tensor, Array, Tensor]:
    """Return the schema of rows, the rows [n, ...], their labels [n] and tasks [n], up to a limit of rows."""
    images: list[Tensor] = []
    labels: list[Array] = []
    tasks: list[Tensor] = []
    num_rows = 0
    first: tuple[RowSchema, bool, bool] | None = None
    for place, (x, y, task) in enumerate(_items(batches)):
        schema, image = RowSchema.of_inputs(x, f"x of batch {place}")
        label = as_class_labels(y, f"y of batch {place}")
        check_same_length(len(image), len(label), f"x of batch {place}", "y")
        first = first or (schema, label.dtype.kind == "U", task is None)
        first[0].check_inputs(schema, f"x of batch {place}")
        _check_labels_and_task(place, (label.dtype.kind == "U", task is None), first[1:])
        if task is not None:
            if rows_per_task:
                raise UsageError("The batches say which task they belong to, so leave out rows_per_task.")
            number = _next_task(place, task, int(tasks[-1][0]) if tasks else -1)
            tasks.append(torch.full((len(label),), number))
        images.append(image)
        labels.append(label)
        num_rows += len(label)
        if limit is not None and num_rows >= limit:
            break
    if first is None:
        raise UsageError("The stream has no rows: give at least one batch (x, y).")
    image, label = torch.cat(images)[:limit], np.concatenate(labels)[:limit]
    by_size = torch.arange(len(label)) // (rows_per_task or len(label))
    return first[0], image, label, torch.cat(tasks)[:limit] if tasks else by_size


def _next_task(place: int, task: Any, last: int) -> int:
    number: int = Int().validate(f"The task of batch {place}", task)
    if number not in (last, last + 1):
        what = f"falls from {last}" if number < last else f"leaves task {last + 1} without rows"
        raise UsageError(f"The task of batch {place} is {number}: it {what}. Count from 0 on, without a gap.")
    return number


def _items(batches: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(batches, str | bytes) or not isinstance(batches, Iterable):
        raise refused("batches", "an iterable of (x, y) or (x, y, task)", batches)
    for place, item in enumerate(batches):
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise UsageError(f"Batch {place} must be (x, y) or (x, y, task); {short_repr(item)} was given.")
        yield item[0], item[1], item[2] if len(item) == 3 else None


def _check_labels_and_task(place: int, given: tuple[bool, bool], first: tuple[bool, bool]) -> None:
    """Refuse a batch whose labels are text, or that has no task, where that of the first was otherwise."""
    if given[0] != first[0]:
        raise UsageError(f"Batch {place} has labels of another kind than the first: all whole numbers, or all text.")
    if given[1] != first[1]:
        raise UsageError(
            f"Batch {place} {'lacks' if given[1] else 'has'} a task and the first not so; give all or none."
        )


def _check_classes(names: Array, classes: Sequence[Any] | None) -> None:
    """Refuse labels that are not among those that may come, and of those one that never comes."""
    if classes is None:
        return
    known = as_class_labels(list(classes), "classes").tolist()
    strange = [name for name in names.tolist() if name not in known]
    if strange:
        raise UsageError(
            f"The stream has the label {short_repr(strange[0])}, which is not among its {len(known)} classes."
        )
    missing = [name for name in known if name not in names.tolist()]
    if missing:
        raise UsageError(
            f"The class {short_repr(missing[0])} is in no task: no row of the stream has it. Leave it out."
        )


def _hold_out(number: Tensor, task: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return rows to learn from and rows to test on, of each class in each task."""
    keep, out = hold_out_of_each(task * (int(number.max()) + 1) + number, share, seed)
    untested = sorted(set(task.tolist()) - set(task[out].tolist()))
    if untested:
        raise UsageError(
            f"Task {untested[0] + 1} has one row of each of its classes, so none can be held out to test it on; give "
            "test=(x, y)."
        )
    return keep, out


def _tests(test: Any, names: Array, schema: RowSchema, tasks: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return test rows, their labels and, where there is a pair for each task, their tasks."""
    pairs = test if isinstance(test, list) else [test]
    if isinstance(test, list) and len(test) != tasks:
        raise UsageError(f"test has {len(test)} pairs for {tasks} tasks; give one for each, or a single pair (x, y).")
    parts = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise refused("test", "a pair (x, y), or a list with a pair for each task", pair)
        x, y = rows_to_test(pair, schema)
        known = {name: place for place, name in enumerate(names.tolist())}
        strange = [name for name in y.tolist() if name not in known]
        if strange:
            raise UsageError(f"The test y has the label {short_repr(strange[0])}, which never comes in the stream.")
        parts.append((x, torch.tensor([known[name] for name in y.tolist()])))
    task = torch.cat([torch.full((len(y),), place) for place, (_, y) in enumerate(parts)])
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]), task if isinstance(test, list) else None


def _check_tested(number: Tensor, task: Tensor, label: Tensor, test_task: Tensor | None, names: Array) -> None:
    """Refuse a test without rows of a class, and one of a task with classes that are not the task's."""
    if test_task is None:
        missing = sorted(set(number.tolist()) - set(label.tolist()))
        if missing:
            raise UsageError(f"The test y lacks the class {short_repr(names[missing[0]])}, which the stream has.")
        return
    for index in range(int(task.max()) + 1):
        strange = sorted(set(label[test_task == index].tolist()) - set(number[task == index].tolist()))
        if strange:
            word = short_repr(names[strange[0]])
            raise UsageError(f"The test of task {index + 1} has the class {word}, of which no row comes in the task.")
