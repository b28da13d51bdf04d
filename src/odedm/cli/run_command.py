"""`odedm run` and `odedm resume`: from words to experiments, and from a folder back to them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odedm.checkpoint.schedule import Schedule
from odedm.cli import console, options
from odedm.cli.console import out
from odedm.cli.data_command import settle
from odedm.cli.launch import GOES_ON, launch, plan_jobs, print_table, unfinished_jobs
from odedm.core import registry as catalogue
from odedm.core.errors import choose
from odedm.execute.attempt import Job
from odedm.execute.job import Wishes
from odedm.results.result import Result
from odedm.training.experiment import Experiment
from odedm.training.observation import Looks

MOST_SEEDS = 10_000

guarded = console.guarded(GOES_ON)

Checkpoints = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="Store the state after each 'task', every 'N steps' or 'N seconds', 'never'; 'auto': after each task "
        "while that takes no more than 2 % of the time.",
        rich_help_panel="Run",
    ),
]

Events = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Add what happens as JSON lines, e.g. events.jsonl.", rich_help_panel="Look on"),
]
Logs = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write TensorBoard logs.", rich_help_panel="Look on")]


def register(app: typer.Typer) -> None:
    """Make the two commands those of an app."""
    app.command("run")(run)
    app.command("resume")(resume)


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
        bool, typer.Option("--overwrite", help="Train finished runs again and replace them.", rich_help_panel="Run")
    ] = False,
    checkpoint: Checkpoints = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start unfinished runs anew.", rich_help_panel="Run")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the results as JSON, and nothing else, on stdout.", rich_help_panel="Run"),
    ] = False,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="Keep features, and how prototypes were chosen.", rich_help_panel="Look on"),
    ] = False,
    anytime: Annotated[
        int, typer.Option(min=0, metavar="N", help="Test N times in each task.", rich_help_panel="Look on")
    ] = 0,
    events: Events = None,
    tensorboard: Logs = None,
) -> None:
    """Train a method with a memory on a stream, for one seed or many; again, it goes on where it stopped."""
    data = settle(data, size)
    wishes = Wishes(Schedule.parse(checkpoint), fresh, overwrite, Looks(evidence, anytime))
    choose("memory", memory, catalogue.MEMORIES)
    of_memory = {
        "rho": rho, "k": k, "replay": replay, "gamma": gamma, "distance": distance, "dac": dac,
        "no-dac": no_dac or None, "space": space, "candidates": candidates,
        "rows-per-prototype": rows_per_prototype, "mixup": mixup or None, "screen": screen,
        "short": short, "annotate": annotate,
    }  # fmt: skip
    plan = Experiment(
        options.memory(
            memory, capacity, policy, {name: value for name, value in of_memory.items() if value is not None}
        ),
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
    jobs = plan_jobs([plan.with_seed(each) for each in range(seed, seed + seeds)], out_folder)
    results = launch(
        jobs,
        lanes=lanes,
        wishes=wishes,
        quiet=as_json,
        writable=out_folder,
        events=events,
        tensorboard=tensorboard,
    )
    _show(jobs, results, as_json=as_json)


@guarded
def resume(
    paths: Annotated[list[Path], typer.Argument(help="Folders of unfinished runs, or folders that hold some.")],
    lanes: Annotated[int | None, typer.Option(min=1, help="Runs side by side.", show_default="as many as pay")] = None,
    checkpoint: Checkpoints = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")] = False,
    events: Events = None,
    tensorboard: Logs = None,
) -> None:
    """Go on with runs that were stopped or killed, from their last checkpoints."""
    wishes = Wishes(Schedule.parse(checkpoint))
    jobs = unfinished_jobs(paths)
    results = launch(jobs, lanes=lanes, wishes=wishes, quiet=as_json, events=events, tensorboard=tensorboard)
    _show(jobs, results, as_json=as_json)


def _show(jobs: Sequence[Job], results: Sequence[Result], *, as_json: bool) -> None:
    if as_json:
        rows = [{"folder": str(job.folder), **result.to_dict()} for job, result in zip(jobs, results, strict=True)]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    print_table([job.folder for job in jobs])
    for folder in dict.fromkeys(job.folder.parent for job in jobs):
        out.print(f"Results: {folder}", markup=False, highlight=False, soft_wrap=True)
        out.print(f"Report:  odedm report {shlex.quote(str(folder))}", markup=False, highlight=False, soft_wrap=True)
