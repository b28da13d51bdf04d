"""A study's runs as trials over their whole streams, scored on held-out training rows: test rows are never read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from odedm.core.errors import UsageError
from odedm.execute.job import Job, RunOptions
from odedm.execute.planning import PlannedJobs
from odedm.study.trials import trial_key
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection


@dataclass(frozen=True)
class Scored:
    """A configuration and its scores by seed, in per cent; the experiment is that of the first seed."""

    experiment: Experiment
    scores: Mapping[int, float]


def held_out_trials(planned: PlannedJobs, share: float) -> list[Job]:
    """Each run as a trial: all its tasks, with a share of each class's training rows in place of test rows.

    Which rows are held out goes by the run's seed, so configurations can be compared seed by seed. Unlike those of a
    choice of ρ, seeds are the study's own: report what was chosen so with others. Runs on data that are not here are
    left out, since nobody knows how many tasks these have.
    """
    Selection(share=share)  # refuses what is no share
    found = []
    for job in planned.jobs:
        tasks = tasks_of(job, planned)
        if tasks is not None:
            select = Selection(tasks, share, (job.experiment.seed,))
            found.append(replace(job, key=trial_key(job.key, select), options=RunOptions(), select=select))
    return found


def tasks_of(job: Job, planned: PlannedJobs) -> int | None:
    """How many tasks a run's stream has; None where its data are not here."""
    from odedm.stream.tasks import task_labels  # needs torch

    plan = job.experiment
    if plan.data in planned.missing:
        return None
    arrangement = {name: getattr(plan, name) for name in ("tasks", "task_classes", "recurring", "domain")}
    return len(task_labels(planned.data[plan.data], **arrangement))


def check_first_tasks(jobs: Sequence[Job], planned: PlannedJobs, select: Selection) -> None:
    """Refuse a choice on more first tasks than a stream has, before anything is tried."""
    for job in jobs:
        has = tasks_of(job, planned)
        if has is not None and select.tasks > has:
            raise UsageError(
                f"A choice on the first {select.tasks} tasks was asked for, but {job.experiment.method} on "
                f"{job.experiment.data} has {has}; give fewer (tune: --first-tasks, study: --select-on, a file: tasks "
                "of [select])."
            )


def scored(trials: Sequence[Job], scores: Mapping[str, float]) -> list[Scored]:
    """What each configuration has scored so far, in the order of the trials; those without a score are left out."""
    plans: dict[str, Experiment] = {}
    found: dict[str, dict[int, float]] = {}
    for trial in trials:
        if trial.key in scores:
            name = trial.experiment.slug()
            plans.setdefault(name, trial.experiment)
            found.setdefault(name, {})[trial.experiment.seed] = scores[trial.key]
    return [Scored(plans[name], own) for name, own in found.items()]
