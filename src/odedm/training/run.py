"""The training loop: builds stream, network, method and memory from an experiment, and runs it to its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from odedm.checkpoint.checkpointer import Checkpointer
from odedm.checkpoint.stop import Stopped
from odedm.core.accel.streams import run_stream
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec, Rows, Task, count
from odedm.core.text import counted, printable
from odedm.core.timer import Timer
from odedm.memory.build_context import BuildContext, StreamShape
from odedm.memory.dual import AnyBuffer, DualBuffer
from odedm.methods.base import Method
from odedm.nets.build import build
from odedm.results.metrics import average_accuracy
from odedm.results.provenance import provenance
from odedm.results.result import Result
from odedm.stream.dataset import Dataset
from odedm.stream.tasks import split
from odedm.training.callbacks import Callbacks, Reporter
from odedm.training.cuda_graph import CudaRecorder, GraphedStep, can_be_recorded
from odedm.training.custom_transform import transform_by_name
from odedm.training.diagnostics import Choices, features, preserve_state
from odedm.training.divergence import DivergenceGuard
from odedm.training.engine import Engine
from odedm.training.evaluation import evaluate
from odedm.training.experiment import Experiment
from odedm.training.memory_bytes import bytes_held, data_columns
from odedm.training.numerics import deterministic_numerics, synchronizer
from odedm.training.observation import Observation
from odedm.training.outcomes import Outcome
from odedm.training.preparation import Prepared, prepare, stream_settings
from odedm.training.progress import Progress, task_batches


class Run:
    """Everything one experiment needs, built and checked; `finish` trains it to its end."""

    def __init__(
        self,
        plan: Experiment | Prepared,
        data: Dataset | None = None,
        observation: Observation | None = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.callbacks = Callbacks(callbacks)
        prepared = plan if isinstance(plan, Prepared) else prepare(plan, data)
        self.data, self.experiment = prepared.data, prepared.experiment
        # now: files may be edited while it runs
        self.origins = self.experiment.origins() | self.callbacks.origins()
        self.device = torch.device(self.experiment.device)
        self.progress, self.observation, self.choices = Progress(), observation or Observation(), Choices()
        with deterministic_numerics(self.experiment.threads, self.experiment.precision):
            self._build()

    def __repr__(self) -> str:
        plan, done = self.experiment, self.progress
        what = printable(f"{plan.method} with {plan.memory!r} on '{plan.data}', seed {plan.seed}", 200)
        tasks = len(self.stream.tasks)
        return f"<Run of {what}: {done.rows} rows seen, {min(done.task, tasks)} of {counted(tasks, 'task')} done>"

    def _build(self) -> None:
        plan = self.experiment
        self.timer = Timer(synchronizer(self.device))
        settings = stream_settings(plan) | {"factor": plan.factor or 1.0, "seed": plan.seed}
        self.stream = split(self.data, **settings, device=self.device)
        self.stream = replace(self.stream, transform=transform_by_name(plan.transform, self.stream.transform))
        net = build(plan.net, self.data.shape, self.data.classes, seed=plan.seed, options=plan.net_options)
        self.engine = Engine(plan, net, self.stream.transform, self._make_memory)
        if self.observation.evidence and isinstance(self.memory, DualBuffer):
            self.memory.on_selection = self.choices  # and so a part of every checkpoint
        # on the CPU: one seed, one order anywhere
        self.shuffle = generator(plan.seed, "mixing")
        self.method.captures = can_be_recorded(plan, type(self.method), self.method.net, self.engine.schedule)
        self.guard = DivergenceGuard(self.method, self.device, plan, len(self.stream.tasks))
        self.stepper = GraphedStep(
            self._step,
            graph_key=self.engine.replay.graph_key,
            on_graph_replay=self.memory.on_graph_replay,
            recorder=partial(CudaRecorder, self.engine.generators) if self.method.captures else None,
            by_new=not getattr(self.memory, "only_at_borders", False),
            net=self.method.net,
        )

    def _make_memory(self, method_columns: tuple[ColumnSpec, ...]) -> AnyBuffer:
        plan = self.experiment
        context = BuildContext(
            StreamShape.of(self.stream.schedule),
            data_columns(self.data),
            method_columns,
            self.device,
            rng=partial(generator, plan.seed, device=self.device),
            cpu_rng=partial(generator, plan.seed),
            timer=self.timer,
            classes=self.data.classes,
        )
        return plan.memory.build(context)

    @property
    def method(self) -> Method:
        """Return the method that learns."""
        return self.engine.method

    @property
    def memory(self) -> Any:
        """Its memory."""
        return self.engine.memory

    @property
    def total_rows(self) -> int:
        """How many rows come in all, those of each epoch counted; `progress.rows` have come."""
        return self.experiment.epochs * sum(len(task) for task in self.stream.tasks)

    def roots(self) -> dict[str, Any]:
        """Return all that a checkpoint must hold; recordings and what follows from the configuration are made anew."""
        return self.engine.roots() | {name: getattr(self, name) for name in ("progress", "timer", "shuffle")}

    def external_tensors(self) -> Rows:
        """Return the stream's columns by name: a checkpoint refers to them and does not store them."""
        return {f"task {task.index} {name}": column for task in self.stream.tasks for name, column in task.rows.items()}

    def finish(self, *reporters: Reporter, checkpointer: Checkpointer | None = None) -> Outcome:
        """Train on every task in turn and evaluate after each; with a checkpointer from where its last checkpoint is.

        A run that is asked to stop raises `Stopped`, its state being stored.
        """
        try:
            with deterministic_numerics(self.experiment.threads, self.experiment.precision), run_stream(self.device):
                self._finish(reporters, checkpointer)
                evidence = self._evidence() if self.observation.evidence else None
        finally:  # what holds on to the run would keep it, and its part of a GPU, until Python collects garbage
            self.stepper.close()
            self.guard.last = lambda: None
        outcome = Outcome(self._result(), self.engine, self.data, evidence)
        self.callbacks.after_run(outcome)
        return outcome

    def _finish(self, reporters: Sequence[Reporter], checkpointer: Checkpointer | None) -> None:
        if checkpointer is not None:
            self._resume(checkpointer)
        for task in self.stream.tasks[self.progress.task :]:
            self._learn(task, reporters, checkpointer)
            self._conclude(task)
            self.callbacks.after_task(self)
            for reporter in reporters:
                reporter.after_task(self)
            if checkpointer is not None and checkpointer.after_task() and task.index + 1 < len(self.stream.tasks):
                raise Stopped

    def _resume(self, checkpointer: Checkpointer) -> None:
        self.guard.last = lambda: checkpointer.last
        checkpoint = checkpointer.resume()
        if checkpoint is not None:
            self.guard.resumed(self.progress.step)
            self.stepper.captured = self.progress.captured
            self.progress.notes.extend(checkpoint.changes)

    def _learn(self, task: Task, reporters: Sequence[Reporter], checkpointer: Checkpointer | None) -> None:
        """The task's batches, from where the run stands."""
        progress, epochs = self.progress, self.experiment.epochs
        if progress.batches is None:
            self.engine.begin_task(task)
            mixes = "mixing" in self.method.requires and self.memory.size() > 0
            stored = self.engine.replay.mixture() if mixes else None
            progress.batches = task_batches(task, self.experiment.batch, stored=stored, rng=self.shuffle)
        self.stepper.begin_task(self.method, self.memory)
        with self.timer("train"):
            for batch, new in progress.remaining(epochs, self.shuffle, shuffle=self.experiment.shuffle):
                self.engine.set_rate(*self._position(task))
                rows = self.stepper(batch, 0 if progress.epoch else new)  # rows are stored in the first pass alone
                if self.experiment.memory.keeps_stream_fields and not progress.epoch:
                    progress.arrived.append({name: column.clone() for name, column in rows.items()})
                progress.count(new, captured=self.stepper.captured)
                self.guard.after_step(progress.step, task.index)
                self._look(task, new)
                self.callbacks.after_step(self)
                for reporter in reporters:
                    reporter.after_step(self)
                if checkpointer is not None and checkpointer.after_step():
                    raise Stopped
        self.stepper.update_baseline(self.method, self.memory)
        self.guard.check_all(progress.step, task.index)

    def _position(self, task: Task) -> tuple[float, float]:
        """Return how many batches are done, and of how many: in the task or the stream, as the schedule counts.

        In the stream stored rows that are mixed into a task make its batches more, but not its part of the whole.
        """
        progress, plan = self.progress, self.experiment
        assert progress.batches is not None
        each_pass = math.ceil(count(progress.batches.rows) / plan.batch)
        done, total = progress.epoch * each_pass + progress.batch, plan.epochs * each_pass
        if plan.schedule_over == "task":
            return done, total
        planned = [plan.epochs * math.ceil(len(other) / plan.batch) for other in self.stream.tasks]
        within = done if total == planned[task.index] else done * planned[task.index] / total
        return sum(planned[: task.index]) + within, sum(planned)

    def _look(self, task: Task, new: int) -> None:
        """Test in mid-task where it is time to; the run goes on as if it had not."""
        if not self.observation.anytime:
            return
        progress, epochs = self.progress, self.experiment.epochs
        done = progress.rows - epochs * sum(len(other) for other in self.stream.tasks[: task.index])
        if self.observation.due(done - new, done, epochs * len(task)):
            with self.timer("observe"), preserve_state(self.method):
                self.guard.check_all(progress.step, task.index)
                class_il, _ = self._evaluate(task.index)
            progress.anytime.append([progress.rows, *average_accuracy([class_il])])

    def _evidence(self) -> Rows:
        with self.timer("observe"):
            return {**features(self.engine.view, self.stream.tasks, self.memory.rows()), **self.choices.columns()}

    def _conclude(self, task: Task) -> None:
        """What follows a task's last batch: the memory's choice, the method's, and the test."""
        progress = self.progress
        with self.timer("consolidate"):
            self.engine.consolidate(self._annotated(task))
        with self.timer("end task"):
            self.engine.end_task(task)
        with self.timer("evaluate"):
            class_il, task_il = self._evaluate(task.index)
        progress.class_il.append(class_il)
        progress.task_il += [] if task_il is None else [task_il]
        progress.class_counts.append(self.memory.class_counts(self.data.classes))
        if self.observation.anytime:
            progress.anytime.append([progress.rows, *average_accuracy([class_il])])
        progress.begin(task.index + 1)

    def _step(self, batch: Rows, new: int) -> Rows:
        """Return the updates on a batch and what the memory keeps of it: all that a recording holds."""
        rows = self.engine.observe(batch, new)
        self.guard.note()
        return rows

    def _annotated(self, task: Task) -> Task:
        """Return the task with the fields that its rows had when they arrived, where the memory is to keep those."""
        if not self.experiment.memory.keeps_stream_fields:
            return task
        arrived = self.progress.arrived
        seen = {name: torch.cat([rows[name] for rows in arrived]) for name in arrived[0]}
        return replace(task, rows=seen)

    def _evaluate(self, task: int) -> tuple[list[float], list[float] | None]:
        return evaluate(
            self.engine.predictor(),
            self.stream.tests[: task + 1],
            labels=self.stream.labels,
            columns=self.experiment.eval_classes,
        )

    def _result(self) -> Result:
        progress = self.progress
        steps = {"eager": progress.step - progress.captured, "captured": progress.captured}
        return Result.measure(
            experiment=self.experiment.describe(),
            classes=list(self.stream.class_names),
            class_il=progress.class_il,
            task_il=progress.task_il or None,
            seconds=self.timer.seconds,
            class_counts=progress.class_counts,
            provenance=provenance(self.device, self.data.checksum)
            | {"precision": self.experiment.precision, "steps": steps}
            | {name: value for name, value in (("notes", progress.notes), ("plugins", self.origins)) if value},
            anytime=progress.anytime if self.observation.anytime else None,
            bytes=bytes_held(self.memory, self.method),
            sample_gradients=self.method.net.gradient_rows / sum(len(task) for task in self.stream.tasks),
            task_labels=None if self.stream.is_regular else [list(classes) for classes in self.stream.labels],
        )
