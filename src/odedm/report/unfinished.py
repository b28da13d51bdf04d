"""Runs that are not over yet, and how far each is by its last checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from odedm.checkpoint.checkpoint import checkpoint_paths, look_at, working_folder
from odedm.checkpoint.lock import is_held
from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.results.folder import FILE
from odedm.results.run_summary import describe
from odedm.results.schema import check_experiment

BEGIN, END = ".", ".work"
"""Of the name of a working folder: `.seed-0.work`."""


@dataclass(frozen=True)
class Unfinished:
    """A run without a result: what it is, and where in the stream its last checkpoint is.

    `alive` says whether a process is at it; None where that cannot be known from here. Without a checkpoint there is
    no `what` and no position.
    """

    folder: Path
    alive: bool | None
    what: str = ""
    task: int = 0
    step: int = 0

    def __str__(self) -> str:
        name = self.what or f"'{printable(self.folder.name, 80)}'"
        state = {True: "under way", False: "stopped; `odedm resume` goes on", None: "not finished"}[self.alive]
        reached = f"in task {self.task + 1}, at step {self.step} by the last checkpoint"
        return f"{name}: {reached if self.what else 'no checkpoint yet'} ({state})"


def find_unfinished(paths: Sequence[Path]) -> list[Unfinished]:
    """Return the runs at or below the paths that have a working folder and no result, by folder."""
    return [_look(run) for run in sorted({run for path in paths for run in _runs(path)})]


def is_under_way(path: Path) -> bool:
    """Return whether a path is that of a run which has no folder yet, only a working folder beside it."""
    return bool(path.name) and not path.exists() and working_folder(path).is_dir()


def _runs(path: Path) -> Iterator[Path]:
    if is_under_way(path):
        yield path
    for folder, below, _ in os.walk(path):
        for name in below:
            run = Path(folder, name.removeprefix(BEGIN).removesuffix(END))
            if name == working_folder(run).name and not (run / FILE).is_file():
                yield run
        below[:] = [name for name in below if not name.startswith(".")]


def _look(run: Path) -> Unfinished:
    """Return what the newest sound checkpoint says; files may be anyone's, or vanish while one looks."""
    work = working_folder(run)
    alive = is_held(work)
    for path in checkpoint_paths(work):
        with suppress(UsageError, OSError):
            position, meta = look_at(path)
            plan = meta.configuration
            check_experiment(plan)
            what = f"{describe(plan, {})}, seed {printable(plan['seed'], 24)}"
            return Unfinished(run, alive, what, position.task, position.step)
    return Unfinished(run, alive)
