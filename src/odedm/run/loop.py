"""The loop: builds stream, network, method and memory from an experiment, and runs it to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from odedm.rows import Field, Rows, Task
from odedm.run import experiment as config
from odedm.run.capture import CudaRecorder, Pace, Stepper, generators_of
from odedm.run.evaluate import evaluate
from odedm.run.experiment import ODEDM, Experiment, Native
from odedm.run.feed import Feed, feed
from odedm.run.numerics import arranged, own_numerics, own_stream, settle
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
    precision: str = "auto",
    capture: bool = True,
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
        precision=precision,
        capture=capture,
    )
    return Run(plan, given).finish()


@dataclass
class Progress:
    """How far a run has come, and what it has found out so far."""

    task: int = 0
    batch: int = 0
    """Batches of the running task that are done."""
    rows: int = 0
    feed: Feed | None = None
    """The running task's batches; None between tasks."""
    arrived: list[Rows] = field(default_factory=list)
    """The running task's rows with the fields they had, where the memory is to keep those."""
    class_il: list[list[float]] = field(default_factory=list)
    task_il: list[list[float]] = field(default_factory=list)
    census: list[dict[str, list[int]]] = field(default_factory=list)


class Run:
    """Everything one experiment needs, built and checked; `finish` trains it to its end."""

    def __init__(self, experiment: Experiment, data: Dataset | None = None) -> None:
        self.data = data or load_data(experiment.data)
        self.experiment = resolve(experiment, self.data)
        self.device = torch.device(self.experiment.device)
        self.progress = Progress()
        with own_numerics(self.experiment.threads, self.experiment.precision):
            self._build()

    def _build(self) -> None:
        plan = self.experiment
        self.clock = Clock(settle(self.device))
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
        kind = METHODS[plan.method].load()
        network = build(plan.net, self.data.shape, self.data.classes, seed=plan.seed, options=plan.net_options)
        network = arranged(network.to(self.device), plan.precision, exacting=kind.exacting)
        self.method: Method = kind(net=network, draw=draw, rng=self.rng, **plan.options)
        self.probe = LearnerProbe(self.method, self.stream.transform)
        self.memory = self._memory()
        reading, gamma = (plan.memory.replay, plan.memory.gamma) if isinstance(plan.memory, ODEDM) else ("union", 0.0)
        self.replay = MemoryReplay(
            self.memory, self.stream.transform, reading=reading, draw=draw, gamma=gamma, rng=self.rng
        )
        self.keys, self.views = self.rng("memory"), self.rng("stream views")
        # these two on the CPU: one seed, one choice anywhere
        self.shuffle, self.borders = generator(plan.seed, "mixing"), generator(plan.seed, "memory borders")
        captures = plan.capture and kind.capturable and self.device.type == "cuda"
        self.stepper = Stepper(
            self._step,
            frozen=self.replay.frozen,
            replayed=self.memory.replayed,
            recorder=partial(CudaRecorder, self._generators) if captures else None,
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

    def _generators(self) -> Iterator[torch.Generator]:
        """Every generator that a step may draw from on the device."""
        return generators_of([self.keys, self.views, self.replay, self.method, self.memory])

    def finish(self, watch: Watch = lambda *_: None) -> Outcome:
        """Train on every task in turn and evaluate after each."""
        with own_numerics(self.experiment.threads, self.experiment.precision), own_stream(self.device):
            for task in self.stream.tasks[self.progress.task :]:
                self._learn(task, watch)
                self._conclude(task)
        return Outcome(self._result(), self.method, self.memory, self.probe, self.data)

    def _learn(self, task: Task, watch: Watch) -> None:
        """The task's batches, from where the run stands."""
        progress, total = self.progress, sum(len(each) for each in self.stream.tasks)
        if progress.feed is None:
            self.method.begin_task(task)
            self.memory.begin_task(task)
            mixes = self.method.mixes_memory and self.memory.size() > 0
            stored = self.replay.mixture() if mixes else None
            progress.feed = feed(task, self.experiment.batch, stored=stored, rng=self.shuffle)
        self.stepper.begin_task(self.method)
        pace = Pace() if self.device.type == "cuda" else None
        with self.clock("train"):
            for batch, new in progress.feed.batches(progress.batch):
                rows = self.stepper(batch, new)
                if self._keeps_fields:
                    progress.arrived.append({name: column.clone() for name, column in rows.items()})
                progress.batch += 1
                progress.rows += new
                if pace:
                    pace()
                watch(task.index, progress.rows, total)
        self.stepper.settle(self.method)

    def _conclude(self, task: Task) -> None:
        """What follows a task's last batch: the memory's choice, the method's, and the test."""
        progress = self.progress
        with self.clock("consolidate"):
            self.memory.end_task(self._annotated(task), self.probe, rng=self.borders)
        with self.clock("end task"):
            self.method.end_task(task, self.replay)
        with self.clock("evaluate"):
            class_il, task_il = self._evaluate(task.index)
        progress.class_il.append(class_il)
        progress.task_il.append(task_il)
        progress.census.append(self.memory.census(self.data.classes))
        progress.task, progress.batch, progress.feed, progress.arrived = task.index + 1, 0, None, []

    def _step(self, batch: Rows, new: int) -> Rows:
        """One update and what the memory keeps of the batch: all that a recording holds."""
        self.replay.begin_step()
        view = self.stream.transform.augment(batch["image"], self.views)
        fields = self.method.step({**batch, "input": view}, self.replay)
        rows = {name: column[:new] for name, column in {**batch, **fields}.items()}
        if new:
            self.memory.add(rows, self.probe, rng=self.keys)
        return rows

    @property
    def _keeps_fields(self) -> bool:
        plan = self.experiment.memory
        return isinstance(plan, ODEDM) and plan.annotate == "stream"

    def _annotated(self, task: Task) -> Task:
        """The task with the fields that its rows had when they arrived, where the memory is to keep those."""
        if not self._keeps_fields:
            return task
        arrived = self.progress.arrived
        seen = {name: torch.cat([rows[name] for rows in arrived]) for name in arrived[0]}
        return replace(task, rows=seen)

    def _evaluate(self, task: int) -> tuple[list[float], list[float]]:
        return evaluate(
            self.probe.predict,
            self.stream.tests[: task + 1],
            classes_per_task=self.stream.classes_per_task,
            columns=self.experiment.columns,
        )

    def _result(self) -> Result:
        steps = {"eager": self.stepper.eager, "captured": self.stepper.captured}
        return Result.measure(
            experiment=describe(self.experiment, self.stream, self.device),
            class_il=self.progress.class_il,
            task_il=self.progress.task_il,
            seconds=self.clock.seconds,
            census=self.progress.census,
            provenance=provenance(self.device, self.data.checksum)
            | {"precision": self.experiment.precision, "steps": steps},
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
