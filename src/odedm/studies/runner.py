"""A study under way: which of its runs are done, which are to do, and doing them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from odedm.core.errors import choose
from odedm.execute.backend import ExecutionConfig
from odedm.execute.durations import parse_time
from odedm.execute.job import RunOptions
from odedm.execute.planning import PlannedJobs, plan_jobs, run_dir_under
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.run_job import remove_stale_workdir
from odedm.execute.scheduler import Summary, run_jobs
from odedm.results.folder import FinishedRun
from odedm.studies.run_store import REUSE, RunStore, StoreStatus
from odedm.studies.spec import Study
from odedm.training.experiment import Experiment


@dataclass(frozen=True)
class StudyRunner:
    """Runs a study: its store, where runs happen, and which finished runs count (`reuse`).

    `have` are runs that were packed elsewhere, by content hash, which count, too. `until` is when to stop, on the
    monotonic clock; `retry` starts again what failed before.
    """

    store: RunStore
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    device: str = "auto"
    threads: int = 1
    reuse: str = "plugins"
    have: Mapping[str, FinishedRun] = field(default_factory=dict)
    until: float | None = None
    retry: bool = False

    def __post_init__(self) -> None:
        choose("policy of --reuse", self.reuse, REUSE)

    def plan(self, study: Study, plans: Sequence[Experiment] | None = None, *, lenient: bool = False) -> PlannedJobs:
        """Return the study's experiments, or those given, as jobs: where runs happen and in the store's folder."""
        options = RunOptions(observation=study.observation, chosen=study.chosen)
        plans = [
            replace(plan, device=self.device, threads=self.threads)
            for plan in (study.experiments() if plans is None else plans)
        ]
        return plan_jobs(plans, run_dir_under(self.store.runs), self.execution, options, lenient=lenient)

    def status(self, planned: PlannedJobs) -> StoreStatus:
        """Return what of the jobs is done; reads every result of the store, writes nothing and runs nothing."""
        return self.store.status(planned.jobs, reuse=self.reuse, have=self.have)

    def run(
        self, status: StoreStatus, planned: PlannedJobs, callbacks: Sequence[RunCallback] = ()
    ) -> tuple[StoreStatus, Summary]:
        """Do what is to be done, each step noted in the store before anyone else is told; return where it then stands.

        What a process left that was killed between writing a result and removing its checkpoints is cleared up first.
        """
        for run in status.done.values():
            remove_stale_workdir(run.folder)

        jobs = status.to_start(retry=self.retry)
        seconds = [run.seconds for run in status.done.values()]
        summary = run_jobs(jobs, planned.data, self.execution, [self.store, *callbacks], seconds, until=self.until)
        return status.after(summary.results, summary.failed), summary


def deadline(budget: str | None) -> float | None:
    """Return when a budget such as "30m" is spent that begins now, on the monotonic clock."""
    return None if budget is None else time.monotonic() + parse_time(budget)
