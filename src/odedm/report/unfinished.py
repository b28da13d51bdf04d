"""Runs that are not over yet: how far each is, by its last checkpoint, and what it has reached so far."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odedm.checkpoint.checkpoint import MAX_TREE_BYTES, TREE, checkpoint_folders, read_manifest, working_folder
from odedm.checkpoint.lock import is_held
from odedm.core.checksums import read_json
from odedm.core.errors import InvalidFileError, UsageError
from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import LONGEST, printable
from odedm.results.folder import FILE
from odedm.studies.run_store import RUNS, TOML

BEGIN, END = ".", ".work"
"""Of the name of a working folder: `.seed-0.work`."""


@dataclass(frozen=True)
class Unfinished:
    """A run without a result: whose it is, where in the stream its last checkpoint is, and its accuracy by then.

    `alive` says whether a process is at it; None where that cannot be known from here. Without a checkpoint there is
    no `what` and no position.
    """

    folder: Path
    alive: bool | None
    what: str = ""
    task: int = 0
    step: int = 0
    acc: tuple[float, ...] = ()

    def __str__(self) -> str:
        name = self.what or f"'{printable(self.folder.name, 80)}'"
        state = {True: "under way", False: "stopped; `odedm resume` goes on", None: "not finished"}[self.alive]
        if not self.what:
            return f"{name}: no checkpoint yet ({state})"
        reached = f", ACC_{len(self.acc)} {self.acc[-1]:.1f} % after the last finished task" if self.acc else ""
        return f"{name}: in task {self.task + 1}, at step {self.step} by the last checkpoint{reached} ({state})"


def find_unfinished(paths: Sequence[Path]) -> list[Unfinished]:
    """Return the runs at or below the paths that have a working folder and no result, by folder."""
    return [_look(run) for run in sorted({run for path in paths for run in _runs(path)})]


def to_go_on(pending: Sequence[Unfinished]) -> list[str]:
    """Say how each study goes on among whose runs some are not finished: it may have others that never began."""
    folders = dict.fromkeys(run.folder.parents[2] for run in pending if _is_of_study(run.folder))
    return [
        f"The study in '{printable(folder, LONGEST)}' is not finished: `odedm study {shlex.quote(str(folder / TOML))} "
        f"--out {shlex.quote(str(folder))}` goes on, also with runs that have not begun; with --dry-run it counts them."
        for folder in folders
    ]


def _is_of_study(run: Path) -> bool:
    """Whether a run's folder, STUDY/runs/EXPERIMENT/seed-N, is in a study's."""
    above = run.absolute().parents
    return len(above) > 2 and above[1].name == RUNS and (above[2] / TOML).is_file() and len(run.parents) > 2


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
    """What the newest sound checkpoint says; files may be anyone's, or vanish while one looks."""
    work = working_folder(run)
    alive = is_held(work)
    for checkpoint in checkpoint_folders(work):
        with suppress(InvalidFileError, UsageError, OSError):
            manifest = read_manifest(checkpoint)
            place = manifest["position"]
            what = _what(manifest["configuration"])
            return Unfinished(run, alive, what, int(place["task"]), int(place["step"]), _reached(checkpoint))
    return Unfinished(run, alive)


def _what(plan: Mapping[str, Any]) -> str:
    """Method, memory, data and seed in words, whoever wrote them.

    >>> _what({"method": "er", "memory": {"name": "reservoir", "capacity": 20}, "data": "blobs", "seed": 1})
    "ER · reservoir · λ=20 on 'blobs', seed 1"
    """
    memory = plan.get("memory")
    memory = memory if isinstance(memory, dict) else {}
    words = [title(METHODS, str(plan.get("method"))), title(MEMORIES, str(memory.get("name")))]
    words += [f"λ={memory['capacity']}"] if "capacity" in memory else []
    names = " · ".join(printable(word, 24) for word in words)
    return f"{names} on '{printable(plan.get('data', '?'))}', seed {printable(plan.get('seed', '?'), 24)}"


def _reached(checkpoint: Path) -> tuple[float, ...]:
    """ACC after each finished task, from a checkpoint's partial results; nothing where they are not as expected."""
    try:
        rows = _listed(_find(read_json(checkpoint / TREE, MAX_TREE_BYTES), "class_il"))
        means = tuple(math.fsum(values) / len(values) for values in map(_listed, rows) if values)
    except (InvalidFileError, KeyError, ValueError, TypeError, RecursionError):
        return ()
    return means if all(0 <= value <= 100 for value in means) else ()


def _find(tree: Any, name: str) -> Any:
    """The first value of this name in a tree of lists and mappings."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if name in node:
                return node[name]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    raise ValueError(f"there is no {name}")


def _listed(node: Any) -> list[Any]:
    """What a list of the program is in a checkpoint.

    >>> _listed({"type": "list", "path": "progress.class_il", "items": [1.5]})
    [1.5]
    """
    items = node["items"] if node["type"] == "list" else None
    if not isinstance(items, list):
        raise ValueError("no list")
    return items
