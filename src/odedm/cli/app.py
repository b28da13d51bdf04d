"""The command line: parses words into an experiment, calls, prints; nothing else."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from odedm.cli import results_command as results_cli
from odedm.cli import run_command as run_cli
from odedm.cli import study_command as study_cli
from odedm.cli.console import err, out
from odedm.cli.data_command import app as data_app
from odedm.cli.launch import launch, plan_jobs, print_table
from odedm.cli.run_command import MOST_SEEDS, guarded
from odedm.core import registry as catalogue
from odedm.core.errors import UsageError, choose
from odedm.core.files import writable_folder
from odedm.execute.job import Wishes
from odedm.results.result import find
from odedm.study.paper_studies import READY

if TYPE_CHECKING:
    from odedm.report.summary import Table as Summary
    from odedm.study.dac_timing_plan import Measured

app = typer.Typer(
    name="odedm",
    help="Online continual learning with a bounded memory: rehearsal methods with and without ODEDM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(data_app, name="data")

Out = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Lanes = Annotated[int | None, typer.Option(min=1, help="Runs side by side.", show_default="one per core")]


@app.command()
@guarded
def demo(
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="How many seeds.")] = 5,
    out_folder: Out = Path("runs/demo"),
    lanes: Lanes = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train again what is finished, from the start.")] = False,
) -> None:
    """DER and DER++ with and without ODEDM on embedded images: a table and a report in minutes."""
    from odedm.recipes.demo import demo as recipe

    writable_folder(out_folder)
    jobs = plan_jobs(recipe(seeds), out_folder)
    rows = jobs[0].experiment.memory.capacity
    err.print(f"{len(jobs)} runs on 'fashion-mini' (10 classes in 5 tasks) with {rows} rows of memory.")
    launch(jobs, lanes=lanes, wishes=Wishes(overwrite=fresh, fresh=fresh))
    _report([job.folder for job in jobs], out_folder / "report.html")


run_cli.register(app)


@app.command()
@guarded
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX (booktabs).")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every figure as PNG and SVG, with its data as CSV.")
    ] = None,
) -> None:
    """Compare runs: a table here and one self-contained HTML page."""
    forms = [name for name, wished in (("markdown", markdown), ("csv", csv), ("latex", latex)) if wished]
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(f'--{name}' for name in forms)} exclude each other; give one.")
    writable_folder(out_file.parent)
    if out_file.is_dir():
        raise UsageError(f"'{out_file}' is a folder; --out takes the page's file name, e.g. report.html.")
    table, timed = _report(paths, out_file, forms[0] if forms else "rich")
    if figures is not None:
        from odedm.report.figures.every import report_figures, save_figures

        written = save_figures(report_figures(table, timed=timed), writable_folder(figures))
        err.print(f"Figures: {len(written)} files in {figures}", markup=False, highlight=False, soft_wrap=True)


LISTS: dict[str, dict[str, Any]] = {
    "methods": catalogue.METHODS,
    "memories": catalogue.MEMORIES,
    "policies": catalogue.POLICIES,
    "data": catalogue.DATASETS,
    "distances": catalogue.DISTANCES,
    "nets": catalogue.NETS,
    "settings": catalogue.SETTINGS,
    "replays": catalogue.REPLAYS,
    "spaces": catalogue.SPACES,
    "class-orders": catalogue.CLASS_ORDERS,
    "precisions": catalogue.PRECISIONS,
    "studies": READY,
}


@app.command("list")
@guarded
def list_(
    what: Annotated[str | None, typer.Argument(help=f"{' | '.join(LISTS)}.", show_default="all of them")] = None,
) -> None:
    """Show the names that the other commands take, with one line each."""
    chosen = {what: choose("list", what, LISTS)} if what else LISTS
    for title, names in chosen.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, entry in names.items():
            table.add_row(f"[bold]{name}[/]", entry if isinstance(entry, str) else entry.about)
        out.print(table)


@app.command()
@guarded
def show(
    path: Annotated[Path, typer.Argument(help="A run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    row: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="What became of row N of the stream; for a run with --evidence."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw that, too: as PNG and SVG, with its data as CSV.")
    ] = None,
) -> None:
    """Show one run: its configuration, its accuracy matrices, its memory; or one row's story."""
    if figure is not None and row is None:
        raise UsageError("--figure draws the story of one row; give it too, e.g. --row 17.")
    folders = find([path])
    if len(folders) > 1:
        raise UsageError(f"'{path}' holds {len(folders)} runs; give one, e.g. '{folders[0]}', or use `odedm report`.")
    from odedm.report.load import load
    from odedm.report.show import print_run, show_row

    run = load(folders)[0]
    if row is not None:
        show_row(run, row, out, as_json=as_json, folder=figure)
        return
    result = run.result
    if as_json:
        sys.stdout.write(json.dumps(result.to_dict(), indent=1) + "\n")
        return
    print_run(result, out)


results_cli.register(app)
study_cli.register(app)


def _report(paths: Sequence[Path], page: Path, form: str = "rich") -> tuple[Summary, list[Measured]]:
    from odedm.report.figures.runtime import runtime_sentences
    from odedm.report.page import save_page
    from odedm.report.sources import gather

    table, timed = gather(paths)
    if table.rows:
        print_table(paths, form)
    for sentence in runtime_sentences(timed) if form == "rich" else ():
        out.print(sentence, markup=False, highlight=False)
    save_page(table, timed, page)
    err.print(f"Report: {page}", markup=False, highlight=False, soft_wrap=True)
    return table, timed


def main() -> None:
    """Entry point of the `odedm` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no λ shows a ? in its place
    app()
