"""`odedm paper`: the paper's tables and figures by number, what stands of them, and making one."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from odedm.cli import console
from odedm.cli.console import SOME_FAILED, err, out, say, tell
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Log, opt, with_settings
from odedm.cli.progress_display import shown
from odedm.cli.study_command import PLACE, runner_from
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.execute.backend import ExecutionConfig, get_ready
from odedm.execute.durations import parse_time
from odedm.paper.items import (
    CITATION,
    FOLDER,
    ITEMS,
    PaperItem,
    by_signature,
    items_named,
    progress,
    shipped_runs,
    study_of,
)
from odedm.studies.merging import read_all
from odedm.studies.run_store import RunStore
from odedm.studies.runner import StudyRunner, deadline
from odedm.studies.spec import Study
from odedm.training.experiment import Experiment

if TYPE_CHECKING:
    from odedm.results.folder import FinishedRun

Runs = Mapping[str, "FinishedRun"]
"""Finished runs by their signature."""
guarded = console.guarded("Finished runs are kept, and the same command goes on from here.")


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line narrows a table or figure to, and how its missing runs are made."""

    data: str | None
    only: tuple[str, ...]
    seeds: int | None
    dry_run: bool
    no_run: bool
    until: float | None
    retry: bool
    logs: tuple[str, ...]

    def study(self, item: PaperItem) -> Study:
        """Return the item's study, narrowed."""
        study = study_of(item, self.data)
        study = study if self.seeds is None else study.with_seeds(self.seeds)
        return dataclasses.replace(study, only=(*study.only, *self.only))


@guarded
@with_settings(ExecutionConfig, (Experiment, PLACE))
def paper(
    given: Given,
    what: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="table1 to table12, figure1 to figure5.", show_default="list them all"),
    ] = None,
    data: Annotated[str | None, opt("One of the table's data sets alone.", "What", default="all of them")] = None,
    only: Annotated[list[str] | None, opt("Only these, e.g. method=er,derpp.", "What", metavar="NAME=VALUE")] = None,
    seeds: Annotated[int | None, opt("How many.", "What", default="5", min=1, max=10000)] = None,
    dry_run: Annotated[bool, opt("Say what would be run.", "How", "--dry-run")] = False,
    no_run: Annotated[bool, opt("Show what is done on any device, and start nothing.", "How", "--no-run")] = False,
    budget: Annotated[str | None, opt("Start nothing that ends later, e.g. 30m.", "How", metavar="TIME")] = None,
    retry: Annotated[bool, opt("Run again what failed before.", "How", "--retry")] = False,
    with_results: Annotated[
        list[Path] | None,
        opt("Packed results that count beside those that come with odedm.", "How", metavar="FILE.jsonl.gz"),
    ] = None,
    out_folder: Annotated[Path, opt("Where all of the paper's runs are.", "How", "--out")] = Path("runs") / FOLDER,
    markdown: Annotated[bool, opt("Print what stands as Markdown, with the cells that are worse.", "How")] = False,
    figure: Annotated[
        Path | None, opt("Draw every printed number against ours.", "How", "--figure", metavar="OUT.png")
    ] = None,
    log: Log = None,
) -> None:
    """Show a table or figure of the paper with our numbers beside, making what is missing; or list all of them."""
    runner = runner_from(given, out_folder, reuse="any")
    seconds = None if budget is None else deadline(parse_time(budget))
    request = Request(data, tuple(only or ()), seeds, dry_run, no_run, seconds, retry, tuple(log or ()))
    if what is None:
        if data or only or seeds or budget:
            raise UsageError("--data, --only, --seeds and --budget are for one table or figure; name it before them.")
        _overview(_finished(runner.store, with_results), out_folder, markdown=markdown, figure=figure)
        return
    if markdown or figure is not None:
        raise UsageError("--markdown and --figure are for all tables and figures; leave the name out.")
    failed = False
    for item in items_named(what):
        failed |= _make(item, request, runner, with_results)
    if failed:
        raise typer.Exit(SOME_FAILED)


def _finished(store: RunStore, with_results: Sequence[Path] | None) -> Runs:
    """Return all runs of the paper's that are here, whatever device made them."""
    return by_signature([*shipped_runs(), *read_all(with_results or []).values(), *store.runs_done().values()])


def _overview(finished: Runs, folder: Path, *, markdown: bool, figure: Path | None) -> None:
    if markdown:
        from odedm.paper.overview import to_markdown

        out.file.write(to_markdown(finished))
    if figure is not None:
        from odedm.paper.printed_against_ours import save_printed_against_ours

        say(f"{save_printed_against_ours(finished, figure)} printed numbers against ours: {figure}")
    if not markdown and figure is None:
        _list(finished, folder)


def _list(finished: Runs, folder: Path) -> None:
    """Print a line for every table and figure: its runs, what is done, and what became of the printed numbers."""
    from odedm.paper.printed_tables import MARKS, TOO_FEW, beside, counted

    for line in textwrap.wrap(f"{CITATION}.", 80):
        tell(line)
    view = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    view.add_column("", no_wrap=True, style="bold")
    view.add_column("what", no_wrap=True)
    verdicts = {**{name: mark for name, mark in MARKS.items() if name}, TOO_FEW: "?"}
    for heading in ("done", *verdicts.values(), "of"):
        view.add_column(heading, justify="right", no_wrap=True)
    for item in ITEMS.values():
        if not item.study:
            view.add_row(item.number, f"{item.title} ({item.source})")
            continue
        state = progress(item, finished)
        cells = beside(item.tables, item.data, state.done)
        counts = counted(cells)
        numbers = [str(counts[name]) if counts.get(name) else "" for name in verdicts]
        printed = str(len(cells)) if cells else ""
        view.add_row(item.number, item.title, f"{len(state.done)}/{state.runs}", *numbers, printed)
    out.print(view)
    tell("Runs done; of the printed numbers: = reproduced, + better, − worse, ~ not")
    tell("comparable, ? too few seeds. Our runs come with odedm; so do those count that")
    tell(f"are in '{folder}' (--out) or packed (--with-results). One: odedm paper table5.")


def _make(item: PaperItem, request: Request, runner: StudyRunner, with_results: Sequence[Path] | None) -> bool:
    """Make what of an item is missing, where its data is here, and show it; return whether runs failed."""
    if not item.study:
        _show_without_study(item)
        return False
    study = request.study(item)
    state = progress(item, _finished(runner.store, with_results), study)
    if request.dry_run:
        tell(f"{item.number} in '{runner.store.folder}': {item.title}")
        tell(f"Runs:          {state.runs}")
        tell(f"Done:          {len(state.done)}")
        tell(f"To do:         {len(state.missing)}")
        return False
    absent = _absent([plan.data for plan in state.missing])
    plans = [] if request.no_run else [plan for plan in state.missing if plan.data not in absent]
    failed = bool(plans) and _run(plans, study, runner, request)
    if "dac_timing" in item.figures and not request.no_run and not _absent(["cifar10"]):
        _time_dac(runner, request.until)
    if plans:
        state = progress(item, _finished(runner.store, with_results), study)
    _show(item, [request.data] if request.data else item.data, state.done, runner.store, study)
    if state.missing:
        data = f"; not here: {', '.join(absent)} (odedm data list says how to get it)" if absent else ""
        tell(f"{len(state.missing)} of {state.runs} runs are missing{data}.")
    return failed


def _absent(names: Sequence[str]) -> list[str]:
    """Return the data sets that are not here."""
    from odedm.data.opening import load_dataset

    absent = []
    for name in dict.fromkeys(names):
        try:
            load_dataset(name)
        except UsageError:
            absent.append(name)
    return absent


def _run(plans: Sequence[Experiment], study: Study, runner: StudyRunner, request: Request) -> bool:
    """Make runs of the paper's study, each once; return whether any failed."""
    store = runner.store
    get_ready(len(plans), runner.execution)
    planned = runner.plan(study, plans)
    store.check(study)
    writable_folder(store.folder)
    with store.lock():
        store.init(study)
        status = runner.status(planned)
        start = len(status.to_start(retry=request.retry))
        say(f"{study.about}: {len(plans)} runs are missing, {start} to start. Folder: {store.folder}")
        with shown(start, [], request.logs) as callbacks:
            status, summary = runner.run(status, planned, callbacks, retry=request.retry, until=request.until)
    if summary.left:
        say(f"The budget is spent: {len(summary.left)} left. The same command goes on.")
    if status.failed:
        hint = "" if request.retry else " Run them again with --retry."
        first = next(iter(status.failed.values()))
        say(f"{len(status.failed)} runs failed; failures.jsonl says which.{hint} The first: {first}")
    return bool(status.failed)


def _time_dac(runner: StudyRunner, until: float | None) -> None:
    from odedm.paper.dac_timing import PAPER, measure

    with err.status("Timing divide-and-conquer") as line:
        measure(
            PAPER,
            runner.store.folder,
            device="auto" if runner.execution.is_remote else runner.device,
            threads=runner.threads,
            until=until,
            report=lambda left: line.update(f"Timing divide-and-conquer: {left} left"),
        )


def _show_without_study(item: PaperItem) -> None:
    if item.name == "table2":
        from odedm.paper.printed_tables import prototype_counts_to_rich

        out.print(prototype_counts_to_rich())
    else:
        tell(f"{item.number}, {item.title}: {item.source}.")


def _show(item: PaperItem, data: Sequence[str], done: Sequence[FinishedRun], store: RunStore, study: Study) -> None:
    """Show the table as printed with our numbers, or the figure, here and in a folder of its own."""
    from odedm.paper.printed_tables import LEGEND, beside, finding, to_csv, to_latex, to_rich

    store.check(study)
    store.init(study)  # the folder is a study's from now on
    place = writable_folder(store.folder / item.name)
    if item.tables:
        cells = beside(item.tables, data, done)
        for view in to_rich(cells):
            out.print(view)
        tell(f"{item.number}: {finding(cells)} ({LEGEND}).")
        if item.note:
            tell(f"{item.note}.")
        write_text(place / f"{item.name}.csv", to_csv(cells))
        write_text(place / f"{item.name}.tex", to_latex(cells))
        say(f"The table: {place / item.name}.csv and .tex")
    if item.figures:
        _show_figures(item, done, place)


def _show_figures(item: PaperItem, done: Sequence[FinishedRun], place: Path) -> None:
    from odedm.paper.dac_timing import PAPER, latest, load
    from odedm.paper.figures import dac_timing_sentences, paper_figures
    from odedm.paper.printed_tables import accuracies
    from odedm.report.figures.all_figures import save_figures
    from odedm.report.summary import Table as Summary
    from odedm.report.summary import summarise

    timings = latest(load(place.parent), PAPER) if "dac_timing" in item.figures else []
    written = save_figures(paper_figures(item.figures, summarise(done) if done else Summary(()), timings), place)
    tell(f"{item.number}, {item.title}: {accuracies(done)}.")
    for sentence in dac_timing_sentences(timings):
        tell(sentence)
    for path in written:
        if path.suffix == ".png":
            say(f"The figure: {path}")
    if not written:
        say("There is nothing to draw yet.")
