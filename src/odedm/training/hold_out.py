"""Holds training rows of the first tasks out of training, so that choices can be made without the test set.

Test rows and test labels are never read here, and the seeds are others than those of the runs that are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odedm.core.errors import UsageError
from odedm.core.held_out_rows import hold_out
from odedm.core.validators import LARGEST, Float, Int, Validator, is_scalar, refused
from odedm.memory.build_context import StreamShape
from odedm.memory.settings import ODEDM, AnyMemory
from odedm.stream.class_schedule import Labels
from odedm.training.experiment import Experiment

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

HELD_OUT = "The share of held-out rows"


@dataclass(frozen=True)
class Selection:
    """How a choice is made without the test set: on a `share` of the training rows of the first `tasks` tasks.

    These rows are held out of training, and the seeds are others than those of the study.
    """

    tasks: int = 2
    share: float = 0.2
    seeds: tuple[int, ...] = (1000, 1001, 1002)

    def __post_init__(self) -> None:
        Int(1).validate("The number of first tasks to choose on", self.tasks)
        if not 0 < Float(0, 1).validate(HELD_OUT, self.share) < 1:
            raise refused(HELD_OUT, "a number between 0 and 1", self.share)
        check_values("select.seeds", self.seeds, Int())


def check_values(name: str, values: Sequence[Any], kind: Validator | None = None) -> None:
    """Refuse an empty list, a value that is not of the kind, and the same value twice.

    >>> check_values("seeds", (3, 1, 3), Int())
    Traceback (most recent call last):
    odedm.UsageError: 'seeds' has 3 twice; give it once.
    """
    if not values:
        raise UsageError(f"'{name}' is an empty list, so there is nothing to run; give a value, or leave it out.")
    seen: set[str] = set()
    for value in values:
        if kind is not None:
            kind.validate(f"'{name}'", value)
        elif not is_scalar(value) or (isinstance(value, int) and abs(value) > LARGEST):
            legal = f"a number, whole ones up to {LARGEST}, or a word, true or false, or a list of these"
            raise refused(f"'{name}'", legal, value)
        if repr(value) in seen:
            raise UsageError(f"'{name}' has {value!r} twice; give it once.")
        seen.add(repr(value))


def held_out(data: Dataset, plan: Experiment, select: Selection) -> tuple[Experiment, Dataset]:
    """The first tasks of the experiment's stream, with a share of each class's training rows in place of test rows.

    The setting is applied first, so that held-out rows are as imbalanced as those of training; k stays that of the
    whole stream, or rho becomes what the classes' quotas come to.
    """
    import torch

    from odedm.core.rng import generator
    from odedm.stream.dataset import Dataset
    from odedm.stream.scenarios import first_rows, imbalance_mask
    from odedm.stream.tasks import ARRANGEMENT, arrival, task_labels

    if data.task is not None:
        raise UsageError(f"The rows of the stream '{data.name}' have their own order, so none can be held out of it.")
    arrangement = {name: getattr(plan, name) for name in ARRANGEMENT}
    labels = task_labels(data, **arrangement)
    tasks = len(labels)
    if select.tasks > tasks:
        raise UsageError(
            f"A choice on the first {select.tasks} tasks was asked for, but the stream has {tasks}; give fewer."
        )
    order = arrival(data.classes, plan.class_order, plan.seed)
    chosen = order[: 1 + max(each for own in labels[: select.tasks] for each in own)]
    first = first_rows(data.label, plan.limit)
    taken = torch.zeros_like(data.label, dtype=torch.bool)
    taken[first] = imbalance_mask(data.label[first], plan.imbalance, plan.factor or 1.0, data.classes)
    rng = generator(plan.seed, "held-out rows")
    train: list[tuple[int, int]] = []
    test: list[tuple[int, int]] = []
    for number, label in enumerate(chosen.tolist()):
        rows = ((data.label == label) & taken).nonzero().flatten()
        kept, held = hold_out(rows[torch.randperm(len(rows), generator=rng)].tolist(), select.share)
        if not held:
            raise UsageError(f"Class '{data.class_names[label]}' has {len(rows)} rows, too few to hold one out.")
        train += [(row, number) for row in kept]
        test += [(row, number) for row in held]
    names = tuple(data.class_names[label] for label in chosen.tolist())
    (row, number), (test_row, test_number) = (torch.tensor(each).T.contiguous() for each in (train, test))
    columns = data.image[row], number, data.image[test_row], test_number
    once = tasks // plan.recurring
    passes = max(1, select.tasks // once)
    if select.tasks > once and select.tasks % once:
        raise UsageError(
            f"A choice on the first {select.tasks} tasks ends within a pass of {once}: give {once} or fewer, or a "
            "multiple of it."
        )
    sizes = None if plan.task_classes is None else plan.task_classes[: select.tasks // passes]
    part = Dataset(data.name, *columns, names, data.transform, select.tasks // passes)
    memory = _with_share_of(plan.memory, labels, select.tasks)
    own = replace(plan, memory=memory, tasks=select.tasks, task_classes=sizes, recurring=passes)
    own = replace(own, imbalance="standard", factor=None, class_order="natural")
    return (own if select.tasks > 1 else replace(own, blur=0.0)), part


def _with_share_of(memory: AnyMemory, labels: Labels, tasks: int) -> AnyMemory:
    """The memory for the first tasks of a stream, where classes have quotas of their own: rho is what these come to."""
    from odedm.memory.prototype_quotas import class_quotas

    shape = StreamShape.of(labels)
    if not isinstance(memory, ODEDM) or memory.k is not None or not memory.rho or not shape.task_classes:
        return memory
    quota = class_quotas(memory, shape)
    rows = sum(quota[each] for each in {each for own in labels[: tasks - 1] for each in own})
    share = rows * memory.rows_per_prototype / max(1, memory.capacity)
    return replace(memory, rho=min(1.0, share) if rows else memory.rho)
