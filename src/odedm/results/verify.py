"""A finished run, looked at again: files against checksums, figures against the matrices, rows against the data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.seal import damage, not_a_file, read_seal
from odedm.results.checks import Check, Skipped, checked, demand, numbers
from odedm.results.result import EVIDENCE_FILE, FILE, MEMORY_FILE, SCHEMA, Result
from odedm.results.verify_observation import anytime_fits, evidence_fits

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

MOST_RESULT = 1 << 28
PROVENANCE = ("odedm", "commit", "torch", "numpy", "python", "platform", "device", "precision", "data_checksum")
COLUMNS = ("image", "label", "task", "index", "prototype")

Columns = dict[str, "np.ndarray[Any, Any]"]


def verify(folder: Path) -> list[Check]:
    """Everything about a finished run that can be checked from its folder, and from the data where they are here."""
    checks = [_files(folder)]
    read = _read(folder)
    if isinstance(read, Check):
        return [*checks, read]
    checks.append(Check("result", True, f"{FILE} has the format '{SCHEMA}'"))
    for name, look in (("figures", _figures), ("accuracies", _accuracies), ("census", _census), ("origin", _origin)):
        checks.append(checked(name, look, read))
    if read.anytime is not None:
        checks.append(checked("any time", anytime_fits, read))
    columns = _columns(folder)
    if isinstance(columns, Check):
        return [*checks, columns]
    checks.append(checked("memory", lambda result: _memory(result, columns), read))
    if (folder / EVIDENCE_FILE).exists() or (folder / EVIDENCE_FILE).is_symlink():
        checks.append(checked("evidence", lambda result: evidence_fits(result, folder / EVIDENCE_FILE, columns), read))
    return [*checks, checked("data", lambda result: _against_data(result, columns), read)]


def is_sound(checks: list[Check]) -> bool:
    """Whether nothing is broken; what could not be checked does not count."""
    return all(check.sound is not False for check in checks)


def _files(folder: Path) -> Check:
    sealed = read_seal(folder)
    if sealed is None:
        return Check("files", None, "no checksums were written with this run")
    if isinstance(sealed, str):
        return Check("files", False, sealed)
    fault = damage(folder, sealed)
    missing = {FILE, MEMORY_FILE} - set(sealed)
    if fault is None and missing:
        fault = f"the checksums leave out {', '.join(sorted(missing))}"
    return Check("files", fault is None, fault or f"{len(sealed)} files are as they were written")


def _read(folder: Path) -> Result | Check:
    path = folder / FILE
    fault = not_a_file(path)
    if fault is None and path.stat().st_size > MOST_RESULT:
        fault = f"{FILE} has {path.stat().st_size} bytes, more than any result"
    if fault is not None:
        return Check("result", False, fault)
    try:
        result = Result.load(path)
        unknown = set(json.loads(path.read_text("utf-8"))) - {each.name for each in fields(Result)}
    except UsageError as error:
        return Check("result", False, str(error).rstrip("."))
    if unknown - {"checksums"}:
        return Check("result", False, f"{FILE} has entries that no result has: {', '.join(sorted(unknown))[:80]}")
    return result


def _figures(result: Result) -> str:
    """The figures again, from the matrices alone."""
    for name, matrix in (("class_il", result.class_il), ("task_il", result.task_il)):
        fine = isinstance(matrix, list) and matrix and all(numbers(row, i) for i, row in enumerate(matrix, start=1))
        demand(fine, f"{name} is not a triangle of numbers")
    again = Result.measure(
        experiment=result.experiment,
        class_il=result.class_il,
        task_il=result.task_il,
        seconds=result.seconds,
        census=result.census,
        provenance=result.provenance,
        anytime=result.anytime,
    )
    for each in fields(Result):
        said, found = getattr(result, each.name), getattr(again, each.name)
        demand(_same(said, found), f"{each.name} is {_short(said)}, but the matrices give {_short(found)}")
    return "every figure follows from the two matrices"


def _same(said: Any, found: Any) -> bool:
    """Equal up to the last digits: a sum may be rounded otherwise elsewhere."""
    if isinstance(found, float):
        return numbers([said], 1) and math.isclose(said, found, rel_tol=1e-12, abs_tol=1e-9)
    if isinstance(found, list) and isinstance(said, list):
        return len(said) == len(found) and all(map(_same, said, found))
    return bool(said == found)


def _accuracies(result: Result) -> str:
    plan, tasks = result.experiment, len(result.class_il)
    demand(plan["tasks"] == tasks == len(result.task_il), f"{plan['tasks']} tasks were to be run, {tasks} are there")
    for i, (own, masked) in enumerate(zip(result.class_il, result.task_il, strict=True)):
        for j, (a, b) in enumerate(zip(own, masked, strict=True)):
            demand(0 <= a <= 100 and 0 <= b <= 100, f"after task {i + 1} task {j + 1} has {a} and {b} per cent")
            demand(b >= a, f"after task {i + 1} Task-IL of task {j + 1} is {b}, below Class-IL, {a}")
    return "all between 0 and 100, Task-IL nowhere below Class-IL"


def _census(result: Result) -> str:
    plan = result.experiment
    capacity, classes, per_task = plan["memory"]["capacity"], len(plan["classes"]), _per_task(result)
    most = _per_class(result)
    demand(len(result.census) == plan["tasks"], f"it has {len(result.census)} entries for {plan['tasks']} tasks")
    before = [0] * classes
    for i, entry in enumerate(result.census):
        for part in ("short", "long"):
            fine = numbers(entry[part], classes) and all(type(each) is int and each >= 0 for each in entry[part])
            demand(fine, f"after task {i + 1} its {part}-term part does not count {classes} classes")
        short, long = entry["short"], entry["long"]
        held = sum(short) + sum(long)
        demand(held <= capacity, f"after task {i + 1} it has {held} rows, and λ is {capacity}")
        early = [c for c in range((i + 1) * per_task, classes) if long[c] or (short[c] and not plan["blur"])]
        demand(not early, f"after task {i + 1} it has rows of class {early[:1]}, which had not arrived")
        lost = [c for c in range(classes) if long[c] < before[c]]
        demand(not lost, f"after task {i + 1} long-term rows of class {lost[:1]} are gone, and they stay for good")
        demand(max(long) <= most, f"after task {i + 1} a class has {max(long)} long-term rows, and {most} are legal")
        before = long
    return f"never more than {capacity} rows, none of a class before it arrived, no long-term row lost"


def _per_task(result: Result) -> int:
    return len(result.experiment["classes"]) // int(result.experiment["tasks"])


def _per_class(result: Result) -> int:
    """How many long-term rows a class may have."""
    memory = result.experiment["memory"]
    return int(memory.get("k") or 0) * int(memory.get("rows_per_prototype") or 1)


def _origin(result: Result) -> str:
    missing = [name for name in PROVENANCE if name not in result.provenance]
    demand(not missing, f"the result does not say its {', '.join(missing)}")
    commit = result.provenance["commit"]
    changed = ", with changes that no commit has" if str(commit).endswith("+") else ""
    return f"commit {str(commit)[:12] if commit else 'unknown'}{changed}, torch {result.provenance['torch']}"


def _columns(folder: Path) -> Columns | Check:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    fault = not_a_file(folder / MEMORY_FILE)
    if fault:
        return Check("memory", False, fault)
    try:
        columns = load_file(folder / MEMORY_FILE)
    except (OSError, ValueError, SafetensorError, KeyError, TypeError) as error:
        return Check("memory", False, f"{MEMORY_FILE} cannot be read ({str(error)[:100]})")
    missing = [name for name in COLUMNS if name not in columns]
    lengths = {len(columns[name]) if columns[name].ndim else -1 for name in COLUMNS if name not in missing}
    if missing or len(lengths) != 1:
        return Check(
            "memory", False, f"{MEMORY_FILE} lacks {missing}" if missing else "its columns are not equally long"
        )
    return columns


def _memory(result: Result, rows: Columns) -> str:
    plan, last = result.experiment, result.census[-1]
    classes, label, prototype = len(plan["classes"]), rows["label"], rows["prototype"]
    held = len(label)
    for name in COLUMNS[1:]:
        demand(rows[name].dtype == np.int64 and rows[name].ndim == 1, f"its column {name} is not whole numbers")
    demand(held <= plan["memory"]["capacity"], f"it has {held} rows, and λ is {plan['memory']['capacity']}")
    demand(not held or (label.min() >= 0 and label.max() < classes), f"it has labels beyond the {classes} classes")
    demand(not held or (rows["task"].min() >= 0 and rows["task"].max() < plan["tasks"]), "it has tasks beyond the last")
    for part, own in (("short", prototype < 0), ("long", prototype >= 0)):
        found = np.bincount(label[own], minlength=classes).tolist()
        demand(found == last[part], f"its {part}-term rows by class are not those of the census")
        real = rows["index"][own & (rows["index"] >= 0)]
        demand(len(np.unique(real)) == len(real), f"a row of the stream is twice in its {part}-term part")
    demand(not held or prototype.min() >= -1, "a prototype has a number below -1")
    demand(not held or prototype.max() < max(1, plan["memory"].get("k") or 0), "a prototype has a number beyond k")
    if not plan["blur"]:
        demand((label // _per_task(result) == rows["task"]).all(), "a row has a label of another task")
    _, pinned = np.unique(np.stack([label, prototype])[:, prototype >= 0], axis=1, return_counts=True)
    per = int(plan["memory"].get("rows_per_prototype") or 1)
    demand(not len(pinned) or pinned.max() <= per, f"a prototype has more than its {per} rows")
    return f"{held} rows, by class as the census says, {int((prototype >= 0).sum())} of them prototypes"


def _against_data(result: Result, rows: Columns) -> str:
    plan = result.experiment
    data = _data(str(plan["data"]))
    if data.checksum != result.provenance["data_checksum"]:
        raise Skipped(f"'{plan['data']}' here has another checksum than the data of this run")
    names = list(data.class_names)
    demand(sorted(names) == sorted(plan["classes"]), "its classes are not those of the data")
    real = rows["index"] >= 0
    index, label = rows["index"][real], rows["label"][real]
    demand(not len(index) or index.max() < len(data.label), "a row has an index beyond the data")
    image = data.image.numpy()[index]
    demand(
        image.dtype == rows["image"].dtype and image.shape == rows["image"][real].shape, "its images have another form"
    )
    demand(np.array_equal(image, rows["image"][real]), "an image is not the data's row of its index")
    arrival = np.array([plan["classes"].index(name) for name in names])
    true = arrival[data.label.numpy()[index]]
    if plan["noise"]:
        true, label = true // _per_task(result), label // _per_task(result)
    demand(np.array_equal(true, label), "a row has a label that is not its class")
    counts = np.bincount(arrival[data.test_label.numpy()] // _per_task(result), minlength=plan["tasks"])
    for row in (*result.class_il, *result.task_il):
        for j, accuracy in enumerate(row):
            right = accuracy * counts[j] / 100
            demand(abs(right - round(right)) < 1e-6, f"{accuracy} per cent of {counts[j]} test rows is no whole number")
    return f"{len(index)} stored rows are rows of '{plan['data']}'; accuracies are shares of its test rows"


def _data(name: str) -> Dataset:
    from odedm.core.registry import DATASETS
    from odedm.data.cache import is_cached, open_data

    if name not in DATASETS and not is_cached(name):
        raise Skipped(f"the data set '{name[:60]}' is not here")
    try:
        data: Dataset = DATASETS[name].load()() if name in DATASETS else open_data(name)
    except UsageError as error:
        raise Skipped(str(error).rstrip(".")) from error
    return data


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def lines(checks: list[Check]) -> Iterator[str]:
    """One line for each check.

    >>> list(lines([Check("files", None, "no checksums")]))
    ['not checked  files: no checksums']
    """
    words = {True: "sound", False: "BROKEN", None: "not checked"}
    for check in checks:
        yield f"{words[check.sound]:<11}  {check.name}: {check.detail}"
