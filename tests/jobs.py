"""Jobs of small experiments, finished runs that nobody ran, a backend that does as it is told, and who remembers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm import ODEDM, Dataset, Experiment, Reservoir
from odedm.data.opening import load_dataset
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import TRIES, Done, Event, Failed, Job, ProgressReport, RunOptions, WorkerLost
from odedm.execute.planning import plan_jobs
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.scheduler import run_jobs
from odedm.results.result import Result

SMALL = Experiment(Reservoir(20), method="er", data="blobs", batch=16, device="cpu")
DUAL = Experiment(ODEDM(20, rho=0.5), method="er", data="blobs", batch=16, device="cpu")


def job_of(plan: Experiment, folder: Path, **options: Any) -> Job:
    """A job whose result goes to a folder."""
    (job,) = plan_jobs([plan], lambda _: folder, options=RunOptions(**options)).jobs
    return job


def open_all(jobs: list[Job]) -> dict[str, Dataset]:
    """The data sets of jobs by name, each opened once."""
    return {name: load_dataset(name) for name in dict.fromkeys(job.experiment.data for job in jobs)}


def run_all(jobs: list[Job], *observers: RunCallback, workers: int | None = None) -> list[Result]:
    """The results of jobs, run as any command runs them; every one must succeed."""
    summary = run_jobs(jobs, open_all(jobs), ExecutionConfig(workers=workers), observers)
    assert summary.failed == {}, summary.failed
    return [summary.results[job.key] for job in jobs]


def same(first: Result, second: Result) -> bool:
    """Equal but for times."""
    plain = [json.loads(json.dumps(result.to_dict())) for result in (first, second)]
    for plain_result in plain:
        plain_result.pop("seconds")
        plain_result["provenance"].pop("finished")
    return bool(plain[0] == plain[1])


def result_of(plan: Experiment, checksum: str, *, seconds: float = 4.0, acc: float = 50.0) -> Result:
    """What a run of a resolved plan would leave."""
    matrix = [[acc] * (task + 1) for task in range(plan.tasks or 5)]
    return Result.measure(
        experiment=plan.describe(),
        classes=[str(label) for label in range(10)],
        class_il=matrix,
        task_il=matrix,
        seconds={"train": seconds},
        class_counts=[],
        provenance={"odedm": "0.1.0", "commit": "abc", "data_checksum": checksum},
    )


def write_run(job: Job, **how: float) -> Path:
    """Write the folder of a finished run of a job."""
    job.folder.mkdir(parents=True, exist_ok=True)
    result = result_of(job.experiment, job.checksum or "", **how)
    (job.folder / "result.json").write_text(json.dumps(result.to_dict()))
    return job.folder


class Puppet:
    """A backend whose jobs are over at once: well, with the sentence that is set for their key, or lost so often."""

    def __init__(self, write: Callable[[Job], object] = write_run, workers: int = 2) -> None:
        self.workers, self.tries, self.write = workers, TRIES, write
        self.failing: dict[str, str | Failed] = {}
        self.losing: dict[str, list[WorkerLost]] = {}
        self.before: dict[str, list[Event]] = {}
        self.started: list[Job] = []
        self.under_way: list[Job] = []
        self.most = 0
        self.closed = False

    def has_room(self) -> bool:
        return len(self.under_way) < self.workers

    def start(self, job: Job) -> None:
        self.started.append(job)
        self.under_way.append(job)
        self.most = max(self.most, len(self.under_way))

    def events(self, timeout: float) -> Iterator[Event]:
        over, self.under_way = self.under_way, []
        for job in over:
            if not any(loss.was_killed for loss in self.losing.get(job.key, [])):
                yield ProgressReport(job.key, 5, 10)
            yield from self.before.pop(job.key, [])
            if self.losing.get(job.key):
                yield self.losing[job.key].pop(0)
            elif job.key in self.failing:
                how = self.failing[job.key]
                yield how if isinstance(how, Failed) else Failed(job.key, how)
            else:
                self.write(job)
                yield Done(job.key)

    def close(self) -> None:
        self.closed = True


class Notes(RunCallback):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if name == "lines" or not hasattr(RunCallback, name) or name.startswith("_"):
            return super().__getattribute__(name)
        return lambda *words: self.lines.append((name, *words))

    def said_lines(self) -> list[str]:
        return [words[1] for words in self.lines if words[0] == "on_message"]

    def keys(self, what: str) -> list[str]:
        return [words[1].key for words in self.lines if words[0] == what]


def again(job: Job, folder: Path, **options: Any) -> Job:
    """The same into another folder."""
    return replace(job, folder=folder, options=replace(job.options, **options))
