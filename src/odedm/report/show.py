"""One run in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odedm.report.wording import clean
from odedm.run.results import Result


def print_run(result: Result, out: Console) -> None:
    """Configuration, accuracy matrices, the memory's contents and provenance of one run, for a terminal."""
    plan = result.experiment
    kinds = (plan.get(part) or {} for part in ("method", "memory"))
    method, memory = (clean(each.get("name", "?")) for each in kinds)
    data = clean(plan.get("data", "?"))
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
    for name, short, long in zip(plan.get("classes", []), last.get("short", []), last.get("long", []), strict=False):
        table.add_row(Text(clean(name)), str(short), str(long))
    out.print(table)
    for title, part in (("Experiment", plan), ("Seconds", result.seconds), ("Provenance", result.provenance)):
        out.print(f"[bold]{title}[/]")
        out.print_json(data=part)
