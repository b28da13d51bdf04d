"""Verifies a finished run: files against their checksums, its format, metrics against the accuracy matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.checksums import check_files, read_checksums
from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.results.folder import FILE, MEMORY_FILE, STORED, read_columns
from odedm.results.metrics import compute_metrics
from odedm.results.result import SCHEMA, Result


@dataclass(frozen=True)
class Check:
    """What was checked, and whether it is valid."""

    name: str
    valid: bool
    detail: str


def verify(folder: Path) -> list[Check]:
    """Check a finished run from its folder alone."""
    files = _check("files", _check_files, folder)
    try:
        result = Result.load(folder / FILE)
    except UsageError as error:
        return [files, Check("result", False, str(error).rstrip("."))]
    return [
        files,
        Check("result", True, f"{FILE} has the format '{SCHEMA}'"),
        _check("metrics", check_metrics, result),
        _check("memory", _check_memory, folder, result),
    ]


def is_valid(checks: list[Check]) -> bool:
    """Return whether no check failed."""
    return all(check.valid for check in checks)


def first_fault(checks: list[Check]) -> str | None:
    """Return the first check that failed, in half a sentence; None where none did."""
    return next((f"{check.name}: {check.detail}" for check in checks if not check.valid), None)


def lines(checks: list[Check]) -> Iterator[str]:
    """Yield one line for each check.

    >>> list(lines([Check("files", True, "2 files"), Check("metrics", False, "acc is missing")]))
    ['sound   files: 2 files', 'BROKEN  metrics: acc is missing']
    """
    for check in checks:
        yield f"{'sound' if check.valid else 'BROKEN':<6}  {check.name}: {check.detail}"


def check_metrics(result: Result) -> str:
    """Refuse a result whose metrics do not follow from its matrices."""
    tasks = result.experiment.get("first_tasks") or result.experiment.get("tasks")
    require(len(result.class_il) == tasks, f"accuracies of {len(result.class_il)} tasks, where {tasks} were to be run")
    for name in ("class_il", "task_il"):
        cells = [cell for row in getattr(result, name) or () for cell in row]
        require(all(0 <= cell <= 100 for cell in cells), f"an accuracy in {name} is not between 0 and 100 per cent")
    for name, computed in compute_metrics(result.class_il, result.task_il).items():
        stored = getattr(result, name)
        require(_is_close(stored, computed), f"{name} is {stored}, but the matrices give {computed}")
    return "every metric follows from the two matrices"


def _check(name: str, function: Callable[..., str], *arguments: Any) -> Check:
    try:
        return Check(name, True, function(*arguments))
    except InvalidFileError as fault:
        return Check(name, False, str(fault))


def _check_files(folder: Path) -> str:
    listed = read_checksums(folder)
    missing = {FILE, MEMORY_FILE} - set(listed)
    require(not missing, f"the checksums leave out {', '.join(sorted(missing))}")
    check_files(folder, listed)
    return f"{len(listed)} files are as they were written"


def _check_memory(folder: Path, result: Result) -> str:
    columns = read_columns(folder / MEMORY_FILE, STORED)
    missing = [name for name in STORED if name not in columns]
    require(not missing, f"{MEMORY_FILE} lacks {', '.join(missing)}")
    label, prototype = columns["label"], columns["prototype"]
    shapes = {columns[name].shape for name in STORED[1:]} | {columns["image"].shape[:1]}
    integer = all(columns[name].dtype == np.int64 for name in STORED[1:])
    require(integer and shapes == {(len(label),)}, "its columns are not integers of one length")
    classes = len(result.classes)
    require(((label >= 0) & (label < classes)).all(), f"it has labels beyond the {classes} classes")
    for part, members in (("short", prototype < 0), ("long", prototype >= 0)):
        counts = np.bincount(label[members], minlength=classes).tolist()
        stored = result.class_counts[-1].get(part) if result.class_counts else None
        require(counts == stored, f"its {part}-term rows are not the class counts after the last task")
    return f"{len(label)} rows, as counted after the last task, {int((prototype >= 0).sum())} of them prototypes"


def _is_close(stored: Any, computed: Any) -> bool:
    """Return whether two metrics are equal up to the rounding of a sum."""
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(_is_close, stored, computed))
    if stored is None or computed is None:
        return stored is computed
    return math.isclose(stored, computed, rel_tol=1e-12, abs_tol=1e-9)
