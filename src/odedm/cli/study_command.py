"""`odedm study`: many runs, each once, and a report on them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odedm.cli.console import SOME_FAILED, echo, log
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Budget, DryRun, Log, Only, Retry, WithResults, opt, with_settings
from odedm.cli.progress_display import log_idle_odedm, shown
from odedm.cli.report_command import log_missing_figures, show_report
from odedm.core.errors import UsageError
from odedm.core.files import write_text
from odedm.execute.backend import ExecutionConfig, workers_here
from odedm.execute.durations import format_duration, seconds_left
from odedm.execute.planning import PlannedJobs
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.scheduler import Summary
from odedm.paper.studies import READY, ready
from odedm.results.folder import FinishedRun
from odedm.studies.merging import read_all
from odedm.studies.run_store import FAILURES, REUSE, RunStore, StoreStatus
from odedm.studies.runner import StudyRunner, deadline
from odedm.studies.spec import Study, read_to_run
from odedm.training.experiment import Experiment

PAGE = "report.html"
PLACE = ("device", "threads")
"""Settings of an experiment that say where it runs; a study has them for all of its runs."""


def runner_from(
    given: Given,
    folder: Path,
    budget: str | None,
    *,
    retry: bool,
    reuse: str = "plugins",
    with_results: Sequence[Path] | None = None,
) -> StudyRunner:
    """Return who runs a study, as the command line says."""
    place = {name: given.pop(name) for name in PLACE if name in given}
    packed, until = read_all(with_results or []), deadline(budget)
    return StudyRunner(
        RunStore(folder), ExecutionConfig(**given), reuse=reuse, have=packed, until=until, retry=retry, **place
    )


@with_settings(ExecutionConfig, (Experiment, PLACE))
def study(
    given: Given,
    what: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help=f"{' | '.join(READY)}, or your own file.")],
    data: Annotated[str | None, opt("Another data set than the study's own.", "What", metavar="NAME")] = None,
    only: Only = None,
    seeds: Annotated[
        int | None, opt("How many of its own.", "What", default="all", min=1, max=10000, metavar="N")
    ] = None,
    validation: Annotated[
        float | None,
        opt("Test on this share of the training rows, held out; test rows are never read.", "What", metavar="X"),
    ] = None,
    dry_run: DryRun = False,
    budget: Budget = None,
    retry: Retry = False,
    reuse: Annotated[
        str, opt(f"Finished runs count by what made them: {' | '.join(REUSE)}.", "How", metavar="NAME")
    ] = "plugins",
    with_results: WithResults = None,
    out_folder: Annotated[
        Path | None, opt("The study's folder.", "How", "--out", default="runs/NAME", metavar="FOLDER")
    ] = None,
    logs: Log = None,
) -> None:
    """Run many experiments, each once, and report on them. Stop it and start it again as you like."""
    whole = with_validation(chosen(what, data), validation)
    name = whole.name if data is None else f"{whole.name}-{Path(data).name}"
    folder = out_folder or Path("runs") / name
    runner = runner_from(given, folder, budget, retry=retry, reuse=reuse, with_results=with_results)
    share = narrowed(whole, seeds, only or [])
    planned = runner.plan(share, lenient=dry_run)
    if dry_run:
        _echo_plan(share, runner.status(planned), planned, runner)
    elif _carry_out(whole, planned, runner, logs or []):
        raise typer.Exit(SOME_FAILED)


def chosen(what: str, data: str | None = None) -> Study:
    """Return the study by its name or file."""
    if what in READY or not (what.endswith(".toml") or Path(what).is_file()):
        return ready(what, data)
    if data is not None:
        raise UsageError("--data is for ready studies; a file names its own data.")
    return read_to_run(Path(what))


def with_validation(study: Study, share: float | None) -> Study:
    """Return the study with all of its runs validated, under a name of its own."""
    if share is None:
        return study
    grids = tuple(dataclasses.replace(grid, axes={**grid.axes, "validation": (share,)}) for grid in study.grids)
    return dataclasses.replace(study, name=f"{study.name}-validation", grids=grids)


def narrowed(study: Study, seeds: int | None, only: Sequence[str]) -> Study:
    """Return the share of a study that the command line asks for; it may have more seeds."""
    study = study if seeds is None else study.with_seeds(seeds)
    return dataclasses.replace(study, only=(*study.only, *only))


def _carry_out(study: Study, planned: PlannedJobs, runner: StudyRunner, logs: Sequence[str]) -> bool:
    """Do what of a study is not done, and report on it; return whether runs failed."""
    from odedm.report.page import check_page

    store = runner.store
    log_idle_odedm(planned.jobs)
    log_missing_figures()
    check_page(store.folder / PAGE)
    with store.opened(study):
        status = runner.status(planned)  # nobody else can finish a run from here on
        log(f"Study '{study.name}': {', '.join(_standing(status, runner))}. Folder: {store.folder}")
        status, summary = do_jobs(status, planned, runner, logs)
        report_study(list(status.done.values()), store.folder)
    log_what_is_missing(status, summary, runner)
    return bool(status.failed)


def do_jobs(
    status: StoreStatus,
    planned: PlannedJobs,
    runner: StudyRunner,
    logs: Sequence[str] = (),
    callbacks: Sequence[RunCallback] = (),
    *,
    quiet: bool = False,
) -> tuple[StoreStatus, Summary]:
    """Do what is not done, as far as the time allows, and show how it goes; return where it then stands."""
    done = [(job, status.done[job.key].result) for job in planned.jobs if job.key in status.done]
    total = len(done) + len(status.to_start(retry=runner.retry))
    with shown(total, done, logs, quiet=quiet) as listeners:
        try:
            return runner.run(status, planned, [*listeners, *callbacks])
        except KeyboardInterrupt:
            _log_stopped(runner.status(planned), runner.store.folder)
            raise


def _standing(status: StoreStatus, runner: StudyRunner) -> list[str]:
    """Return how far a study has come, a fact each."""
    packed = len({id(run) for run in status.done.values()} & {id(run) for run in runner.have.values()})
    facts = [
        f"{status.total} runs",
        f"{len(status.done)} done" + (f" ({packed} of them packed)" if packed else ""),
        f"{len(status.todo)} to do",
    ]
    facts += [f"{number} made by odedm {version}, which count" for version, number in status.other_versions.items()]
    facts += [f"{status.outdated} made by other code, done again (--reuse any counts them)"] if status.outdated else []
    facts += [f"{status.damaged} damaged, done again"] if status.damaged else []
    return facts + ([f"{len(status.failed)} failed before (--retry runs them again)"] if status.failed else [])


def _log_stopped(status: StoreStatus, folder: Path) -> None:
    """Say how far a study has come when it is stopped by hand, and where to look at that."""
    look = f": `odedm report {shlex.quote(str(folder))}` shows them" if status.done else ""
    log(f"{len(status.done)} of {status.total} runs are done{look}.")


def _echo_plan(study: Study, status: StoreStatus, planned: PlannedJobs, runner: StudyRunner) -> None:
    echo(f"Study '{study.name}' in '{runner.store.folder}'{f': {study.about}' if study.about else ''}")
    for fact in _standing(status, runner):
        echo(f"  {fact}")
    for name, reason in planned.missing.items():
        echo(f"  '{name}' is not here, so what is done cannot be known. {reason}")
    place = runner.execution
    workers = place.workers or (1 if place.is_remote or planned.missing else workers_here(status.todo, place))
    left = seconds_left([run.seconds for run in status.done.values()], [], len(status.todo), workers)
    if left is not None and status.todo:
        echo(f"  about {format_duration(left)}, {workers} side by side, if each takes as long as those done")


def report_study(done: Sequence[FinishedRun], folder: Path) -> None:
    """Print the table, and write the page and the tables into the study's folder."""
    from odedm.report.summary import summarise
    from odedm.report.tables import to_csv, to_latex, to_markdown

    if not done:
        return
    table = summarise(done)
    for name, form in {"md": to_markdown, "csv": to_csv, "tex": to_latex}.items():
        write_text(folder / f"table.{name}", form(table))
    show_report(table, folder / PAGE)


def log_what_is_missing(status: StoreStatus, summary: Summary, runner: StudyRunner) -> None:
    """Say what is left for lack of time, and what failed."""
    if summary.left:
        log(f"The budget is spent: {len(summary.left)} runs left. The same command goes on.")
    if status.failed:
        first = next(iter(status.failed.values()))
        hint = "" if runner.retry else " Run them again with --retry."
        log(f"{len(status.failed)} of {status.total} runs failed; {FAILURES} says which.{hint} The first: {first}")
