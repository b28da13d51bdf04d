"""Loggers: who is told a run's configuration, loss, learning rate and accuracies, and writes them somewhere."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, choose, describe_error, short_repr
from odedm.core.files import writable_folder
from odedm.results.result import Result

log = logging.getLogger(__name__)

Metrics = Mapping[str, float]
"""Numbers by name. Of a step `loss`, `learning rate`, `progress` (0 to 1); of a task `ACC`, `task 0`, … in per cent."""


class Logger:
    """Is told of runs by name; override what you need. One that fails says so once, and never ends a run.

    >>> from odedm import Reservoir, train
    >>> class Losses(Logger):
    ...     def on_step(self, run, step, metrics):
    ...         print(step, sorted(metrics)) if step == 16 else None
    >>> _ = train("blobs", method="er", memory=Reservoir(20), batch=16, device="cpu", loggers=[Losses()])
    16 ['learning rate', 'loss', 'progress']
    """

    def on_start(self, run: str, config: Mapping[str, Any]) -> None:
        """A run has begun, or goes on: every setting, by name."""

    def on_step(self, run: str, step: int, metrics: Metrics) -> None:
        """It has learned `step` rows of its stream so far."""

    def on_task(self, run: str, task: int, metrics: Metrics) -> None:
        """It has learned a task, counted from 0, and was tested."""

    def on_end(self, run: str, result: Result) -> None:
        """It is over."""

    def on_stop(self, run: str, event: str, reason: str) -> None:
        """It did not get to its end: its worker was "lost" and it goes on, it "failed", or it was "stopped"."""

    def on_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """All runs are over: a row for each of them, its seed and what was measured."""

    def close(self) -> None:
        """Nothing more will come."""


class Loggers(Logger):
    """Several loggers as one, any of which may fail: that is said once, and it is told nothing more."""

    def __init__(self, loggers: Iterable[Logger] = ()) -> None:
        self.loggers = list(loggers)
        for logger in self.loggers:
            if not isinstance(logger, Logger):
                raise UsageError(f"A logger must be an object of a subclass of Logger; {short_repr(logger)} was given.")

    def __bool__(self) -> bool:
        return bool(self.loggers)

    def on_start(self, run: str, config: Mapping[str, Any]) -> None:
        self._tell("on_start", run, config)

    def on_step(self, run: str, step: int, metrics: Metrics) -> None:
        self._tell("on_step", run, step, metrics)

    def on_task(self, run: str, task: int, metrics: Metrics) -> None:
        self._tell("on_task", run, task, metrics)

    def on_end(self, run: str, result: Result) -> None:
        self._tell("on_end", run, result)

    def on_stop(self, run: str, event: str, reason: str) -> None:
        self._tell("on_stop", run, event, reason)

    def on_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._tell("on_table", rows)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, moment: str, *values: Any) -> None:
        for logger in [*self.loggers]:
            try:
                getattr(logger, moment)(*values)
            except Exception as error:  # runs must not end because nobody can listen
                self.loggers.remove(logger)
                with suppress(Exception):
                    logger.close()
                log.warning("The logger %s failed (%s). The runs go on.", type(logger).__name__, describe_error(error))


def table_row(run: str, result: Result) -> dict[str, Any]:
    """A row of the final table."""
    plan, memory = result.experiment, result.experiment["memory"]
    row = {"run": run, **{name: plan[name] for name in ("data", "method", "seed")}}
    row |= {"memory": memory["name"], **{name: memory.get(name) for name in ("capacity", "rho")}}
    names = ("acc_last", "acc_mean", "task_il_last", "forgetting", "backward_transfer")
    return row | {name: getattr(result, name) for name in names} | {"seconds": result.total_seconds}


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


class JsonLines(Logger):
    """A line for each event: `begun`, `progress` (at most one a second and run), `task`, `finished` and `table`.

    Where a run does not get that far: `lost` (its worker died, and it goes on), `failed`, or `stopped`. Lines are added
    to what the file holds, and each is flushed, so that it can be followed while runs go on.
    """

    EVERY = 1.0
    """Seconds between two lines of progress of one run."""

    def __init__(self, path: Path) -> None:
        writable_folder(path.parent, "--log jsonl:runs/events.jsonl")
        if path.is_dir():
            raise UsageError(f"'{path}' is a folder; events go into a file, e.g. {path / 'events.jsonl'}.")
        try:  # a name that is no text is written as JSON escapes it
            self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"Cannot write events to '{path}': {error.strerror}.") from error
        self._last: dict[str, float] = {}

    def on_start(self, run: str, config: Mapping[str, Any]) -> None:
        self._last[run] = 0.0
        self._write("begun", run=run, experiment=config)

    def on_step(self, run: str, step: int, metrics: Metrics) -> None:
        now = time.monotonic()
        if now - self._last.get(run, 0.0) >= self.EVERY or metrics.get("progress") == 1:
            self._last[run] = now
            self._write("progress", run=run, done=step, **metrics)

    def on_task(self, run: str, task: int, metrics: Metrics) -> None:
        self._write("task", run=run, task=task, **metrics)

    def on_end(self, run: str, result: Result) -> None:
        last = {name: getattr(result, name) for name in ("acc_last", "acc_mean", "task_il_last", "forgetting")}
        self._write("finished", run=run, **last, seconds=result.total_seconds, experiment=result.experiment)

    def on_stop(self, run: str, event: str, reason: str) -> None:
        self._write(event, run=run, reason=reason)

    def on_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._write("table", rows=list(rows))

    def _write(self, event: str, **more: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **more}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard(Logger):
    """A TensorBoard log for each run: loss and learning rate by row, accuracies by task, configuration and result.

    The final table is the text of a log called `table`.

    It needs the extra `tensorboard`. Then `tensorboard --logdir FOLDER` shows the runs side by side.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("TensorBoard is not here: pip install 'odedm[tensorboard]', or leave it out.") from None
        self._new: Any = SummaryWriter
        self._folder = writable_folder(folder, "--log tensorboard:runs/logs")
        self._open: dict[str, Any] = {}

    def _writer(self, run: str) -> Any:
        if run not in self._open:
            self._open[run] = self._new(str(self._folder / run))
        return self._open[run]

    def on_start(self, run: str, config: Mapping[str, Any]) -> None:
        self._writer(run).add_text("experiment", "```\n" + json.dumps(config, indent=1) + "\n```")

    def on_step(self, run: str, step: int, metrics: Metrics) -> None:
        for name in ("loss", "learning rate", "progress"):
            if name in metrics:
                self._writer(run).add_scalar(f"training/{name}", metrics[name], step)

    def on_task(self, run: str, task: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            group = "class-IL by task" if name.startswith("task ") else "class-IL"
            self._writer(run).add_scalar(f"{group}/{name}", value, task)

    def on_end(self, run: str, result: Result) -> None:
        writer = self._writer(run)
        for task, row in enumerate(result.task_il or ()):
            writer.add_scalar("task-IL/ACC", sum(row) / len(row), task)
        for task, counts in enumerate(result.class_counts):
            for part, rows in counts.items():
                writer.add_scalar(f"memory/{part} rows", sum(rows), task)
        for rows_seen, accuracy in result.anytime or ():
            writer.add_scalar("class-IL/ACC by rows seen", accuracy, int(rows_seen))
        for phase, seconds in result.seconds.items():
            writer.add_scalar(f"seconds/{phase}", seconds, 0)
        writer.close()
        del self._open[run]

    def on_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = _columns(rows)
        lines = [columns, ["---"] * len(columns), *([str(row.get(name, "")) for name in columns] for row in rows)]
        writer = self._new(str(self._folder / "table"))
        writer.add_text("results", "\n".join(f"| {' | '.join(line)} |" for line in lines))
        writer.close()

    def close(self) -> None:
        for writer in self._open.values():
            writer.close()
        self._open.clear()


class WandB(Logger):
    """A run of Weights & Biases for each run, and a table of all; it needs the extra `wandb`.

    Args:
        project: where runs go.
        options: keywords of `wandb.init`, such as mode="offline", group or dir.
    """

    def __init__(self, project: str = "odedm", **options: str) -> None:
        try:
            import wandb
        except ImportError:
            raise UsageError("Weights & Biases is not here: pip install 'odedm[wandb]', or leave it out.") from None
        self._wandb: Any = wandb
        self._options = {"project": project, **options}
        self._runs: dict[str, Any] = {}

    def _init(self, name: str, config: Mapping[str, Any] | None = None) -> Any:
        return self._wandb.init(name=name, config=dict(config or {}), reinit="create_new", **self._options)

    def on_start(self, run: str, config: Mapping[str, Any]) -> None:
        if run not in self._runs:
            self._runs[run] = self._init(run, config)

    def on_step(self, run: str, step: int, metrics: Metrics) -> None:
        self._runs[run].log({"rows seen": step, **metrics})

    def on_task(self, run: str, task: int, metrics: Metrics) -> None:
        self._runs[run].log({"task": task, **{f"test/{name}": value for name, value in metrics.items()}})

    def on_end(self, run: str, result: Result) -> None:
        names = ("acc_last", "acc_mean", "task_il_last", "forgetting", "backward_transfer")
        self._runs[run].summary.update({name: getattr(result, name) for name in names})
        self._runs.pop(run).finish()

    def on_stop(self, run: str, event: str, reason: str) -> None:
        if event != "lost" and run in self._runs:
            self._runs[run].summary.update({event: reason})
            self._runs.pop(run).finish(exit_code=1)

    def on_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = _columns(rows)
        table = self._wandb.Table(columns=columns, data=[[row.get(name) for name in columns] for row in rows])
        run = self._init("table")
        run.log({"results": table})
        run.finish()

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
        self._runs.clear()


def _wandb(text: str) -> Logger:
    words = [word.strip() for word in text.split(",") if word.strip()]
    project = next((word for word in words if "=" not in word), "odedm")
    return WandB(**{"project": project, **dict(word.split("=", 1) for word in words if "=" in word)})


LOGGERS: dict[str, Callable[[str], Logger]] = {
    "tensorboard": lambda text: TensorBoard(Path(text or "runs/logs")),
    "jsonl": lambda text: JsonLines(Path(text or "runs/events.jsonl")),
    "wandb": _wandb,
}
"""Loggers by name, each made from the text behind the colon."""


def open_loggers(texts: Sequence[str]) -> Loggers:
    """The loggers that `--log NAME[:OPTIONS]` asks for.

    >>> open_loggers(["tensorflow"])
    Traceback (most recent call last):
    odedm.UsageError: Unknown logger 'tensorflow': did you mean 'tensorboard'? Known: tensorboard, jsonl, wandb.
    """
    loggers = Loggers()
    try:
        for text in texts:
            name, _, options = text.partition(":")
            loggers.loggers.append(choose("logger", name, LOGGERS)(options))
    except BaseException:
        loggers.close()
        raise
    return loggers
