"""Turns experiments into jobs: data opened, defaults filled in, the impossible refused before the first minute."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.checkpoint.checkpoint import latest_manifest, working_folder
from odedm.core.errors import UsageError
from odedm.core.plain_data import differences
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import Job, RunOptions
from odedm.results.folder import FILE
from odedm.results.result import Result
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
    """The folder of each run below one for all: one experiment has one folder, however it was spelled."""

    def place(plan: Experiment) -> Path:
        own = folder / plan.slug()
        if own.is_symlink():
            raise UsageError(
                f"'{own}' is a link; runs are written into real folders. Remove it, or give another --out."
            )
        return own / f"seed-{plan.seed}"

    return place


def plan_jobs(
    plans: Sequence[Experiment],
    place: Callable[[Experiment], Path],
    execution: ExecutionConfig | None = None,
    options: RunOptions | None = None,
    *,
    lenient: bool = False,
) -> PlannedJobs:
    """Each experiment resolved, with its content hash and its folder; those that turn out to be the same once.

    With `lenient` a data set that is not here is noted, and its experiments stay as they are; a name that is none is
    refused all the same.
    """
    from odedm.data.cache import can_be_had
    from odedm.data.opening import load_dataset

    execution, options = execution or ExecutionConfig(), options or RunOptions()
    found: dict[str, Job] = {}
    data: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(plan.data for plan in plans):
        try:
            data[name] = load_dataset(name)
        except UsageError as error:
            if not lenient or not can_be_had(name):
                raise
            missing[name] = str(error)
    for plan in plans:
        own = replace(plan, device=execution.device(plan.device))
        if plan.data in data:
            run = _prepared(own, data[plan.data], several=len(plans) > 1, elsewhere=execution.is_remote)
            job = job_of(run, place(run.experiment), options)
        else:
            job = Job(content_key(own.describe()), own, place(own), options)
        found.setdefault(job.key, _as_begun(job))
    if execution.gpu_share < 100 and found and all(job.experiment.device == "cpu" for job in found.values()):
        raise UsageError(
            f"--set execution.gpu_share is for GPUs, and all of this runs on the CPU; {execution.gpu_share} was given. "
            "Leave it out, or take --device cuda."
        )
    return PlannedJobs(list(found.values()), data, missing)


def job_of(run: Prepared, folder: Path, options: RunOptions | None = None) -> Job:
    """The job of a prepared run whose result goes to a folder."""
    from odedm.stream.scenarios import first_rows  # needs torch

    plan, checksum = run.experiment, run.data.checksum
    key = content_key(plan.describe(), checksum, plan.code_hashes())
    rows = len(first_rows(run.data.label, plan.limit))
    return Job(key, plan, folder, options or RunOptions(), checksum=checksum, rows=plan.epochs * rows)


def _as_begun(job: Job) -> Job:
    """The job with as many threads as its unfinished run began with: others would add up in another order."""
    work = working_folder(job.folder)
    if job.options.restart or not work.is_dir():
        return job
    with suppress(UsageError):
        threads = latest_manifest(work)["configuration"].get("threads")
        return replace(job, experiment=replace(job.experiment, threads=threads))
    return job


def _prepared(plan: Experiment, data: Dataset, *, several: bool, elsewhere: bool) -> Prepared:
    from odedm.training.preparation import prepare

    try:
        return prepare(plan, data, remote=elsewhere)
    except UsageError as error:
        if not several:
            raise
        rho = getattr(plan.memory, "rho", None)
        share = "" if rho is None else f", ρ={rho:g}"
        what = f"{plan.method} with {plan.memory.name} (λ={plan.memory.capacity}{share}) on '{plan.data}'"
        raise UsageError(f"{what} cannot be run: {error}") from None


def finished(job: Job) -> Result | None:
    """The result in a job's folder if it is that of this job on its data; None where there is none.

    Another experiment's result, or one that cannot be read, is an error that says so: it is in the way.
    """
    if job.folder.is_symlink() or not (job.folder / FILE).is_file():
        return None
    advice = "Give another --out, or --overwrite to replace it."
    try:
        result = Result.load(job.folder / FILE)
        plans = job.experiment, Experiment.from_dict(result.experiment)  # which fills in settings that are new
    except UsageError as error:
        raise UsageError(f"{error} {advice}") from error
    now, then = (
        replace(plan, cuda_graph=True, threads=1).describe() for plan in plans
    )  # they are no part of a run's identity
    other, made_on = differences(now, then), result.provenance.get("data_checksum")
    if made_on != job.checksum:
        other.append((f"data of the checksum {str(made_on)[:64]}", str(job.checksum)))
    made_by, marks = result.code_hashes(), job.experiment.code_hashes()
    for setting, (name, entry) in job.experiment.plugins().items():
        if setting in made_by and made_by[setting] != marks.get(setting):
            raise UsageError(
                f"'{job.folder}' was made by another version of the {setting.removeprefix('memory.')} '{name}': "
                f"{(entry.target or entry.plugin or name).partition(':')[0]} has changed since. --overwrite trains it "
                "again with the code as it is now; another --out keeps both."
            )
    if other:
        named = "; ".join(f"{there} there, {here} here" for there, here in other[:5])
        raise UsageError(f"'{job.folder}' holds a run already, another one: {named}. {advice}")
    return result


def unfinished_runs(paths: Sequence[Path]) -> dict[Path, Experiment]:
    """The runs at or below `paths` that have checkpoints, each as its own checkpoint describes it."""
    found: dict[Path, None] = {}
    for path in paths:
        own = WORK.fullmatch(path.name)
        run = path.with_name(own[1]) if own else path
        if (run / FILE).is_file():
            raise UsageError(
                f"'{run}' is finished. Look at it with `odedm runs show`; to train it again, or to go on with that, "
                "repeat its command with --overwrite."
            )
        if own or (path.name and working_folder(path).is_dir()):
            found[run] = None
        elif path.is_dir():
            found |= dict.fromkeys(_unfinished_below(path))
        else:
            raise UsageError(f"There is no '{path}'. Give the folder of an unfinished run, or one that holds some.")
    if not found:
        places = ", ".join(f"'{path}'" for path in paths)
        raise UsageError(f"Nothing is unfinished at or below {places}. Start a run with `odedm run`.")
    return {
        run: Experiment.from_dict(_described(latest_manifest(working_folder(run))["configuration"])) for run in found
    }


def _described(configuration: dict[str, object]) -> dict[str, object]:
    """An experiment as a checkpoint holds it: without how it is captured, which changes no number."""
    return {**configuration, "cuda_graph": True}


def _unfinished_below(path: Path) -> Iterator[Path]:
    for folder, subfolders, _ in os.walk(path):
        runs = [Path(folder, own[1]) for each in sorted(subfolders) if (own := WORK.fullmatch(each))]
        yield from (run for run in runs if not (run / FILE).is_file())
        subfolders[:] = [each for each in subfolders if not each.startswith(".")]
