"""The ledger of a study: its folder, which runs are finished, which failed, and a journal that only grows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.checkpoint.lock import hold
from odedm.core.errors import UsageError
from odedm.core.files import append_line, read_bytes, remove_stale, writable_folder, write_text
from odedm.core.plain_data import too_deep
from odedm.execute.job import Job
from odedm.execute.observers import Observer
from odedm.results.folder import FILE, FinishedRun, load_runs
from odedm.results.result import Result
from odedm.results.schema import is_numbers
from odedm.study.reuse import Code, is_reusable, key_of_result
from odedm.study.study import Study, read
from odedm.training.experiment import content_key

TOML, RUNS, FAILURES, JOURNAL, TRIALS = "study.toml", "runs", "failures.jsonl", "journal.jsonl", "trials.jsonl"
LOCK = ".lock"
LARGEST = 2**30
"""Bytes: a ledger's file of more is not read."""


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

    @property
    def total(self) -> int:
        """All runs of the study."""
        return len(self.done) + len(self.todo)

    def to_start(self, *, retry: bool) -> list[Job]:
        """What is to be run now: failures only where they are to be tried again."""
        return [job for job in self.todo if retry or job.key not in self.failed]


class RunStore(Observer):
    """What a study's folder holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / RUNS

    def init(self, study: Study) -> None:
        """Make the folder this study's."""
        self.check(study)
        remove_stale(writable_folder(self.folder) / TOML)
        write_text(self.folder / TOML, study.to_toml())  # before anything else: by this file it is a study's folder
        writable_folder(self.runs)

    def check(self, study: Study) -> None:
        """Refuse a folder that is another study's, or none's."""
        path = self.folder / TOML
        owner = read(path).name if path.is_file() else None
        if owner is not None and owner != study.name:
            raise UsageError(f"'{self.folder}' holds the study '{owner}', not '{study.name}'. Give another --out.")
        ours = (LOCK, f".{TOML}.")  # which another process may be writing, or was when it was killed
        there = [each.name for each in self.folder.iterdir()] if self.folder.is_dir() else []
        if owner is None and not all(name.startswith(ours) for name in there):
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
        self, jobs: Sequence[Job], *, reuse: str, code: Code, have: Mapping[str, FinishedRun] | None = None
    ) -> StoreStatus:
        """Which of the runs are done, here or packed elsewhere (`have`); one made by other code is to be replaced."""
        there, damaged = self._results()
        made = {key_of_result(run.result, by_code=False) for run in there.values()}
        packed = {key: run for key, run in (have or {}).items() if is_reusable(run.result.provenance, reuse, code)}
        if reuse == "any":  # whatever code from outside made them
            there, packed = (
                {key_of_result(run.result, by_code=False): run for run in each.values()} for each in (there, packed)
            )
        done: dict[str, FinishedRun] = {}
        todo: dict[str, Job] = {}
        outdated, torn = 0, 0
        for job in jobs:
            # where nothing is known of the code from outside that made a run, it counts
            keys = [job.key, content_key(job.experiment.describe(), job.checksum)]
            found = next((there[key] for key in keys if key in there), None)
            elsewhere = next((packed[key] for key in keys if key in packed), None)
            if found is not None and is_reusable(found.result.provenance, reuse, code):
                done[job.key] = found
            elif elsewhere is not None:
                done[job.key] = elsewhere
            else:
                folder = job.folder if found is None else found.folder
                options = replace(job.options, overwrite=(folder / FILE).is_file())
                todo[job.key] = replace(job, folder=folder, options=options)
                outdated += keys[1] in made
                torn += keys[1] not in made and folder in damaged
        failed = {key: said for key, said in self.failures().items() if key in todo}
        return StoreStatus(done, list(todo.values()), failed, outdated, torn)

    def failures(self) -> dict[str, str]:
        """The last sentence of every run that ever failed, by content hash."""
        return failures_in(self.folder / FAILURES)

    def scores(self) -> dict[str, float]:
        """The score of every trial by its content hash."""
        return scores_in(self.folder / TRIALS)

    def note(self, event: str, job: Job, **more: Any) -> None:
        """Add a line to the journal, on the disk before the call returns."""
        kind, folder = ("trial", "") if job.is_trial else ("run", os.path.relpath(job.folder, self.folder))
        self._append(JOURNAL, event=event, kind=kind, key=job.key, folder=folder, by=os.getpid(), **more)

    def started(self, job: Job) -> None:
        """Note that a job has begun."""
        self.note("started", job)

    def taken_up(self, job: Job, process: int) -> None:
        """Note which process works on it; another than before has it since a worker was lost."""
        self.note("under way", job, process=process)

    def lost(self, job: Job, reason: str) -> None:
        """Note how its worker died."""
        self.note("lost", job, reason=reason)

    def finished(self, job: Job, result: Result) -> None:  # noqa: ARG002 - it lies in the run's folder
        """Note that a run is over."""
        self.note("finished", job)

    def failed(self, job: Job, reason: str) -> None:
        """Note why it failed."""
        self._append(FAILURES, key=job.key, folder=os.path.relpath(job.folder, self.folder), error=reason)
        self.note("failed", job)

    def scored(self, job: Job, score: float) -> None:
        """Keep what a trial on held-out training rows scored."""
        self._append(TRIALS, key=job.key, score=score, experiment=job.experiment.describe())
        self.note("finished", job)

    def _append(self, name: str, **line: Any) -> None:
        """Add a line with the time to a file, flushed to the disk."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}
        append_line(self.folder / name, json.dumps(line, ensure_ascii=False))


def scores_in(path: Path) -> dict[str, float]:
    """The score of every trial in a file of trials, by its content hash; what is no share in per cent is no score."""
    found = {line["key"]: line["score"] for line in lines(path) if is_numbers([line.get("score")])}
    return {key: score for key, score in found.items() if 0 <= score <= 100}


def failures_in(path: Path) -> dict[str, str]:
    """The last sentence of every run or trial in a file of failures, by its content hash."""
    return {line["key"]: str(line["error"]) for line in lines(path) if "error" in line}


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines about jobs in a file of JSON lines; one that a kill cut short, or someone changed, is passed over."""
    found: list[Any] = []
    content = read_bytes(path, LARGEST) if path.exists() else b""
    for line in content.decode(errors="replace").splitlines():
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    sound = (plain for plain in found if isinstance(plain, dict) and not too_deep(plain))
    return [plain for plain in sound if isinstance(plain.get("key"), str)]
