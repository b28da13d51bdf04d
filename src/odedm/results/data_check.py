"""Compares a finished run with the data it was made from: stored rows, their labels, and shares of test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from odedm.core.errors import UsageError, demand
from odedm.results.folder import Columns
from odedm.results.result import Result

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset


class Skipped(Exception):
    """Why something cannot be checked here."""


def against_data(result: Result, rows: Columns) -> str:
    """What the data say of a run; `Skipped` where they are not here."""
    plan = result.experiment
    data = _data(str(plan["data"]))
    if data.checksum != result.provenance["data_checksum"]:
        raise Skipped(f"'{plan['data']}' here has another checksum than the data of this run")
    names = list(data.class_names)
    demand(sorted(names) == sorted(result.classes), "its classes are not those of the data")
    real = rows["index"] >= 0
    index, label, stored = rows["index"][real], rows["label"][real], rows["image"][real]
    demand(within(index, len(data.label)), "a row has an index beyond the data")
    image = _as_seen(data.image.numpy()[index], rows["task"][real], plan)
    demand(image.dtype == stored.dtype and image.shape == stored.shape, "its images have another form")
    demand(np.array_equal(image, stored), "an image is not the data's row of its index")
    arrival = np.array([result.classes.index(name) for name in names])
    true = arrival[data.label.numpy()[index]]
    if plan["noise"]:
        true, label = _first_task(result)[true], _first_task(result)[label]
    demand(np.array_equal(true, label), "a row has a label that is not its class")
    tested = np.bincount(arrival[data.test_label.numpy()], minlength=len(names))
    tested = tested if plan["limit"] is None else tested.clip(max=plan["limit"])
    counts = [tested[own].sum() for own in result.labels]
    for row in (*result.class_il, *(result.task_il or ())):
        for j, accuracy in enumerate(row):
            right = accuracy * counts[j] / 100
            whole = abs(right - round(right)) < 1e-6
            demand(whole, f"{accuracy} per cent of {counts[j]} test rows is no whole number")
    return f"{len(index)} stored rows are rows of '{plan['data']}'; accuracies are shares of its test rows"


def _as_seen(image: np.ndarray[Any, Any], task: np.ndarray[Any, Any], plan: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The data's rows as they looked in the task in which each arrived."""
    import torch

    from odedm.stream.domains import in_domain

    for each in np.unique(task) if plan["domain"] is not None else ():
        own = task == each
        image[own] = in_domain(torch.from_numpy(image[own]), plan["domain"], int(each), plan["seed"]).numpy()
    return image


def _data(name: str) -> Dataset:
    from odedm.core.registry import DATASETS
    from odedm.data.cache import is_cached
    from odedm.data.opening import load_dataset

    if name not in DATASETS and not is_cached(name):
        raise Skipped(f"the data set '{name[:60]}' is not here")
    try:
        return load_dataset(name)
    except UsageError as error:
        raise Skipped(str(error).rstrip(".")) from error


def _first_task(result: Result) -> np.ndarray[Any, Any]:
    """The task in which each class comes first."""
    first = np.full(len(result.classes), -1)
    for task, own in reversed(list(enumerate(result.labels))):
        first[own] = task
    return first


def within(values: np.ndarray[Any, Any], end: int) -> bool:
    """Whether all are from 0 up to below `end`."""
    return bool(((values >= 0) & (values < end)).all())
