"""One run in a terminal, and one row of its stream."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odedm.core.text import printable
from odedm.results.result import Result

if TYPE_CHECKING:
    from odedm.report.figures.choices import Story
    from odedm.results.folder import FinishedRun

MOST = 16
"""Prototypes that are printed, the nearest first; the figure's data have all."""


def print_run(result: Result, out: Console) -> None:
    """Configuration, accuracy matrices, the memory's contents and provenance of one run, for a terminal."""
    plan = result.experiment
    method, memory, data = (printable(each) for each in (plan["method"], plan["memory"]["name"], plan["data"]))
    out.print(
        f"{method} with {memory} on {data}, "
        f"seed {plan.get('seed')}: ACC {result.acc_last:.2f} %, mean ACC {result.acc_mean:.2f} %, "
        f"Task-IL {result.task_il_last:.2f} %, forgetting {result.forgetting:.2f}",
        markup=False,
        highlight=False,
    )
    for title, matrix in (("Class-IL", result.class_il), ("Task-IL", result.task_il)):
        table = Table(
            "after task", *[f"task {j + 1}" for j in range(len(matrix))], "mean", title=f"{title} accuracy, %"
        )
        for i, row in enumerate(matrix):
            table.add_row(
                str(i + 1),
                *[f"{each:.1f}" for each in row],
                *[""] * (len(matrix) - 1 - i),
                f"{sum(row) / len(row):.1f}",
            )
        out.print(table)
    table = Table("class", "short-term rows", "long-term rows", title="Memory at the end")
    last = result.census[-1] if result.census else {}
    for name, short, long in zip(result.classes, last.get("short", []), last.get("long", []), strict=False):
        table.add_row(Text(printable(name)), str(short), str(long))
    out.print(table)
    for title, part in (("Experiment", plan), ("Seconds", result.seconds), ("Provenance", result.provenance)):
        out.print(f"[bold]{title}[/]")
        out.print_json(data=part)


def show_row(run: FinishedRun, row: int, out: Console, *, as_json: bool = False, folder: Path | None = None) -> None:
    """Tell what became of a row of the stream when its class was consolidated; with a folder, draw it there, too."""
    from odedm.report.figures.all_figures import save_figures
    from odedm.report.figures.choices import sample_story, story_of_row

    told = story_of_row(run, row)
    if folder is not None:
        save_figures({f"row-{row}": [sample_story(told)]}, folder)
    if as_json:
        out.file.write(json.dumps(asdict(told), indent=1) + "\n")
        return
    print_story(told, out)
    if folder is not None:
        out.print(f"Drawn: {folder / f'row-{row}.png'}", markup=False, highlight=False, soft_wrap=True)


def print_story(told: Story, out: Console) -> None:
    """A row's distance to each prototype of its class, its rank among the candidates, and whether it was kept."""
    near = told.nearest_first
    out.print(
        f"{printable(told.name)}: {told.end}; one of {told.candidates} candidates of its class for "
        f"{len(near)} prototypes.",
        markup=False,
        highlight=False,
    )
    table = Table("prototype", "distance", f"rank of {told.candidates}", "kept", title="Nearest first")
    for meeting in near[:MOST]:
        table.add_row(
            str(meeting.prototype), f"{meeting.distance:.4g}", str(meeting.rank), "yes" if meeting.kept else ""
        )
    out.print(table)
    if len(near) > MOST:
        out.print(f"… and {len(near) - MOST} prototypes farther away.", markup=False, highlight=False)
