"""What must hold of every run that was just trained, beyond what its files can say by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from odedm.data.opening import load_dataset
from odedm.memory.build_context import StreamShape
from odedm.memory.quotas import class_quotas
from odedm.memory.settings import memory_from_dict
from odedm.results.folder import CHOICE, EVIDENCE_FILE, FEATURES, FILE, MEMORY_FILE, STORED
from odedm.results.result import Result
from odedm.results.verification import verify
from odedm.stream.class_schedule import classes_return
from odedm.stream.dataset import Dataset
from odedm.stream.scenarios import in_domain

Columns = dict[str, np.ndarray[Any, Any]]


def check_run(folder: Path, data: Dataset | None = None) -> None:
    """Check a saved run against its stream, its memory's rules and the data that it was trained on."""
    assert [check for check in verify(folder) if not check.valid] == []
    result, rows = Result.load(folder / FILE), load_file(folder / MEMORY_FILE)
    check_accuracies(result)
    check_class_counts(result)
    check_rows(result, rows)
    if (folder / EVIDENCE_FILE).exists():
        check_evidence(load_file(folder / EVIDENCE_FILE), rows)
    check_against_data(result, rows, data or load_dataset(result.experiment["data"]))


def check_accuracies(result: Result) -> None:
    """Task-IL where no class returns and nowhere below Class-IL; accuracies through the stream end with each task's."""
    assert len(result.labels) == result.experiment["tasks"] == len(result.class_il)
    assert classes_return(tuple(map(tuple, result.labels))) == (result.task_il is None)
    for row, masked in zip(result.class_il, result.task_il or result.class_il, strict=True):
        assert all(b >= a for a, b in zip(row, masked, strict=True))
    if result.anytime is not None:
        seen, values = zip(*result.anytime, strict=True)
        assert list(seen) == sorted(set(seen))
        assert all(0 <= value <= 100 for value in values)
        rest = iter(values)
        assert all(any(value == end for value in rest) for end in result.acc), "in this order"
        assert values[-1] == result.acc_last


def quotas(result: Result) -> list[int]:
    """The most long-term rows of each class."""
    plain = result.experiment["memory"]
    per = int(plain.get("rows_per_prototype") or 1)
    if plain.get("k") is not None or not plain.get("rho"):
        return [int(plain.get("k") or 0) * per] * len(result.classes)
    shape = StreamShape.of(tuple(map(tuple, result.labels)))
    return [quota * per for quota in class_quotas(memory_from_dict(plain), shape)]


def check_class_counts(result: Result) -> None:
    """Never more rows than λ, none of a class before it arrived, no long-term row lost or beyond its class's quota."""
    plan, before = result.experiment, [0] * len(result.classes)
    assert len(result.class_counts) == plan["tasks"]
    for task, counts in enumerate(result.class_counts):
        short, long = counts["short"], counts["long"]
        assert len(short) == len(long) == len(result.classes)
        assert min(short + long) >= 0
        assert sum(short) + sum(long) <= plan["memory"].get("capacity", 0)
        seen = {label for labels in result.labels[: task + 1] for label in labels}
        for label in range(len(result.classes)):
            assert label in seen or not (long[label] or (short[label] and not plan["blur"])), "before it arrived"
            assert label in result.labels[task] or long[label] >= before[label], "long-term rows stay for good"
            assert long[label] <= quotas(result)[label]
        before = long


def check_rows(result: Result, rows: Columns) -> None:
    """Stored rows are distinct rows of the tasks that have their classes, prototypes of their class's number."""
    plan = result.experiment
    label, task, index, prototype = (rows[name] for name in STORED[1:])
    per = int(plan["memory"].get("rows_per_prototype") or 1)
    long = prototype >= 0
    for part in (~long, long):
        real = index[part & (index >= 0)]
        assert len(np.unique(real)) == len(real), "a row of the stream is stored twice"
    assert ((task >= 0) & (task < plan["tasks"])).all()
    assert (prototype >= -1).all()
    assert (prototype * per < np.maximum(1, quotas(result))[label]).all()
    if not plan["blur"]:
        assert all(np.isin(label[task == number], labels).all() for number, labels in enumerate(result.labels))
    _, counts = np.unique(np.stack([label, prototype])[:, long], axis=1, return_counts=True)
    assert (counts <= per).all()


def check_evidence(columns: Columns, rows: Columns) -> None:
    """Features are of these rows, and the chosen candidates those that the memory has for good."""
    features = [columns[name] for name in FEATURES if name in columns]
    assert FEATURES[0] in columns
    assert all(np.isfinite(part).all() and part.shape[1] == features[0].shape[1] for part in features)
    if len(rows["label"]):
        assert len(columns[FEATURES[1]]) == len(rows["label"])
    if not any(name in columns for name in CHOICE):
        return
    index, label, kept, distance = (columns[name] for name in CHOICE)
    assert len(index) == len(label) == len(kept) == len(distance) == len(np.unique(index))
    assert not np.isnan(distance[:, 0]).any()
    assert kept.max(initial=-1) < distance.shape[1]
    pinned = np.stack([rows[name] for name in ("index", "label", "prototype")])[:, rows["prototype"] >= 0]
    chosen = np.stack([index, label, kept])[:, kept >= 0]
    assert np.array_equal(pinned[:, np.lexsort(pinned)], chosen[:, np.lexsort(chosen)])


def check_against_data(result: Result, rows: Columns, data: Dataset) -> None:
    """Stored images and labels are the data's, and accuracies are shares of its test rows."""
    plan, names = result.experiment, list(data.class_names)
    assert data.checksum == result.provenance["data_checksum"]
    assert sorted(names) == sorted(result.classes)
    real = rows["index"] >= 0
    index, label, task = rows["index"][real], rows["label"][real], rows["task"][real]
    image = data.image.numpy()[index]
    for number in np.unique(task) if plan["domain"] is not None else ():
        part = task == number
        image[part] = in_domain(torch.from_numpy(image[part]), plan["domain"], int(number), plan["seed"]).numpy()
    assert np.array_equal(image, rows["image"][real])
    arrival = np.array([result.classes.index(name) for name in names])
    true = arrival[data.label.numpy()[index]]
    if plan["noise"]:  # a label may be another of its task
        first_task = np.full(len(names), -1)
        for number, labels in reversed(list(enumerate(result.labels))):
            first_task[labels] = number
        true, label = first_task[true], first_task[label]
    assert np.array_equal(true, label)
    tested = np.bincount(arrival[data.test_label.numpy()], minlength=len(names)).clip(max=plan["limit"])
    for row in (*result.class_il, *(result.task_il or ())):
        hits = [accuracy * tested[labels].sum() / 100 for accuracy, labels in zip(row, result.labels, strict=False)]
        assert np.allclose(hits, np.round(hits), atol=1e-6)
