"""`odedm study`: many runs, each once, and a report on them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odedm.cli import console
from odedm.cli.board import say_if_pointless, watched
from odedm.cli.console import SOME_FAILED, say, tell
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Events, Logs, opt, with_settings
from odedm.cli.report_command import say_if_no_figures, tell_report
from odedm.core.errors import UsageError, choose
from odedm.core.files import writable_folder, write_text
from odedm.execute.backend import ExecutionConfig, get_ready, workers_here
from odedm.execute.time_estimate import format_duration, parse_time
from odedm.paper.studies import READY, ready
from odedm.study.merging import read_all
from odedm.study.reuse import REUSE
from odedm.study.run_store import TRIALS, RunStore
from odedm.study.study import read_to_run
from odedm.study.study_runner import StudyRunner, deadline
from odedm.study.trials import families
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection

if TYPE_CHECKING:
    from odedm.execute.scheduler import Summary
    from odedm.study.study import Study
    from odedm.study.study_runner import StudyStatus

PAGE = "report.html"
PLACE = ("device", "threads")
"""Settings of an experiment that say where it runs; a study has them for all of its runs."""

guarded = console.guarded("Finished runs are kept, and the same command goes on from here.")


def runner_from(given: Given, folder: Path, reuse: str = "version") -> StudyRunner:
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
    select_on: Annotated[
        int | None,
        opt(
            "Choose ρ on held-out training rows of so many first tasks; 0: not at all.",
            "What",
            default="the study's",
            min=0,
            metavar="TASKS",
        ),
    ] = None,
    held_out: Annotated[
        float | None,
        opt("Only compare, on a held-out share of training rows; reads no test row.", "What", metavar="SHARE"),
    ] = None,
    dry_run: Annotated[bool, opt("Say what would be run, and how long it takes.", "How", "--dry-run")] = False,
    budget: Annotated[str | None, opt("Start nothing that ends later, e.g. 30m.", "How", metavar="TIME")] = None,
    retry: Annotated[bool, opt("Run again what failed before.", "How", "--retry")] = False,
    reuse: Annotated[str, opt(f"Finished runs count if made by: {' | '.join(REUSE)}.", "How")] = "version",
    with_results: Annotated[
        list[Path] | None, opt("Packed results of other machines, which count as done.", "How", metavar="FILE.jsonl.gz")
    ] = None,
    out_folder: Annotated[Path | None, opt("The study's folder.", "How", "--out", default="runs/NAME")] = None,
    events: Events = None,
    tensorboard: Logs = None,
) -> None:
    """Run many experiments, each once, and report on them. Stop it and start it again as you like."""
    plan = chosen(what, data, seeds, only or [], select_on)
    default = plan.name if data is None else f"{plan.name}-{Path(data).name}"
    runner = runner_from(given, out_folder or Path("runs") / default, reuse=checked_reuse(reuse))
    runner = dataclasses.replace(runner, have=read_all(with_results or []))
    seconds = None if budget is None else parse_time(budget)
    conduct = Conduct(dry_run, seconds, retry, (events, tensorboard), choose=bool(select_on))
    if held_out is not None:
        from odedm.cli.held_out_study import score_held_out

        if select_on is not None or with_results or events or tensorboard:
            raise UsageError(
                "--held-out gives scores and makes no runs: leave out --select-on, --with-results, --events, "
                "--tensorboard."
            )
        score_held_out(plan, runner, held_out, dry_run=dry_run, seconds=conduct.seconds, retry=retry)
        return
    carry_out(plan, runner, conduct, report_study)


def checked_reuse(reuse: str) -> str:
    """A policy of --reuse, or an error that lists them."""
    choose("policy of --reuse", reuse, REUSE)
    return reuse


@dataclasses.dataclass(frozen=True)
class Conduct:
    """How a study is carried out: only told of, within how many seconds, failures anew, and followed by whom.

    `choose`: a choice among several ρ was asked for, so there must be one to make.
    """

    dry_run: bool
    seconds: float | None
    retry: bool
    follow: tuple[Path | None, Path | None]
    choose: bool = False


def carry_out(plan: Study, runner: StudyRunner, conduct: Conduct, report: Callable[[StudyStatus, Path], None]) -> None:
    """Do what of a study is not done, and report on it; or say what would be done."""
    from odedm.report.page import check_page

    store = runner.store
    if not conduct.dry_run:
        get_ready(len(plan.experiments()), runner.execution)
    planned = runner.plan(plan, lenient=conduct.dry_run)
    if conduct.choose and not families(planned.jobs):
        raise UsageError(
            f"--select-on chooses among several ρ, and no runs of the study '{plan.name}' differ in ρ alone. Leave it "
            "out, or give several, e.g. rho = [0.25, 0.5]."
        )
    if conduct.dry_run:
        _say_plan(runner.status(plan, planned), runner)
        return
    say_if_pointless(planned.jobs)
    say_if_no_figures()
    store.check(plan)
    check_page(store.folder / PAGE)
    runner.status(plan, planned)  # what cannot be run is refused before anything is written
    writable_folder(store.folder)
    with store.lock():
        store.init(plan)
        status = runner.status(plan, planned)  # nobody else can finish a run from here on
        status.tidy()
        jobs = status.jobs(retry=conduct.retry)
        trials = sum(job.is_trial for job in jobs)
        old, torn = status.runs.outdated, status.runs.damaged
        say(
            f"Study '{plan.name}': {status.runs.total} runs, {_done(status, runner)} done"
            + (f", {len(status.failed)} failed before" if status.failed else "")
            + (f", {old} made by other code, which are done again (--reuse any counts them)" if old else "")
            + (f", {torn} damaged, which {'is' if torn == 1 else 'are'} made again" if torn else "")
            + (f", {trials} trials to choose ρ by" if trials else "")
            + f". Folder: {store.folder}"
        )
        until, done = deadline(conduct.seconds), status.done()
        with watched(len(done) + len(jobs), len(done), conduct.follow) as (board, observers):
            for job, run in done:
                board.best.add(job, run.result)
            try:
                summary = runner.run(jobs, planned, observers, status.times(), until=until)
            except KeyboardInterrupt:
                _say_stopped(runner.status(plan, planned), store.folder)
                raise
        status = runner.status(plan, planned)
        report(status, store.folder)
    _conclude(status, summary, retry=conduct.retry)


def _say_stopped(status: StudyStatus, folder: Path) -> None:
    """How far a study has come when it is stopped by hand, and where to look at that."""
    runs = status.runs
    look = f": `odedm report {shlex.quote(str(folder))}` shows them" if runs.done else ""
    say(f"{len(runs.done)} of {runs.total} runs are done{look}.")


def chosen(what: str, data: str | None, seeds: int | None, only: Sequence[str], select_on: int | None) -> Study:
    """The study by its name or file, with what was asked for on the command line."""
    if what not in READY and (what.endswith(".toml") or Path(what).is_file()):
        if data is not None:
            raise UsageError("--data is for ready studies; a file names its own data.")
        plan = read_to_run(Path(what))
    else:
        plan = ready(what, data)
    if seeds is not None:
        plan = plan.with_seeds(seeds)
    if only:
        plan = dataclasses.replace(plan, only=(*plan.only, *only))
    if select_on is not None:
        own = plan.select or Selection()
        plan = dataclasses.replace(plan, select=dataclasses.replace(own, tasks=select_on) if select_on else None)
    return plan


def _say_plan(status: StudyStatus, runner: StudyRunner) -> None:
    runs, jobs, times = status.runs, status.jobs(retry=True), status.times()
    about = f": {status.study.about}" if status.study.about else ""
    tell(f"Study '{status.study.name}' in '{runner.store.folder}'{about}")
    tell(f"Runs:          {runs.total}")
    tell(f"Done:          {_done(status, runner)}")
    tell(f"To do:         {len(runs.todo)}")
    if runs.outdated:
        tell(f"Made by other code: {runs.outdated} (of those to do; --reuse any counts them as done)")
    if runs.damaged:
        tell(f"Damaged:       {runs.damaged} (of those to do; made again)")
    if status.failed:
        tell(f"Failed before: {len(status.failed)} (of those to do; run again with --retry)")
    if status.trials:
        trials = sum(len(own) for own in status.trials.values())
        left = sum(job.is_trial for job in jobs)
        tell(f"Trials:        {trials} to choose ρ by, {trials - left} done")
    for name, why in status.planned.missing.items():
        tell(f"Data:          '{name}' is not here, so what is done cannot be known. {why}")
    known = [seconds for job in jobs if (seconds := times.expect(job)) is not None]
    if not jobs:
        tell("Time:          nothing to do")
    elif not known:
        tell("Time:          unknown until the first run of its kind is finished")
    else:
        place = runner.execution
        unseen = place.is_remote or status.planned.missing
        side = place.workers or (1 if unseen else workers_here(jobs, place))
        unknown = len(jobs) - len(known)
        rest = f", and {unknown} runs of a kind that was not measured yet" if unknown else ""
        tell(f"Time:          about {format_duration(sum(known) / side)}, {side} side by side{rest}")


def _done(status: StudyStatus, runner: StudyRunner) -> str:
    """How many runs are done, and how many of these are not here but packed."""
    packed = sum(runner.have.get(key) is run for key, run in status.runs.done.items())
    return f"{len(status.runs.done)}" + (f" ({packed} of them packed)" if packed else "")


def report_study(status: StudyStatus, folder: Path) -> None:
    """The table here, and the page and the tables in the study's folder."""
    from odedm.report.load import with_scores
    from odedm.report.summary import summarise
    from odedm.report.tables import to_csv, to_latex, to_markdown

    done = list(status.runs.done.values())
    if not done:
        return
    study = folder if (folder / TRIALS).is_file() else None
    table = summarise(with_scores(done, study))
    for name, form in {"md": to_markdown, "csv": to_csv, "tex": to_latex}.items():
        write_text(folder / f"table.{name}", form(table))
    tell_report(table, folder / PAGE)


def _conclude(status: StudyStatus, summary: Summary, *, retry: bool) -> None:
    """Say what is missing, and end with an exit code that says so."""
    if summary.left:
        say(f"The budget is spent: {len(summary.left)} left, e.g. {summary.left[0].title}. The same command goes on.")
    failed = status.failed
    if failed:
        first = next(iter(failed.values()))
        hint = "" if retry else " Run them again with --retry."
        say(f"{len(failed)} of {status.runs.total} runs failed; failures.jsonl says which.{hint} The first: {first}")
    if failed:
        raise typer.Exit(SOME_FAILED)
