"""Decides when a run's state is saved: the one object that the training loop asks after every step and every task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from odedm.checkpoint.checkpoint import Checkpoint, Meta, Position, clear, load_latest, restore, save
from odedm.checkpoint.lock import RunLock
from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.state_tree import state_tree


@dataclass
class Checkpointer:
    """Stores a run's state when its schedule says so, and when `stop` does: then the run may end without loss.

    `roots` is what of the run is state, `external_tensors` those that it only refers to; `check` is asked before each
    write, and raises where the state is not worth keeping. The lock is checked too: a folder that was deleted or taken
    over is left alone. `timed` is the block that a write happens in.
    """

    work: Path
    lock: RunLock
    meta: Meta
    _: KW_ONLY
    roots: Callable[[], Mapping[str, Any]]
    external_tensors: Mapping[str, Tensor]
    position: Callable[[], Position]
    schedule: Schedule
    fresh: bool = False
    stop: Callable[[], bool] = lambda: False
    check: Callable[[], None] = lambda: None
    timed: Callable[[], AbstractContextManager[None]] = nullcontext
    say: Callable[[str], None] = lambda _: None
    on_store: Callable[[], None] = lambda: None
    """Called when a checkpoint is on the disk."""
    last: Path | None = None
    """The last checkpoint that was written or found: where the run goes on from if it fails now."""

    def __post_init__(self) -> None:
        self._begun = self._time = time.monotonic()
        self._step, self._cost, self._spent = self.position().step, 0.0, 0.0

    def resume(self) -> Checkpoint | None:
        """Put the run where its last checkpoint was; None where there is none, or where it is to start anew."""
        if self.fresh:
            clear(self.work)
        checkpoint = load_latest(self.work, self.meta)
        if checkpoint is None:
            return None
        restore(self.roots(), checkpoint, self.external_tensors)
        position = checkpoint.position
        self.last, self._step, self._time = checkpoint.path, position.step, time.monotonic()
        for line in checkpoint.warnings:
            self.say(line)
        reached = f"step {position.step} (task {position.task + 1}, {position.rows} rows seen)"
        self.say(f"Going on after {reached} from '{self.last}'.")
        return checkpoint

    def after_step(self) -> bool:
        """Store if it is time; whether the run is to stop here, its state being stored. Otherwise it costs little."""
        stop = self.stop()
        if stop or self.schedule.due(self.position().step - self._step, time.monotonic() - self._time):
            self.store()
        return stop

    def after_task(self) -> bool:
        """Store at a border, if the schedule has any and the run can afford it; whether the run is to stop here."""
        stop = self.stop()
        if stop or (self.schedule.tasks and self._affordable()):
            self.store()
        return stop

    def _affordable(self) -> bool:
        share = self.schedule.share
        if share is None or not self._cost:  # what one costs is known after the first
            return True
        return self._spent + self._cost <= share * (time.monotonic() - self._begun)

    def store(self) -> Path:
        """Write a checkpoint now."""
        self.check()
        with self.timed():
            start = time.monotonic()
            self.lock.check()
            position = self.position()
            self.last = save(self.work, state_tree(self.roots(), self.external_tensors), self.meta, position)
            self._step, self._time = position.step, time.monotonic()
            self._cost = self._time - start
            self._spent += self._cost
        self.on_store()
        return self.last
