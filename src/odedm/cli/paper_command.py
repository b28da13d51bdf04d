"""`odedm paper`: the paper's tables and figures by name, what stands of them, and making one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.console import out, say, tell
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import Events, Logs, opt, with_settings
from odedm.cli.study_command import PLACE, Conduct, carry_out, checked_reuse, session_from
from odedm.core.errors import UsageError, choose
from odedm.core.files import writable_folder, write_text
from odedm.execute.backend import ExecutionConfig
from odedm.execute.eta import in_words, parse_time
from odedm.study.gathering import read_all
from odedm.study.ledger import Ledger
from odedm.study.paper_catalogue import FOLDER, ITEMS, PaperItem, progress, same_run, study_of
from odedm.training.experiment import Experiment

if TYPE_CHECKING:
    from odedm.results.folder import FinishedRun
    from odedm.study.session import StudyStatus

OURS = "docs/results/table1.jsonl.gz"
"""Our own runs of the first table, which the repository has and an installed package has not."""
guarded = console.guarded("Finished runs are kept, and the same command goes on from here.")


@guarded
@with_settings(ExecutionConfig, (Experiment, PLACE))
def paper(
    given: Given,
    what: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"{' | '.join(ITEMS)}.", show_default="list them all")
    ] = None,
    data: Annotated[str | None, opt("One of the table's data sets alone.", "What", default="all of them")] = None,
    only: Annotated[list[str] | None, opt("Only these, e.g. method=er,derpp.", "What", metavar="NAME=VALUE")] = None,
    seeds: Annotated[int | None, opt("How many.", "What", default="5", min=1, max=10000)] = None,
    dry_run: Annotated[bool, opt("Say what would be run, and how long it takes.", "How", "--dry-run")] = False,
    no_run: Annotated[bool, opt("Show what is done on any device, and start nothing.", "How", "--no-run")] = False,
    budget: Annotated[str | None, opt("Start nothing that ends later, e.g. 30m.", "How", metavar="TIME")] = None,
    retry: Annotated[bool, opt("Run again what failed before.", "How", "--retry")] = False,
    reuse: Annotated[str, opt("Finished runs count if made by: any | version | commit.", "How")] = "version",
    with_results: Annotated[
        list[Path] | None, opt("Packed results of other machines, which count as done.", "How", metavar="FILE.jsonl.gz")
    ] = None,
    out_folder: Annotated[Path, opt("Where all of the paper's runs are.", "How", "--out")] = Path("runs") / FOLDER,
    markdown: Annotated[bool, opt("Print what stands as Markdown, with the cells that are worse.", "How")] = False,
    figure: Annotated[
        Path | None, opt("Draw every printed number against ours.", "How", "--figure", metavar="OUT.png")
    ] = None,
    events: Events = None,
    tensorboard: Logs = None,
) -> None:
    """Make a table or figure of the paper again, our numbers beside; or list all of them and what stands."""
    if what is None:
        if data or only or seeds or budget:
            raise UsageError("--data, --only, --seeds and --budget are for one table or figure; name it before them.")
        finished = _finished(out_folder, with_results)
        if markdown:
            from odedm.report.paper_overview import to_markdown

            out.file.write(to_markdown(finished))
        if figure is not None:
            from odedm.report.figures.printed_against_ours import save_printed_against_ours

            say(f"{save_printed_against_ours(finished, figure)} printed numbers against ours: {figure}")
        if markdown or figure is not None:
            return
        _list(out_folder, finished)
        return
    if markdown or figure is not None:
        raise UsageError("--markdown and --figure are for all tables and figures; leave the name out.")
    item = choose("table or figure of the paper", what, ITEMS)
    if not item.study:
        tell(f"{item.title}: {item.without}.")
        return
    on = (data,) if data else item.data
    if no_run:
        done = progress(what, _finished(out_folder, with_results)).done
        _report(what, on, [run for run in done if run.result.experiment["data"] in on], out_folder)
        return
    plan = study_of(what, data)
    if seeds is not None:
        plan = plan.with_seeds(seeds)
    plan = dataclasses.replace(plan, only=(*plan.only, *(only or ())))
    session = session_from(given, out_folder, reuse=checked_reuse(reuse))
    session = dataclasses.replace(session, have=read_all(with_results or []))
    conduct = Conduct(dry_run, None if budget is None else parse_time(budget), retry, (events, tensorboard))
    carry_out(plan, session, conduct, partial(_report_status, what, on))


def _finished(folder: Path, have: Sequence[Path] | None) -> dict[str, FinishedRun]:
    """All runs of the paper's that are here, whatever device made them."""
    runs = {**read_all(have or []), **Ledger(folder).runs_done()}.values()
    return {same_run(run.result.experiment): run for run in runs}


def _list(folder: Path, finished: Mapping[str, FinishedRun]) -> None:
    """Every table and figure with its runs, what is done, the time that the rest takes, and what was found."""
    view = Table(title_justify="left")
    view.add_column("", min_width=max(map(len, ITEMS)), no_wrap=True)  # names are there to be typed
    for heading in ("what", "runs", "done", "run time left", "our finding"):
        view.add_column(heading, overflow="fold")
    missing: list[str] = []
    for name, item in ITEMS.items():
        if not item.study:
            view.add_row(Text(name, style="bold"), *map(Text, [item.title, "–", "–", "–", item.without]))
            continue
        found = progress(name, finished)
        parts = [in_words(found.seconds)] if found.left > found.unknown else []
        parts += [f"{found.unknown} runs unmeasured"] if found.unknown else []
        words = [item.title, str(found.runs), str(len(found.done)), " + ".join(parts) or "none"]
        view.add_row(Text(name, style="bold"), *map(Text, [*words, _finding(item, found.done)]))
        missing += [each for each in item.data if found.left and each not in missing and not _is_here(each)]
    out.print(view)
    tell("= reproduced, + better, − worse, ~ not comparable, ? too few seeds. Run time is that of one lane.")
    if missing:
        tell(f"No data here: {', '.join(missing)}. What is to be done with each: odedm data list.")
    tell(f"Runs are in '{folder}'. Make one of these: odedm paper NAME; what it would run: --dry-run.")
    tell(f"Results made elsewhere count with --with-results FILE, e.g. {OURS} of odedm's repository.")


def _is_here(data: str) -> bool:
    from odedm.data.opening import load_dataset

    try:
        load_dataset(data)
    except UsageError:
        return False
    return True


def _finding(item: PaperItem, done: Sequence[FinishedRun]) -> str:
    from odedm.report.paper_tables import accuracies, beside, marks

    return marks(beside(item.tables, item.data, done)) if item.tables else accuracies(done)


def _report_status(name: str, data: Sequence[str], status: StudyStatus, folder: Path) -> None:
    _report(name, data, list(status.runs.done.values()), folder)


def _report(name: str, data: Sequence[str], done: Sequence[FinishedRun], folder: Path) -> None:
    """The table as printed with our numbers, or the figure, here and in a folder of its own."""
    from odedm.report.load import find_timings
    from odedm.report.paper_tables import LEGEND, beside, finding, to_csv, to_latex, to_rich

    item = ITEMS[name]
    place = writable_folder(folder / name)
    if item.tables:
        cells = beside(item.tables, data, done)
        rows = {(cell.block, cell.row) for cell in cells if cell.ours is not None}
        for view in to_rich([cell for cell in cells if (cell.block, cell.row) in rows] or cells):
            out.print(view)
        tell(f"{finding(cells)[:1].upper()}{finding(cells)[1:]} ({LEGEND}).")
        if item.note:
            tell(f"{item.note}.")
        write_text(place / f"{name}.csv", to_csv(cells))
        write_text(place / f"{name}.tex", to_latex(cells))
        say(f"The table: {place / name}.csv and .tex")
        return
    from odedm.report.figures.all_figures import save_figures
    from odedm.report.figures.paper_figures import paper_figures
    from odedm.report.summary import Table as Summary
    from odedm.report.summary import summarise

    table = summarise(done) if done else Summary(())
    panels = paper_figures(item.figures, table, find_timings([folder]))
    written = save_figures(panels, place)
    tell(f"{item.title}: {_finding(item, done)}.")
    for path in written:
        if path.suffix == ".png":
            say(f"The figure: {path}")
    if not written:
        say("There is nothing to draw yet.")
