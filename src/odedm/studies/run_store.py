"""The store of a study: its folder, which runs are finished and count, which failed, and a journal that only grows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.checkpoint.lock import hold
from odedm.core.errors import UsageError
from odedm.core.files import append_line, no_empty_folders, read_bytes, remove_stale, writable_folder, write_text
from odedm.core.plain_data import parse_json
from odedm.core.version import __version__
from odedm.execute.finished import changed_code, key_of_result
from odedm.execute.job import Job
from odedm.execute.run_callbacks import RunCallback
from odedm.results.folder import FILE, FinishedRun, load_runs
from odedm.results.result import Result
from odedm.studies.spec import Study, read

TOML, RUNS, FAILURES, JOURNAL = "study.toml", "runs", "failures.jsonl", "journal.jsonl"
LOCK = ".lock"
LARGEST = 2**30
"""Bytes: a store's file of more is not read."""
REUSE = {
    "plugins": "A finished run counts whatever version of odedm made it, if code of your own is the same.",
    "any": "A finished run counts whatever code made it.",
}
"""What of the code that made a run must be as it is now, for the run to count."""


@dataclass(frozen=True)
class StoreStatus:
    """The runs of a study by what has become of them, in the study's order."""

    done: dict[str, FinishedRun]
    todo: list[Job]
    failed: dict[str, str]
    """By content hash, the sentence of each run that failed and is not finished since; these are in `todo` too."""
    outdated: int = 0
    """How many of those to do are finished, by other code than there is now."""
    damaged: int = 0
    """How many of those to do have a result that cannot be read, or is not as it was written."""
    other_versions: Mapping[str, int] = field(default_factory=dict)
    """How many of those that count were made by each other version of the package."""

    @property
    def total(self) -> int:
        """Return the number of all runs of the study."""
        return len(self.done) + len(self.todo)

    def to_start(self, *, retry: bool) -> list[Job]:
        """Return what is to be run now: failures only where they are to be tried again."""
        return [job for job in self.todo if retry or job.key not in self.failed]

    def after(self, results: Mapping[str, Result], failed: Mapping[str, str]) -> StoreStatus:
        """Return the same when so many of its jobs are finished, and others failed."""
        made = {job.key: FinishedRun(job.folder, results[job.key]) for job in self.todo if job.key in results}
        todo = [job for job in self.todo if job.key not in made]
        before = {key: reason for key, reason in self.failed.items() if key not in made}
        return replace(self, done={**self.done, **made}, todo=todo, failed={**before, **failed}, outdated=0, damaged=0)


class RunStore(RunCallback):
    """What a study's folder holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / RUNS

    def init(self, study: Study) -> None:
        """Make the folder this study's; its file holds the whole of it, however a command narrows it."""
        self.check(study)
        remove_stale(writable_folder(self.folder) / TOML)
        path, text = self.folder / TOML, study.to_toml()
        if not path.is_file() or path.read_bytes() != text.encode():
            write_text(path, text)  # before anything else: by this file it is a study's folder
        writable_folder(self.runs)

    def check(self, study: Study) -> None:
        """Refuse a folder that is another study's, or none's."""
        path = self.folder / TOML
        owner = read(path).name if path.is_file() else None
        if owner is not None and owner != study.name:
            raise UsageError(f"'{self.folder}' holds the study '{owner}', not '{study.name}'. Give another --out.")
        ours = (LOCK, f".{TOML}.")  # which another process may be writing, or was when it was killed
        entries = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        if owner is None and not all(name.startswith(ours) for name in entries):
            raise UsageError(f"'{self.folder}' exists and is not a study's folder. Give another --out.")
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"'{self.folder}' is a file; a study needs a folder. Give another --out.")
        if self.runs.is_symlink():
            raise UsageError(
                f"'{self.runs}' is a link; runs are written into real folders. Give another --out, which may "
                "itself be a link of yours to another disk."
            )

    @contextmanager
    def opened(self, study: Study) -> Iterator[None]:
        """Hold the folder for a study, made where there is none: one process at a time drives it."""
        self.check(study)
        with no_empty_folders([self.folder]), hold(writable_folder(self.folder) / LOCK):  # falls with its owner
            self.init(study)
            yield

    def finished(self) -> list[FinishedRun]:
        """Return every finished run in the folder; one whose result is damaged is none."""
        return self._results()[0]

    def _results(self) -> tuple[list[FinishedRun], set[Path]]:
        """Return the finished runs, and the folders whose result cannot be read or is not as it was written."""
        folders = [
            path.parent
            for path in sorted(self.runs.glob(f"*/*/{FILE}"))
            if not path.parent.name.startswith(".") and not path.parents[1].is_symlink()  # whose runs are no study's
        ]
        runs, faults = load_runs(folders)
        return runs, set(faults)

    def status(
        self, jobs: Sequence[Job], *, reuse: str = "plugins", have: Mapping[str, FinishedRun] | None = None
    ) -> StoreStatus:
        """Return which of the runs are done, here or packed elsewhere (`have`), and which are to be made."""
        finished, damaged = self._results()
        by_content = defaultdict[str, list[FinishedRun]](list)
        for run in [*finished, *(have or {}).values()]:
            by_content[key_of_result(run.result, by_code=False)].append(run)
        done: dict[str, FinishedRun] = {}
        todo: dict[str, Job] = {}
        outdated, torn = 0, 0
        for job in jobs:
            made = by_content[job.content]
            usable = [run for run in made if reuse == "any" or changed_code(job, run.result) is None]
            if usable:
                done[job.key] = usable[0]
                continue
            todo[job.key] = replace(job, options=replace(job.options, overwrite=(job.folder / FILE).is_file()))
            outdated += bool(made)
            torn += not made and job.folder in damaged
        failed = {key: reason for key, reason in self.failures().items() if key in todo}
        return StoreStatus(done, list(todo.values()), failed, outdated, torn, _other_versions(done.values()))

    def failures(self) -> dict[str, str]:
        """Return the last sentence of every run that ever failed, by content hash."""
        return {line["key"]: str(line["error"]) for line in lines(self.folder / FAILURES) if "error" in line}

    def note(self, event: str, job: Job, **more: Any) -> None:
        """Add a line to the journal, on the disk before the call returns."""
        folder = os.path.relpath(job.folder, self.folder)
        self._append(JOURNAL, event=event, key=job.key, folder=folder, by=os.getpid(), **more)

    def on_start(self, job: Job) -> None:
        self.note("started", job)

    def on_lost(self, job: Job, reason: str) -> None:
        self.note("lost", job, reason=reason)

    def on_finish(self, job: Job, result: Result) -> None:  # noqa: ARG002 - it lies in the run's folder
        self.note("finished", job)

    def on_fail(self, job: Job, reason: str) -> None:
        self._append(FAILURES, key=job.key, folder=os.path.relpath(job.folder, self.folder), error=reason)
        self.note("failed", job)

    def _append(self, name: str, **line: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}
        append_line(self.folder / name, json.dumps(line, ensure_ascii=False))


def _other_versions(runs: Iterable[FinishedRun]) -> dict[str, int]:
    """Return how many runs were made by each version of the package that is not this one."""
    versions = [str(run.result.provenance.get("odedm")) for run in runs]
    return {version: versions.count(version) for version in sorted({*versions} - {__version__})}


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines about jobs in a file of JSON lines; one that was cut short or changed is passed over."""
    parsed: list[Any] = []
    content = read_bytes(path, LARGEST) if path.exists() else b""
    for line in content.decode(errors="replace").splitlines():
        with suppress(ValueError):
            parsed.append(parse_json(line))
    return [plain for plain in parsed if isinstance(plain, dict) and isinstance(plain.get("key"), str)]
