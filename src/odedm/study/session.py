"""A study from its plan to finished runs: what is done already, what is to do, on which engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.execute.attempt import Job, discard_leftover
from odedm.execute.eta import Pace
from odedm.execute.job import Work
from odedm.execute.lanes import choose_lanes
from odedm.execute.scheduler import Driver, Outcome, Watcher
from odedm.execute.workers import Engine, Processes, Threads
from odedm.study.dac_timing_plan import Cell, Measured
from odedm.study.dac_timing_plan import load as load_timings
from odedm.study.identity import fault, made_by
from odedm.study.ledger import Finished, Ledger, Status
from odedm.study.prepare import Prepared, prepare
from odedm.study.study import Study
from odedm.study.trials import families, trials_of

ENGINES = {"lanes": "Processes of this machine, or threads on its GPU.", "ray": "Ray: tasks on one machine or many."}


@dataclass(frozen=True)
class Where:
    """Where runs happen; what is None is chosen."""

    engine: str = "lanes"
    lanes: int | None = None
    device: str = "auto"
    threads: int = 1
    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.engine != "ray" and (self.address is not None or self.gpus):
            raise UsageError("--address and --gpus are for --engine ray; leave them out, or add it.")
        if self.cpus < 0 or self.gpus < 0 or (self.engine == "ray" and not self.cpus and not self.gpus):
            raise UsageError("--cpus and --gpus are what one run takes, numbers of 0 or more and not both 0.")

    @property
    def planned_device(self) -> str:
        """What to plan for: on Ray a run has a GPU exactly where it is given a part of one."""
        if self.engine != "ray":
            return self.device
        if self.device == "cuda" and not self.gpus:
            raise UsageError("--device cuda with --engine ray needs --gpus, the part of a GPU that one run takes.")
        return "cuda" if self.gpus and self.device != "cpu" else "cpu"


@dataclass(frozen=True)
class Stand:
    """Where a study stands: its runs, the trials of a choice among several ρ with their scores, what it has timed."""

    study: Study
    prepared: Prepared
    status: Status
    trials: Mapping[str, list[Work]] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    failed_trials: Mapping[str, str] = field(default_factory=dict)
    timed: Measured | None = None

    def works(self, *, retry: bool) -> list[Work]:
        """What is to be done now: runs first, then trials."""
        trials = [trial for own in self.trials.values() for trial in own if trial.key not in self.scores]
        return [*self.status.to_start(retry=retry), *(each for each in trials if retry or each.key not in self.failed)]

    @property
    def failed(self) -> dict[str, str]:
        """Everything that failed before and has not been finished since."""
        return {**self.status.failed, **self.failed_trials}

    def done(self) -> list[tuple[Work, Finished]]:
        """The finished runs with what they are the runs of."""
        found = self.status.done
        return [(work, found[work.key]) for work in self.prepared.works if work.key in found]

    def pace(self) -> Pace:
        """What the finished runs say about time."""
        pace = Pace(self.prepared.rows)
        for each in self.status.done.values():
            pace.learn(each.result.experiment, each.seconds)
        return pace


def look(study: Study, ledger: Ledger, where: Where, *, reuse: str = "version", lenient: bool = False) -> Stand:
    """Where the study stands; writes nothing and runs nothing."""
    from odedm.results.provenance import code_version, commit

    if reuse == "commit" and (commit() is None or str(commit()).endswith("+")):
        raise UsageError(
            "--reuse commit needs code at a commit without changes, and here it is "
            + ("no checkout" if commit() is None else "changed")
            + ". Commit first, or take --reuse version."
        )
    prepared = prepare(
        study.experiments(),
        ledger.runs,
        device=where.planned_device,
        threads=where.threads,
        elsewhere=where.engine == "ray",
        lenient=lenient,
        looks=study.looks,
    )
    status = ledger.status(prepared.works, reuse=reuse, version=code_version(), commit=commit())
    timed = _timed(study, ledger, reuse=reuse, version=code_version(), commit=commit())
    if study.select is None:
        return Stand(study, prepared, status, timed=timed)
    trials = trials_of(families(prepared.works), study.select)
    scores = ledger.scores()
    wanted = {trial.key for own in trials.values() for trial in own if trial.key not in scores}
    failed = {key: said for key, said in ledger.failures().items() if key in wanted}
    return Stand(study, prepared, status, trials, scores, failed, timed)


def _timed(study: Study, ledger: Ledger, *, reuse: str, version: str, commit: str | None) -> Measured | None:
    """What there is of the study's own timings; those of another plan, or of other code than asked for, do not count.

    A study narrowed to some of its runs leaves them out.
    """
    from odedm.study.dac_timing import check

    if study.runtime is None or study.only:
        return None
    check(study.runtime)
    try:
        found = load_timings(ledger.folder)
    except UsageError:  # torn, or not ours: measured again
        found = None
    same = found is not None and found.plan == study.runtime
    if found is not None and same and made_by(found.provenance, reuse, version=version, commit=commit):
        return found
    return Measured(study.runtime)


def time_choices(
    timed: Measured,
    ledger: Ledger,
    where: Where,
    *,
    budget: float | None = None,
    tell: Callable[[int, Cell], None] = lambda *_: None,
) -> Measured:
    """Measure what is missing, in this process and on this machine: call it when no run is under way."""
    from odedm.study.dac_timing import measure

    until = None if budget is None else time.monotonic() + budget
    device = "auto" if where.engine == "ray" else where.device  # that of the workers may not be here
    return measure(timed, ledger.folder, device=device, threads=where.threads, until=until, tell=tell)


def tidy(stand: Stand) -> None:
    """Clear up after a process that was killed between writing a result and removing its checkpoints."""
    for each in stand.status.done.values():
        discard_leftover(each.folder)


def go(
    works: Sequence[Work],
    ledger: Ledger,
    where: Where,
    watcher: Watcher,
    pace: Pace,
    *,
    budget: float | None = None,
    reuse: str = "version",
) -> Outcome:
    """Do the work on the engine that was asked for; `budget` is in seconds from now."""
    if not works:
        return Outcome()
    from odedm.results.provenance import code_version, commit

    until = None if budget is None else time.monotonic() + budget
    own = partial(fault, reuse=reuse, version=code_version(), commit=commit())
    engine = open_engine(works, where)
    try:
        return Driver(engine, ledger, watcher, pace, until=until, fault=own).run(works)
    finally:
        engine.close()


def open_engine(works: Sequence[Work], where: Where) -> Engine:
    """The engine, with as many lanes as pay and fit."""
    if where.engine == "ray":
        from odedm.execute.ray_engine import Cluster

        lanes = None if where.lanes is None else min(where.lanes, len(works))
        return Cluster(lanes, address=where.address, cpus=where.cpus, gpus=where.gpus)
    lanes = lanes_here(works, where)
    return Threads(lanes) if works[0].experiment.device == "cuda" else Processes(lanes)


def lanes_here(works: Sequence[Work], where: Where) -> int:
    """How many runs go side by side on this machine."""
    from odedm.execute.memory_estimate import fitting_lanes

    plans = [work.experiment for work in works]
    jobs = [Job(plan, Path()) for plan in plans]
    wished = min(where.lanes or choose_lanes(jobs, on_gpu=plans[0].device == "cuda"), len(works))
    return fitting_lanes(plans, wished, given=where.lanes is not None)
