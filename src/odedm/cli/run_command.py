"""`odedm run`, `odedm resume` and `odedm demo`: from words to experiments, and from a folder back to them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from odedm.checkpoint.checkpoint import working_folder
from odedm.checkpoint.lock import check_not_held
from odedm.checkpoint.schedule import Schedule
from odedm.cli.console import SOME_FAILED, echo, echo_json, log, out
from odedm.cli.data_command import import_if_path
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import (
    AsJson,
    Checkpoints,
    Log,
    experiment_from,
    opt,
    with_paper_memory,
    with_settings,
)
from odedm.cli.progress_display import log_idle_odedm, shown
from odedm.core.configuration import default_of, settings_of
from odedm.core.errors import UsageError
from odedm.core.files import no_empty_folders, writable_folder
from odedm.core.options import with_keyword
from odedm.core.registry import MEMORIES
from odedm.data.opening import load_dataset
from odedm.execute.backend import ExecutionConfig
from odedm.execute.finished import finished
from odedm.execute.job import Job, RunOptions
from odedm.execute.planning import (
    PlannedJobs,
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
from odedm.training.experiment import MOST_SEEDS, Experiment
from odedm.training.observation import Observation


@with_settings(Experiment, *KINDS.values(), Observation, ExecutionConfig)
def run(
    given: Given,
    again: Annotated[
        Path | None, opt("Run a result again, but for options given.", "What", "--from", metavar="RESULT")
    ] = None,
    recipe: Annotated[str | None, opt("What we recommend for data and capacity: best.", "What", metavar="NAME")] = None,
    memory: Annotated[str | None, opt(f"{' | '.join(MEMORIES)}.", "Memory", default="odedm", metavar="NAME")] = None,
    paper: Annotated[bool, opt("ODEDM as in the paper, but for what is given.", "Memory", "--paper")] = False,
    lr: Annotated[float | None, opt("Learning rate.", "Method", default="the method's", metavar="X")] = None,
    weights: Annotated[
        str | None,
        opt("Of the net: a safetensors file, or pretrained: its library's own.", "Method", metavar="FILE"),
    ] = None,
    freeze: Annotated[
        str | None,
        opt("Of the net: all but the head, or up to a layer by its name.", "Method", metavar="all|LAYER"),
    ] = None,
    seeds: Annotated[int, opt("How many seeds.", "Run", min=1, max=MOST_SEEDS, metavar="N")] = 1,
    out_folder: Annotated[Path, opt("Folder for results.", "Run", "--out", metavar="FOLDER")] = Path("runs"),
    overwrite: Annotated[bool, opt("Train finished runs again, replace them.", "Run", "--overwrite")] = False,
    checkpoint: Checkpoints = "auto",
    restart: Annotated[bool, opt("Start unfinished runs anew.", "Run", "--restart")] = False,
    as_json: AsJson = False,
    logs: Log = None,
) -> None:
    """Train a method with a memory on a stream, for one seed or many; given again, it goes on where it stopped."""
    stored = None if again is None else Result.load(find_run(again) / FILE)
    before = None if stored is None else stored.experiment
    if lr is not None:
        given["options"] = with_keyword("--set", given.get("options", {}), "lr", lr)
    for name, value in {"weights": weights, "freeze": freeze}.items():
        if value is not None:
            given["net_options"] = with_keyword("--set", given.get("net_options", {}), name, value)
    if memory is not None:
        given["memory"] = memory
    if paper:
        given = with_paper_memory(given)
    if "data" in given or before is None:
        given["data"] = import_if_path(given.get("data", Experiment().data))
    if recipe is not None:
        if before is not None:
            raise UsageError("--recipe and --from both say what to run; give one of them.")
        before = _recommended(recipe, given)
    try:
        plan = experiment_from(given, before)
    except UsageError as error:
        if stored is None or not stored.not_importable():
            raise
        what = ", ".join(stored.not_importable().values())
        raise UsageError(
            f"{error} The run was made with {what}, of a script or an object: no file can name it."
        ) from error
    options = RunOptions(Schedule.parse(checkpoint), restart, overwrite, Observation(**_of(given, Observation)))
    plans = [plan.with_seed(plan.seed + offset) for offset in range(seeds)]
    execution = ExecutionConfig(**_of(given, ExecutionConfig))
    planned = plan_jobs(plans, run_dir_under(out_folder), execution, options)
    check_not_held(working_folder(job.folder) for job in planned.jobs)
    launch(planned, execution, logs or [], quiet=as_json, writable=out_folder)
    _show(planned.jobs, as_json=as_json)


def _recommended(name: str, given: Given) -> dict[str, Any]:
    """Return a recipe for the data and the rows of memory that were given, as a described experiment."""
    from odedm.recipes.recommendations import recipe

    size = given.get("capacity", default_of(ODEDM, "capacity"))
    capacity = settings_of(ODEDM)["capacity"].validator.validate("--capacity", size)
    plan = recipe(name, capacity=capacity, data=load_dataset(given["data"]))
    changed = sorted(
        set(given) - {"data", "capacity"} - set(settings_of(ExecutionConfig)) - set(settings_of(Observation))
    )
    but = f", but for what was given ({', '.join(changed)})" if changed else ""
    log(f"Recipe '{name}': {plan.method} with the memory '{plan.memory.name}' of {capacity} rows{but}.")
    return plan.describe()


def _of(given: Given, kind: type) -> Given:
    return {name: given[name] for name in settings_of(kind) if name in given}


@with_settings(ExecutionConfig)
def resume(
    given: Given,
    paths: Annotated[list[Path], typer.Argument(help="Folders of unfinished runs, or folders that hold some.")],
    checkpoint: Checkpoints = "auto",
    as_json: AsJson = False,
    logs: Log = None,
) -> None:
    """Go on with runs that were stopped or killed, from their last checkpoints."""
    execution, options = ExecutionConfig(**given), RunOptions(Schedule.parse(checkpoint), resumed=True)
    runs = unfinished_runs(paths)
    planned, faults = plan_resumed(runs, execution, options)
    if not planned.jobs:
        more = f" ({len(runs) - 1} others cannot go on either.)" if len(runs) > 1 else ""
        raise UsageError(f"{faults[runs[0]]}{more}")
    for folder, fault in faults.items():
        log(f"'{folder}' cannot go on: {fault}")
    launch(planned, execution, logs or [], quiet=as_json)
    _show(planned.jobs, as_json=as_json)
    if faults:
        log(f"{len(faults)} of {len(runs)} runs could not go on; the lines above say why.")
        raise typer.Exit(SOME_FAILED)


@with_settings((ExecutionConfig, ("workers",)), dotted=False)
def demo(
    given: Given,
    seeds: Annotated[int, opt("How many seeds.", min=1, max=MOST_SEEDS, metavar="N")] = 6,
    out_folder: Annotated[Path, opt("Folder for results.", None, "--out", metavar="FOLDER")] = Path("runs/demo"),
    restart: Annotated[bool, opt("Train again what is finished, from the start.", None, "--restart")] = False,
) -> None:
    """Compare DER and DER++ with and without ODEDM and a recipe on embedded images: table and report in a minute."""
    from odedm.cli.report_command import log_missing_figures, show_report
    from odedm.recipes.demo import demo as recipe
    from odedm.report.load import gather
    from odedm.report.page import check_page

    writable_folder(out_folder)
    check_page(out_folder / "report.html")
    log_missing_figures()
    planned = plan_jobs(
        recipe(seeds), run_dir_under(out_folder), options=RunOptions(overwrite=restart, restart=restart)
    )
    rows = planned.jobs[0].experiment.memory.capacity
    log(f"{len(planned.jobs)} runs on 'fashion-mini' (10 classes in 5 tasks) with {rows} rows of memory.")
    check_not_held(working_folder(job.folder) for job in planned.jobs)
    launch(planned, ExecutionConfig(**given))
    show_report(gather([job.folder for job in planned.jobs]), out_folder / "report.html")


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
    log_idle_odedm(planned.jobs)
    done = _finished(planned)
    todo = [job for job in planned.jobs if job.key not in done]
    for job in todo:
        check_free(job.folder, overwrite=job.options.overwrite)
    if done:
        first, total = next(iter(done.values()))[0].folder, len(planned.jobs)
        what = f"'{first}' is" if total == 1 else f"{len(done)} of {total} runs are"
        log(f"{what} finished already, and not trained again; --overwrite would.")
        _log_unobserved(list(done.values()))
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
    return f"{len(folders)} of {len(jobs)} runs failed: {names}. The first said: {first}"


def _finished(planned: PlannedJobs) -> dict[str, tuple[Job, Result]]:
    """Return results that are there already, by the key of their job; what their processes left is cleared up."""
    by_key = {}
    for job in planned.jobs:
        result = None if job.options.overwrite else finished(job)
        if result is not None:
            by_key[job.key] = (job, result)
            remove_stale_workdir(job.folder)
    return by_key


def _log_unobserved(done: Sequence[tuple[Job, Result]]) -> None:
    """Say how many finished runs lack what is asked for: it cannot be had without training them again."""
    has: dict[str, Callable[[Job, Result], object]] = {
        "evidence": lambda job, _: (job.folder / EVIDENCE_FILE).is_file(),
        "anytime": lambda _, result: result.anytime,
        "keep_model": lambda job, _: (job.folder / MODEL_FILE).is_file(),
    }
    for name, is_there in has.items():
        wanted = [(job, result) for job, result in done if getattr(job.options.observation, name, False)]
        lacking = [job.folder for job, result in wanted if not is_there(job, result)]
        if lacking:
            which = f"'{lacking[0]}' was" if len(lacking) == 1 else f"{len(lacking)} of them were"
            log(f"{which} finished without {name}. --overwrite would train again, and make it.")


def _show(jobs: Sequence[Job], *, as_json: bool) -> None:
    from odedm.report.load import load
    from odedm.report.summary import summarise
    from odedm.report.terminal import print_table

    if as_json:
        echo_json([{"folder": str(job.folder), **Result.load(job.folder / FILE).to_dict()} for job in jobs])
        return
    print_table(summarise(load([job.folder for job in jobs])), out)
    for folder in dict.fromkeys(job.folder.parent for job in jobs):
        echo(f"Results: {folder}")
        kept = [job.folder for job in jobs if job.folder.parent == folder and (job.folder / MODEL_FILE).is_file()]
        if kept:
            more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
            echo(f"Model:   {kept[0] / MODEL_FILE}{more}, for odedm.load")
        echo(f"Report:  odedm report {shlex.quote(str(folder))}")
