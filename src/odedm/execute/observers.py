"""What happens in a run, for others to follow: a file of JSON lines, and TensorBoard."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder
from odedm.results.result import Result

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two lines of progress of one run."""


class Listener(Protocol):
    """A watcher of runs that must be closed; runs are known by number, in the order of the names it was given."""

    def progress(self, job: int, done: int, total: int) -> None:
        """A run has seen `done` of `total` rows."""
        ...

    def finished(self, job: int, result: Result) -> None:
        """A run is over."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class JsonLines:
    """A line for each event: `begun`, `progress` (at most one a second and run), `task` and `finished`.

    Lines are added to what the file holds, and each is flushed, so that it can be followed while runs go on.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        writable_folder(path.parent, "--events runs/events.jsonl")
        if path.is_dir():
            raise UsageError(f"'{path}' is a folder; events go into a file, e.g. {path / 'events.jsonl'}.")
        self._file = path.open("a", encoding="utf-8")
        self._names, self._last = list(names), dict.fromkeys(range(len(names)), 0.0)
        self._begun: set[int] = set()
        self._lost = False

    def progress(self, job: int, done: int, total: int) -> None:
        """Note how far a run is, now and then."""
        if job not in self._begun:
            self._begun.add(job)
            self._write(job, "begun", rows=total)
        now = time.monotonic()
        if now - self._last[job] >= EVERY or done == total:
            self._last[job] = now
            self._write(job, "progress", done=done, rows=total)

    def finished(self, job: int, result: Result) -> None:
        """Note what a run measured, task by task and in the end."""
        for task, (accuracy, row) in enumerate(zip(result.acc, result.class_il, strict=True)):
            self._write(job, "task", task=task, acc=accuracy, class_il=row, task_il=result.task_il[task])
        last = {name: getattr(result, name) for name in ("acc_last", "acc_mean", "task_il_last", "forgetting")}
        if result.anytime is not None:
            last["anytime"] = result.anytime
        self._write(job, "finished", **last, seconds=sum(result.seconds.values()), experiment=result.experiment)

    def _write(self, job: int, event: str, **more: Any) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "event": event, "run": self._names[job], **more}
        if self._lost:
            return
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:  # runs must not end because nobody can listen
            self._lost = True
            log.warning("Events can no longer be written to '%s': %s. The runs go on.", self._file.name, error.strerror)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()


class TensorBoard:
    """A TensorBoard log for each run: accuracy and forgetting by task, the memory's rows, seconds by phase.

    It needs the extra `tensorboard`. Then `tensorboard --logdir FOLDER` shows the runs side by side.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("TensorBoard is not here: pip install 'odedm[tensorboard]', or leave it out.") from None
        self._new: Any = SummaryWriter
        self._folder, self._names = writable_folder(folder, "--tensorboard runs/logs"), list(names)
        self._open: dict[int, Any] = {}

    def progress(self, job: int, done: int, total: int) -> None:
        """Log the share of the stream that is done, at the row where the run is."""
        self._of(job).add_scalar("progress/share of rows", done / max(total, 1), done)

    def finished(self, job: int, result: Result) -> None:
        """Log everything by task."""
        log = self._of(job)
        for task, accuracy in enumerate(result.acc):
            log.add_scalar("class-IL/ACC", accuracy, task)
            log.add_scalar("class-IL/forgetting rate", result.forgetting_rate[task], task)
            log.add_scalar("task-IL/ACC", sum(result.task_il[task]) / len(result.task_il[task]), task)
            for earlier, value in enumerate(result.class_il[task]):
                log.add_scalar(f"class-IL by task/task {earlier}", value, task)
            for part, counts in result.census[task].items() if task < len(result.census) else ():
                log.add_scalar(f"memory/{part} rows", sum(counts), task)
        for rows, accuracy in result.anytime or ():
            log.add_scalar("class-IL/ACC by rows seen", accuracy, int(rows))
        for phase, seconds in result.seconds.items():
            log.add_scalar(f"seconds/{phase}", seconds, 0)
        log.add_text("experiment", "```\n" + json.dumps(result.experiment, indent=1) + "\n```")
        log.close()
        del self._open[job]

    def _of(self, job: int) -> Any:
        if job not in self._open:
            self._open[job] = self._new(str(self._folder / self._names[job]))
        return self._open[job]

    def close(self) -> None:
        """Flush what is open."""
        for log in self._open.values():
            log.close()
        self._open.clear()


class Together:
    """Several watchers as one, in their order."""

    def __init__(self, *watchers: Any) -> None:
        self.watchers = watchers

    def progress(self, job: int, done: int, total: int) -> None:
        """Tell everyone."""
        for each in self.watchers:
            each.progress(job, done, total)

    def finished(self, job: int, result: Result) -> None:
        """Tell everyone."""
        for each in self.watchers:
            each.finished(job, result)


def listeners(names: Sequence[str], events: Path | None, tensorboard: Path | None) -> list[Listener]:
    """Those that were asked for."""
    found: list[Listener] = []
    if events is not None:
        found.append(JsonLines(events, names))
    if tensorboard is not None:
        found.append(TensorBoard(tensorboard, names))
    return found
