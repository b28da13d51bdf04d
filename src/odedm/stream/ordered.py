"""Makes a stream of any iterable of batches: rows in the order in which they come, with the borders they come with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.array_inputs import Array, check_same_length
from odedm.core.errors import UsageError, short_repr
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.validators import Bool, Int, Share, Text, refused, validate_params
from odedm.stream.dataset import Dataset, as_class_labels, hold_out_of_each, rows_to_test, standardise


@validate_params(
    rows_per_task=Int(1), rows=Int(1), test_share=Share(), pad=Int(0, 1000), flip=Bool(), name=Text(), seed=Int()
)
def from_batches(
    batches: Iterable[Any],
    *,
    rows_per_task: int | None = None,
    rows: int | None = None,
    test: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
    test_share: float = 0.2,
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
    names, inverse = np.unique(label, return_inverse=True)
    number = torch.from_numpy(inverse)
    first = torch.stack([task[number == place].min() for place in range(len(names))])
    order = first.argsort(stable=True)  # by arrival
    number, names = order.argsort()[number], names[order.numpy()]
    test_task: Tensor | None
    if test is None:
        keep, held = hold_out_of_each(task * len(names) + number, test_share, generator(seed, "hold out"))
        test_image, test_label, test_task = image[held], number[held], task[held]
        for untested in sorted({*task.tolist()} - {*test_task.tolist()}):
            raise UsageError(
                f"Task {untested + 1} has one row of each of its classes, so none can be held out to test it on; give "
                "test=(x, y)."
            )
        image, number, task = image[keep], number[keep], task[keep]
    else:
        test_image, test_label, test_task = _tests(test, names.tolist(), schema, int(task.max()) + 1)
        _check_tested(number, task, test_label, test_task, names)
    return Dataset(
        name,
        image,
        number,
        test_image,
        test_label,
        tuple(map(str, names)),
        standardise(image, pad=pad, flip=flip),
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
    tasks: list[int] = []
    schema: RowSchema | None = None
    for place, (x, y, task) in enumerate(_items(batches)):
        batch_schema, image = RowSchema.of_inputs(x, f"x of batch {place}")
        label = as_class_labels(y, f"y of batch {place}")
        check_same_length(len(image), len(label), f"x of batch {place}", "y")
        schema = schema or batch_schema
        schema.check_inputs(batch_schema, f"x of batch {place}")
        if images and label.dtype.kind != labels[0].dtype.kind:
            raise UsageError(f"Batch {place} has labels of another kind than the first; give whole numbers or text.")
        if images and (task is None) == bool(tasks):
            raise UsageError(f"Batch {place} {'lacks' if tasks else 'has'} a task and the first not; give all or none.")
        if task is not None:
            tasks += [_next_task(place, task, tasks[-1] if tasks else -1)] * len(label)
        images.append(image)
        labels.append(label)
        if limit is not None and sum(map(len, labels)) >= limit:
            break
    if schema is None:
        raise UsageError("The stream has no rows: give at least one batch (x, y).")
    if tasks and rows_per_task:
        raise UsageError("The batches say which task they belong to, so leave out rows_per_task.")
    image, label = torch.cat(images)[:limit], np.concatenate(labels)[:limit]
    by_size = torch.arange(len(label)) // (rows_per_task or len(label))
    return schema, image, label, torch.tensor(tasks)[:limit] if tasks else by_size


def _items(batches: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (x, y, task) of each batch; a task of None where it has none."""
    if isinstance(batches, str | bytes) or not isinstance(batches, Iterable):
        raise refused("batches", "an iterable of (x, y) or (x, y, task)", batches)
    for place, item in enumerate(batches):
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise UsageError(f"Batch {place} must be (x, y) or (x, y, task); {short_repr(item)} was given.")
        yield item[0], item[1], item[2] if len(item) == 3 else None


def _next_task(place: int, task: Any, last: int) -> int:
    """Return the number of a batch's task, which is that of the batch before or the next."""
    number: int = Int().validate(f"The task of batch {place}", task)
    if number not in (last, last + 1):
        what = f"falls from {last}" if number < last else f"leaves task {last + 1} without rows"
        raise UsageError(f"The task of batch {place} is {number}: it {what}. Count from 0 on, without a gap.")
    return number


def _tests(test: Any, names: list[Any], schema: RowSchema, tasks: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return test rows, their labels and, where there is a pair for each task, their tasks."""
    pairs = test if isinstance(test, list) else [test]
    if isinstance(test, list) and len(test) != tasks:
        raise UsageError(f"test has {len(test)} pairs for {tasks} tasks; give one for each, or a single pair (x, y).")
    numbers = {name: number for number, name in enumerate(names)}
    parts = []
    for place, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise refused("test", "a pair (x, y), or a list with a pair for each task", pair)
        x, y = rows_to_test(pair, schema)
        for label in y.tolist():
            if label not in numbers:
                raise UsageError(f"The test y has the label {short_repr(label)}, which never comes in the stream.")
        number = torch.tensor([numbers[label] for label in y.tolist()])
        parts.append((x, number, torch.full_like(number, place)))
    image, label, task = map(torch.cat, zip(*parts, strict=True))
    return image, label, task if isinstance(test, list) else None


def _check_tested(number: Tensor, task: Tensor, label: Tensor, test_task: Tensor | None, names: Array) -> None:
    """Refuse a test without rows of a class, and one of a task with classes that are not the task's."""
    if test_task is None:
        for missing in sorted({*number.tolist()} - {*label.tolist()}):
            raise UsageError(f"The test y lacks the class {short_repr(names[missing])}, which the stream has.")
        return
    for index in range(int(task.max()) + 1):
        for extra in sorted({*label[test_task == index].tolist()} - {*number[task == index].tolist()}):
            raise UsageError(
                f"The test of task {index + 1} has the class {short_repr(names[extra])}, of which no row comes in the "
                "task."
            )
