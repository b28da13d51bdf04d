"""What `train` and `Learner` share: a method on a network, a memory, and the update that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import METHODS
from odedm.core.rng import generator, generators_of
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.methods.base import Method
from odedm.nets.base import Net
from odedm.stream.augment import Transform
from odedm.training.experiment import Experiment
from odedm.training.lr_schedule import LRSchedule
from odedm.training.model_view import MethodView
from odedm.training.numerics import set_precision
from odedm.training.optimizers import optimizer_keywords
from odedm.training.replay import MemoryReplay, replay_options
from odedm.training.retrieval import build_retrieval
from odedm.training.tricks import apply_tricks, by_nearest_mean


class Engine:
    """A method on a network with a memory: observe batches, consolidate, predict.

    Args:
        plan: what it is built from, every default filled in.
        net: the network on the CPU, in training mode.
        transform: how raw rows become inputs, and training views of them; on the device.
        make_memory: gives the memory for rows with these columns of the method's own.
        stored_rows: gives the rows of a memory by which the nearest class mean predicts; all that are replayed unless
            given.
    """

    def __init__(
        self,
        plan: Experiment,
        net: Net,
        transform: Transform,
        make_memory: Callable[[tuple[ColumnSpec, ...]], Any],
        *,
        stored_rows: Callable[[Any], Rows] | None = None,
    ) -> None:
        self.plan, self.transform, self.device = plan, transform, torch.device(plan.device)
        self.rng = partial(generator, plan.seed, device=self.device)
        method, draw = METHODS[plan.method].load(), plan.replay_batch or plan.batch
        net = set_precision(net.to(self.device), plan.precision, second_order="second order" in method.requires)
        optimizer = optimizer_keywords(plan.optimizer, plan.optimizer_options or {})
        self.method: Method = method(net=net, draw=draw, rng=self.rng, **optimizer, **plan.options)
        apply_tricks(plan, self.method)
        schedule = plan.schedule or "constant"
        changes = schedule != "constant" or plan.warmup
        self.schedule = LRSchedule(self.method, schedule, warmup=plan.warmup or 0) if changes else None
        self.memory = make_memory(self.method.fields())
        rows = partial(stored_rows, self.memory) if stored_rows is not None else self.memory.rows
        self.view = MethodView(self.method, transform, rows if by_nearest_mean(plan.predict, method) else None)
        self.replay = MemoryReplay(
            self.memory,
            transform,
            **replay_options(plan.memory),
            draw=draw,
            rng=self.rng,
            retrieval=build_retrieval(plan.retrieval, plan.retrieval_options),
            method=self.method,
            views=plan.views,
        )
        self.memory_rng, self.view_rng = self.rng("memory"), self.rng("stream views")
        self.border_rng = generator(plan.seed, "memory borders")  # on the CPU: one seed, one choice anywhere

    def begin_task(self, task: Task) -> None:
        """A task starts."""
        self.method.begin_task(task)
        self.memory.begin_task(task)
        if self.schedule is not None:
            self.schedule.attach()

    def set_rate(self, done: float, total: float | None = None) -> None:
        """Set the learning rate of the batch that comes after `done` of `total` batches, as the schedule has it.

        Both count in the task, or in the whole stream, as `schedule_over` says; how many there are is needed by
        schedules that end with them.
        """
        if self.schedule is not None:
            self.schedule.set(done, total)

    def update(self, batch: Rows, updates: int | None = None) -> Rows:
        """Make so many updates on raw rows: `image`, `label`, `task` and `index`; nothing is stored.

        Their number is that of the experiment unless given.

        Returns:
            The method's columns of the rows by the first update, before which the network had not seen them.
        """
        method = self.method
        if method.logit_adjustment is not None:
            method.logit_adjustment.update(batch["label"])
        columns = []
        for _ in range(updates or self.plan.updates):
            seen = {**batch, "input": self.transform.augment(batch["image"], rng=self.view_rng)}
            self.replay.begin_step(seen)
            columns.append(_observe(method, seen, self.replay))
            self.replay.end_step()
        if method.ema is not None:
            method.ema.update(method.net)
        return columns[0]

    def observe(self, batch: Rows, new: int | None = None) -> Rows:
        """Make the updates on raw rows, and show the memory the first `new` of them, all unless given.

        Returns:
            What the memory was shown: the rows with the method's columns.
        """
        columns = self.update(batch)
        rows = {name: column[:new] for name, column in {**batch, **columns}.items()}
        if new is None or new:
            self.memory.add(rows, self.view, rng=self.memory_rng)
        return rows

    def consolidate(self, task: Task) -> None:
        """A task is over: the memory chooses prototypes among its rows by the network as it is."""
        self.memory.end_task(task, self.view, rng=self.border_rng)

    def end_task(self, task: Task) -> None:
        """A task is over and consolidated: the method takes what it keeps of it."""
        self.method.end_task(task, self.replay)

    def predict(self, image: Tensor) -> Tensor:
        """Return scores [n, C] of raw rows."""
        return self.view.predict(image)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Return a function of raw rows to scores [n, C]: class means are taken once for all that is asked of it."""
        return self.view.predictor()

    def generators(self) -> Iterator[torch.Generator]:
        """Yield every generator that a step may draw from on the device."""
        owners = [self.memory_rng, self.view_rng, self.replay, self.method, self.memory]
        return (rng for rng in generators_of(owners) if isinstance(rng, torch.Generator))

    def roots(self) -> dict[str, Any]:
        """Return all that changes, by name: what a checkpoint must hold."""
        names = ("method", "memory", "replay", "memory_rng", "view_rng", "border_rng")
        schedule = {} if self.schedule is None else {"schedule": self.schedule}
        return {name: getattr(self, name) for name in names} | schedule


def _observe(method: Method, batch: Rows, replay: MemoryReplay) -> Rows:
    """One update by a method; what code from outside gives back is checked, as a slip would show much later."""
    if type(method).__module__.startswith("odedm."):
        return method.observe(batch, replay)
    try:
        columns = method.observe(batch, replay)
    except KeyError as error:
        if error.args and isinstance(error.args[0], str):
            stored = ", ".join(field.name for field in method.fields()) or "none, as `fields` declares none"
            error.add_note(f"A batch has {', '.join(batch)}; a draw has these and, of the method's own, {stored}.")
        raise
    name = type(method).__name__
    if not isinstance(columns, dict):
        raise UsageError(
            f"{name} gave {short_repr(columns)} as the columns to be stored with the batch's rows; they must be a "
            "dictionary, {} where there are none."
        )
    declared = {field.name for field in method.fields()}
    for column in columns.keys() ^ declared:
        raise UsageError(
            f"{name} returned the column '{column}', which `fields` does not declare: add ColumnSpec('{column}', shape "
            "of one row's entry) to what `fields` returns."
            if column in columns
            else f"{name}.fields declares the column '{column}', which its loss did not return."
        )
    if method.logit_adjustment is not None and not method.logit_adjustment.was_used:
        raise UsageError(
            f"{name} takes no stream loss, because its loss does not call self.stream_loss(logits, label). Leave the "
            "stream loss out, or call it there."
        )
    return columns
