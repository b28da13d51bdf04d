"""`odedm study`: many runs, each once, and a report on them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odedm.cli import console
from odedm.cli.console import SOME_FAILED, say, tell
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Log, opt, with_settings
from odedm.cli.progress_display import say_if_pointless, shown
from odedm.cli.report_command import say_if_no_figures, tell_report
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.execute.backend import ExecutionConfig, get_ready, workers_here
from odedm.execute.durations import format_duration, parse_time, seconds_left
from odedm.execute.planning import PlannedJobs
from odedm.execute.scheduler import Summary
from odedm.paper.studies import READY, ready
from odedm.results.folder import FinishedRun
from odedm.studies.merging import read_all
from odedm.studies.run_store import REUSE, RunStore, StoreStatus, check_reuse
from odedm.studies.runner import StudyRunner, deadline
from odedm.studies.spec import Study, read_to_run
from odedm.training.experiment import Experiment

PAGE = "report.html"
PLACE = ("device", "threads")
"""Settings of an experiment that say where it runs; a study has them for all of its runs."""

guarded = console.guarded("Finished runs are kept, and the same command goes on from here.")


def runner_from(given: Given, folder: Path, reuse: str = "plugins") -> StudyRunner:
    """Where a study's runs happen, as the command line says."""
    place = {name: given.pop(name) for name in PLACE if name in given}
    return StudyRunner(RunStore(folder), ExecutionConfig(**given), reuse=reuse, **place)


@guarded
@with_settings(ExecutionConfig, (Experiment, PLACE))
def study(
    given: Given,
    what: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help=f"{' | '.join(READY)}, or your own file.")],
    data: Annotated[str | None, opt("Another data set than the study's own.", "What")] = None,
    only: Annotated[list[str] | None, opt("Only these, e.g. method=er,derpp.", "What", metavar="NAME=VALUE")] = None,
    seeds: Annotated[int | None, opt("How many of its own.", "What", default="all", min=1, max=10000)] = None,
    validation: Annotated[
        float | None,
        opt("Test on this share of the training rows, held out; test rows are never read.", "What", metavar="X"),
    ] = None,
    dry_run: Annotated[bool, opt("Say what would be run, and how long it takes.", "How", "--dry-run")] = False,
    budget: Annotated[
        str | None, opt("Stop after this time, e.g. 30m, and store the state.", "How", metavar="TIME")
    ] = None,
    retry: Annotated[bool, opt("Run again what failed before.", "How", "--retry")] = False,
    reuse: Annotated[str, opt(f"Finished runs count by what made them: {' | '.join(REUSE)}.", "How")] = "plugins",
    with_results: Annotated[
        list[Path] | None, opt("Packed results of other machines, which count as done.", "How", metavar="FILE.jsonl.gz")
    ] = None,
    out_folder: Annotated[Path | None, opt("The study's folder.", "How", "--out", default="runs/NAME")] = None,
    log: Log = None,
) -> None:
    """Run many experiments, each once, and report on them. Stop it and start it again as you like."""
    whole = with_validation(chosen(what, data), validation)
    name = whole.name if data is None else f"{whole.name}-{Path(data).name}"
    runner = runner_from(given, out_folder or Path("runs") / name, reuse=check_reuse(reuse))
    runner = dataclasses.replace(runner, have=read_all(with_results or []))
    until = deadline(None if budget is None else parse_time(budget))
    carry_out(whole, narrowed(whole, seeds, only or []), runner, log or [], dry_run, until, retry=retry)


def chosen(what: str, data: str | None = None) -> Study:
    """The study by its name or file."""
    if what in READY or not (what.endswith(".toml") or Path(what).is_file()):
        return ready(what, data)
    if data is not None:
        raise UsageError("--data is for ready studies; a file names its own data.")
    return read_to_run(Path(what))


def with_validation(study: Study, share: float | None) -> Study:
    """The study with all of its runs validated, under a name of its own."""
    if share is None:
        return study
    grids = tuple(dataclasses.replace(grid, axes={**grid.axes, "validation": (share,)}) for grid in study.grids)
    return dataclasses.replace(study, name=f"{study.name}-validation", grids=grids)


def narrowed(study: Study, seeds: int | None, only: Sequence[str]) -> Study:
    """The share of a study that the command line asks for; it may have more seeds."""
    study = study if seeds is None else study.with_seeds(seeds)
    return dataclasses.replace(study, only=(*study.only, *only))


def carry_out(
    whole: Study,
    study: Study,
    runner: StudyRunner,
    logs: Sequence[str],
    dry_run: bool,
    until: float | None,
    *,
    retry: bool,
) -> None:
    """Do what of a study is not done, and report on it; or say what would be done."""
    from odedm.report.page import check_page

    store = runner.store
    if not dry_run:
        get_ready(len(study.experiments()), runner.execution)
    planned = runner.plan(study, lenient=dry_run)
    if dry_run:
        _say_plan(study, runner.status(planned), planned, runner)
        return
    say_if_pointless(planned.jobs)
    say_if_no_figures()
    store.check(whole)
    check_page(store.folder / PAGE)
    writable_folder(store.folder)
    with store.lock():
        store.init(whole)
        status = runner.status(planned)  # nobody else can finish a run from here on
        say(f"Study '{study.name}': {_standing(status, runner)}. Folder: {store.folder}")
        status, summary = do_jobs(status, planned, runner, logs, until, retry=retry)
        report_study(list(status.done.values()), store.folder)
    conclude(status, summary, retry=retry)


def do_jobs(
    status: StoreStatus,
    planned: PlannedJobs,
    runner: StudyRunner,
    logs: Sequence[str] = (),
    until: float | None = None,
    *,
    retry: bool,
    quiet: bool = False,
) -> tuple[StoreStatus, Summary]:
    """Do what is not done, as far as the time allows, and show how it goes; where it then stands."""
    done = [(job, status.done[job.key].result) for job in planned.jobs if job.key in status.done]
    total = len(done) + len(status.to_start(retry=retry))
    with shown(total, done, logs, quiet=quiet) as callbacks:
        try:
            return runner.run(status, planned, callbacks, retry=retry, until=until)
        except KeyboardInterrupt:
            _say_stopped(runner.status(planned), runner.store.folder)
            raise


def _standing(status: StoreStatus, runner: StudyRunner) -> str:
    old, torn = status.outdated, status.damaged
    versions = ", ".join(f"{number} by odedm {version}" for version, number in status.other_versions.items())
    return (
        f"{status.total} runs, {_done(status, runner)} done"
        + (f", {versions} (they count; --reuse version makes them again)" if versions else "")
        + (f", {len(status.failed)} failed before" if status.failed else "")
        + (f", {old} made by other code, which are done again (--reuse any counts them)" if old else "")
        + (f", {torn} damaged, which {'is' if torn == 1 else 'are'} made again" if torn else "")
    )


def _say_stopped(status: StoreStatus, folder: Path) -> None:
    """How far a study has come when it is stopped by hand, and where to look at that."""
    look = f": `odedm report {shlex.quote(str(folder))}` shows them" if status.done else ""
    say(f"{len(status.done)} of {status.total} runs are done{look}.")


def _say_plan(study: Study, status: StoreStatus, planned: PlannedJobs, runner: StudyRunner) -> None:
    about = f": {study.about}" if study.about else ""
    tell(f"Study '{study.name}' in '{runner.store.folder}'{about}")
    tell(f"Runs:          {status.total}")
    tell(f"Done:          {_done(status, runner)}")
    tell(f"To do:         {len(status.todo)}")
    for version, number in status.other_versions.items():
        tell(f"By odedm {version}: {number} (of those done; --reuse version makes them again)")
    if status.outdated:
        tell(f"Made by other code: {status.outdated} (of those to do; --reuse any counts them as done)")
    if status.damaged:
        tell(f"Damaged:       {status.damaged} (of those to do; made again)")
    if status.failed:
        tell(f"Failed before: {len(status.failed)} (of those to do; run again with --retry)")
    for name, reason in planned.missing.items():
        tell(f"Data:          '{name}' is not here, so what is done cannot be known. {reason}")
    place = runner.execution
    side = place.workers or (1 if place.is_remote or planned.missing else workers_here(status.todo, place))
    left = seconds_left([run.seconds for run in status.done.values()], [], len(status.todo), side)
    if not status.todo:
        tell("Time:          nothing to do")
    elif left is None:
        tell("Time:          unknown until the first run is finished")
    else:
        tell(f"Time:          about {format_duration(left)}, {side} side by side, if each takes as long as those done")


def _done(status: StoreStatus, runner: StudyRunner) -> str:
    """How many runs are done, and how many of these are not here but packed."""
    packed = sum(runner.have.get(key) is run for key, run in status.done.items())
    return f"{len(status.done)}" + (f" ({packed} of them packed)" if packed else "")


def report_study(done: Sequence[FinishedRun], folder: Path) -> None:
    """The table here, and the page and the tables in the study's folder."""
    from odedm.report.summary import summarise
    from odedm.report.tables import to_csv, to_latex, to_markdown

    if not done:
        return
    table = summarise(done)
    for name, form in {"md": to_markdown, "csv": to_csv, "tex": to_latex}.items():
        write_text(folder / f"table.{name}", form(table))
    tell_report(table, folder / PAGE)


def conclude(status: StoreStatus, summary: Summary, *, retry: bool) -> None:
    """Say what is missing, and end with an exit code that says so."""
    if summary.left:
        say(f"The budget is spent: {len(summary.left)} left, e.g. {summary.left[0].title}. The same command goes on.")
    if status.failed:
        first = next(iter(status.failed.values()))
        hint = "" if retry else " Run them again with --retry."
        say(f"{len(status.failed)} of {status.total} runs failed; failures.jsonl says which.{hint} The first: {first}")
        raise typer.Exit(SOME_FAILED)
