"""The table of our numbers in REPRODUCTION.md: what was measured, what ODEDM changed, and the paper's beside it."""

from __future__ import annotations

from odedm.report.model import Cell, model
from odedm.report.summary import TOLD, Table
from odedm.report.tables import markdown_rows
from odedm.report.wording import between, measured, number


def to_ledger_table(table: Table) -> str:
    """The table as Markdown, with final accuracy and Task-IL side by side."""
    lines = model(table)
    head = ["Runs", "Seeds"]
    for metric in TOLD:
        name, mark, index = table.title(metric).partition("_")
        head += [f"{name}<sub>{index}</sub>" if mark else name, "change", "paper", "gap"]
    rows = []
    for line in lines.lines:
        cells = [_words(line.cells[metric.key]) for metric in TOLD]
        rows.append([line.label, str(len(line.seeds)), *(word for words in cells for word in words)])
    return markdown_rows(head, rows)


def _words(cell: Cell) -> list[str]:
    """A number, its change, the paper's and the gap to it."""
    change = "" if cell.change is None else number(cell.change.estimate.mean, sign=True)
    spread = "" if cell.interval is None else f" {between(cell.interval)}"
    if cell.paper is None or cell.gap is None:
        return [measured(cell.value), change + spread, "", ""]
    mark = f" ({cell.verdict})" if cell.verdict else ""
    return [measured(cell.value), change + spread, measured(cell.paper), number(cell.gap, sign=True) + mark]
