"""A study's folder: which runs are finished, which failed, and a journal that only grows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odedm.checkpoint.lock import hold
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.execute.job import Work
from odedm.results.result import FILE, Result
from odedm.study.identity import counts, key_of_result
from odedm.study.study import Study, read

TOML, RUNS, FAILURES, JOURNAL, TRIALS = "study.toml", "runs", "failures.jsonl", "journal.jsonl", "trials.jsonl"
LOCK = ".lock"


@dataclass(frozen=True)
class Finished:
    """A finished run and where it lies."""

    folder: Path
    result: Result

    @property
    def seconds(self) -> float:
        """Wall seconds, all phases together."""
        return sum(self.result.seconds.values())


@dataclass(frozen=True)
class Status:
    """The runs of a study by what has become of them, in the study's order."""

    done: dict[str, Finished]
    todo: list[Work]
    failed: dict[str, str]
    """By content hash, the sentence of each run that failed and is not finished since; these are in `todo` too."""

    @property
    def total(self) -> int:
        """All runs of the study."""
        return len(self.done) + len(self.todo)

    def to_start(self, *, retry: bool) -> list[Work]:
        """What is to be run now: failures only where they are to be tried again."""
        return [work for work in self.todo if retry or work.key not in self.failed]


class Ledger:
    """What a study's folder holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / RUNS

    def settle(self, study: Study) -> None:
        """Make the folder this study's."""
        self.check(study)
        writable_folder(self.runs)
        write_text(self.folder / TOML, study.to_toml())

    def check(self, study: Study) -> None:
        """Refuse a folder that is another study's, or none's."""
        path = self.folder / TOML
        if path.is_file():
            before = read(path)
            if before.name != study.name:
                raise UsageError(
                    f"'{self.folder}' holds the study '{before.name}', not '{study.name}'. Give another --out."
                )
        elif self.folder.is_dir() and any(each.name != LOCK for each in self.folder.iterdir()):
            raise UsageError(f"'{self.folder}' exists and is not a study's folder. Give another --out.")
        elif self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"'{self.folder}' is a file; a study needs a folder. Give another --out.")

    @contextmanager
    def held(self) -> Iterator[None]:
        """One process at a time drives a study; the lock falls with its owner."""
        with hold(self.folder / LOCK):
            yield

    def finished(self) -> dict[str, Finished]:
        """Every finished run in the folder by its content hash; a result that cannot be read is none."""
        found: dict[str, Finished] = {}
        if not self.runs.is_dir():
            return found
        for path in sorted(self.runs.glob(f"*/*/{FILE}")):
            if path.parent.name.startswith("."):
                continue
            try:
                result = Result.load(path)
                found.setdefault(key_of_result(result), Finished(path.parent, result))
            except (UsageError, AttributeError, TypeError):
                continue
        return found

    def status(self, works: Sequence[Work], *, reuse: str, version: str, commit: str | None) -> Status:
        """Which of the runs are done; one that was made by other code than asked for is to be replaced."""
        there = self.finished()
        done: dict[str, Finished] = {}
        todo: list[Work] = []
        for work in works:
            found = there.get(work.key)
            if found is None:
                stale = (work.folder / FILE).is_file()
                todo.append(work.into(work.folder, overwrite=stale))
            elif counts(found.result, reuse, version=version, commit=commit):
                done[work.key] = found
            else:
                todo.append(work.into(found.folder, overwrite=True))
        wanted = {work.key for work in todo}
        return Status(done, todo, {key: said for key, said in self.failures().items() if key in wanted})

    def failures(self) -> dict[str, str]:
        """The last sentence of every run that ever failed, by content hash."""
        return {line["key"]: str(line.get("error")) for line in lines(self.folder / FAILURES) if "key" in line}

    def fail(self, work: Work, sentence: str) -> None:
        """Note a failure."""
        folder = os.path.relpath(work.folder, self.folder)
        self._append(FAILURES, {"time": now(), "key": work.key, "folder": folder, "error": sentence})

    def note(self, event: str, work: Work, **more: Any) -> None:
        """Add a line to the journal, on the disk before the call returns."""
        folder = os.path.relpath(work.folder, self.folder) if work.kind == "run" else ""
        what = {"time": now(), "event": event, "kind": work.kind, "key": work.key, "folder": folder, "by": os.getpid()}
        self._append(JOURNAL, {**what, **more})

    def journal(self) -> list[dict[str, Any]]:
        """Every line of the journal."""
        return lines(self.folder / JOURNAL)

    def score(self, work: Work, score: float) -> None:
        """Keep what a trial on held-out training rows scored."""
        self._append(TRIALS, {"time": now(), "key": work.key, "score": score, "experiment": work.experiment.describe()})

    def scores(self) -> dict[str, float]:
        """The score of every trial by its content hash."""
        return {
            line["key"]: float(line["score"]) for line in lines(self.folder / TRIALS) if {"key", "score"} <= {*line}
        }

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        path = self.folder / name
        text = json.dumps(line, ensure_ascii=False) + "\n"
        with path.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a process was killed in the middle of a line
                    text = "\n" + text
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; a line that was cut short by a kill is passed over."""
    found = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            plain = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(plain, dict):
            found.append(plain)
    return found


def now() -> str:
    """The time, for a log."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
