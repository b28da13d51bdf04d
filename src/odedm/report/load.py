"""Finished runs, read from their folders and refused where their numbers cannot be reported."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.report.trial_scores import held_out_scores
from odedm.report.wording import clean
from odedm.results.result import FILE, Result, find

MOST = sys.float_info.max
"""What a number of a result may be at most: JSON knows larger whole ones."""
OPTIONAL = ("selection", "anytime")
"""What only some runs measure."""


@dataclass(frozen=True)
class Run:
    """A finished run and the folder it lies in; `extra` is what its file holds beyond what every result has."""

    folder: Path
    result: Result
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed that everything random of the run came from."""
        return int(self.result.experiment["seed"])

    @property
    def seconds(self) -> float:
        """Wall seconds, all phases together."""
        return math.fsum(self.result.seconds.values())

    @property
    def selection(self) -> float | None:
        """The accuracy in per cent on training rows held out to choose by, where the run measured it."""
        value = self.extra.get("selection")
        return None if value is None else float(value)

    @property
    def anytime(self) -> list[tuple[int, float]]:
        """Rows seen and accuracy in per cent over the classes seen so far, through the stream, where measured."""
        return [(int(rows), float(accuracy)) for rows, accuracy in self.extra.get("anytime") or []]

    @property
    def classes(self) -> list[str]:
        """The class names in label order; numbers where the result has no names.

        The count follows the census where the names are missing, so that figures by class still work.
        """
        names = self.result.experiment.get("classes")
        if isinstance(names, list) and names:
            return [clean(name) for name in names]
        counts = [len(part) for entry in self.result.census for part in entry.values()]
        return [str(label) for label in range(max(counts, default=0))]


def load(folders: Sequence[Path]) -> list[Run]:
    """Every finished run at or below the folders; the same folder given twice counts once.

    Runs of a study come with what their configuration scored on held-out training rows, where its trials are there.
    """
    runs: dict[Path, Run] = {}
    for folder in find(folders):
        file = folder / FILE
        result = Result.load(file)
        known = {each.name for each in fields(Result)}
        extra = {key: value for key, value in json.loads(file.read_text(encoding="utf-8")).items() if key not in known}
        extra |= {key: vars(result)[key] for key in OPTIONAL if key in known}
        fault = _fault(result) or _fault_beyond(extra)
        if fault:
            raise UsageError(f"The result '{file}' cannot be reported: {fault}. Run it again.")
        runs.setdefault(folder.resolve(), Run(folder, result, extra))
    scores = held_out_scores({folder: run.result for folder, run in runs.items() if run.selection is None})
    return [
        replace(run, extra={**run.extra, "selection": scores[folder]}) if folder in scores else run
        for folder, run in runs.items()
    ]


def _fault(result: Result) -> str | None:
    """What is wrong with a result that says nonsense, so that no figure has to wonder; None where it is sound."""
    experiment: object = result.experiment
    if not isinstance(experiment, dict):
        return "'experiment' is not an object"
    seed = experiment.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        return f"its seed is {seed!r}, not a whole number"
    summaries = [result.acc_last, result.acc_mean, result.task_il_last, result.forgetting, result.backward_transfer]
    tasks = len(result.acc) if _numbers(result.acc) else 0
    faults = {
        "its accuracies by task are not finite numbers": tasks == 0,
        f"'class_il' is not a triangle of finite numbers of {tasks} tasks": not _triangle(result.class_il, tasks),
        f"'task_il' is not a triangle of finite numbers of {tasks} tasks": not _triangle(result.task_il, tasks),
        f"'forgetting_rate' is not {tasks} finite numbers": not _numbers(result.forgetting_rate, tasks),
        "a summary number is not finite": not _numbers(summaries),
        "'seconds' does not map phases to finite numbers": not _numbers_by_name(result.seconds),
        "'census' does not hold counts by part and class for each task": not _census(result.census),
        "'provenance' is not an object": not isinstance(result.provenance, dict),
    }
    return next((what for what, wrong in faults.items() if wrong), None)


def _fault_beyond(extra: Mapping[str, Any]) -> str | None:
    """The same for what only some runs measure."""
    selection, anytime = (extra.get(key) for key in OPTIONAL)
    if selection is not None and not _numbers([selection]):
        return "'selection' is not a finite number"
    if anytime is not None and not (
        isinstance(anytime, list) and all(_numbers(pair, 2) and 0 <= pair[0] < 1 << 53 for pair in anytime)
    ):
        return "'anytime' is not a list of pairs, rows seen and accuracy"
    return None


def _numbers(values: object, length: int | None = None) -> bool:
    """Whether this is a list of finite numbers, of that length where one is given.

    >>> _numbers([1, 2.5]), _numbers([1], 2), _numbers([True]), _numbers([math.nan]), _numbers("12")
    (True, False, False, False, False)
    """
    return (
        isinstance(values, list)
        and length in (None, len(values))
        and all(
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST for value in values
        )
    )


def _triangle(matrix: object, tasks: int) -> bool:
    return (
        isinstance(matrix, list)
        and len(matrix) == tasks
        and all(_numbers(row, length) for length, row in enumerate(matrix, start=1))
    )


def _numbers_by_name(values: object) -> bool:
    return isinstance(values, dict) and _numbers(list(values.values()))


def _census(census: object) -> bool:
    return isinstance(census, list) and all(
        isinstance(entry, dict) and all(_numbers(part) for part in entry.values()) for entry in census
    )
