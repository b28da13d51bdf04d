"""The command line: parses words into an experiment, calls, prints; nothing else."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from odedm import catalogue, console, options
from odedm.console import err, out
from odedm.data_cli import app as data_app
from odedm.data_cli import settle
from odedm.errors import UsageError, choose
from odedm.files import writable_folder
from odedm.run.experiment import Experiment
from odedm.run.lanes import Job, run_jobs
from odedm.run.results import Result, find
from odedm.terminal import Board

app = typer.Typer(
    name="odedm",
    help="Online continual learning with a bounded memory: rehearsal methods with and without ODEDM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(data_app, name="data")

MOST_SEEDS = 10_000

guarded = console.guarded("Finished runs are kept whole; unfinished ones left nothing behind.")


Out = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Lanes = Annotated[int | None, typer.Option(min=1, help="Runs side by side.", show_default="one per core")]


@app.command()
@guarded
def demo(
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="How many seeds.")] = 5,
    out_folder: Out = Path("runs/demo"),
    lanes: Lanes = None,
) -> None:
    """DER and DER++ with and without ODEDM on embedded images: a table and a report in minutes."""
    from odedm.study.recipes import demo as recipe

    writable_folder(out_folder)
    jobs = _jobs(recipe(seeds), out_folder)
    rows = jobs[0].experiment.memory.capacity
    err.print(f"{len(jobs)} runs on 'fashion-mini' (10 classes in 5 tasks) with {rows} rows of memory.")
    _run(jobs, lanes=lanes, overwrite=True, quiet=False)
    _report([job.folder for job in jobs], out_folder / "report.html")


@app.command()
@guarded
def run(
    data: Annotated[
        str, typer.Option(help="Data set: a name, or a path to pictures or arrays.", rich_help_panel="Stream")
    ] = "fashion-mini",
    size: Annotated[
        int | None, typer.Option(min=1, help="Make pictures of a folder N×N.", rich_help_panel="Stream")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(help="Number of tasks.", rich_help_panel="Stream", show_default="the data set's")
    ] = None,
    setting: Annotated[
        str, typer.Option(help=f"{' | '.join(catalogue.SETTINGS)}.", rich_help_panel="Stream")
    ] = "standard",
    factor: Annotated[
        float | None,
        typer.Option(help="Imbalance of 'long-tail'.", rich_help_panel="Stream", show_default="10"),
    ] = None,
    blur: Annotated[
        float, typer.Option(help="Share of every class that arrives in other tasks.", rich_help_panel="Stream")
    ] = 0.0,
    noise: Annotated[
        float, typer.Option(help="Share of every class with a wrong label of its task.", rich_help_panel="Stream")
    ] = 0.0,
    class_order: Annotated[
        str, typer.Option(help=f"{' | '.join(catalogue.CLASS_ORDERS)}.", rich_help_panel="Stream")
    ] = "natural",
    method: Annotated[str, typer.Option(help=f"{' | '.join(catalogue.METHODS)}.", rich_help_panel="Method")] = "derpp",
    net: Annotated[str, typer.Option(help=f"auto | {' | '.join(catalogue.NETS)}.", rich_help_panel="Method")] = "auto",
    net_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="An option of the net, e.g. width=32, again and again.", rich_help_panel="Method"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Stream rows per step.", rich_help_panel="Method")] = 32,
    draw: Annotated[
        int | None, typer.Option(help="Replayed rows per draw.", rich_help_panel="Method", show_default="batch")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate.", rich_help_panel="Method", show_default="the method's")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A hyper-parameter of the method, again and again.",
            rich_help_panel="Method",
        ),
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Class-IL among classes: seen | all.", rich_help_panel="Method")
    ] = "seen",
    memory: Annotated[str, typer.Option(help=f"{' | '.join(catalogue.MEMORIES)}.", rich_help_panel="Memory")] = "odedm",
    capacity: Annotated[int, typer.Option(help="Rows in all, λ.", rich_help_panel="Memory")] = 100,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy of 'native'.", rich_help_panel="Memory", show_default="the method's"),
    ] = None,
    rho: Annotated[
        float | None,
        typer.Option(help="Long-term share of λ.", rich_help_panel="ODEDM", show_default="0.25 unless k is given"),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Prototypes per class.", rich_help_panel="ODEDM", show_default="by rho")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(help=f"{' | '.join(catalogue.REPLAYS)}.", rich_help_panel="ODEDM", show_default="auxiliary"),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Weight of the auxiliary term.", rich_help_panel="ODEDM", show_default="1"),
    ] = None,
    distance: Annotated[
        str | None,
        typer.Option(help=f"{' | '.join(catalogue.DISTANCES)}.", rich_help_panel="ODEDM", show_default="sinkhorn"),
    ] = None,
    dac: Annotated[
        str | None,
        typer.Option(
            "--dac",
            metavar="K,DEPTH",
            help="Divide and conquer before k-means.",
            rich_help_panel="ODEDM",
            show_default="3,4",
        ),
    ] = None,
    no_dac: Annotated[bool, typer.Option("--no-dac", help="Use all candidates.", rich_help_panel="ODEDM")] = False,
    space: Annotated[
        str | None,
        typer.Option(help=f"{' | '.join(catalogue.SPACES)}.", rich_help_panel="ODEDM", show_default="features"),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="task|N",
            help="All rows of the task, or N per class inside λ.",
            rich_help_panel="ODEDM",
            show_default="task",
        ),
    ] = None,
    rows_per_prototype: Annotated[
        int | None, typer.Option(help="Rows kept per prototype.", rich_help_panel="ODEDM", show_default="1")
    ] = None,
    mixup: Annotated[
        bool, typer.Option("--mixup", help="Keep cluster means instead of rows (ablation).", rich_help_panel="ODEDM")
    ] = False,
    short: Annotated[
        str | None,
        typer.Option(help="Short-term policy, see `list policies`.", rich_help_panel="ODEDM", show_default="native"),
    ] = None,
    annotate: Annotated[
        str | None,
        typer.Option(help="Long-term logits: end | stream.", rich_help_panel="ODEDM", show_default="end"),
    ] = None,
    screen: Annotated[
        int | None,
        typer.Option(help="Converge only this many pairs per prototype.", rich_help_panel="ODEDM", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed.", rich_help_panel="Run")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="How many seeds.", rich_help_panel="Run")] = 1,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda.", rich_help_panel="Run")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads of each run.", rich_help_panel="Run")] = 1,
    lanes: Annotated[
        int | None,
        typer.Option(min=1, help="Runs side by side.", rich_help_panel="Run", show_default="as many as pay"),
    ] = None,
    precision: Annotated[
        str, typer.Option(help=f"auto | {' | '.join(catalogue.PRECISIONS)}.", rich_help_panel="Run")
    ] = "auto",
    eager: Annotated[
        bool, typer.Option("--eager", help="Launch every operation by itself (GPU).", rich_help_panel="Run")
    ] = False,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for results.", rich_help_panel="Run")] = Path(
        "runs"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace runs that are there already.", rich_help_panel="Run")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the results as JSON, and nothing else, on stdout.", rich_help_panel="Run"),
    ] = False,
) -> None:
    """Train a method with a memory on a stream, for one seed or many."""
    data = settle(data, size)
    choose("memory", memory, catalogue.MEMORIES)
    wishes = {
        "rho": rho, "k": k, "replay": replay, "gamma": gamma, "distance": distance, "dac": dac,
        "no-dac": no_dac or None, "space": space, "candidates": candidates,
        "rows-per-prototype": rows_per_prototype, "mixup": mixup or None, "screen": screen,
        "short": short, "annotate": annotate,
    }  # fmt: skip
    plan = Experiment(
        options.memory(memory, capacity, policy, {name: value for name, value in wishes.items() if value is not None}),
        method=method,
        options=options.pairs("--set", "hyper-parameter", "alpha=0.2", set_ or [], {} if lr is None else {"lr": lr}),
        data=data,
        tasks=tasks,
        setting=setting,
        factor=factor,
        blur=blur,
        noise=noise,
        class_order=class_order,
        net=net,
        net_options=options.pairs("--net-option", "net option", "width=32", net_option or [], {}),
        batch=batch,
        draw=draw,
        columns=columns,
        seed=seed,
        device=device,
        threads=threads,
        precision=precision,
        capture=not eager,
    )
    jobs = _jobs([plan.with_seed(each) for each in range(seed, seed + seeds)], out_folder)
    _check_free(jobs, out_folder, overwrite=overwrite)
    folder = jobs[0].folder.parent
    results = _run(jobs, lanes=lanes, overwrite=overwrite, quiet=as_json)
    if as_json:
        rows = [{"folder": str(job.folder), **result.to_dict()} for job, result in zip(jobs, results, strict=True)]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    _print_table([job.folder for job in jobs])
    out.print(f"Results: {folder}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"Report:  odedm report {shlex.quote(str(folder))}", markup=False, highlight=False, soft_wrap=True)


@app.command()
@guarded
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
) -> None:
    """Compare runs: a table here and one self-contained HTML page."""
    if markdown and csv:
        raise UsageError("--markdown and --csv exclude each other; give one.")
    writable_folder(out_file.parent)
    if out_file.is_dir():
        raise UsageError(f"'{out_file}' is a folder; --out takes the page's file name, e.g. report.html.")
    _report(find(paths), out_file, "markdown" if markdown else "csv" if csv else "rich")


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
) -> None:
    """Show one run: its configuration, its accuracy matrices, its memory."""
    folders = find([path])
    if len(folders) > 1:
        raise UsageError(f"'{path}' holds {len(folders)} runs; give one, e.g. '{folders[0]}', or use `odedm report`.")
    from odedm.report.runs import load
    from odedm.report.show import print_run

    result = load(folders)[0].result
    if as_json:
        sys.stdout.write(json.dumps(result.to_dict(), indent=1) + "\n")
        return
    print_run(result, out)


def _jobs(plans: Sequence[Experiment], folder: Path) -> list[Job]:
    """Each plan with every default filled in, so that one experiment has one folder however it was spelled."""
    from odedm.run.loop import load_data
    from odedm.run.resolve import resolve

    data = {name: load_data(name) for name in {plan.data for plan in plans}}
    resolved = [resolve(plan, data[plan.data]) for plan in plans]
    return [Job(plan, folder / plan.slug() / f"seed-{plan.seed}") for plan in resolved]


def _check_free(jobs: Sequence[Job], folder: Path, *, overwrite: bool) -> None:
    """Find out that a folder is taken or closed before the first minute is spent."""
    from odedm.run.save import check_free

    for job in jobs:
        check_free(job.folder, overwrite=overwrite)
    writable_folder(folder)


def _run(jobs: Sequence[Job], *, lanes: int | None, overwrite: bool, quiet: bool) -> list[Result]:
    with Board(jobs, err, quiet=quiet) as board:
        return run_jobs(jobs, board, lanes=lanes, overwrite=overwrite)


def _print_table(folders: Sequence[Path], form: str = "rich") -> None:
    from odedm.report import summary, tables
    from odedm.report.runs import load

    table = summary.summarise(load(folders))
    if form == "rich":
        out.print(tables.to_rich(table))
    else:
        sys.stdout.write(tables.to_markdown(table) if form == "markdown" else tables.to_csv(table))
    for sentence in summary.verdicts(table) if form == "rich" and len(table.rows) > 1 else ():
        out.print(sentence, markup=False, highlight=False)


def _report(folders: Sequence[Path], page: Path, form: str = "rich") -> None:
    from odedm.report.page import write_page

    _print_table(folders, form)
    write_page(folders, page)
    err.print(f"Report: {page}", markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of the `odedm` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no λ shows a ? in its place
    app()
