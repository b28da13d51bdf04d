"""Makes runs of the paper, each once, whatever table or figure asks for it, and goes on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odedm.cli.board import watched
from odedm.cli.console import err, say
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder
from odedm.execute.backend import get_ready
from odedm.execute.job import Job
from odedm.execute.observers import Observer
from odedm.paper.items import MINI_FOLDER, SEED, by_signature, keeps_evidence, run_signature, shipped_runs
from odedm.results.folder import FinishedRun
from odedm.results.packed import write_packed
from odedm.results.result import Result
from odedm.study.grid import Grid
from odedm.study.merging import read_all
from odedm.study.reuse import Code
from odedm.study.study import Study
from odedm.study.study_runner import StudyRunner
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

SMALL_STUDY = Study(MINI_FOLDER, (Grid({"data": ("fashion-mini",)}),), about="Made by `odedm paper --mini`.")
"""Marks the folder of the runs in miniature as a study's."""


class BudgetSpent(Exception):
    """The time is over: what was under way is stored, and the same command goes on with it."""


@dataclass
class Deadline(Observer):
    """Ends what is under way when the time is over, on the monotonic clock."""

    until: float

    def tick(self, left: float | None) -> None:  # noqa: ARG002 - the time is over, whatever is left
        """Stop at the deadline."""
        if time.monotonic() >= self.until:
            raise BudgetSpent


@dataclass
class Packer(Observer):
    """Packs all finished runs anew after each that is finished, so that a machine may vanish at any moment."""

    path: Path
    results: list[Result]

    def finished(self, job: Job, result: Result) -> None:  # noqa: ARG002 - its result says all
        """Pack it with the others."""
        self.results.append(result)
        write_packed(self.path, self.results)


@dataclass(frozen=True)
class PaperRuns:
    """The finished runs of the paper, and how missing ones are made: by when, and followed by whom."""

    runner: StudyRunner
    packed: Sequence[Path] = ()
    until: float | None = None
    retry: bool = False
    listen: tuple[Path | None, Path | None] = (None, None)
    mini: bool = False

    def finished(self) -> Mapping[str, FinishedRun]:
        """Return all finished runs by their signature, whatever device made them."""
        made = self.runner.store.runs_done().values()
        return by_signature(made if self.mini else [*shipped_runs(), *read_all(self.packed).values(), *made])

    def made(self) -> list[Result]:
        """Return the results of the finished runs in the folder."""
        return [run.result for run in self.runner.store.runs_done().values()]

    def begin(self, study: Study) -> None:
        """Make the folder one of the paper's."""
        self.runner.store.init(SMALL_STUDY if self.mini else study)

    def make(self, plans: Sequence[Experiment], study: Study, observers: Sequence[Observer] = ()) -> bool:
        """Make runs, each once; return whether any failed. What of them is done in the store is not done again."""
        runner, store = self.runner, self.runner.store
        get_ready(len(plans), runner.execution)
        planned = runner.jobs(plans)
        store.check(SMALL_STUDY if self.mini else study)
        writable_folder(store.folder)
        with store.lock():
            self.begin(study)
            jobs = store.status(planned.jobs, reuse=runner.reuse, code=Code.here()).to_start(retry=self.retry)
            say(f"{study.about}: {len(plans)} runs are missing, {len(jobs)} to start. Folder: {store.folder}")
            deadline = [] if self.until is None else [Deadline(self.until)]
            left = ""
            with watched(len(jobs), 0, self.listen) as (_, listeners):
                try:
                    runner.run([_observed(job) for job in jobs], planned, [*listeners, *observers, *deadline])
                except BudgetSpent:
                    left = "The budget is spent; what was under way is stored. The same command goes on."
            status = store.status(planned.jobs, reuse=runner.reuse, code=Code.here())
        if left:
            say(left)
        if status.failed:
            hint = "" if self.retry else " Run them again with --retry."
            first = next(iter(status.failed.values()))
            say(f"{len(status.failed)} runs failed; failures.jsonl says which.{hint} The first: {first}")
        return bool(status.failed)

    def time_dac(self) -> None:
        """Time the choice of prototypes with divide-and-conquer and without, where timings are missing."""
        from odedm.paper.dac_timing import MINI, PAPER, measure

        runner = self.runner
        with err.status("Timing divide-and-conquer") as line:
            measure(
                MINI if self.mini else PAPER,
                runner.store.folder,
                device="auto" if runner.execution.is_remote else runner.device,
                threads=runner.threads,
                until=self.until,
                report=lambda left: line.update(f"Timing divide-and-conquer: {left} left"),
            )


def _observed(job: Job) -> Job:
    """Return the job that keeps its features and choices if a figure shows them, whichever table asks for it first."""
    signature = run_signature(job.experiment.describe()).rpartition(SEED)[0]
    observation = Observation(evidence=signature in keeps_evidence())
    return replace(job, options=replace(job.options, observation=observation))


def absent_data(names: Sequence[str]) -> list[str]:
    """Return the data sets that are not here."""
    from odedm.data.opening import load_dataset

    absent = []
    for name in dict.fromkeys(names):
        try:
            load_dataset(name)
        except UsageError:
            absent.append(name)
    return absent
