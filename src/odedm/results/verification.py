"""Checks a finished run again: files against checksums, figures against the matrices, rows against the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import InvalidFileError, UsageError, demand
from odedm.core.seal import FILE as SEAL
from odedm.core.seal import check_files, read_checksums, read_json
from odedm.core.text import printable
from odedm.memory.settings import ODEDM, memory_from_dict
from odedm.memory.site import StreamShape
from odedm.results.data_check import Skipped, against_data, within
from odedm.results.folder import (
    CHOICE,
    EVIDENCE_FILE,
    FEATURES,
    FILE,
    MEMORY_FILE,
    MODEL_FILE,
    STORED,
    Columns,
    read_columns,
    read_head,
)
from odedm.results.result import MOST_BYTES, Result, figures, numbers
from odedm.stream.class_schedule import classes_return

PROVENANCE = ("odedm", "commit", "torch", "numpy", "python", "platform", "device", "precision", "data_checksum")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: sound, broken, or not to be checked here (None)."""

    name: str
    sound: bool | None
    detail: str


UNSEALED = f"unsealed, there is no {SEAL}: nothing says whether its files are as they were written"


def verify(folder: Path, *, data: bool = True) -> list[Check]:
    """Everything about a finished run that can be checked from its folder, and from the data where they are here."""
    checks = [_checked("files", _files, folder)]
    try:
        result = _read(folder)
    except InvalidFileError as fault:
        return [*checks, Check("result", False, str(fault))]
    checks.append(Check("result", True, f"{FILE} has a format that this version reads"))
    checks += verify_numbers(result)
    try:
        rows = _columns(folder)
    except InvalidFileError as fault:
        return [*checks, Check("memory", False, str(fault))]
    checks.append(_checked("memory", _memory, result, rows))
    evidence = folder / EVIDENCE_FILE
    if evidence.exists() or evidence.is_symlink():
        checks.append(_checked("evidence", _evidence, result, evidence, rows))
    model = folder / MODEL_FILE
    if model.exists() or model.is_symlink():
        checks.append(_checked("model", _model, result, model, rows))
    return [*checks, _checked("data", against_data, result, rows)] if data else checks


def verify_numbers(result: Result) -> list[Check]:
    """Everything that can be checked about a result by itself, without the files of its run."""
    looks = {"figures": _figures, "accuracies": _accuracies, "counts": _class_counts, "origin": _origin}
    if result.anytime is not None:
        looks["any time"] = _anytime
    return [_checked(name, look, result) for name, look in looks.items()]


def is_sound(checks: list[Check]) -> bool:
    """Whether nothing is broken; what could not be checked does not count."""
    return all(check.sound is not False for check in checks)


def is_sealed(checks: list[Check]) -> bool:
    """Whether a run's files could be compared with their checksums."""
    return all(check.detail != UNSEALED for check in checks)


def first_fault(checks: list[Check]) -> str | None:
    """What is broken, in half a sentence; None where nothing is."""
    return next((f"{check.name}: {check.detail}" for check in checks if check.sound is False), None)


def lines(checks: list[Check]) -> Iterator[str]:
    """One line for each check.

    >>> list(lines([Check("files", None, "no checksums")]))
    ['not checked  files: no checksums']
    """
    words = {True: "sound", False: "BROKEN", None: "not checked"}
    for check in checks:
        yield f"{words[check.sound]:<11}  {check.name}: {check.detail}"


def _checked(name: str, look: Callable[..., str], *about: Any) -> Check:
    """What a look at parts of a run found; one that stumbles found something that is not made as it should be."""
    try:
        with np.errstate(all="raise"):
            return Check(name, True, look(*about))
    except InvalidFileError as fault:
        return Check(name, False, str(fault))
    except Skipped as reason:
        return Check(name, None, str(reason))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        return Check(name, False, f"the result is not made as it should be ({type(error).__name__}: {str(error)[:80]})")


def _files(folder: Path) -> str:
    sealed = read_checksums(folder)
    if sealed is None:
        raise Skipped(UNSEALED)
    check_files(folder, sealed)
    missing = {FILE, MEMORY_FILE} - set(sealed)
    demand(not missing, f"the checksums leave out {', '.join(sorted(missing))}")
    return f"{len(sealed)} files are as they were written"


def _read(folder: Path) -> Result:
    plain = read_json(folder / FILE, MOST_BYTES, "more than any result")
    try:
        result = Result.from_dict(plain, str(folder / FILE))
    except UsageError as error:
        raise InvalidFileError(str(error).rstrip(".")) from None
    unknown = set(plain) - {each.name for each in fields(Result)}
    demand(not unknown, f"{FILE} has entries that no result has: {', '.join(sorted(unknown))[:80]}")
    return result


def _figures(result: Result) -> str:
    """The figures again, from the matrices alone."""
    for name, found in figures(result.class_il, result.task_il).items():
        said = getattr(result, name)
        same = (
            said is found if None in (said, found) else np.allclose(said, found, rtol=1e-12, atol=1e-9)
        )  # a sum may be rounded otherwise elsewhere
        demand(same, f"{name} is {_short(said)}, but the matrices give {_short(found)}")
    return "every figure follows from the two matrices"


def _accuracies(result: Result) -> str:
    plan, tasks = result.experiment, len(result.class_il)
    demand(plan["tasks"] == tasks, f"{plan['tasks']} tasks were to be run, {tasks} are there")
    demand(plan["tasks"] == len(result.labels), "it does not say which classes each task has")
    shared = classes_return(tuple(map(tuple, result.labels)))
    demand(shared == (result.task_il is None), "Task-IL accuracies are for tasks that share no class, and for them all")
    for i, (own, masked) in enumerate(zip(result.class_il, result.task_il or result.class_il, strict=True)):
        for j, (a, b) in enumerate(zip(own, masked, strict=True)):
            demand(0 <= a <= 100 and 0 <= b <= 100, f"after task {i + 1} task {j + 1} has {a} and {b} per cent")
            demand(b >= a, f"after task {i + 1} Task-IL of task {j + 1} is {b}, below Class-IL, {a}")
    return "all between 0 and 100, " + ("without Task-IL" if shared else "Task-IL nowhere below Class-IL")


def _class_counts(result: Result) -> str:
    plan, memory, classes = result.experiment, result.experiment["memory"], len(result.classes)
    capacity, most = memory.get("capacity", 0), _quotas(result)
    demand(
        len(result.class_counts) == plan["tasks"],
        f"it has {len(result.class_counts)} entries for {plan['tasks']} tasks",
    )
    before = [0] * classes
    for i, entry in enumerate(result.class_counts):
        after = f"after task {i + 1}"
        for part in ("short", "long"):
            fine = numbers(entry[part], classes) and all(type(each) is int and each >= 0 for each in entry[part])
            demand(fine, f"{after} its {part}-term part does not count {classes} classes")
        short, long = entry["short"], entry["long"]
        held = sum(short) + sum(long)
        demand(held <= capacity, f"{after} it has {held} rows, and λ is {capacity}")
        seen = {each for own in result.labels[: i + 1] for each in own}
        early = [c for c in range(classes) if c not in seen and (long[c] or (short[c] and not plan["blur"]))]
        demand(not early, f"{after} it has rows of class {early[:1]}, which had not arrived")
        lost = [c for c in range(classes) if long[c] < before[c] and c not in result.labels[i]]
        demand(not lost, f"{after} long-term rows of class {lost[:1]} are gone, and they stay for good")
        for own, legal in zip(long, most, strict=True):
            demand(own <= legal, f"{after} a class has {own} long-term rows, and {legal} are legal")
        before = long
    return f"never more than {capacity} rows, none of a class before it arrived, no long-term row lost"


def _quotas(result: Result) -> list[int]:
    """The most long-term rows of each class."""
    plain = result.experiment["memory"]
    per = int(plain.get("rows_per_prototype") or 1)
    if plain.get("k") is not None or not plain.get("rho"):
        return [int(plain.get("k") or 0) * per] * len(result.classes)
    from odedm.memory.prototype_quotas import class_quotas

    try:
        memory = memory_from_dict(plain)
        assert isinstance(memory, ODEDM), "no other memory has a share"
        quota = class_quotas(memory, StreamShape.of(tuple(map(tuple, result.labels))))
    except UsageError as error:
        raise InvalidFileError(str(error).rstrip(".")) from None
    return [each * per for each in quota]


def _origin(result: Result) -> str:
    missing = [name for name in PROVENANCE if name not in result.provenance]
    demand(not missing, f"the result does not say its {', '.join(missing)}")
    commit = result.provenance["commit"]
    changed = ", with changes that no commit has" if str(commit).endswith("+") else ""
    return f"commit {str(commit)[:12] if commit else 'unknown'}{changed}, torch {result.provenance['torch']}"


def _anytime(result: Result) -> str:
    """Whether accuracies through the stream are such, and end each task with the task's own."""
    pairs = result.anytime or []
    demand(pairs, "it has no accuracies")
    demand(all(type(pair[0]) is int for pair in pairs), "it has more than pairs of rows seen and accuracy")
    rows, values = zip(*pairs, strict=True)
    demand(all(a < b for a, b in zip((0, *rows), rows, strict=False)), "rows seen do not grow")
    demand(all(0 <= value <= 100 for value in values), "an accuracy is not between 0 and 100")
    rest = iter(values)
    ends = all(any(value == end for value in rest) for end in result.acc)
    demand(ends and values[-1] == result.acc_last, "the accuracies after each task are not among them")
    return f"{len(pairs)} accuracies through the stream, those after each task among them"


def _columns(folder: Path) -> Columns:
    columns = read_columns(folder / MEMORY_FILE)
    missing = [name for name in STORED if name not in columns]
    demand(not missing, f"{MEMORY_FILE} lacks {missing}")
    lengths = {len(columns[name]) if columns[name].ndim else -1 for name in STORED}
    demand(len(lengths) == 1, "its columns are not equally long")
    return columns


def _memory(result: Result, rows: Columns) -> str:
    plan, memory, classes = result.experiment, result.experiment["memory"], len(result.classes)
    for name in STORED[1:]:
        demand(rows[name].dtype == np.int64 and rows[name].ndim == 1, f"its column {name} is not whole numbers")
    label, task, index, prototype = (rows[name] for name in STORED[1:])
    held, long = len(label), prototype >= 0
    capacity = memory.get("capacity", 0)
    demand(held <= capacity, f"it has {held} rows, and λ is {capacity}")
    demand(within(label, classes), f"it has labels beyond the {classes} classes")
    demand(within(task, plan["tasks"]), "it has tasks beyond the last")
    for part, own in (("short", ~long), ("long", long)):
        found = np.bincount(label[own], minlength=classes).tolist()
        demand(found == result.class_counts[-1][part], f"its {part}-term rows are not the class counts")
        real = index[own & (index >= 0)]
        demand(len(np.unique(real)) == len(real), f"a row of the stream is twice in its {part}-term part")
    demand((prototype >= -1).all(), "a prototype has a number below -1")
    per = int(memory.get("rows_per_prototype") or 1)
    demand((prototype * per < np.maximum(1, _quotas(result))[label]).all(), "a prototype has a number beyond k")
    if not plan["blur"]:
        fine = all(np.isin(label[task == each], own).all() for each, own in enumerate(result.labels))
        demand(fine, "a row has a label of another task")
    _, pinned = np.unique(np.stack([label, prototype])[:, long], axis=1, return_counts=True)
    demand((pinned <= per).all(), f"a prototype has more than its {per} rows")
    return f"{held} rows, by class as counted, {long.sum()} of them prototypes"


def _model(result: Result, path: Path, memory: Columns) -> str:
    """The kept model is this run's: its file has the same result and the same rows."""
    head = read_head(path)
    demand(isinstance(head, dict) and "result" in head, f"{path.name} is no kept model")
    demand(Result.from_dict(head["result"], path.name) == result, f"{path.name} is another run's model")
    stored = read_columns(path, [f"memory.{name}" for name in STORED])
    for name in STORED:
        same = f"memory.{name}" in stored and np.array_equal(stored[f"memory.{name}"], memory[name])
        demand(same, f"{path.name} has other rows of memory than {MEMORY_FILE}")
    return f"{path.name} is this run's, with the same {len(memory['label'])} rows of memory"


def _evidence(result: Result, path: Path, memory: Columns) -> str:
    """Whether features are of these rows, and the chosen candidates those that the memory has for good."""
    columns, held = read_columns(path), len(memory["label"])
    demand(FEATURES[0] in columns and (not held or FEATURES[1] in columns), "it lacks features")
    found = [columns[name] for name in FEATURES if name in columns]
    fine = all(each.ndim == 2 and each.shape[1] == found[0].shape[1] and np.isfinite(each).all() for each in found)
    demand(fine, "its features are not equally long lists of numbers")
    demand(not held or len(found[1]) == held, f"it does not have the features of the memory's {held} rows")
    said = f"features of {len(found[0])} rows of the data and {held} of the memory"
    if not any(name in columns for name in CHOICE):
        return said
    _choices(result, columns, memory)
    return f"{said}; {len(columns['choice.index'])} candidates, of which the memory has those that were chosen"


def _choices(result: Result, columns: Columns, memory: Columns) -> None:
    missing = [name for name in CHOICE if name not in columns]
    demand(not missing, f"it lacks {', '.join(missing)}")
    index, label, kept, distance = (columns[name] for name in CHOICE)
    own = all(each.shape == (len(index),) and each.dtype == np.int64 for each in (index, label, kept))
    demand(own and distance.ndim == 2 and len(distance) == len(index), "its choices do not belong together")
    demand(len(np.unique(index)) == len(index), "a row of the stream is twice among its candidates")
    demand(not np.isnan(distance[:, 0]).any(), "a candidate has no distance")
    demand(kept.max(initial=-1) < distance.shape[1], "a candidate was kept for a prototype without distances")
    pinned = np.stack([memory[name] for name in ("index", "label", "prototype")])[:, memory["prototype"] >= 0]
    chosen = np.stack([index, label, kept])[:, kept >= 0]
    pinned, chosen = (each[:, np.lexsort(each)] for each in (pinned, chosen))
    demand(np.array_equal(pinned, chosen), "the chosen candidates are not the long-term rows of the memory")
    demand(within(label, len(result.classes)), f"it has labels beyond the {len(result.classes)} classes")


def _short(value: object) -> str:
    return printable(f"{value:.6g}" if isinstance(value, float) else value)
