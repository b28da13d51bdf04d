"""A study under way: what of it is done, what is to do, and doing it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from odedm.core.errors import UsageError
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import Job, RunOptions
from odedm.execute.observers import Observer
from odedm.execute.planning import PlannedJobs, plan_jobs, run_dir_under
from odedm.execute.run_job import remove_stale_workdir
from odedm.execute.scheduler import Summary, run_jobs
from odedm.execute.time_estimate import TimeEstimate
from odedm.results.folder import FinishedRun
from odedm.results.result import Result
from odedm.study.held_out_trials import check_first_tasks
from odedm.study.reuse import Code, why_not_reusable
from odedm.study.run_store import RunStore, StoreStatus
from odedm.study.study import Study
from odedm.study.trials import families, trials_of
from odedm.training.experiment import Experiment


@dataclass(frozen=True)
class StudyRunner:
    """Who runs a study: its store, where runs happen, and which finished runs count (`reuse`).

    `have` are runs that were packed elsewhere, by content hash: they count, too.
    """

    store: RunStore
    execution: ExecutionConfig
    device: str = "auto"
    threads: int = 1
    reuse: str = "version"
    have: Mapping[str, FinishedRun] = field(default_factory=dict)

    def plan(self, study: Study, *, lenient: bool = False) -> PlannedJobs:
        """The study's experiments as jobs."""
        return self.jobs(study.experiments(), RunOptions(observation=study.observation), lenient=lenient)

    def jobs(
        self, plans: Sequence[Experiment], options: RunOptions | None = None, *, lenient: bool = False
    ) -> PlannedJobs:
        """Experiments as jobs, where runs happen and below the ledger's folder."""
        here = [replace(plan, device=self.device, threads=self.threads) for plan in plans]
        return plan_jobs(here, run_dir_under(self.store.runs), self.execution, options, lenient=lenient)

    def status(self, study: Study, planned: PlannedJobs) -> StudyStatus:
        """Where the study stands; writes nothing and runs nothing."""
        code = Code.here()
        if self.reuse == "commit" and not code.at_a_commit:
            here = "no checkout" if code.commit is None else "changed"
            raise UsageError(
                f"--reuse commit needs code at a commit without changes, and here it is {here}. Commit first, or take "
                "--reuse version."
            )
        runs = self.store.status(planned.jobs, reuse=self.reuse, code=code, have=self.have)
        trials: dict[str, list[Job]] = {}
        if study.select is not None:
            chosen_among = families(planned.jobs)
            check_first_tasks(chosen_among, planned, study.select)
            trials = trials_of(chosen_among, study.select)
        scores = self.store.scores()
        wanted = {trial.key for own in trials.values() for trial in own if trial.key not in scores}
        failed = {key: said for key, said in self.store.failures().items() if key in wanted}
        return StudyStatus(study, planned, runs, trials, scores, failed)

    def run(
        self,
        jobs: Sequence[Job],
        planned: PlannedJobs,
        observers: Sequence[Observer],
        times: TimeEstimate | None = None,
        *,
        until: float | None = None,
    ) -> Summary:
        """Do jobs, each step noted in the ledger before anyone else is told."""
        code, everyone = Code.here(), [self.store, *observers]

        def check(job: Job, result: Result) -> str | None:
            return why_not_reusable(result, self.reuse, code, job.experiment.code_hashes())

        return run_jobs(jobs, planned.data, self.execution, everyone, times, until=until, check=check)


@dataclass(frozen=True)
class StudyStatus:
    """Where a study stands: its runs, the trials of a choice among several ρ with their scores."""

    study: Study
    planned: PlannedJobs
    runs: StoreStatus
    trials: Mapping[str, list[Job]]
    scores: Mapping[str, float]
    failed_trials: Mapping[str, str]

    def jobs(self, *, retry: bool) -> list[Job]:
        """What is to be done now: runs first, then trials."""
        trials = [trial for own in self.trials.values() for trial in own if trial.key not in self.scores]
        return [*self.runs.to_start(retry=retry), *(each for each in trials if retry or each.key not in self.failed)]

    @property
    def failed(self) -> dict[str, str]:
        """Everything that failed before and has not been finished since."""
        return {**self.runs.failed, **self.failed_trials}

    def done(self) -> list[tuple[Job, FinishedRun]]:
        """The finished runs with what they are the runs of."""
        found = self.runs.done
        return [(job, found[job.key]) for job in self.planned.jobs if job.key in found]

    def times(self) -> TimeEstimate:
        """What the finished runs say about time."""
        times = TimeEstimate()
        for job, run in self.done():
            times.learn(run.result.experiment, job.rows, run.seconds)
        return times

    def tidy(self) -> None:
        """Clear up after a process that was killed between writing a result and removing its checkpoints."""
        for run in self.runs.done.values():
            remove_stale_workdir(run.folder)


def deadline(budget: float | None) -> float | None:
    """When a budget of seconds from now is spent, on the monotonic clock."""
    return None if budget is None else time.monotonic() + budget
