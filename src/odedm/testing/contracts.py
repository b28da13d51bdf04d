"""What holds of every run, whatever it is made of: bounds, raw rows, one seed one run, exact resuming."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.rows import MemoryPart
from odedm.memory.settings import MemorySettings
from odedm.stream.dataset import Dataset
from odedm.stream.synthetic import blobs
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation
from odedm.training.outcomes import Outcome
from odedm.training.run import Run

CAPACITY = 30
"""Rows of the memories that are tried."""


class CheckFailed(AssertionError):
    """Code from outside does not do what runs rely on: says what, and what was seen."""


def check(holds: object, sentence: str) -> None:
    """Raise `CheckFailed` with a sentence on what must hold, unless it does.

    >>> check(1 > 2, "One is more than two.")
    Traceback (most recent call last):
    odedm.testing.contracts.CheckFailed: One is more than two.
    """
    if not holds:
        raise CheckFailed(sentence)


@lru_cache(maxsize=1)
def small_stream() -> Dataset:
    """Return ten classes in five tasks, 30 rows of each."""
    return blobs(per_class=30)


def finish(memory: MemorySettings, data: Dataset | None = None, **settings: Any) -> tuple[Run, Outcome]:
    """Return a run on the CPU from its settings, finished; on the small stream unless another is given."""
    data = data or small_stream()
    run = Run(Experiment(memory, data=data.name, **{"device": "cpu", "batch": 16, **settings}), data)
    return run, run.finish()


def check_run(run: Run, outcome: Outcome) -> None:
    """Check what holds at the end of every run."""
    memory, result = outcome.memory, outcome.result
    check(memory.size() <= memory.capacity, f"A memory of {memory.capacity} rows holds {memory.size()}.")
    short, long = memory.rows(MemoryPart.SHORT), memory.rows(MemoryPart.LONG)
    check(len(memory.rows()["label"]) == memory.size(), "The memory holds as many rows as `size` says.")
    check((long["prototype"] >= 0).all(), "Every long-term row stands for a prototype.")
    check((short["prototype"] == -1).all(), "No short-term row stands for a prototype.")
    for class_row, task_row in zip(result.class_il, result.task_il or result.class_il, strict=True):
        ordered = all(task >= among_all for among_all, task in zip(class_row, task_row, strict=True))
        check(ordered, "With fewer classes to choose from accuracy is not lower (Task-IL, Class-IL).")
    check(outcome.method.net.training, "The network is left in training mode.")
    real = memory.rows()
    real = {name: column[real["index"] >= 0] for name, column in real.items()}  # mean images are no rows of the data
    index = real["index"].cpu()
    raw = run.data.image[index].equal(real["image"].cpu())
    check(raw, "Stored images are raw rows of the stream, each with its own index.")
    order = [run.stream.class_names.index(run.data.class_names[i]) for i in run.data.label[index].tolist()]
    check(real["label"].tolist() == order, "A stored row has the label that it arrived with.")


def check_same(first: Outcome, second: Outcome, sentence: str) -> None:
    """Check that two runs ended with the same network and the same memory, bit for bit."""
    check(same_weights(first, second) and same_rows(first, second), sentence)


def same_weights(first: Outcome, second: Outcome) -> bool:
    """Return whether two trained networks are equal bit for bit."""
    a, b = first.method.net.state_dict(), second.method.net.state_dict()
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def same_rows(first: Outcome, second: Outcome) -> bool:
    """Return whether two memories hold the same rows in the same order."""
    a, b = first.memory.rows(), second.memory.rows()
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def check_exact(memory: MemorySettings, **settings: Any) -> None:
    """Check that one seed is one run: again, looked at on the way, and from a checkpoint in the middle of a task."""
    data = small_stream()
    plan = Experiment(memory, data=data.name, **{"device": "cpu", "batch": 16, **settings})
    stored: list[State] = []

    class Halfway:
        """Captures the state after some steps of the third task."""

        def after_step(self, run: Run) -> None:
            if run.progress.task == 2 and run.progress.batch == 2:
                try:
                    state = state_tree(run.roots(), run.external_tensors())
                except StateError as error:
                    raise CheckFailed(f"A checkpoint cannot hold it: {error}") from error
                stored.append(State(state.tensors, json.loads(json.dumps(state.tree))))

    first = Run(plan, data, callbacks=[Halfway()]).finish()
    again = Run(plan, data).finish()
    check_same(
        first,
        again,
        "The same seed does not give the same run: draw from `self.rng(purpose)` or the generator that is handed over, "
        "not from torch's own.",
    )
    looked = Run(plan, data, Observation(anytime=2)).finish()
    check(same_weights(first, looked), "A test in the middle of a task changes the run: `predict` keeps something.")
    resumed = Run(plan, data)
    try:
        load_state_tree(resumed.roots(), stored[0], resumed.external_tensors())
    except StateError as error:
        raise CheckFailed(f"A checkpoint cannot be gone on from: {error}") from error
    outcome = resumed.finish()
    check_same(
        first,
        outcome,
        "A run that goes on from a checkpoint is not the run that was not stopped: keep all state in attributes.",
    )
