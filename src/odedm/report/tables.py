"""The summary as a table: for a terminal, as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odedm.report.statistics import Estimate, Paired
from odedm.report.summary import (
    ACC_LAST,
    ACC_MEAN,
    COMPARED,
    FORGETTING,
    METRICS,
    TASK_IL,
    Row,
    Table,
)
from odedm.report.wording import clean, measured, number

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

IN_TERMINAL = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
"""Backward transfer all but repeats forgetting, and seconds are no result: a narrow terminal does without them."""


def to_rich(table: Table) -> ForTerminal:
    """The table for a terminal of 80 columns or more, to be printed by rich."""
    return ForTerminal(table)


@dataclass(frozen=True)
class ForTerminal:
    """A table that puts standard errors beside the means where the terminal is wide enough, else under them."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = _rich_table(self.table, beside=True)
        fits = console.measure(wide, options=options.update(width=10_000)).maximum <= options.max_width
        yield wide if fits else _rich_table(self.table, beside=False)


def _rich_table(table: Table, *, beside: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    view = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    view.add_column("Runs", overflow="fold", min_width=14, max_width=30)
    heads = ["Seeds", *(table.title(metric) for metric in IN_TERMINAL)]
    heads += [f"Change\n{table.title(metric)}" for metric in table.changes]
    short = {ACC_MEAN.title: "mean\nACC", FORGETTING.title: "Forget-\nting"}
    for head in heads:
        view.add_column(short.get(head, head), justify="right", no_wrap=True)
    for row in table.rows:
        cells = [Text(row.group.label), Text(str(len(row.group.runs)))]
        cells += [_cell(row.values[metric.key], beside=beside) for metric in IN_TERMINAL]
        cells += [_change_cell(row.differences.get(metric.key), beside=beside) for metric in table.changes]
        view.add_row(*cells)
    return view


def _cell(value: Estimate, *, beside: bool, sign: bool = False, style: str = "") -> Text:
    from rich.text import Text

    text = Text(number(value.mean, sign=sign), style=style)
    if value.error is None:
        return text
    # Errors beside the means have room for 99.9, so that the means stand in line.
    return text.append(f" ±{number(value.error):>4}" if beside else f"\n±{number(value.error)}", style="dim not bold")


def _change_cell(pair: Paired | None, *, beside: bool) -> Text:
    from rich.text import Text

    return _cell(pair.estimate, beside=beside, sign=True, style="bold" if pair.clear else "") if pair else Text()


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown, mean ± standard error over seeds."""
    head = ["Runs", "Seeds", *(table.title(metric) for metric in METRICS)]
    head += [f"Change in {table.title(metric)}" for metric in table.changes]
    lines = [_bar(head), _bar(["---", *["---:"] * (len(head) - 1)])]
    for row in table.rows:
        cells = [_plain_markdown(row.group.label), str(len(row.group.runs))]
        cells += [measured(row.values[metric.key]) for metric in METRICS]
        pairs = [row.differences.get(metric.key) for metric in table.changes]
        cells += [measured(pair.estimate, sign=True) if pair else "" for pair in pairs]
        lines.append(_bar(cells))
    return "\n".join(lines) + "\n"


def _bar(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain_markdown("a|b <i> DER++"))
    a\|b \<i\> DER++
    """
    return "".join("\\" + character if character in "\\`*_{}[]<>|#!&~" else character for character in text)


def to_csv(table: Table) -> str:
    """The table in full precision; an empty cell means that there is no such number."""
    head = ["label", "data", "setting", "method", "memory", "capacity", "tasks", "seeds", "n"]
    for metric in METRICS:
        head += [metric.key, f"{metric.key}_error"]
    for metric in COMPARED:
        head += [f"{metric.key}_change{part}" for part in ("", "_error", "_n", "_better")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # which writes None as an empty cell
    writer.writerow(head)
    writer.writerows(_csv_cells(row) for row in table.rows)
    return text.getvalue()


def _csv_cells(row: Row) -> list[object]:
    group, own = row.group, row.group.settings
    names = ("data", "setting", "method.name", "memory.name", "memory.capacity")
    cells: list[object] = [group.label, *(clean(own[name]) if name in own else None for name in names)]
    cells += [group.tasks, " ".join(str(run.seed) for run in group.runs), len(group.runs)]
    for metric in METRICS:
        value = row.values[metric.key]
        cells += [value.mean, value.error]
    for metric in COMPARED:
        pair = row.differences.get(metric.key)
        cells += [pair.estimate.mean, pair.estimate.error, pair.estimate.n, pair.better] if pair else [None] * 4
    return cells
