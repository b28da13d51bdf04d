"""Reads what a run saved beside its result for pictures: long-term rows, features and choices; without torch.

The file `evidence.safetensors` in a run's folder may hold, each group of columns by itself:

- `feature.data` [n, d], `feature.memory` [m, d]: features by the final network of training rows, as many of each class,
  and of the rows of `memory.safetensors` in their order.
- `choice.index`, `choice.label`, `choice.kept` [n] and `choice.distance` [n, k]: every candidate of a consolidation,
  its row in the stream, its class, the prototype it was kept for (−1 for none), and its distance to the centre of each
  prototype of its class (NaN beyond the last).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.groups import Group
from odedm.results.folder import EVIDENCE_FILE, MEMORY_FILE, FinishedRun, read_columns

Array = NDArray[Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """The long-term rows of a run, ordered by task, class and prototype: images of 8 bits, labels and tasks."""

    image: Array
    label: Array
    task: Array


def read_evidence(run: FinishedRun, names: Sequence[str]) -> list[Array] | None:
    """Return these columns of a run's evidence, None where one is not there; an error where the file cannot be read."""
    path = run.folder / EVIDENCE_FILE
    if not path.is_file():
        return None
    try:
        columns = read_columns(path, names)
    except UsageError as error:
        raise UsageError(f"Cannot read '{path}': {error}. Run it again with --overwrite.") from None
    return [columns[name] for name in names] if len(columns) == len(names) else None


def first_evidence(group: Group, names: Sequence[str]) -> list[tuple[FinishedRun, list[Array]]]:
    """Return the first run of a group that saved these columns, with them; none where none has."""
    for run in group.runs:
        try:
            columns = read_evidence(run, names)
            if columns is not None:
                return [(run, columns)]
        except UsageError as error:  # a page shows what can be read
            log.warning("%s", error)
    return []


def read_kept(run: FinishedRun) -> Kept | str:
    """Return the pictures in a run's long-term memory, or a sentence why there are none."""
    names = ("image", "label", "task", "prototype")
    try:
        columns = read_columns(run.folder / MEMORY_FILE, names)
    except UsageError as error:
        return printable(f"The saved memory cannot be read: {error}.", 200)
    missing = [name for name in names[1:] if name not in columns]
    if missing:
        return f"The saved memory has no column {', '.join(sorted(missing))}."
    if "image" not in columns or columns["image"].ndim != 4:
        return "The rows of this memory are vectors, not images, so there are no pictures to show."
    image, label, task, prototype = (columns[name] for name in names)
    eight_bits = image.dtype == np.uint8 and image.shape[1] in (1, 3) and min(image.shape[2:]) > 0
    if not eight_bits or any(column.shape != (len(image),) for column in (label, task, prototype)):
        return "The saved memory does not hold 8-bit grey or colour images with a label, a task and a prototype each."
    rows = sorted(np.flatnonzero(prototype >= 0).tolist(), key=lambda i: (task[i], label[i], prototype[i], i))
    return Kept(image[rows], label[rows], task[rows]) if rows else "This memory holds no long-term row."
