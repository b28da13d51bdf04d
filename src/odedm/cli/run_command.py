"""`odedm run`, `odedm resume` and `odedm demo`: from words to experiments, and from a folder back to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from odedm.checkpoint.checkpoint import working_folder
from odedm.checkpoint.lock import check_not_held
from odedm.checkpoint.schedule import Schedule
from odedm.cli import console
from odedm.cli.console import SOME_FAILED, out, say, tell, tell_json
from odedm.cli.data_command import import_if_path
from odedm.cli.dotted_settings import Given, group_of
from odedm.cli.generated_options import Checkpoints, Log, experiment_from, opt, with_settings
from odedm.cli.progress_display import say_if_pointless, shown
from odedm.core.configuration import default_of, settings_of
from odedm.core.errors import UsageError
from odedm.core.files import no_empty_folders, writable_folder
from odedm.core.option_names import option_text
from odedm.core.options import with_keyword
from odedm.core.registry import MEMORIES
from odedm.data.opening import load_dataset
from odedm.execute.backend import ExecutionConfig, get_ready
from odedm.execute.job import Job, RunOptions
from odedm.execute.planning import (
    PlannedJobs,
    finished,
    plan_jobs,
    plan_resumed,
    run_dir_under,
    unfinished_runs,
)
from odedm.execute.run_job import remove_stale_workdir
from odedm.execute.scheduler import Summary, run_jobs
from odedm.memory.settings import KINDS, ODEDM
from odedm.results.folder import EVIDENCE_FILE, FILE, MODEL_FILE, check_free, find_run
from odedm.results.result import Result
from odedm.training.average_length import few_digits, left_after_a_batch
from odedm.training.experiment import MOST_SEEDS, Experiment
from odedm.training.observation import Observation

guarded = console.guarded("Finished runs are kept; the same command goes on where the others stopped.")


@guarded
@with_settings(Experiment, *KINDS.values(), Observation, ExecutionConfig)
def run(
    given: Given,
    again: Annotated[
        Path | None, opt("Run a result again, but for options given.", "What", "--from", metavar="RESULT")
    ] = None,
    recipe: Annotated[str | None, opt("What we recommend for data and capacity: best.", "What", metavar="NAME")] = None,
    size: Annotated[int | None, opt("Make pictures of a folder N×N.", "Stream", min=1, metavar="N")] = None,
    memory: Annotated[str | None, opt(f"{' | '.join(MEMORIES)}.", "Memory", default="odedm", metavar="NAME")] = None,
    lr: Annotated[float | None, opt("Learning rate.", "Method", default="the method's", metavar="X")] = None,
    seeds: Annotated[int, opt("How many seeds.", "Run", min=1, max=MOST_SEEDS, metavar="N")] = 1,
    out_folder: Annotated[Path, opt("Folder for results.", "Run", "--out", metavar="FOLDER")] = Path("runs"),
    overwrite: Annotated[bool, opt("Train finished runs again, replace them.", "Run", "--overwrite")] = False,
    checkpoint: Checkpoints = "auto",
    restart: Annotated[bool, opt("Start unfinished runs anew.", "Run", "--restart")] = False,
    as_json: Annotated[bool, opt("Print JSON, and nothing else, on stdout.", "Run", "--json")] = False,
    log: Log = None,
) -> None:
    """Train a method with a memory on a stream, for one seed or many; again, it goes on where it stopped."""
    stored = None if again is None else Result.load(find_run(again) / FILE)
    before = None if stored is None else stored.experiment
    if lr is not None:
        given["options"] = with_keyword("--set", given.get("options", {}), "lr", lr)
    if memory is not None:
        given["memory"] = memory
    if "data" in given or size is not None or before is None:
        given["data"] = import_if_path(given.get("data", Experiment().data), size)
    if recipe is not None:
        if before is not None:
            raise UsageError("--recipe and --from both say what to run; give one of them.")
        before = _recommended(recipe, given)
    try:
        plan = experiment_from(given, before)
    except UsageError as error:
        if stored is None or not stored.not_importable():
            raise
        what = ", ".join(stored.not_importable())
        raise UsageError(
            f"{error} The run was made with {what}, of a script or an object: no file can name it."
        ) from error
    options = RunOptions(Schedule.parse(checkpoint), restart, overwrite, Observation(**_of(given, Observation)))
    plans = [plan.with_seed(plan.seed + each) for each in range(seeds)]
    execution = ExecutionConfig(**_of(given, ExecutionConfig))
    get_ready(seeds, execution)
    with _naming(recipe, before):
        planned = plan_jobs(plans, run_dir_under(out_folder), execution, options)
    _say_shorter_average(plan, planned)
    check_not_held(working_folder(job.folder) for job in planned.jobs)
    launch(planned, execution, log or [], quiet=as_json, writable=out_folder)
    _show(planned.jobs, as_json=as_json)


def _say_shorter_average(plan: Experiment, planned: PlannedJobs) -> None:
    """Tell whoever asked for an average of the weights that tasks are too short for one, or for one so long."""
    asked, left = plan.weight_average, planned.jobs[0].experiment.weight_average
    if asked and left == 0:
        say("The weights are not averaged: half a task is no longer than a batch. The last weights predict.")
        return
    if isinstance(asked, float) and isinstance(left, float) and left < few_digits(left_after_a_batch(asked)):
        say(f"The average of the weights goes over {1 / (1 - left):.3g} batches, half a task, in place of {asked:g}.")


def _recommended(name: str, given: Given) -> dict[str, Any]:
    """A recipe for the data and the rows of memory that were given, as a described experiment."""
    from odedm.recipes.recommendations import recipe

    capacity = given.get("capacity", default_of(ODEDM, "capacity"))
    plan = recipe(name, capacity=capacity, data=load_dataset(given["data"]))
    changed = sorted(
        set(given) - {"data", "capacity"} - set(settings_of(ExecutionConfig)) - set(settings_of(Observation))
    )
    but = f", but for what was given ({', '.join(changed)})" if changed else ""
    say(f"Recipe '{name}': {plan.method} with the memory '{plan.memory.name}' of {capacity} rows{but}.")
    return plan.describe()


@contextmanager
def _naming(recipe: str | None, brought: Mapping[str, Any] | None) -> Iterator[None]:
    """A block whose errors say what a recipe brought: they speak of options that nobody gave."""
    try:
        yield
    except UsageError as error:
        if recipe is None or brought is None:
            raise
        usual = Experiment().describe()
        own = {name: brought[name] for name in usual if name not in ("memory", "data") and brought[name] != usual[name]}
        own["memory"] = brought["memory"]["name"]
        words = " ".join(option_text(group_of(name) or "", name, value) for name, value in own.items())
        raise UsageError(
            f"{error} (The recipe '{recipe}' brought {words}; what you give beside it goes first.)"
        ) from error


def _of(given: Given, kind: type) -> Given:
    return {name: given[name] for name in settings_of(kind) if name in given}


@guarded
@with_settings(ExecutionConfig)
def resume(
    given: Given,
    paths: Annotated[list[Path], typer.Argument(help="Folders of unfinished runs, or folders that hold some.")],
    checkpoint: Checkpoints = "auto",
    as_json: Annotated[bool, opt("Print JSON, and nothing else, on stdout.", "Run", "--json")] = False,
    log: Log = None,
) -> None:
    """Go on with runs that were stopped or killed, from their last checkpoints."""
    execution, options = ExecutionConfig(**given), RunOptions(Schedule.parse(checkpoint), resumed=True)
    runs = unfinished_runs(paths)
    planned, faults = plan_resumed(runs, execution, options)
    if not planned.jobs:
        more = f" ({len(runs) - 1} others cannot go on either.)" if len(runs) > 1 else ""
        raise UsageError(f"{faults[runs[0]]}{more}")
    for folder, fault in faults.items():
        say(f"'{folder}' cannot go on: {fault}")
    launch(planned, execution, log or [], quiet=as_json)
    _show(planned.jobs, as_json=as_json)
    if faults:
        say(f"{len(faults)} of {len(runs)} runs could not go on; the lines above say why.")
        raise typer.Exit(SOME_FAILED)


@guarded
@with_settings((ExecutionConfig, ("workers",)), dotted=False)
def demo(
    given: Given,
    seeds: Annotated[int, opt("How many seeds.", min=1, max=MOST_SEEDS)] = 6,
    out_folder: Annotated[Path, opt("Folder for results.", None, "--out")] = Path("runs/demo"),
    restart: Annotated[bool, opt("Train again what is finished, from the start.", None, "--restart")] = False,
) -> None:
    """DER and DER++ with and without ODEDM, and a recipe, on embedded images: a table and a report in a minute."""
    from odedm.cli.report_command import say_if_no_figures, tell_report
    from odedm.recipes.demo import demo as recipe
    from odedm.report.load import gather
    from odedm.report.page import check_page

    writable_folder(out_folder)
    check_page(out_folder / "report.html")
    say_if_no_figures()
    planned = plan_jobs(
        recipe(seeds), run_dir_under(out_folder), options=RunOptions(overwrite=restart, restart=restart)
    )
    rows = planned.jobs[0].experiment.memory.capacity
    say(f"{len(planned.jobs)} runs on 'fashion-mini' (10 classes in 5 tasks) with {rows} rows of memory.")
    check_not_held(working_folder(job.folder) for job in planned.jobs)
    launch(planned, ExecutionConfig(**given))
    tell_report(gather([job.folder for job in planned.jobs]), out_folder / "report.html")


def launch(
    planned: PlannedJobs,
    execution: ExecutionConfig,
    logs: Sequence[str] = (),
    *,
    quiet: bool = False,
    writable: Path | None = None,
) -> None:
    """Do all jobs that are not finished already, and show how it goes; an error names those that failed.

    That a folder is taken or closed is found out before the first minute is spent.
    """
    say_if_pointless(planned.jobs)
    done = _finished(planned)
    todo = [job for job in planned.jobs if job.key not in done]
    for job in todo:
        check_free(job.folder, overwrite=job.options.overwrite)
    if done:
        first, total = next(iter(done.values()))[0].folder, len(planned.jobs)
        what = f"'{first}' is" if total == 1 else f"{len(done)} of {total} runs are"
        say(f"{what} finished already, and not trained again; --overwrite would.")
        _say_unobserved(list(done.values()))
    if not todo:
        return
    made = no_empty_folders([] if writable is None else [writable])
    with made, shown(len(planned.jobs), list(done.values()), logs, quiet=quiet) as callbacks:
        if writable is not None:
            writable_folder(writable)
        seconds = [result.total_seconds for _, result in done.values()]
        summary = run_jobs(todo, planned.data, execution, callbacks, seconds)
    if summary.failed:
        raise UsageError(_failures(todo, summary))


def _failures(jobs: Sequence[Job], summary: Summary) -> str:
    first = next(iter(summary.failed.values()))
    if len(jobs) == 1:
        return first
    folders = [f"'{job.folder}'" for job in jobs if job.key in summary.failed]
    names = ", ".join(folders[:5]) + (" and others" if len(folders) > 5 else "")
    if summary.taken == set(summary.failed):
        rest = ", the others are kept" if len(folders) < len(jobs) else ""
        return f"Another process is at {len(folders)} of these {len(jobs)} runs{rest}. The first: {first}"
    if len(folders) == len(jobs):
        return f"All {len(jobs)} runs failed: {names}. The first said: {first}"
    return f"{len(folders)} of {len(jobs)} runs failed, the others are kept: {names}. The first said: {first}"


def _finished(planned: PlannedJobs) -> dict[str, tuple[Job, Result]]:
    """Results that are there already, by the key of their job; what their processes left is cleared up."""
    found = {}
    for job in planned.jobs:
        result = None if job.options.overwrite else finished(job)
        if result is not None:
            found[job.key] = (job, result)
            remove_stale_workdir(job.folder)
    return found


def _say_unobserved(done: Sequence[tuple[Job, Result]]) -> None:
    """Say which finished runs lack what is asked for: it cannot be had without training them again."""
    lacking: dict[str, list[Path]] = {}
    for job, result in done:
        asked = job.options.observation or Observation()
        if asked.evidence and not (job.folder / EVIDENCE_FILE).is_file():
            lacking.setdefault("evidence", []).append(job.folder)
        if asked.anytime and result.anytime is None:
            lacking.setdefault("any-time accuracy", []).append(job.folder)
        if asked.keep_model and not (job.folder / MODEL_FILE).is_file():
            lacking.setdefault("keeping its model", []).append(job.folder)
    for what, folders in lacking.items():
        which = f"'{folders[0]}' was" if len(folders) == 1 else f"{len(folders)} of them were"
        say(f"{which} finished without {what}. --overwrite would train again, and make it.")


def _show(jobs: Sequence[Job], *, as_json: bool) -> None:
    from odedm.report.load import load
    from odedm.report.summary import summarise
    from odedm.report.terminal import print_table

    if as_json:
        tell_json([{"folder": str(job.folder), **Result.load(job.folder / FILE).to_dict()} for job in jobs])
        return
    print_table(summarise(load([job.folder for job in jobs])), out)
    for folder in dict.fromkeys(job.folder.parent for job in jobs):
        tell(f"Results: {folder}")
        kept = [job.folder for job in jobs if job.folder.parent == folder and (job.folder / MODEL_FILE).is_file()]
        if kept:
            more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
            tell(f"Model:   {kept[0] / MODEL_FILE}{more}, for odedm.load")
        tell(f"Report:  odedm report {shlex.quote(str(folder))}")
