"""Records a training step as a CUDA graph once it repeats itself, and launches it as a whole from then on.

A step is a thousand small kernels, and launching them one by one costs more than running them. The wrapper leaves the
step as it is: the first steps of a kind run eagerly, as the real steps they are; then one is recorded, and from then on
replayed. A recording holds on to what the host said when it was made, so it is kept under all that the step's shapes
depend on, and thrown away when the method's own `graph_key` has changed, or where the memory lies. What does not
repeat, such as a task's ragged last batch, simply stays eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol

import torch

from odedm.core.accel.host_state import frozen, instances
from odedm.core.accel.recording import CAPTURE_LOCK, EAGER, record
from odedm.core.plugins import PluginEntry
from odedm.core.registry import POLICIES, TRANSFORMS
from odedm.core.rows import Rows, count
from odedm.core.store import Store
from odedm.methods.base import Method
from odedm.nets.base import Net
from odedm.training.experiment import Experiment
from odedm.training.lr_schedule import LRSchedule
from odedm.training.optimizers import is_capturable

Step = Callable[[Rows, int], Rows]
"""A stream batch and how many of its rows are new in, the rows as they go into the memory out."""

MOST = 16
"""Recordings kept at most; each holds the memory of a step's forward and backward."""


Recording = Callable[[Rows], Rows]
"""A step that can be repeated on other batches of its shape; what it returns is overwritten by the next repetition."""

Recorder = Callable[[Step, Rows, int], Recording]
"""Records a step without doing it; host code runs once, as in a step."""


class Recorded(Protocol):
    """Whose steps are recorded."""

    def graph_key(self) -> Hashable | None:
        """Return what a recording would freeze; None where there can be none."""
        ...


class GraphedStep:
    """Does steps: eagerly, or by a recording of the same kind of step."""

    def __init__(
        self,
        step: Step,
        *,
        graph_key: Callable[[], Hashable],
        on_graph_replay: Callable[[int], None],
        recorder: Callable[[], Recorder] | None,
        by_new: bool = True,
        net: Net | None = None,
    ) -> None:
        self.by_new = by_new  # not where the memory looks at no batch: a step is then the same whatever rows are new
        self.net = net  # whose count of rows a recording cannot raise: it runs no code of the host
        self._cost: dict[Hashable, int] = {}
        self.step, self.graph_key, self.on_graph_replay, self.recorder = step, graph_key, on_graph_replay, recorder
        self._record: Recorder | None = None
        self.eager, self.captured = 0, 0
        self._seen: dict[Hashable, int] = {}
        self._recordings: dict[Hashable, Recording] = {}
        self._kept: Hashable = None
        self._repeats = True

    def begin_task(self, method: Recorded, memory: object = None) -> None:
        """Forget the recordings if the method, or where the memory lies, is another to the host than in them."""
        if self.recorder is None:
            return
        now = (method.graph_key(), addresses(memory))
        self._repeats = now[0] is not None
        if now != self._kept:
            self._kept = now
            self._seen.clear()
            self._cost.clear()
            recorded = bool(self._recordings)
            with CAPTURE_LOCK:
                self._recordings.clear()
                self._record = None
                if recorded:
                    give_back_memory()  # that which they shared: the next ones take their own

    def update_baseline(self, method: Recorded, memory: object = None) -> None:
        """Take method and memory as they are after steps for those that the steps were recorded of."""
        if self.recorder is not None:
            self._kept = (method.graph_key(), addresses(memory))

    def __call__(self, batch: Rows, new: int) -> Rows:
        """One step on a batch whose first `new` rows are new."""
        if self.recorder is None or not self._repeats:
            self.eager += 1
            return self.step(batch, new)
        counted = new if self.by_new else count(batch)
        kind = (count(batch), counted, self.graph_key())
        recording = self._recordings.pop(kind, None)
        before = self._gradient_rows()
        if recording is not None:
            self.on_graph_replay(new)
        elif self._still_eager(kind):
            self.eager += 1
            rows = self.step(batch, new)
            self._cost[kind] = self._gradient_rows() - before
            return rows
        else:
            with CAPTURE_LOCK:
                while len(self._recordings) >= MOST:
                    self._recordings.pop(next(iter(self._recordings)))
                if self._record is None:
                    give_back_memory()  # that of eager steps: the recording takes as much of its own
                    self._record = self.recorder()
            recording = self._record(self.step, batch, counted)  # counts the rows on the host
        self._recordings[kind] = recording  # at the end: the one that was not used for longest goes first
        self.captured += 1
        rows = recording(batch)
        if self.net is not None:
            self.net.count_gradient_rows(before + self._cost[kind] - self.net.gradient_rows)
        return rows if self.by_new else {name: column[:new] for name, column in rows.items()}

    def _gradient_rows(self) -> int:
        return 0 if self.net is None else self.net.gradient_rows

    def _still_eager(self, kind: Hashable) -> bool:
        self._seen[kind] = self._seen.get(kind, 0) + 1
        return self._seen[kind] <= EAGER

    def close(self) -> None:
        """Let go of the recordings, and of the run itself: with it they would be kept until Python collects garbage."""
        recorded = bool(self._recordings)
        with CAPTURE_LOCK:
            self._recordings.clear()
            self._record, self.recorder, self.step, self.net = None, None, _closed, None
            if recorded:
                give_back_memory()


def give_back_memory() -> None:
    """Give the GPU what is not in use: torch would keep it, and other processes, or cuDNN, would find none left."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _closed(_batch: Rows, _new: int) -> Rows:
    raise RuntimeError("The run is over.")


class CudaRecorder:
    """Records steps as CUDA graphs that share one pool of memory; they are replayed one after the other."""

    def __init__(self, generators: Callable[[], Iterable[torch.Generator]]) -> None:
        self.generators = generators
        self.pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step, batch: Rows, new: int) -> Recording:
        """Record a step. The caller works on a stream of its own, which is the one that is recorded."""
        inputs = {name: column.clone() for name, column in batch.items()}
        graph, outputs = record(lambda: step(inputs, new), self.pool, self.generators())

        def launch(batch: Rows) -> Rows:
            for name, column in inputs.items():
                column.copy_(batch[name])
            graph.replay()
            return outputs

        return launch


def addresses(memory: object) -> Hashable:
    """Return where the rows of a memory lie, in all stores that it holds at any depth: a recording goes on with these.

    >>> from odedm.core.rows import ColumnSpec
    >>> class Memory:
    ...     def __init__(self, rows):
    ...         self.parts = [Store(rows, [ColumnSpec("label")])]
    >>> memory = Memory(3)
    >>> before = addresses(memory)
    >>> memory.parts[0].columns["label"].fill_(1), addresses(memory) == before
    (tensor([1., 1., 1.]), True)
    >>> memory.parts = Memory(4).parts
    >>> addresses(memory) == before
    False
    """
    return tuple(frozen([store.priority, *store.columns.values()]) for store in instances(Store, memory))


def can_be_recorded(plan: Experiment, method: type[Method], net: Net, schedule: LRSchedule | None) -> bool:
    """Return whether a run's steps are recorded on its GPU: what comes from outside says so itself, or is not."""
    policy = POLICIES.get(str(getattr(plan.memory, "policy", None) or getattr(plan.memory, "short_policy", None)))
    able = all(part.capturable for part in (method, net)) and getattr(policy and policy.load(), "capturable", True)
    if not (plan.cuda_graph and plan.device == "cuda" and able) or isinstance(
        TRANSFORMS.get(plan.transform), PluginEntry
    ):
        return False
    why = "" if is_capturable(plan.optimizer) else f"the optimizer '{plan.optimizer}' is"
    if schedule is not None and not schedule.is_function:
        why = f"schedulers of torch such as '{plan.schedule}' are"
    if why:
        warnings.warn(f"Steps run eagerly on the GPU, for {why} not known to be right in CUDA graphs.", stacklevel=2)
    return not why
