"""What loggers are told: of a run in this process or in another one, and of a learner's updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odedm.training.callbacks import Reporter
from odedm.training.loggers import Logger, Loggers, table_row

if TYPE_CHECKING:
    import torch

    from odedm.methods.base import Method
    from odedm.training.outcomes import Outcome
    from odedm.training.run import Run

PAUSE_ON_GPU = 1.0
"""Seconds between two looks at a loss on a GPU: each waits for all steps that are queued there."""


class LossClock:
    """Says when a loss is looked at: after every step on a CPU, now and then on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._pause = PAUSE_ON_GPU if device.type == "cuda" else 0.0
        self._next = -math.inf

    def due(self) -> bool:
        """Whether it is time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True


def step_metrics(method: Method) -> dict[str, float]:
    """Return the loss of a method's last step and its learning rate, each where it is a finite number."""
    metrics = {"loss": float(method.last_loss), "learning rate": float(method.optimizer.param_groups[0]["lr"])}
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def task_metrics(run: Run) -> dict[str, float]:
    """Return what was measured after the last task, in per cent."""
    row = run.progress.class_il[-1]
    accuracy = math.fsum(row) / len(row)
    metrics = {"ACC": accuracy, "forgetting rate": 100 - accuracy}
    return metrics | {f"task {number}": value for number, value in enumerate(row)}


class TrainingLog:
    """Tells loggers of the runs of `odedm.train`, inside a `with` block; in the end the table of what is finished."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.loggers = Loggers(loggers)
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows:
            self.loggers.on_table(self._rows)
        self.loggers.close()

    def finish(self, run: Run, *reporters: Reporter) -> Outcome:
        """Train a run to its end, of which loggers are told as well."""
        if not self.loggers:
            return run.finish(*reporters)
        log = _RunLog(run, self.loggers)
        self.loggers.on_start(log.name, run.experiment.describe())
        try:
            outcome = run.finish(log, *reporters)
        except BaseException as error:
            stopped = not isinstance(error, Exception)
            self.loggers.on_stop(log.name, "stopped" if stopped else "failed", " ".join(str(error).split()))
            raise
        self.loggers.on_end(log.name, outcome.result)
        self._rows.append(table_row(log.name, outcome.result))
        return outcome


class _RunLog(Reporter):
    def __init__(self, run: Run, loggers: Loggers) -> None:
        self.loggers, self.name = loggers, f"{run.experiment.slug()}/seed-{run.experiment.seed}"
        self._clock = LossClock(run.device)

    def after_step(self, run: Run) -> None:
        if self._clock.due():
            progress = {"progress": run.progress.rows / run.total_rows}
            self.loggers.on_step(self.name, run.progress.rows, step_metrics(run.method) | progress)

    def after_task(self, run: Run) -> None:
        self.loggers.on_task(self.name, run.progress.task - 1, task_metrics(run))


class LearnerLog:
    """Tells a logger of a learner's updates: give it as the learner's `trigger`, or around another one.

    >>> import odedm
    >>> class Steps(odedm.Logger):
    ...     def on_step(self, run, step, metrics):
    ...         print(run, step, sorted(metrics))
    >>> learner = odedm.Learner("er", memory=10, device="cpu", trigger=LearnerLog(Steps(), "mine"))
    >>> _ = learner.partial_fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    mine 2 ['learning rate', 'loss']
    """

    def __init__(self, logger: Logger, name: str = "learner", trigger: Callable[[Any], Any] | None = None) -> None:
        self.loggers, self.name, self.trigger = Loggers([logger]), name, trigger
        self._clock: LossClock | None = None

    def __call__(self, learner: Any) -> Any:
        """Tell of the last update; whatever the other trigger says is the answer."""
        method = learner._ready().engine.method
        if self._clock is None:
            self._clock = LossClock(method.last_loss.device)
            self.loggers.on_start(self.name, {key: str(value) for key, value in learner.get_params().items()})
        if self._clock.due():
            self.loggers.on_step(self.name, learner.rows_seen_, step_metrics(method))
        return None if self.trigger is None else self.trigger(learner)
