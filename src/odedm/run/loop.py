"""The loop: builds stream, network, method and memory from an experiment, and runs it to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from odedm.catalogue import DATASETS, METHODS, POLICIES
from odedm.clock import Clock
from odedm.errors import UsageError
from odedm.memory.base import Memory
from odedm.memory.dual import Candidates, DualMemory, Host
from odedm.methods.base import Method
from odedm.nets import build
from odedm.randomness import generator
from odedm.rows import Field, Rows, Task, count, take
from odedm.run import experiment as config
from odedm.run.evaluate import evaluate
from odedm.run.experiment import ODEDM, Experiment, Native
from odedm.run.numerics import own_numerics
from odedm.run.probe import LearnerProbe
from odedm.run.provenance import provenance
from odedm.run.replay import MemoryReplay
from odedm.run.resolve import consolidator, resolve
from odedm.run.results import Result
from odedm.stream.cache import open_data
from odedm.stream.datasets import Dataset, rows_like
from odedm.stream.tasks import Stream, split

Watch = Callable[[int, int, int], None]
"""Called after every batch with the task's index, the rows seen so far and the rows of the whole stream."""


@dataclass(frozen=True)
class Outcome:
    """A finished run: its figures, the trained method and the memory as it ended."""

    result: Result
    method: Method
    memory: Memory
    probe: LearnerProbe
    data: Dataset

    def predict(self, x: Any) -> np.ndarray[Any, Any]:
        """The class number, in order of arrival, of each raw row of x, given as for `from_arrays`."""
        rows = rows_like(self.data, x).to(self.probe.transform.shift.device)
        return self.probe.predict(rows).argmax(1).cpu().numpy()

    def predict_names(self, x: Any) -> list[str]:
        """The class name of each raw row of x."""
        names = self.result.experiment["classes"]
        return [names[number] for number in self.predict(x)]


def train(
    data: str | Dataset = "fashion-mini",
    *,
    memory: config.Reservoir | Native | ODEDM,
    method: str = "derpp",
    options: Mapping[str, Any] | None = None,
    tasks: int | None = None,
    setting: str = "standard",
    factor: float | None = None,
    blur: float = 0.0,
    noise: float = 0.0,
    class_order: str = "natural",
    net: str = "auto",
    net_options: Mapping[str, Any] | None = None,
    batch: int = 32,
    draw: int | None = None,
    columns: str = "seen",
    seed: int = 0,
    device: str = "auto",
    threads: int = 1,
) -> Outcome:
    """Train one method with one memory on one stream, from plain arguments.

    >>> outcome = train("blobs", memory=config.Reservoir(capacity=20), method="er")
    >>> len(outcome.result.acc)
    5
    """
    if not isinstance(data, str | Dataset):
        raise UsageError(f"data must be a name or a Dataset (see odedm.from_arrays); {type(data).__name__} was given.")
    given = load_data(data) if isinstance(data, str) else data
    plan = Experiment(
        memory,
        method=method,
        options=dict(options or {}),
        data=given.name,
        tasks=tasks,
        setting=setting,
        factor=factor,
        blur=blur,
        noise=noise,
        class_order=class_order,
        net=net,
        net_options=dict(net_options or {}),
        batch=batch,
        draw=draw,
        columns=columns,
        seed=seed,
        device=device,
        threads=threads,
    )
    return Run(plan, given).finish()


class Run:
    """Everything one experiment needs, built and checked; `finish` trains it to its end."""

    def __init__(self, experiment: Experiment, data: Dataset | None = None) -> None:
        self.data = data or load_data(experiment.data)
        self.experiment = resolve(experiment, self.data)
        self.device = torch.device(self.experiment.device)
        with own_numerics(self.experiment.threads):
            self._build()

    def _build(self) -> None:
        plan = self.experiment
        self.clock = Clock(partial(torch.cuda.synchronize, self.device) if self.device.type == "cuda" else lambda: None)
        self.rng = partial(generator, plan.seed, device=self.device)
        self.stream = split(
            self.data,
            tasks=plan.tasks,
            setting=plan.setting,
            factor=plan.factor or 1.0,
            blur=plan.blur,
            noise=plan.noise,
            class_order=plan.class_order,
            seed=plan.seed,
            device=self.device,
        )
        draw = plan.draw or plan.batch
        network = build(plan.net, self.data.shape, self.data.classes, seed=plan.seed, options=plan.net_options)
        network = network.to(self.device)
        self.method: Method = METHODS[plan.method].load()(net=network, draw=draw, rng=self.rng, **plan.options)
        self.probe = LearnerProbe(self.method, self.stream.transform)
        self.memory = self._memory()
        reading, gamma = (plan.memory.replay, plan.memory.gamma) if isinstance(plan.memory, ODEDM) else ("union", 0.0)
        self.replay = MemoryReplay(
            self.memory, self.stream.transform, reading=reading, draw=draw, gamma=gamma, rng=self.rng
        )

    def _memory(self) -> Memory:
        plan = self.experiment.memory
        raw = (
            Field("image", self.data.shape, self.data.image.dtype),
            Field("label", dtype=torch.int64),
            Field("task", dtype=torch.int64),
            Field("index", dtype=torch.int64),
        )
        fields = (*raw, *self.method.fields())
        policy = POLICIES[policy_name(plan, self.method.native)].load()
        if not isinstance(plan, ODEDM):
            memory: Memory = policy(plan.capacity, fields, self.device)
            return memory
        per_task = self.stream.classes_per_task
        candidates = None
        if isinstance(plan.candidates, int):
            columns = fields if plan.annotate == "stream" else raw
            candidates = Candidates(plan.candidates, per_task, columns, self.device, rng=self.rng("candidates"))
        host: Host = policy(plan.capacity - (candidates.capacity if candidates else 0), fields, self.device)
        rng = generator(self.experiment.seed, "consolidation")  # on the CPU: one seed, one choice anywhere
        return DualMemory(host, consolidator(plan), rng=rng, clock=self.clock, candidates=candidates)

    def finish(self, watch: Watch = lambda *_: None) -> Outcome:
        """Train on every task in turn and evaluate after each."""
        with own_numerics(self.experiment.threads):
            return self._finish(watch)

    def _finish(self, watch: Watch) -> Outcome:
        class_il, task_il, census = [], [], []
        total, done = sum(len(task) for task in self.stream.tasks), 0
        keys, views = self.rng("memory"), self.rng("stream views")
        shuffle = generator(self.experiment.seed, "mixing")
        borders = generator(self.experiment.seed, "memory borders")
        for task in self.stream.tasks:
            self.method.begin_task(task)
            self.memory.begin_task(task)
            arrived: list[Rows] = []
            with self.clock("train"):
                for batch, new in self._batches(task, shuffle):
                    rows = self._step(batch, new, keys, views)
                    if self._keeps_fields:
                        arrived.append(rows)
                    done += new
                    watch(task.index, done, total)
            with self.clock("consolidate"):
                self.memory.end_task(self._annotated(task, arrived), self.probe, rng=borders)
            with self.clock("end task"):
                self.method.end_task(task, self.replay)
            with self.clock("evaluate"):
                accuracies = self._evaluate(task.index)
            class_il.append(accuracies[0])
            task_il.append(accuracies[1])
            census.append(self.memory.census(self.data.classes))
        result = Result.measure(
            experiment=describe(self.experiment, self.stream, self.device),
            class_il=class_il,
            task_il=task_il,
            seconds=self.clock.seconds,
            census=census,
            provenance=provenance(self.device, self.data.checksum),
        )
        return Outcome(result, self.method, self.memory, self.probe, self.data)

    def _batches(self, task: Task, shuffle: torch.Generator) -> Iterator[tuple[Rows, int]]:
        """The task's batches in arrival order, each with how many of its rows are new: they come first in it."""
        if not self.method.mixes_memory or self.memory.size() == 0:
            yield from batches(task, self.experiment.batch)
            return
        stored = self.replay.mixture()
        both = {name: torch.cat([column, stored[name]]) for name, column in task.rows.items()}
        yield from mixed(both, len(task), self.experiment.batch, shuffle)

    @property
    def _keeps_fields(self) -> bool:
        plan = self.experiment.memory
        return isinstance(plan, ODEDM) and plan.annotate == "stream"

    def _annotated(self, task: Task, arrived: Sequence[Rows]) -> Task:
        """The task with the fields that its rows had when they arrived, where the memory is to keep those."""
        if not self._keeps_fields:
            return task
        seen = {name: torch.cat([rows[name] for rows in arrived]) for name in arrived[0]}
        return replace(task, rows=seen)

    def _step(self, batch: Rows, new: int, keys: torch.Generator, views: torch.Generator) -> Rows:
        self.replay.begin_step()
        view = self.stream.transform.augment(batch["image"], views)
        fields = self.method.step({**batch, "input": view}, self.replay)
        rows = {name: column[:new] for name, column in {**batch, **fields}.items()}
        if new:
            self.memory.add(rows, self.probe, rng=keys)
        return rows

    def _evaluate(self, task: int) -> tuple[list[float], list[float]]:
        return evaluate(
            self.probe.predict,
            self.stream.tests[: task + 1],
            classes_per_task=self.stream.classes_per_task,
            columns=self.experiment.columns,
        )


def policy_name(plan: config.Reservoir | Native | ODEDM, native: str) -> str:
    """Which policy fills the short-term part."""
    if isinstance(plan, Native):
        return plan.policy or native
    if isinstance(plan, ODEDM):
        return native if plan.short == "native" else plan.short
    return "reservoir"


def load_data(name: str) -> Dataset:
    """A data set by its name in the catalogue, by the name it was imported under, or by its path."""
    if name in DATASETS:
        data: Dataset = DATASETS[name].load()()
        return data
    return open_data(name)


def batches(task: Task, size: int) -> Iterator[tuple[Rows, int]]:
    """A task's rows in arrival order, `size` at a time, all of them new; the last batch may be smaller."""
    for start in range(0, len(task), size):
        rows = {name: column[start : start + size] for name, column in task.rows.items()}
        yield rows, count(rows)


def mixed(rows: Rows, new: int, size: int, rng: torch.Generator) -> Iterator[tuple[Rows, int]]:
    """All rows once in random order, `size` at a time; the first `new` rows are new, and so come first in a batch.

    The order is drawn on the CPU: how many rows of a batch are new is then known without asking the device.

    >>> rows = {"label": torch.arange(6)}
    >>> parts = [(part["label"].tolist(), new) for part, new in mixed(rows, 4, 4, torch.Generator().manual_seed(0))]
    >>> [sorted(labels[:new]) for labels, new in parts], sorted(sum((labels for labels, _ in parts), []))
    ([[0, 2, 3], [1]], [0, 1, 2, 3, 4, 5])
    """
    for part in torch.randperm(count(rows), generator=rng).split(size):
        fresh = part[part < new]
        order = torch.cat([fresh, part[part >= new]]).to(rows["label"].device)
        yield take(rows, order), len(fresh)


def describe(plan: Experiment, stream: Stream, device: torch.device) -> dict[str, Any]:
    """The experiment as it goes into the result: resolved, with the class names in arrival order."""
    plain = plan.describe()
    memory = plain["memory"]
    plain |= {
        "method": {"name": plan.method, **plain.pop("options")},
        "replay": memory.pop("replay", None),
        "gamma": memory.pop("gamma", None),
        "classes": list(stream.class_names),
        "device": device.type,
    }
    return plain
