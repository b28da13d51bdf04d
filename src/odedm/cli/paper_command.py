"""`odedm paper`: the paper's tables and figures by number, what stands of them, and making one, or all in miniature."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from odedm.cli.console import SOME_FAILED, echo, log, out
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Budget, DryRun, Log, Only, Retry, WithResults, opt, with_settings
from odedm.cli.paper_runs import PaperRuns, absent_data, with_known_values, work_off
from odedm.cli.study_command import PLACE, narrowed, runner_from
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.core.text import counted
from odedm.execute.backend import ExecutionConfig
from odedm.execute.durations import format_duration
from odedm.paper.items import (
    CHANGED,
    CITATION,
    DIAGRAM,
    FOLDER,
    ITEMS,
    MINI_FOLDER,
    PaperItem,
    PaperProgress,
    changes_since,
    items_named,
    progress,
    progress_in_miniature,
    study_of,
)
from odedm.paper.mini import SEEDS
from odedm.studies.spec import Study
from odedm.training.experiment import Experiment

if TYPE_CHECKING:
    from odedm.results.folder import FinishedRun

Runs = Mapping[str, "FinishedRun"]
"""Finished runs by their signature."""
NEXT = "next"


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line narrows tables and figures to, and what is to become of their missing runs."""

    data: str | None
    only: tuple[str, ...]
    seeds: int | None
    dry_run: bool
    no_run: bool

    def study(self, item: PaperItem) -> Study:
        """Return the item's study, narrowed."""
        return narrowed(study_of(item, self.data), self.seeds, self.only)


@with_settings(ExecutionConfig, (Experiment, PLACE))
def paper(
    given: Given,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="table1 to table12, figure1 to figure5; next: what is missing, most telling first.",
            show_default="list them all",
        ),
    ] = None,
    mini: Annotated[
        bool,
        opt("In miniature, on embedded pictures: one of them, or without a name all, as a page.", "What", "--mini"),
    ] = False,
    data: Annotated[
        str | None, opt("One of the table's data sets alone.", "What", default="all of them", metavar="NAME")
    ] = None,
    only: Only = None,
    seeds: Annotated[
        int | None, opt("How many.", "What", default=f"5; in miniature {SEEDS}", min=1, max=10000, metavar="N")
    ] = None,
    dry_run: DryRun = False,
    no_run: Annotated[bool, opt("Show what is done on any device, and start nothing.", "How", "--no-run")] = False,
    budget: Budget = None,
    retry: Retry = False,
    with_results: WithResults = None,
    out_folder: Annotated[
        Path | None,
        opt("Where the runs are.", "How", "--out", default=f"runs/{FOLDER}, runs/{MINI_FOLDER}", metavar="FOLDER"),
    ] = None,
    markdown: Annotated[bool, opt("Print what stands as Markdown, with the cells that are worse.", "How")] = False,
    logs: Log = None,
) -> None:
    """Show a table or figure of the paper with our numbers beside, making what is missing; or list all of them."""
    folder = out_folder or Path("runs") / (MINI_FOLDER if mini else FOLDER)
    runner = runner_from(given, folder, budget, retry=retry, reuse="any")
    runs = PaperRuns(runner, tuple(with_results or ()), tuple(logs or ()), mini)
    if mini and with_results:
        raise UsageError("--with-results holds runs of the paper's size, and --mini makes small ones. Leave one out.")
    if markdown and (what is not None or mini):
        raise UsageError("--markdown is for all tables and figures; leave the name and --mini out.")
    if what == NEXT:
        if mini or data or only or seeds or no_run:
            raise UsageError(
                "`odedm paper next` has an order of its own: leave --mini, --data, --only, --seeds and --no-run out."
            )
        if work_off(runs, dry_run=dry_run):
            raise typer.Exit(SOME_FAILED)
        return
    seeds = SEEDS if mini and seeds is None else seeds
    request = Request(data, tuple(only or ()), seeds, dry_run, no_run)
    if what is None and not mini:
        if data or only or seeds or budget or dry_run or no_run or retry:
            raise UsageError(
                "--data, --only, --seeds, --budget, --dry-run, --no-run and --retry are for one table or figure, or "
                "for --mini; name it before them."
            )
        _list(runs.finished(), folder, markdown=markdown)
    elif _make(items_named(what) if what else _all_items(data), request, runs):
        raise typer.Exit(SOME_FAILED)


def _all_items(data: str | None) -> list[PaperItem]:
    """Return all tables and figures, or those that are on a data set."""
    items = [item for item in ITEMS.values() if data is None or not item.study or data in item.data]
    if not any(item.study for item in items):
        choices = dict.fromkeys(name for item in ITEMS.values() for name in item.data)
        raise UsageError(f"The paper has no table on '{data}'; it has some on {', '.join(choices)}.")
    return items


def _list(finished: Runs, folder: Path, *, markdown: bool) -> None:
    """Print a line for every table and figure: its runs, what is done, and what became of the printed numbers."""
    from odedm.paper.overview import VERDICTS, standings, to_markdown

    if markdown:
        out.file.write(to_markdown(finished))
        return
    for line in textwrap.wrap(f"{CITATION}.", 80):
        echo(line)
    view = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    view.add_column("", no_wrap=True, style="bold")
    view.add_column("what", no_wrap=True)
    for heading in ("done", *VERDICTS.values(), "of"):
        view.add_column(heading, justify="right", no_wrap=True)
    for standing in standings(finished):
        view.add_row(*standing.words())
    out.print(view)
    _echo_changes(finished.values())
    echo("Runs done; of the printed numbers: = reproduced, + better, − worse, ~ not")
    echo("comparable, ? too few seeds. Our runs come with odedm; so do those count that")
    echo(f"are in '{folder}' (--out) or packed (--with-results). One: odedm paper table5.")


def _echo_changes(runs: Iterable[FinishedRun]) -> None:
    """Say which algorithms have changed since runs were made."""
    by_number: dict[int, list[str]] = {}
    for about, number in changes_since(runs).items():
        by_number.setdefault(number, []).append(about)
    for number, changes in by_number.items():
        line = f"{CHANGED} {number} runs are older than changes of their algorithm: {'; '.join(changes)}."
        for part in textwrap.wrap(line, 80):
            echo(part)


def _make(items: Sequence[PaperItem], request: Request, runs: PaperRuns) -> bool:
    """Make what is missing of tables and figures, where its data is here, and show them; return whether runs failed."""
    studies = _studies(items, request)
    items = [item for item in items if item.name in studies or not item.study]
    states = _states(items, studies, runs)
    missing = {f"{plan.slug()} {plan.seed}": plan for state in states.values() for plan in state.missing}
    if request.dry_run:
        for item in items:
            _echo_plan(item, states.get(item.name), runs)
        return False
    absent = absent_data([plan.data for plan in missing.values()])
    plans = [] if request.no_run else [plan for plan in missing.values() if plan.data not in absent]
    timed = any("dac_timing" in item.figures for item in items) and not request.no_run
    failed = False
    if plans:
        about = items[0] if len(items) == 1 else None
        study = dataclasses.replace(next(iter(studies.values())), about=about.title if about else "All in miniature")
        failed = runs.make(plans, study)
        states = _states(items, studies, runs)
    if timed and (runs.mini or not absent_data(["cifar10"])):
        runs.time_dac()
    if runs.mini:
        _show_in_miniature(items, states, studies, runs)
        return failed
    for item in items:
        if item.name not in states:
            _show_without_study(item)
            continue
        state = states[item.name]
        _show(item, [request.data] if request.data else item.data, state.done, runs, studies[item.name])
        if state.missing:
            names = [name for name in absent if name in item.data]
            data = f"; not here: {', '.join(names)} (odedm data list says how to get it)" if names else ""
            echo(f"{len(state.missing)} of {state.runs} runs are missing{data}.")
    return failed


def _studies(items: Sequence[PaperItem], request: Request) -> dict[str, Study]:
    """Return the narrowed studies; of several items those that --only leaves no run are left out."""
    studies: dict[str, Study] = {}
    faults: list[UsageError] = []
    for item in items:
        if item.study:
            study = with_known_values(request.study(item)) if len(items) > 1 else request.study(item)
            try:
                study.experiments()
                studies[item.name] = study
            except UsageError as fault:
                faults.append(fault)
    if faults and not studies:
        raise faults[0]
    return studies


def _states(items: Sequence[PaperItem], studies: Mapping[str, Study], runs: PaperRuns) -> dict[str, PaperProgress]:
    """Return what is done of each item that has a study."""
    finished = runs.finished()
    known = progress_in_miniature if runs.mini else progress
    return {item.name: known(item, finished, studies[item.name]) for item in items if item.name in studies}


def _echo_plan(item: PaperItem, state: PaperProgress | None, runs: PaperRuns) -> None:
    if state is None:
        _show_without_study(item)
        return
    echo(f"{item.number} in '{runs.runner.store.folder}': {item.title}")
    echo(f"Runs:          {state.runs}")
    echo(f"Done:          {len(state.done)}")
    echo(f"To do:         {len(state.missing)}")


def _show_in_miniature(
    items: Sequence[PaperItem], states: Mapping[str, PaperProgress], studies: Mapping[str, Study], runs: PaperRuns
) -> None:
    """Write the page of tables and figures as the paper has them, with the numbers of small runs."""
    from odedm.paper.paper_cells import paper_cells
    from odedm.paper.paper_page import save_paper_page, section

    folder = runs.runner.store.folder
    runs.begin(next(iter(studies.values()), study_of(ITEMS["table1"])))
    sections = []
    for item in items:
        state = states.get(item.name, PaperProgress((), ()))
        cells = paper_cells(item.tables, item.data, (), state.stands_for) if item.tables else []
        pictures = _figures(item, state.done, folder / item.name, runs)
        note = f"{item.note}. " if item.note else ""
        note += f"{len(state.missing)} of {state.runs} runs are missing." if state.missing else ""
        sections.append(section(item, cells, [path for path in pictures if path.suffix == ".svg"], note))
    done = {id(run): run for state in states.values() for run in state.done}
    seconds = sum(run.seconds for run in done.values())
    seeds = len({run.seed for run in done.values()})
    facts = [counted(len(done), "run"), counted(seeds, "seed"), f"{format_duration(seconds)} of training"]
    name = items[0].name if len(items) == 1 else "paper"
    page = save_paper_page(sections, folder / f"{name}.html", facts)
    echo(f"{len(done)} small runs are done: {page}")


def _show_without_study(item: PaperItem) -> None:
    if item.name == "table2":
        from odedm.paper.paper_tables import prototype_table, to_rich

        out.print(to_rich(prototype_table()))
    else:
        echo(f"{item.number}, {item.title}: {item.source}.")


def _show(item: PaperItem, data: Sequence[str], done: Sequence[FinishedRun], runs: PaperRuns, study: Study) -> None:
    """Show the table as printed with our numbers, or the figure, here and in a folder of its own."""
    from odedm.paper.paper_cells import finding, paper_cells, to_csv
    from odedm.paper.paper_tables import LEGEND, by_metric, to_latex, to_rich

    runs.begin(study)
    place = writable_folder(runs.runner.store.folder / item.name)
    if item.tables:
        cells = paper_cells(item.tables, data, done)
        tables = by_metric(cells)
        for table in tables:
            out.print(to_rich(table))
        echo(f"{item.number}: {finding(cells)} ({LEGEND}).")
        _echo_changes(done)
        write_text(place / f"{item.name}.csv", to_csv(cells))
        write_text(place / f"{item.name}.tex", to_latex(tables))
        log(f"The table: {place / item.name}.csv and .tex")
    if item.note:
        echo(f"{item.note}.")
    if item.figures:
        echo(f"{item.number}, {item.title}: {counted(len(done), 'run')}.")
        for path in _figures(item, done, place, runs):
            if path.suffix == ".png":
                log(f"The figure: {path}")


def _figures(item: PaperItem, done: Sequence[FinishedRun], place: Path, runs: PaperRuns) -> list[Path]:
    """Draw an item's figures into its folder, and say what was timed for them."""
    if item.name == "figure1":
        return [DIAGRAM]
    if not item.figures:
        return []
    from odedm.paper.dac_timing import shown_timings
    from odedm.paper.figures import dac_timing_sentences, paper_figures
    from odedm.report.figures.all_figures import save_figures
    from odedm.report.summary import Table as Summary
    from odedm.report.summary import summarise

    timings = shown_timings(place.parent, mini=runs.mini) if "dac_timing" in item.figures else []
    written = save_figures(paper_figures(item.figures, summarise(done) if done else Summary(()), timings), place)
    for sentence in dac_timing_sentences(timings):
        echo(sentence)
    if not written:
        log(f"{item.number}: there is nothing to draw yet.")
    return written
