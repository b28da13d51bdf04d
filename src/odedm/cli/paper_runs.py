"""Makes runs of the paper, each once, whatever table or figure asks for it, and goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odedm.cli.console import echo, err, log
from odedm.cli.study_command import do_jobs, log_what_is_missing
from odedm.core.errors import UsageError
from odedm.execute.job import Job
from odedm.execute.run_callbacks import RunCallback
from odedm.paper import order
from odedm.paper.items import FOLDER, MINI_FOLDER, SEED, by_signature, keeps_evidence, run_signature, shipped_runs
from odedm.results.folder import FinishedRun
from odedm.results.packed import write_packed
from odedm.results.result import Result
from odedm.studies.grid import Grid, matches_filters
from odedm.studies.merging import read_all
from odedm.studies.runner import StudyRunner
from odedm.studies.spec import Study
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

PACK = "paper.jsonl.gz"
"""The finished runs of the folder, packed: what is brought home from a machine that was lent."""
SMALL_STUDY = Study(MINI_FOLDER, (Grid({"data": ("fashion-mini",)}),), about="Made by `odedm paper --mini`.")
"""Marks the folder of the runs in miniature as a study's."""


@dataclass
class Packer(RunCallback):
    """Packs all finished runs anew after each that is finished, so that a machine may vanish at any moment."""

    path: Path
    results: list[Result]

    def on_finish(self, job: Job, result: Result) -> None:  # noqa: ARG002 - its result says all
        self.results.append(result)
        write_packed(self.path, self.results)


@dataclass(frozen=True)
class PaperRuns:
    """The finished runs of the paper, and how missing ones are made and logged."""

    runner: StudyRunner
    packed: Sequence[Path] = ()
    logs: Sequence[str] = ()
    mini: bool = False

    def finished(self) -> Mapping[str, FinishedRun]:
        """Return all finished runs by their signature, whatever device made them."""
        made = self.runner.store.finished()
        return by_signature(made if self.mini else [*shipped_runs(), *read_all(self.packed).values(), *made])

    def made(self) -> list[Result]:
        """Return the results of the finished runs in the folder."""
        return [run.result for run in self.runner.store.finished()]

    def begin(self, study: Study) -> None:
        """Make the folder one of the paper's."""
        self.runner.store.init(SMALL_STUDY if self.mini else study)

    def make(self, plans: Sequence[Experiment], study: Study, callbacks: Sequence[RunCallback] = ()) -> bool:
        """Make runs, each once; return whether any failed. What of them is done in the store is not done again."""
        runner, store = self.runner, self.runner.store
        planned = runner.plan(study, plans)
        planned = replace(planned, jobs=[_observed(job) for job in planned.jobs])
        with store.opened(SMALL_STUDY if self.mini else study):
            status = runner.status(planned)
            start = len(status.to_start(retry=runner.retry))
            log(f"{study.about}: {len(plans)} runs are missing, {start} to start. Folder: {store.folder}")
            status, summary = do_jobs(status, planned, runner, self.logs, callbacks)
        log_what_is_missing(status, summary, runner)
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
                until=runner.until,
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


def work_off(runs: PaperRuns, *, dry_run: bool) -> bool:
    """Work off what is missing, most telling first, and pack each run when it is done; return whether runs failed."""
    finished = runs.finished()
    states = {step: step.progress(finished) for step in order.STEPS}
    missing = {f"{plan.slug()} {plan.seed}": plan for state in states.values() for plan in state.missing}
    absent = absent_data([plan.data for plan in missing.values()])
    plans = [plan for plan in missing.values() if plan.data not in absent]
    if dry_run:
        for step, state in states.items():
            echo(f"{f'{len(state.done)}/{state.runs}':>8}  {step.about}")
    if absent:
        echo(f"Not here: {', '.join(absent)} (odedm data list says how to get it).")
    if dry_run or not plans:
        echo(f"{len(missing)} runs are missing" + (f", {len(plans)} of them on data that is here." if missing else "."))
        return False
    grids = tuple(grid for step in states for grid in step.study().grids)
    study = Study(FOLDER, grids, about="What is missing of the paper, most telling first")
    pack = runs.runner.store.folder / PACK
    failed = runs.make(plans, study, [Packer(pack, runs.made())])
    if pack.exists():
        echo(f"{len(runs.made())} finished runs are packed: {pack}. Elsewhere they count by --with-results.")
    return failed


def with_known_values(study: Study) -> Study:
    """Return the study narrowed by those values of --only that it has: of several items each has others."""
    plans = replace(study, only=()).with_seeds(1).experiments()
    known = []
    for wish in study.only:
        name, equals, values = wish.partition("=")
        kept = [
            value for value in values.split(",") if any(matches_filters(plan, [f"{name}={value}"]) for plan in plans)
        ]
        known.append(f"{name}={','.join(kept)}" if equals and kept else wish)
    return replace(study, only=tuple(known))
