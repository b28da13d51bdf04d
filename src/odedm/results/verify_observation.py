"""What a run looked at on its way, checked against its result and against the rows of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.seal import not_a_file
from odedm.results.checks import Broken, demand, numbers
from odedm.results.result import EVIDENCE_FILE, Result

CHOICE = ("choice.index", "choice.label", "choice.kept", "choice.distance")

Columns = Mapping[str, "np.ndarray[Any, Any]"]


def anytime_fits(result: Result) -> str:
    """Whether accuracies through the stream are such, and end each task with the task's own."""
    pairs = result.anytime or []
    demand(pairs, "it has no accuracies")
    demand(
        isinstance(pairs, list) and all(numbers(pair, 2) and type(pair[0]) is int for pair in pairs),
        "it has more than pairs of rows seen and accuracy",
    )
    rows, values = zip(*pairs, strict=True)
    demand(all(a < b for a, b in zip((0, *rows), rows, strict=False)), "rows seen do not grow")
    demand(all(0 <= value <= 100 for value in values), "an accuracy is not between 0 and 100")
    rest = iter(values)
    ends = all(any(value == end for value in rest) for end in result.acc)
    demand(ends and values[-1] == result.acc_last, "the accuracies after each task are not among them")
    return f"{len(pairs)} accuracies through the stream, those after each task among them"


def evidence_fits(result: Result, path: Path, memory: Columns) -> str:
    """Whether features are of these rows, and the chosen candidates those that the memory has for good."""
    columns = _read(path)
    held, names = len(memory["label"]), ("feature.data", "feature.memory")
    demand(names[0] in columns and (not held or names[1] in columns), "it lacks features")
    found = [columns[name] for name in names if name in columns]
    fine = all(each.ndim == 2 and each.shape[1] == found[0].shape[1] and np.isfinite(each).all() for each in found)
    demand(fine, "its features are not equally long lists of numbers")
    demand(not held or len(found[1]) == held, f"it does not have the features of the memory's {held} rows")
    said = f"features of {len(found[0])} rows of the data and {held} of the memory"
    if not any(name in columns for name in CHOICE):
        return said
    _check_choices(result, columns, memory)
    return f"{said}; {len(columns['choice.index'])} candidates, of which the memory has those that were chosen"


def _read(path: Path) -> Columns:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    fault = not_a_file(path)
    if fault:
        raise Broken(fault)
    try:
        return load_file(path)
    except (OSError, ValueError, SafetensorError, KeyError, TypeError) as error:
        raise Broken(f"{EVIDENCE_FILE} cannot be read ({str(error)[:100]})") from error


def _check_choices(result: Result, columns: Columns, memory: Columns) -> None:
    missing = [name for name in CHOICE if name not in columns]
    demand(not missing, f"it lacks {', '.join(missing)}")
    index, label, kept, distance = (columns[name] for name in CHOICE)
    own = all(each.shape == (len(index),) and each.dtype == np.int64 for each in (index, label, kept))
    demand(own and distance.ndim == 2 and len(distance) == len(index), "its choices do not belong together")
    demand(len(np.unique(index)) == len(index), "a row of the stream is twice among its candidates")
    demand(not np.isnan(distance[:, 0]).any(), "a candidate has no distance")
    demand(kept.max(initial=-1) < distance.shape[1], "a candidate was kept for a prototype without distances")
    long = memory["prototype"] >= 0
    pinned = np.stack([memory[name][long] for name in ("index", "label", "prototype")])
    chosen = np.stack([index, label, kept])[:, kept >= 0]
    pinned, chosen = (each[:, np.lexsort(each)] for each in (pinned, chosen))
    demand(np.array_equal(pinned, chosen), "the chosen candidates are not the long-term rows of the memory")
    classes = len(result.experiment["classes"])
    demand(
        not len(label) or (label.min() >= 0 and label.max() < classes), f"it has labels beyond the {classes} classes"
    )
