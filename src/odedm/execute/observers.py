"""Observers: who is told how jobs get on. Here, a file of JSON lines, and TensorBoard."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder
from odedm.execute.job import Job
from odedm.results.result import Result

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two lines of progress of one run."""


class Observer:
    """Is told how jobs get on, always from the same thread; every method may be left as it is."""

    def started(self, job: Job) -> None:
        """A job has begun, or goes on after a loss."""

    def taken_up(self, job: Job, process: int) -> None:
        """A process works on it."""

    def progress(self, job: Job, done: int, total: int) -> None:
        """It has seen `done` of `total` rows."""

    def finished(self, job: Job, result: Result) -> None:
        """A run is over."""

    def scored(self, job: Job, score: float) -> None:
        """A trial is over."""

    def lost(self, job: Job, reason: str) -> None:
        """Its worker died; it will be tried again."""

    def failed(self, job: Job, reason: str) -> None:
        """It failed for good."""

    def taken(self, job: Job, reason: str) -> None:
        """It failed because another process is at it."""
        self.failed(job, reason)

    def said(self, line: str) -> None:
        """A line for the user."""

    def tick(self, left: float | None) -> None:
        """Time has passed; about so many seconds are left, as far as is known."""

    def close(self) -> None:
        """Nothing more will come."""


class JsonLines(Observer):
    """A line for each event: `begun`, `progress` (at most one a second and run), `task` and `finished`.

    Where a run does not get that far: `lost` (its worker died, and it goes on), `failed`, or `stopped` with the
    command. Lines are added to what the file holds, and each is flushed, so that it can be followed while runs go on.
    Trials are left out.
    """

    def __init__(self, path: Path) -> None:
        writable_folder(path.parent, "--events runs/events.jsonl")
        if path.is_dir():
            raise UsageError(f"'{path}' is a folder; events go into a file, e.g. {path / 'events.jsonl'}.")
        escaped = "backslashreplace"  # a name that is no text, as JSON escapes it
        try:
            self._file = open(path, "a", encoding="utf-8", errors=escaped, opener=_at_once)  # noqa: SIM115 - till close
        except OSError as error:
            reason = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
            raise UsageError(f"Cannot write events to '{path}': {reason}. Give a file, e.g. events.jsonl.") from error
        self._last: dict[str, float] = {}
        self._under_way: dict[str, Job] = {}
        self._lost = False

    def progress(self, job: Job, done: int, total: int) -> None:
        """Note how far a run is, now and then."""
        if job.is_trial:
            return
        if job.key not in self._last:
            self._last[job.key] = 0.0
            self._under_way[job.key] = job
            self._write(job, "begun", rows=total)
        now = time.monotonic()
        if now - self._last[job.key] >= EVERY or done == total:
            self._last[job.key] = now
            self._write(job, "progress", done=done, rows=total)

    def finished(self, job: Job, result: Result) -> None:
        """Note what a run measured, task by task and in the end."""
        self._under_way.pop(job.key, None)
        for task, (accuracy, row) in enumerate(zip(result.acc, result.class_il, strict=True)):
            masked = None if result.task_il is None else result.task_il[task]
            self._write(job, "task", task=task, acc=accuracy, class_il=row, task_il=masked)
        last = {name: getattr(result, name) for name in ("acc_last", "acc_mean", "task_il_last", "forgetting")}
        if result.anytime is not None:
            last["anytime"] = result.anytime
        self._write(job, "finished", **last, seconds=result.total_seconds, experiment=result.experiment)

    def lost(self, job: Job, reason: str) -> None:
        """Note that a worker died."""
        self._write(job, "lost", reason=reason)

    def failed(self, job: Job, reason: str) -> None:
        """Note why a run failed."""
        self._under_way.pop(job.key, None)
        self._write(job, "failed", reason=reason)

    def _write(self, job: Job, event: str, **more: Any) -> None:
        if self._lost or job.is_trial:
            return
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            line = {"time": when, "event": event, "run": job.name, **more}
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:  # runs must not end because nobody can listen
            self._lost = True
            log.warning("Events can no longer be written to '%s': %s. The runs go on.", self._file.name, error.strerror)

    def close(self) -> None:
        """Note which runs were stopped, and close the file."""
        for job in self._under_way.values():
            self._write(job, "stopped")
        with suppress(OSError):
            self._file.close()


def _at_once(path: str, flags: int) -> int:
    """Open a file, or fail: nobody waits for whoever may come to read a pipe."""
    if not hasattr(os, "O_NONBLOCK"):
        return os.open(path, flags, 0o666)
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(handle, True)
    return handle


class TensorBoard(Observer):
    """A TensorBoard log for each run: accuracy and forgetting by task, the memory's rows, seconds by phase.

    It needs the extra `tensorboard`. Then `tensorboard --logdir FOLDER` shows the runs side by side.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("TensorBoard is not here: pip install 'odedm[tensorboard]', or leave it out.") from None
        self._new: Any = SummaryWriter
        self._folder = writable_folder(folder, "--tensorboard runs/logs")
        self._open: dict[str, Any] = {}

    def progress(self, job: Job, done: int, total: int) -> None:
        """Log the share of the stream that is done, at the row where the run is."""
        if not job.is_trial:
            self._of(job).add_scalar("progress/share of rows", done / max(total, 1), done)

    def finished(self, job: Job, result: Result) -> None:
        """Log everything by task."""
        log = self._of(job)
        for task, accuracy in enumerate(result.acc):
            log.add_scalar("class-IL/ACC", accuracy, task)
            log.add_scalar("class-IL/forgetting rate", result.forgetting_rate[task], task)
            if result.task_il is not None:
                log.add_scalar("task-IL/ACC", sum(result.task_il[task]) / len(result.task_il[task]), task)
            for earlier, value in enumerate(result.class_il[task]):
                log.add_scalar(f"class-IL by task/task {earlier}", value, task)
            for part, counts in result.class_counts[task].items() if task < len(result.class_counts) else ():
                log.add_scalar(f"memory/{part} rows", sum(counts), task)
        for rows, accuracy in result.anytime or ():
            log.add_scalar("class-IL/ACC by rows seen", accuracy, int(rows))
        for phase, seconds in result.seconds.items():
            log.add_scalar(f"seconds/{phase}", seconds, 0)
        log.add_text("experiment", "```\n" + json.dumps(result.experiment, indent=1) + "\n```")
        log.close()
        del self._open[job.key]

    def _of(self, job: Job) -> Any:
        if job.key not in self._open:
            self._open[job.key] = self._new(str(self._folder / job.name))
        return self._open[job.key]

    def close(self) -> None:
        """Flush what is open."""
        for log in self._open.values():
            log.close()
        self._open.clear()


def listeners(events: Path | None, tensorboard: Path | None) -> list[Observer]:
    """Those that were asked for."""
    found: list[Observer] = [] if events is None else [JsonLines(events)]
    return [*found, *([] if tensorboard is None else [TensorBoard(tensorboard)])]
