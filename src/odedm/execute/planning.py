"""Turns experiments into jobs: data opened, defaults filled in, the impossible refused before the first minute."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.checkpoint.checkpoint import latest_look, working_folder
from odedm.core.errors import UsageError
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import Job, RunOptions
from odedm.results.folder import FILE
from odedm.training.experiment import Experiment, content_key

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset
    from odedm.training.preparation import Prepared

WORK = re.compile(r"\.(.+)\.work")


@dataclass(frozen=True)
class PlannedJobs:
    """Jobs, the data sets they are for by name, and for each data set that is not here why."""

    jobs: list[Job]
    data: dict[str, Dataset] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def run_dir_under(folder: Path) -> Callable[[Experiment], Path]:
    """Return where each run goes below one folder for all: one experiment has one folder, however it was spelled."""

    def place(plan: Experiment) -> Path:
        parent = folder / plan.slug()
        if parent.is_symlink():
            raise UsageError(
                f"'{parent}' is a link; runs are written into real folders. Remove it, or give another --out."
            )
        return parent / f"seed-{plan.seed}"

    return place


def plan_jobs(
    plans: Sequence[Experiment],
    place: Callable[[Experiment], Path],
    execution: ExecutionConfig | None = None,
    options: RunOptions | None = None,
    *,
    lenient: bool = False,
    opened: Mapping[str, Dataset] | None = None,
) -> PlannedJobs:
    """Resolve experiments, and give each its content hash and its folder; those that turn out to be the same once.

    With `lenient` a data set that is not here is noted, and its experiments stay as they are; a name that is none is
    refused all the same. `opened` are data sets that are open already, by name.
    """
    from odedm.data.cache import can_be_had
    from odedm.data.opening import load_dataset

    execution, options = execution or ExecutionConfig(), options or RunOptions()
    jobs: dict[str, Job] = {}
    data: dict[str, Dataset] = dict(opened or {})
    missing: dict[str, str] = {}
    for name in dict.fromkeys(plan.data for plan in plans if plan.data not in data):
        try:
            data[name] = load_dataset(name)
        except UsageError as error:
            if not lenient or not can_be_had(name):
                raise
            missing[name] = str(error)
    for plan in (replace(plan, device=execution.device(plan.device)) for plan in plans):
        if plan.data in data:
            run = _prepared(plan, data[plan.data], several=len(plans) > 1, remote=execution.is_remote)
            job = job_of(run, place(run.experiment), options)
        else:
            job = Job(content_key(plan.describe()), plan, place(plan), options)
        jobs.setdefault(job.key, _as_begun(job))
    if execution.gpu_share < 100 and jobs and all(job.experiment.device == "cpu" for job in jobs.values()):
        raise UsageError(
            f"--set execution.gpu_share is for GPUs, and all of this runs on the CPU; {execution.gpu_share} was given. "
            "Leave it out, or take --device cuda."
        )
    return PlannedJobs(list(jobs.values()), data, missing)


def job_of(run: Prepared, folder: Path, options: RunOptions | None = None) -> Job:
    """Return the job of a prepared run whose result goes to a folder."""
    plan, checksum = run.experiment, run.data.checksum
    key = content_key(plan.describe(), checksum, plan.code_hashes())
    return Job(key, plan, folder, options or RunOptions(), checksum)


def _as_begun(job: Job) -> Job:
    """Return the job with as many threads as its unfinished run began with: others add up in another order."""
    work = working_folder(job.folder)
    if job.options.restart or not work.is_dir():
        return job
    with suppress(UsageError, KeyError):
        threads = latest_look(work)[1].configuration["threads"]
        return replace(job, experiment=replace(job.experiment, threads=threads))
    return job


def _prepared(plan: Experiment, data: Dataset, *, several: bool, remote: bool) -> Prepared:
    from odedm.training.preparation import prepare

    try:
        return prepare(plan, data, remote=remote)
    except UsageError as error:
        if not several:
            raise
        rho = getattr(plan.memory, "rho", None)
        share = "" if rho is None else f", ρ={rho:g}"
        what = f"{plan.method} with {plan.memory.name} (λ={plan.memory.capacity}{share}) on '{plan.data}'"
        raise UsageError(f"{what} cannot be run: {error}") from None


def unfinished_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the runs at or below `paths` that have working folders and no result."""
    runs: dict[Path, None] = {}
    for path in paths:
        inside = WORK.fullmatch(path.name)
        run = path.with_name(inside[1]) if inside else path
        if (run / FILE).is_file():
            raise UsageError(
                f"'{run}' is finished. Look at it with `odedm runs show`; to train it again, or to go on with that, "
                "repeat its command with --overwrite."
            )
        if inside or (path.name and working_folder(path).is_dir()):
            runs[run] = None
        elif path.is_dir():
            runs |= dict.fromkeys(_unfinished_below(path))
        else:
            raise UsageError(f"There is no '{path}'. Give the folder of an unfinished run, or one that holds some.")
    if not runs:
        places = ", ".join(f"'{path}'" for path in paths)
        raise UsageError(f"Nothing is unfinished at or below {places}. Start a run with `odedm run`.")
    return list(runs)


def plan_resumed(
    runs: Sequence[Path], execution: ExecutionConfig, options: RunOptions
) -> tuple[PlannedJobs, dict[Path, str]]:
    """Return the jobs that go on with unfinished runs, and by folder why others cannot: no checkpoint, no data."""
    planned, faults = PlannedJobs([]), dict[Path, str]()
    for run in runs:
        try:
            plan = Experiment.from_dict(_described(latest_look(working_folder(run))[1].configuration))
            (job,) = (one := plan_jobs([plan], partial(_folder, run), execution, options, opened=planned.data)).jobs
        except UsageError as error:
            faults[run] = str(error)
        else:
            begun_twice = job.key in {other.key for other in planned.jobs}  # in two folders: two runs
            planned.jobs.append(replace(job, key=f"{job.key} in {run}") if begun_twice else job)
            planned.data.update(one.data)
    return planned, faults


def _folder(folder: Path, _plan: Experiment) -> Path:
    return folder


def _described(configuration: dict[str, object]) -> dict[str, object]:
    """Return an experiment as a checkpoint holds it: without how it is captured, which changes no number."""
    return {**configuration, "cuda_graph": True}


def _unfinished_below(path: Path) -> Iterator[Path]:
    for folder, subfolders, _ in os.walk(path):
        matches = [match for name in sorted(subfolders) if (match := WORK.fullmatch(name))]
        yield from (run for match in matches if not ((run := Path(folder, match[1])) / FILE).is_file())
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
