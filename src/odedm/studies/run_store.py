"""The store of a study: its folder, which runs are finished and count, which failed, and a journal that only grows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.checkpoint.lock import hold
from odedm.core.errors import UsageError
from odedm.core.files import append_line, read_bytes, remove_stale, writable_folder, write_text
from odedm.core.plain_data import parse_json
from odedm.core.version import __version__
from odedm.execute.job import Job
from odedm.execute.run_callbacks import RunCallback
from odedm.results.folder import FILE, FinishedRun, load_runs
from odedm.results.result import Result
from odedm.studies.spec import Study, read
from odedm.training.experiment import content_key

TOML, RUNS, FAILURES, JOURNAL = "study.toml", "runs", "failures.jsonl", "journal.jsonl"
LOCK = ".lock"
LARGEST = 2**30
"""Bytes: a store's file of more is not read."""
REUSE = {
    "plugins": "A finished run counts whatever version of odedm made it, if code of your own is the same.",
    "any": "A finished run counts whatever code made it.",
}
"""What of the code that made a run must be as it is now, for the run to count."""


def key_of_result(result: Result, *, by_code: bool = True) -> str:
    """The content hash of a finished run, from what its result says.

    Without `by_code` it is the same whatever code from outside made the run.
    """
    marks = result.code_hashes() if by_code else None
    return content_key(result.experiment, result.provenance.get("data_checksum"), marks)


def why_not_reusable(result: Result, job: Job) -> str | None:
    """Return why a run that has just been made does not count: another machine has other code than this one."""
    version, hashes = result.provenance.get("odedm"), result.code_hashes()
    here = job.experiment.code_hashes()
    other = [setting for setting in hashes if hashes[setting] != here.get(setting, hashes[setting])]
    if version == __version__ and not other:
        return None
    made = f"other code of its {other[0]}" if other else f"odedm {version}"
    return f"The run was made by {made} than is here: bring the machines to the same code, or take --reuse any."


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
        """All runs of the study."""
        return len(self.done) + len(self.todo)

    def to_start(self, *, retry: bool) -> list[Job]:
        """What is to be run now: failures only where they are to be tried again."""
        return [job for job in self.todo if retry or job.key not in self.failed]

    def after(self, results: Mapping[str, Result], failed: Mapping[str, str]) -> StoreStatus:
        """The same when so many of its jobs are finished, and others failed."""
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

    def lock(self) -> AbstractContextManager[object]:
        """One process at a time drives a study; the lock falls with its owner."""
        return hold(self.folder / LOCK)

    def runs_done(self) -> dict[str, FinishedRun]:
        """Every finished run in the folder by its content hash; a result that is damaged is none."""
        return self._results()[0]

    def _results(self) -> tuple[dict[str, FinishedRun], set[Path]]:
        """The finished runs, and the folders whose result cannot be read or is not as it was written."""
        folders = [
            path.parent
            for path in sorted(self.runs.glob(f"*/*/{FILE}"))
            if not path.parent.name.startswith(".") and not path.parents[1].is_symlink()  # whose runs are no study's
        ]
        runs, faults = load_runs(folders)
        by_key: dict[str, FinishedRun] = {}
        damaged = set(faults)
        for run in runs:
            try:
                by_key.setdefault(key_of_result(run.result), run)
            except (UsageError, AttributeError, TypeError):
                damaged.add(run.folder)
        return by_key, damaged

    def status(
        self, jobs: Sequence[Job], *, reuse: str = "plugins", have: Mapping[str, FinishedRun] | None = None
    ) -> StoreStatus:
        """Which of the runs are done, here or packed elsewhere (`have`), and which are to be made."""
        finished, damaged = self._results()
        made = {key_of_result(run.result, by_code=False) for run in finished.values()}
        packed = dict(have or {})
        if reuse == "any":  # whatever code from outside made them
            finished, packed = _by_content(finished.values()), _by_content(packed.values())
        done: dict[str, FinishedRun] = {}
        todo: dict[str, Job] = {}
        outdated, torn = 0, 0
        for job in jobs:
            # where nothing is known of the code from outside that made a run, it counts
            keys = [job.key, content_key(job.experiment.describe(), job.checksum)]
            run = next((runs[key] for runs in (finished, packed) for key in keys if key in runs), None)
            if run is not None:
                done[job.key] = run
                continue
            todo[job.key] = replace(job, options=replace(job.options, overwrite=(job.folder / FILE).is_file()))
            outdated += keys[1] in made
            torn += keys[1] not in made and job.folder in damaged
        failed = {key: reason for key, reason in self.failures().items() if key in todo}
        return StoreStatus(done, list(todo.values()), failed, outdated, torn, _other_versions(done.values()))

    def failures(self) -> dict[str, str]:
        """The last sentence of every run that ever failed, by content hash."""
        return {line["key"]: str(line["error"]) for line in lines(self.folder / FAILURES) if "error" in line}

    def note(self, event: str, job: Job, **more: Any) -> None:
        """Add a line to the journal, on the disk before the call returns."""
        folder = os.path.relpath(job.folder, self.folder)
        self._append(JOURNAL, event=event, key=job.key, folder=folder, by=os.getpid(), **more)

    def on_start(self, job: Job) -> None:
        """Note that a job has begun."""
        self.note("started", job)

    def on_lost(self, job: Job, reason: str) -> None:
        """Note how its worker died."""
        self.note("lost", job, reason=reason)

    def on_finish(self, job: Job, result: Result) -> None:  # noqa: ARG002 - it lies in the run's folder
        """Note that a run is over."""
        self.note("finished", job)

    def on_fail(self, job: Job, reason: str) -> None:
        """Note why it failed."""
        self._append(FAILURES, key=job.key, folder=os.path.relpath(job.folder, self.folder), error=reason)
        self.note("failed", job)

    def _append(self, name: str, **line: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}
        append_line(self.folder / name, json.dumps(line, ensure_ascii=False))


def _by_content(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    """Runs by their content hash without the code from outside that made them."""
    return {key_of_result(run.result, by_code=False): run for run in runs}


def _other_versions(runs: Iterable[FinishedRun]) -> dict[str, int]:
    """How many runs were made by each version of the package that is not the one that runs."""
    versions = [str(run.result.provenance.get("odedm")) for run in runs]
    return {version: versions.count(version) for version in sorted({*versions} - {__version__})}


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines about jobs in a file of JSON lines; one that a kill cut short, or someone changed, is passed over."""
    parsed: list[Any] = []
    content = read_bytes(path, LARGEST) if path.exists() else b""
    for line in content.decode(errors="replace").splitlines():
        with suppress(ValueError):
            parsed.append(parse_json(line))
    return [plain for plain in parsed if isinstance(plain, dict) and isinstance(plain.get("key"), str)]
