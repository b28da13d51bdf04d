"""`odedm study` and `odedm tune`: parse, call, print, nothing else."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odedm.cli import console
from odedm.cli.console import err, out
from odedm.core.errors import UsageError, choose
from odedm.core.files import writable_folder, write_text

if TYPE_CHECKING:
    from odedm.execute.job import Work
    from odedm.execute.scheduler import Outcome
    from odedm.report.summary import Table
    from odedm.study.dac_timing_plan import Cell, Measured
    from odedm.study.ledger import Ledger
    from odedm.study.session import Stand, Where
    from odedm.study.study import Study

SOME_FAILED = 1
MOST_SAID = 8
"""Sentences under the table; a large study has hundreds, and the page holds them all."""
READY_NAMES = (
    "table1 | dac-sweep | dac-runtime | ablation | distances | fitting | imagenet-r | forgetting | task-il | mini"
)

guarded = console.guarded("Finished runs are kept, and the same command goes on from here.")

Lanes = Annotated[
    int | None,
    typer.Option(min=1, help="Runs side by side.", rich_help_panel="Where", show_default="as many as pay"),
]
Device = Annotated[str, typer.Option(help="auto | cpu | cuda.", rich_help_panel="Where")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of each run.", rich_help_panel="Where")]
EngineName = Annotated[
    str, typer.Option("--engine", help="lanes: this machine | ray: one or many.", rich_help_panel="Where")
]
Address = Annotated[
    str | None,
    typer.Option(help="A running Ray cluster, e.g. auto.", rich_help_panel="Where", show_default="start one here"),
]
Cpus = Annotated[float, typer.Option(help="CPUs that one run takes (ray).", rich_help_panel="Where")]
Gpus = Annotated[
    float, typer.Option(help="Part of a GPU that one run takes, e.g. 0.125 (ray).", rich_help_panel="Where")
]


def register(app: typer.Typer) -> None:
    """Make the two commands those of an app."""
    from odedm.cli import tune_command as tune_cli

    app.command("study")(study)
    app.command("tune")(tune_cli.tune)


@guarded
def study(
    what: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help=f"{READY_NAMES}, or your own file.")],
    data: Annotated[
        str | None, typer.Option(help="Another data set than the study's own.", rich_help_panel="What")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only these, e.g. method=er,derpp.", rich_help_panel="What"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="How many.", rich_help_panel="What", show_default="the study's"),
    ] = None,
    select_on: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="TASKS",
            help="Choose ρ on held-out training rows of so many first tasks; 0: not at all.",
            rich_help_panel="What",
            show_default="the study's",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and how long it takes.", rich_help_panel="How")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start nothing that ends later, e.g. 30m.", rich_help_panel="How"),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run again what failed before.", rich_help_panel="How")
    ] = False,
    reuse: Annotated[
        str,
        typer.Option(help="Finished runs count if made by: any | version | commit.", rich_help_panel="How"),
    ] = "version",
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="The study's folder.", rich_help_panel="How", show_default="runs/NAME"),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write events as JSON lines.", rich_help_panel="How")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write TensorBoard logs.", rich_help_panel="How")
    ] = None,
    lanes: Lanes = None,
    device: Device = "auto",
    threads: Threads = 1,
    engine: EngineName = "lanes",
    address: Address = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
) -> None:
    """Run many experiments, each once, and report on them. Stop it and start it again as you like."""
    from odedm.execute.eta import parse_time
    from odedm.study import identity as content
    from odedm.study import session as conduct
    from odedm.study.ledger import Ledger

    plan = chosen(what, data, seeds, only or [], select_on)
    choose("policy of --reuse", reuse, content.REUSE)
    seconds = None if budget is None else parse_time(budget)
    where = place(engine, lanes, device, threads, address, cpus, gpus)
    default = plan.name if data is None else f"{plan.name}-{Path(data).name}"
    ledger = Ledger(out_folder or Path("runs") / default)
    if dry_run:
        _say_plan(conduct.look(plan, ledger, where, reuse=reuse, lenient=True), where, ledger.folder)
        return
    ledger.check(plan)
    conduct.look(plan, ledger, where, reuse=reuse)  # what cannot be run is refused before anything is written
    writable_folder(ledger.folder)
    with ledger.held():
        ledger.settle(plan)
        stand = conduct.look(plan, ledger, where, reuse=reuse)  # nobody else can finish a run from here on
        conduct.tidy(stand)
        works = stand.works(retry=retry)
        trials = sum(work.kind == "trial" for work in works)
        timings = 0 if stand.timed is None else len(stand.timed.missing())
        _say(
            f"Study '{plan.name}': {stand.status.total} runs, {len(stand.status.done)} done"
            + (f", {len(stand.failed)} failed before" if stand.failed else "")
            + (f", {trials} trials to choose ρ by" if trials else "")
            + (f", {timings} timings of DAC" if timings else "")
            + f". Folder: {ledger.folder}"
        )
        before, began = len(stand.status.done), time.monotonic()
        outcome = work_off(
            works, stand, ledger, where, before, budget=seconds, reuse=reuse, events=events, tensorboard=tensorboard
        )
        left = None if seconds is None else max(0.0, seconds - (time.monotonic() - began))
        trouble = _time(stand, ledger, where, left) if timings else ""  # by itself: nothing else runs any more
        stand = conduct.look(plan, ledger, where, reuse=reuse)
        _report(stand, ledger.folder)
    _conclude(stand, outcome, trouble, retry=retry)


def chosen(what: str, data: str | None, seeds: int | None, only: Sequence[str], select_on: int | None) -> Study:
    """The study by its name or file, with what was asked for on the command line."""
    from odedm.study.paper_studies import READY, ready
    from odedm.study.study import read
    from odedm.training.hold_out import Selection

    if what not in READY and (what.endswith(".toml") or Path(what).is_file()):
        if data is not None:
            raise UsageError("--data is for ready studies; a file names its own data.")
        plan = read(Path(what))
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


def place(
    engine: str, lanes: int | None, device: str, threads: int, address: str | None, cpus: float, gpus: float
) -> Where:
    """Where the runs happen."""
    from odedm.study.session import ENGINES, Where

    choose("engine", engine, ENGINES)
    choose("device", device, dict.fromkeys(("auto", "cpu", "cuda")))
    return Where(engine, lanes, device, threads, address, cpus, gpus)


def work_off(
    works: Sequence[Work],
    stand: Stand,
    ledger: Ledger,
    where: Where,
    done: int,
    *,
    budget: float | None = None,
    reuse: str = "version",
    events: Path | None = None,
    tensorboard: Path | None = None,
) -> Outcome:
    """Do the work, with a board on the error stream and whoever else listens."""
    from odedm.cli.study_board import StudyBoard
    from odedm.execute.listening import Audience
    from odedm.study.session import go

    board = StudyBoard(err, done + len(works), done)
    for work, each in stand.done():
        board.best.add(work, each.result)
    with board, Audience(board, works, events, tensorboard) as audience:
        return go(works, ledger, where, audience, stand.pace(), budget=budget, reuse=reuse)


def _say_plan(stand: Stand, where: Where, folder: Path) -> None:
    from odedm.execute.eta import in_words
    from odedm.study.session import lanes_here

    status, works, pace = stand.status, stand.works(retry=True), stand.pace()
    _tell(f"Study '{stand.study.name}' in '{folder}': {stand.study.about}")
    _tell(f"Runs:          {status.total}")
    _tell(f"Done:          {len(status.done)}")
    _tell(f"To do:         {len(status.todo)}")
    if stand.failed:
        _tell(f"Failed before: {len(stand.failed)} (of those to do; run again with --retry)")
    if stand.trials:
        trials = sum(len(own) for own in stand.trials.values())
        left = sum(work.kind == "trial" for work in works)
        _tell(f"Trials:        {trials} to choose ρ by, {trials - left} done")
    for name, why in stand.prepared.missing.items():
        _tell(f"Data:          '{name}' is not here, so what is done cannot be known. {why}")
    if stand.timed is not None:
        _tell(f"Timings:       {_timings(stand.timed)}")
    known = [seconds for work in works if (seconds := pace.expect(work)) is not None]
    if not works:
        if stand.timed is None or not stand.timed.missing():
            _tell("Time:          nothing to do")
    elif not known:
        _tell("Time:          unknown until the first run of its kind is finished")
    else:
        side = where.lanes or (1 if where.engine == "ray" or stand.prepared.missing else lanes_here(works, where))
        unknown = len(works) - len(known)
        rest = f", and {unknown} runs of a kind that was not measured yet" if unknown else ""
        _tell(f"Time:          about {in_words(sum(known) / side)}, {side} side by side{rest}")


def _timings(timed: Measured) -> str:
    """How many of a study's timings are made, and how long the others take."""
    from odedm.execute.eta import in_words
    from odedm.study.dac_timing_plan import expected

    total, left = len(timed.plan.timings()), timed.missing()
    known = [expected(cell, timed.timings) for cell, _ in left]
    if not left:
        time_left = "nothing to do"
    elif None in known:
        time_left = "how long is unknown until the first of each kind is made"
    else:
        time_left = f"about {in_words(sum(each for each in known if each is not None))}, after the runs"
    return f"{total} of DAC with and without, {total - len(left)} done; {time_left}"


def _time(stand: Stand, ledger: Ledger, where: Where, budget: float | None) -> str:
    """Measure what the study times; a sentence where that failed, and the study's report is written all the same."""
    from odedm.study.session import time_choices

    if stand.timed is None:
        return ""
    with err.status("Timing divide-and-conquer") as status:

        def tell(left: int, cell: Cell) -> None:
            status.update(f"Timing divide-and-conquer: {left} left · {cell.title}")

        try:
            time_choices(stand.timed, ledger, where, budget=budget, tell=tell)
        except UsageError as error:
            return str(error)
    return ""


def _report(stand: Stand, folder: Path) -> None:
    """The table here, and the page and the tables in the study's folder."""
    from odedm.report.figures.runtime import runtime_sentences
    from odedm.report.load import load
    from odedm.report.page import render
    from odedm.report.sources import find_timings
    from odedm.report.summary import Table, summarise

    done = [each.folder for each in stand.status.done.values()]
    timed = find_timings([folder])
    if not done and not timed:
        return
    table = summarise(load(done)) if done else Table(())
    if done:
        _report_table(table, folder)
    for sentence in runtime_sentences(timed):
        _tell(sentence)
    write_text(folder / "report.html", render(table, timed))
    _say(f"Report: {folder / 'report.html'}")


def _report_table(table: Table, folder: Path) -> None:
    from odedm.report import summary
    from odedm.report.latex import to_latex
    from odedm.report.tables import to_csv, to_markdown, to_rich

    out.print(to_rich(table))
    said = summary.verdicts(table) if len(table.rows) > 1 else []
    for sentence in said[:MOST_SAID]:
        out.print(sentence, markup=False, highlight=False)
    if len(said) > MOST_SAID:
        _tell(f"… and {len(said) - MOST_SAID} more sentences in the report.")
    for name, text in {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}.items():
        write_text(folder / f"table.{name}", text)


def _conclude(stand: Stand, outcome: Outcome, trouble: str, *, retry: bool) -> None:
    """Say what is missing, and end with an exit code that says so."""
    if outcome.left:
        _say(f"The budget is spent: {len(outcome.left)} left, e.g. {outcome.left[0].title}. The same command goes on.")
    timings = 0 if stand.timed is None or trouble else len(stand.timed.missing())
    if timings:
        _say(f"The budget is spent: {timings} timings left. The same command goes on.")
    if trouble:
        _say(trouble)
    failed = stand.failed
    if failed:
        first = next(iter(failed.values()))
        hint = "" if retry else " Run them again with --retry."
        _say(f"{len(failed)} of {stand.status.total} runs failed; failures.jsonl says which.{hint} The first: {first}")
    if failed or trouble:
        raise typer.Exit(SOME_FAILED)


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def _tell(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)
