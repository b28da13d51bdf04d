"""What a run reports: accuracy matrices, what follows from them, seconds, the memory's census, provenance."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from odedm.checkpoint.manifest import working_folder
from odedm.core.errors import UsageError
from odedm.core.files import write_text

SCHEMA = "odedm.result/1"
FILE = "result.json"
MEMORY_FILE = "memory.safetensors"
EVIDENCE_FILE = "evidence.safetensors"
"""Only where a run was to keep evidence."""

Matrix = list[list[float]]
"""Row i holds the accuracy (%) on tasks 0..i after task i."""


def average_accuracy(matrix: Matrix) -> list[float]:
    """ACC_i, the mean accuracy over the tasks seen so far, after each task.

    >>> average_accuracy([[90.0], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [math.fsum(row) / len(row) for row in matrix]


def forgetting(matrix: Matrix) -> float:
    """Mean over the earlier tasks of the best past accuracy minus the final one; 0 with a single task.

    >>> forgetting([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    42.5
    """
    last = len(matrix) - 1
    drops = [max(row[j] for row in matrix[j:last]) - matrix[last][j] for j in range(last)]
    return math.fsum(drops) / last if last else 0.0


def backward_transfer(matrix: Matrix) -> float:
    """Mean over the earlier tasks of the final accuracy minus the one right after learning the task.

    >>> backward_transfer([[90.0], [95.0, 80.0], [30.0, 60.0, 85.0]])
    -40.0
    """
    last = len(matrix) - 1
    changes = [matrix[last][j] - matrix[j][j] for j in range(last)]
    return math.fsum(changes) / last if last else 0.0


@dataclass(frozen=True)
class Result:
    """One finished run. Accuracies are per cent; `census` has one entry per task, by part and class.

    `anytime` has pairs of rows seen and the mean accuracy over the tasks so far, where the run measured that through
    the stream; see `Looks`.
    """

    schema: str
    experiment: dict[str, Any]
    class_il: Matrix
    task_il: Matrix
    acc: list[float]
    acc_last: float
    acc_mean: float
    task_il_last: float
    forgetting_rate: list[float]
    forgetting: float
    backward_transfer: float
    seconds: dict[str, float]
    census: list[dict[str, list[int]]]
    provenance: dict[str, Any]
    anytime: list[list[float]] | None = None

    @classmethod
    def measure(
        cls,
        *,
        experiment: dict[str, Any],
        class_il: Matrix,
        task_il: Matrix,
        seconds: dict[str, float],
        census: Sequence[dict[str, list[int]]],
        provenance: dict[str, Any],
        anytime: list[list[float]] | None = None,
    ) -> Result:
        """Derive every figure from the two matrices."""
        acc, masked = average_accuracy(class_il), average_accuracy(task_il)
        return cls(
            schema=SCHEMA,
            experiment=experiment,
            class_il=class_il,
            task_il=task_il,
            acc=acc,
            acc_last=acc[-1],
            acc_mean=math.fsum(acc) / len(acc),
            task_il_last=masked[-1],
            forgetting_rate=[100.0 - value for value in acc],
            forgetting=forgetting(class_il),
            backward_transfer=backward_transfer(class_il),
            seconds=seconds,
            census=list(census),
            provenance=provenance,
            anytime=anytime,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; without what was not measured."""
        plain = asdict(self)
        if self.anytime is None:
            del plain["anytime"]
        return plain

    def save(self, folder: Path) -> Path:
        """Write `result.json` into the folder, whole or not at all."""
        path = folder / FILE
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a `result.json`, or say what is wrong with it."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"Cannot read the result '{path}': {error}.") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            given = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise UsageError(f"'{path}' is not a result this version reads: its schema is {given!r}, not '{SCHEMA}'.")
        missing = [field.name for field in fields(cls) if field.name not in data and field.default is MISSING]
        if missing:
            raise UsageError(f"The result '{path}' lacks {', '.join(missing)}: run it again.")
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


def find(paths: Sequence[Path]) -> list[Path]:
    """Every folder at or below `paths` that holds a finished run, sorted; an error if there is none."""
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            if working_folder(path).is_dir():
                raise UsageError(f"'{path}' is not finished. Go on with `odedm resume {path}`.")
            raise UsageError(f"There is no '{path}'. Give the folder of a run, or a folder that holds runs.")
        for folder, below, files in os.walk(path.parent if path.name == FILE else path):  # one may vanish meanwhile
            below[:] = [each for each in below if not each.startswith(".")]  # what is unfinished
            if FILE in files:
                found.add(Path(folder))
    if not found:
        places = ", ".join(f"'{path}'" for path in paths)
        raise UsageError(f"No finished run at or below {places}: no {FILE} there. Make one with `odedm run`.")
    return sorted(found)
