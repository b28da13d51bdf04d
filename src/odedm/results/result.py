"""The result of a run: accuracy matrices, what follows from them, seconds, the memory's contents, provenance."""

from __future__ import annotations

import math
import os
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from odedm.core.errors import InvalidFileError, UsageError, demand
from odedm.core.files import as_path
from odedm.core.plain_data import DEEPEST, too_deep
from odedm.core.plugin_modules import code_marks
from odedm.core.seal import read_json
from odedm.results.headline import as_html, one_line

SCHEMA = "odedm.result/3"

MOST = 1e100
"""What no number of a run exceeds: beyond, statistics would overflow."""
MOST_BYTES = 1 << 26
"""What no `result.json` exceeds."""

Matrix = list[list[float]]
"""Row i holds the accuracy (%) on tasks 0..i after task i."""


def average_accuracy(matrix: Matrix) -> list[float]:
    """ACC_i, the mean accuracy over the tasks seen so far, after each task.

    >>> average_accuracy([[90.0], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [math.fsum(row) / len(row) for row in matrix]


def forgetting(matrix: Matrix) -> float | None:
    """Mean over the earlier tasks of the best past accuracy minus the final one; None with a single task.

    >>> forgetting([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    42.5
    """
    last = len(matrix) - 1
    drops = [max(row[j] for row in matrix[j:last]) - matrix[last][j] for j in range(last)]
    return math.fsum(drops) / last if last else None


def backward_transfer(matrix: Matrix) -> float | None:
    """Mean over the earlier tasks of the final accuracy minus the one right after learning the task; None without any.

    >>> backward_transfer([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    -40.0
    """
    last = len(matrix) - 1
    changes = [matrix[last][j] - matrix[j][j] for j in range(last)]
    return math.fsum(changes) / last if last else None


def figures(class_il: Matrix, task_il: Matrix | None) -> dict[str, Any]:
    """Every figure of a result that follows from its two matrices; None where it cannot be defined.

    >>> figures([[90.0], [50.0, 80.0]], [[95.0], [85.0, 90.0]])["task_il_last"]
    87.5
    """
    acc = average_accuracy(class_il)
    return {
        "acc": acc,
        "acc_last": acc[-1],
        "acc_mean": math.fsum(acc) / len(acc),
        "task_il_last": None if task_il is None else average_accuracy(task_il)[-1],
        "forgetting_rate": [100.0 - value for value in acc],
        "forgetting": forgetting(class_il),
        "backward_transfer": backward_transfer(class_il),
    }


@dataclass(frozen=True)
class Result:
    """One finished run, as its `result.json` holds it.

    Args:
        schema: the format of the file.
        experiment: the resolved plan; `Experiment.from_dict(result.experiment)` gives it back.
        classes: the C class names in the order of their arrival.
        class_il: accuracy (%) after each of T tasks among all classes seen: T rows, row i on tasks 0..i.
        task_il: the same among the classes of each tested task alone; None where tasks share classes.
        acc: mean of each row of `class_il` [T]; `acc_last` is its last entry, `acc_mean` the mean of all.
        task_il_last: mean of the last row of `task_il`.
        forgetting_rate: 100 − `acc` [T], as the paper defines it.
        forgetting: best past accuracy minus the final one, mean over earlier tasks; None where there are none.
        backward_transfer: final accuracy minus the one right after learning a task, likewise.
        seconds: wall seconds by phase.
        class_counts: for each task, the rows stored after it, by part of the memory and class [C].
        provenance: versions, device, commit, checksum of the data.
        anytime: pairs of rows seen and mean accuracy over the tasks so far, where the run measured that.
        task_labels: the labels of each task's own classes, by their place in `classes`, where tasks are of unequal size
            or share classes.
        sample_gradients: rows that went through the network for a gradient, for each row of the stream: what the run
            cost, whatever it ran on. None in results from before this was counted.

    >>> matrix = [[90.0], [50.0, 80.0]]
    >>> shared = {"experiment": {}, "classes": [], "seconds": {}, "class_counts": [], "provenance": {}}
    >>> result = Result.measure(class_il=matrix, task_il=matrix, **shared)
    >>> result.acc, result.acc_last, result.forgetting
    ([90.0, 65.0], 65.0, 40.0)
    """

    schema: str
    experiment: dict[str, Any]
    classes: list[str]
    class_il: Matrix
    task_il: Matrix | None
    acc: list[float]
    acc_last: float
    acc_mean: float
    task_il_last: float | None
    forgetting_rate: list[float]
    forgetting: float | None
    backward_transfer: float | None
    seconds: dict[str, float]
    class_counts: list[dict[str, list[int]]]
    provenance: dict[str, Any]
    anytime: list[list[float]] | None = None
    task_labels: list[list[int]] | None = None
    sample_gradients: float | None = None

    @classmethod
    def measure(cls, *, class_il: Matrix, task_il: Matrix | None, **given: Any) -> Result:
        """A result of two matrices and what was `given`, the fields that do not follow from them."""
        return cls(schema=SCHEMA, class_il=class_il, task_il=task_il, **figures(class_il, task_il), **given)

    def __repr__(self) -> str:
        return f"<Result of {one_line([self])}>"

    def _repr_html_(self) -> str:
        return as_html([self])

    @property
    def total_seconds(self) -> float:
        """Wall seconds, all phases together."""
        return math.fsum(self.seconds.values())

    @property
    def labels(self) -> list[list[int]]:
        """The labels of each task's own classes, by their place in `classes`."""
        if self.task_labels is not None:
            return self.task_labels
        each = len(self.classes) // len(self.acc)
        return [list(range(task * each, (task + 1) * each)) for task in range(len(self.acc))]

    def titles(self) -> dict[str, str]:
        """How people write the code from outside that the run was made with, by setting; nothing need be installed."""
        return {setting: title for setting, title, _ in self.outside()}

    def only_there(self) -> list[str]:
        """Titles of what only the process knew that made the run: it cannot be run again from its file."""
        return [title for _, title, again in self.outside() if not again]

    def outside(self) -> list[tuple[str, str, bool]]:
        """Settings that named code from outside: the setting, its title, and whether a file can name that code."""
        found = self.provenance.get("outside")
        every = found.items() if isinstance(found, dict) else ()
        sound = [(key, each) for key, each in every if isinstance(each, dict) and isinstance(each.get("title"), str)]
        return [(str(key), each["title"], each.get("again") is True) for key, each in sound]

    def code_marks(self) -> dict[str, str]:
        """Which code from outside made it, by setting; nothing for what was not known of it."""
        return code_marks(self.provenance.get("outside"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; without what was not measured."""
        plain = asdict(self)
        for name in ("anytime", "task_labels", "sample_gradients"):
            if plain[name] is None:
                del plain[name]
        return plain

    @classmethod
    def from_dict(cls, plain: object, where: str = "a result") -> Result:
        """A result from plain data of anyone's, or what is wrong with it."""
        if too_deep(plain):
            raise UsageError(f"'{where}' is not a result: more than {DEEPEST} levels of it lie in each other.")
        if not isinstance(plain, dict) or not str(plain.get("schema")).startswith("odedm.result/"):
            raise UsageError(f"'{where}' is not a result: there is no format '{SCHEMA}' in it.")
        if plain["schema"] != SCHEMA:
            given = repr(plain["schema"])[:60]
            raise UsageError(f"'{where}' has the format {given}, and this version reads '{SCHEMA}': run it again.")
        missing = [field.name for field in fields(cls) if field.name not in plain and field.default is MISSING]
        if missing:
            raise UsageError(f"The result '{where}' lacks {', '.join(missing)}: run it again.")
        found = cls(**{field.name: plain[field.name] for field in fields(cls) if field.name in plain})
        try:
            _check(found)
        except InvalidFileError as fault:
            raise UsageError(f"The result '{where}' cannot be used: {fault}. Run it again.") from None
        return found

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a `result.json`, or say what is wrong with it."""
        try:
            # a link is followed: stores of large files, such as git-annex, leave one in a file's place
            plain = read_json(Path(os.path.realpath(as_path(path))), MOST_BYTES, "more than any result")
        except InvalidFileError as fault:
            raise UsageError(f"Cannot read the result '{path}': {fault}.") from None
        return cls.from_dict(plain, str(path))


def _check(result: Result) -> None:
    """Refuse a result that says nonsense, so that nobody has to wonder."""
    plan: Any = result.experiment
    fine = isinstance(plan, dict) and isinstance(plan.get("memory"), dict)
    demand(fine, "'experiment' is not an object with a memory")
    demand(type(plan.get("seed")) is int, f"its seed is {str(plan.get('seed'))[:60]!r}, not a whole number")
    for name, named in (
        ("method", plan.get("method")),
        ("data", plan.get("data")),
        ("memory", plan["memory"].get("name")),
    ):
        demand(isinstance(named, str), f"its {name} has no name")
    tasks = len(result.acc) if numbers(result.acc) else 0
    demand(tasks, "its accuracies by task are not finite numbers")
    for name in ("class_il", "task_il"):
        fine = _triangle(getattr(result, name), tasks) or (name == "task_il" and result.task_il is None)
        demand(fine, f"'{name}' is not a triangle of finite numbers of {tasks} tasks")
    demand(numbers(result.forgetting_rate, tasks), f"'forgetting_rate' is not {tasks} finite numbers")
    summaries = [result.task_il_last, result.forgetting, result.backward_transfer, result.sample_gradients]
    summaries = [result.acc_last, result.acc_mean, *(each for each in summaries if each is not None)]
    demand(numbers(summaries), "a summary number is not finite")
    demand((result.task_il is None) == (result.task_il_last is None), "it has half of its Task-IL accuracies")
    fine = isinstance(result.seconds, dict) and numbers(list(result.seconds.values()))
    demand(fine, "'seconds' does not map phases to finite numbers")
    fine = isinstance(result.class_counts, list) and all(
        isinstance(entry, dict) and all(numbers(part) for part in entry.values()) for entry in result.class_counts
    )
    demand(fine, "'class_counts' does not hold counts by part and class for each task")
    demand(isinstance(result.provenance, dict), "'provenance' is not an object")
    fine = isinstance(result.classes, list) and all(isinstance(name, str) for name in result.classes)
    demand(fine, "'classes' is not a list of names")
    if result.task_labels is not None:
        _check_labels(result.task_labels, tasks, len(result.classes))
    pairs = [] if result.anytime is None else result.anytime
    fine = isinstance(pairs, list) and all(numbers(pair, 2) and 0 <= pair[0] < 1 << 53 for pair in pairs)
    demand(fine, "'anytime' is not a list of pairs, rows seen and accuracy")


def _check_labels(labels: object, tasks: int, classes: int) -> None:
    rows = labels if isinstance(labels, list) else []
    fine = len(rows) == tasks and all(
        numbers(row) and row and all(type(each) is int and 0 <= each < classes for each in row) for row in rows
    )
    demand(fine, f"'task_labels' does not hold labels below {classes} for each of {tasks} tasks")


def numbers(values: object, length: int | None = None) -> bool:
    """Whether this is a list of finite numbers that can be reckoned with, of that length where one is given.

    >>> numbers([1, 2.5]), numbers([1], 2), numbers([True]), numbers([math.nan]), numbers("12")
    (True, False, False, False, False)
    """
    return (
        isinstance(values, list)
        and length in (None, len(values))
        and all(type(value) in (int, float) and abs(value) <= MOST for value in values)
    )


def _triangle(matrix: object, tasks: int) -> bool:
    rows = matrix if isinstance(matrix, list) else []
    return len(rows) == tasks and all(numbers(row, length) for length, row in enumerate(rows, start=1))
