"""Tells loggers of runs that go on in this very process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odedm.training.loggers import Logger, Loggers, table_row
from odedm.training.run import Outcome, Run, Watch
from odedm.training.run_metrics import LossClock, step_metrics, task_metrics


class TrainingLog:
    """What `odedm.train` tells its loggers, inside a `with` block; in the end the table of what is finished."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.loggers = Loggers(loggers)
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows:
            self.loggers.on_table(self._rows)
        self.loggers.close()

    def finish(self, run: Run, watch: Watch) -> Outcome:
        """Train a run to its end, each step and task being told."""
        if not self.loggers:
            return run.finish(watch)
        name, pace = f"{run.experiment.slug()}/seed-{run.experiment.seed}", LossClock(run.device)
        told = 0

        def step(task: int, done: int, total: int) -> None:
            nonlocal told
            while told < len(run.progress.class_il):
                self.loggers.on_task(name, told, task_metrics(run, told))
                told += 1
            if pace.due():
                self.loggers.on_step(name, done, {**step_metrics(run.method), "progress": done / max(1, total)})
            watch(task, done, total)

        self.loggers.on_start(name, run.experiment.describe())
        try:
            outcome = run.finish(step)
        except BaseException as error:
            stopped = not isinstance(error, Exception)
            self.loggers.on_stop(name, "stopped" if stopped else "failed", " ".join(str(error).split()))
            raise
        self.loggers.on_task(name, told, task_metrics(run, told))
        self.loggers.on_end(name, outcome.result)
        self._rows.append(table_row(name, outcome.result))
        return outcome


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
