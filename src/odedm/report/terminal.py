"""What is printed on a terminal: the table with its warnings, and one run."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from odedm.core.configuration import settings_of
from odedm.core.plain_data import flatten
from odedm.core.text import printable, printable_value
from odedm.report.columns import ACC_MEAN, FORGETTING
from odedm.report.labels import memory_name
from odedm.report.published_number import TOO_FEW
from odedm.report.summary import Table
from odedm.report.tables import LABEL, report_markdown, table_words, to_csv, to_latex
from odedm.report.verdicts import warnings
from odedm.results.metrics import TITLES
from odedm.results.result import Result
from odedm.training.experiment import Experiment

NARROW, WIDE = 80, 120
"""Columns of a terminal from which on numbers are never broken, and all of them fit."""


def print_table(table: Table, console: Console, form: str = "rich", *, caption: str = "", label: str = LABEL) -> None:
    """Print the table on a console: for people, with warnings below it, or as Markdown, CSV or LaTeX.

    LaTeX may have a caption and a label.
    """
    if form == "latex":
        console.file.write(to_latex(table, caption=caption, label=label))
    elif form != "rich":
        console.file.write({"markdown": report_markdown, "csv": to_csv}[form](table))
    else:
        console.print(_rich_table(table, console.width))
        legend = ["± standard error over seeds"] if any(len(row.seeds) > 1 for row in table.rows) else []
        if console.width < WIDE:
            legend.append(f"{ACC_MEAN.title} and {FORGETTING.title} need {WIDE} columns")
        legend += [f"change against {table.against}, paired by seed, with its 95 % interval"] if table.changes else []
        legend += _beside_the_paper(table)
        console.print(Text("; ".join(legend), style="dim")) if legend else None
        for warning in warnings(table):
            console.print(Text(warning))


def as_text(table: Table) -> str:
    """Return what `print_table` prints for people, as plain text as wide as the terminal, or 80 columns."""
    text = StringIO()
    print_table(table, Console(file=text, color_system=None, force_terminal=False, force_jupyter=False))
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


def _rich_table(table: Table, width: int) -> RichTable:
    """Return the table, on a narrow terminal without lesser metrics; a clear change is bold, a chosen row italic."""
    metrics = table.narrow if width >= WIDE else tuple(m for m in table.narrow if m not in (ACC_MEAN, FORGETTING))
    (name, *heads), *rows = table_words(table, metrics, p=False)
    view = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="")
    view.add_column(name, overflow="fold", min_width=16)
    for head in heads:
        words = head.replace("Change in ", "Change\n").replace("Gradients/", "Grad.\n/")
        view.add_column(words, justify="right", no_wrap=width >= NARROW, overflow="fold")
    first = 2 + len(metrics)
    for row, line in zip(table.lines, rows, strict=True):
        cells = [Text(word if width >= WIDE else word.replace(" [", "\n[").replace(" ±", "\n±")) for word in line]
        for place, metric in enumerate(table.changes, start=first):
            cells[place].stylize("bold" if row.is_clear(metric) else "")
        view.add_row(*cells, style="" if row.kind == "runs" else "italic")
    return view


def _beside_the_paper(table: Table) -> list[str]:
    """Return how many of the paper's numbers have which verdict, for which a terminal has no columns."""
    counts = Counter(str(ours.verdict or TOO_FEW) for row in table.rows for ours in row.paper.values())
    words = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    return [f"of the paper's numbers {words}: beside ours in the page, --markdown and --csv"] if words else []


def print_run(result: Result, out: Console) -> None:
    """Print what one run measured, the memory's contents, then what it was and where it was made."""
    plan = result.experiment
    memory = memory_name({"memory.name": plan["memory"]["name"], "memory.policy": plan["memory"].get("policy")})
    keys = ("acc_last", "acc_mean", "task_il_last", "forgetting")
    numbers = [f"{TITLES[key]} {value:.2f}" for key in keys if (value := getattr(result, key)) is not None]
    name = f"{printable(plan['method'])} with {memory} on {printable(plan['data'])}, seed {plan.get('seed')}"
    out.print(Text(f"{name}: {', '.join(numbers)}"))
    for title, matrix in (("Class-IL", result.class_il), ("Task-IL", result.task_il)):
        if matrix is not None:
            table = RichTable("after task", *map(str, range(1, len(matrix) + 1)), "mean", title=f"{title} accuracy, %")
            for i, row in enumerate(matrix):
                cells = [f"{accuracy:.1f}" for accuracy in row] + [""] * (len(matrix) - 1 - i)
                table.add_row(str(i + 1), *cells, f"{sum(row) / len(row):.1f}")
            out.print(table)
    table = RichTable("class", "short-term rows", "long-term rows", title="Memory at the end")
    last = result.class_counts[-1] if result.class_counts else {}
    for label, short, long in zip(result.classes, last.get("short", []), last.get("long", []), strict=False):
        table.add_row(Text(printable(label)), str(short), str(long))
    out.print(table)
    for title, settings in _described(result).items():
        out.print(title, style="bold")
        width = max(map(len, settings), default=0)
        for key, value in sorted(settings.items()):
            out.print(f"  {key:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)


def _described(result: Result) -> dict[str, dict[str, str]]:
    """Return what a run was, by what people look for first: settings by name, but for those that have no value."""
    panels = {name: setting.panel for name, setting in settings_of(Experiment).items()}
    parts: dict[str, dict[str, Any]] = {title: {} for title in ("Method", "Memory", "Stream", "Run")}
    for name, value in flatten(result.experiment).items():
        first, _, rest = name.partition(".")
        parts["Memory" if first == "memory" else panels.get(first, "Run")][rest if first == "memory" else name] = value
    cost = {f"seconds, {phase}": f"{value:.2f}" for phase, value in result.seconds.items()}
    if result.sample_gradients is not None:
        cost["gradients for each row of the stream"] = f"{result.sample_gradients:.2f}"
    parts |= {"Cost": cost, "Provenance": flatten(result.provenance)}
    return {
        title: {printable(key): _plain(value) for key, value in part.items() if value not in (None, {}) or key == "dac"}
        for title, part in parts.items()
    }


def _plain(value: object) -> str:
    return "none" if value is None else printable_value(value)
