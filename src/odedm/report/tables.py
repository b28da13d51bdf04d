"""The table for a terminal, as Markdown and as CSV; `odedm.report.latex` has it for a paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odedm.core.text import printable
from odedm.report.latex import to_latex
from odedm.report.model import Cell, Line, TableModel, model
from odedm.report.share_choice import caveats
from odedm.report.summary import ACC_LAST, ACC_MEAN, COMPARED, FORGETTING, METRICS, TASK_IL, Metric, Table, verdicts
from odedm.report.wording import between, measured, number, probability

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

IN_TERMINAL = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
"""Backward transfer all but repeats forgetting, and seconds are no result: a narrow terminal does without them."""
NAME = (14, 30)
"""The least and the most columns of a terminal that names of groups take."""


def print_table(table: Table, console: Console, form: str = "rich", *, most: int | None = None) -> None:
    """Print the table on a console: for people, with up to `most` sentences about it, or as Markdown, CSV, LaTeX."""
    if form != "rich":
        console.file.write({"markdown": to_markdown, "csv": to_csv, "latex": to_latex}[form](table))
        return
    console.print(to_rich(table))
    said = [*verdicts(table), *caveats(table)] if len(table.rows) > 1 else []
    for sentence in said[:most]:
        console.print(sentence, markup=False, highlight=False)
    if most is not None and len(said) > most:
        console.print(f"… and {len(said) - most} more sentences in the report.", markup=False, highlight=False)


def to_rich(table: Table) -> ForTerminal:
    """The table for a terminal of 80 columns or more, to be printed by rich; the paper's numbers stand below it."""
    return ForTerminal(model(table))


@dataclass(frozen=True)
class ForTerminal:
    """A table that puts errors and intervals beside the means, else under them, else errors alone: what fits first."""

    model: TableModel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        free = options.update(width=10_000)
        wide, tightest = _rich_table(self.model, beside=True), _rich_table(self.model, beside=False, name=NAME[0])
        if console.measure(wide, options=free).maximum <= options.max_width:
            yield wide
        elif console.measure(tightest, options=free).maximum <= options.max_width:
            yield _rich_table(self.model, beside=False)
        else:
            yield _rich_table(self.model, beside=False, intervals=False)
        if self.model.printed:
            yield ""
            yield _rich_paper(self.model)


def _new_table(*heads: str, name: int) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    view = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    view.add_column(heads[0], overflow="fold", min_width=NAME[0], max_width=name)
    for head in heads[1:]:
        view.add_column(head, justify="right", no_wrap=True)
    return view


def _rich_table(model: TableModel, *, beside: bool, intervals: bool = True, name: int = NAME[1]) -> RichTable:
    from rich.text import Text

    short = {ACC_MEAN.title: "mean\nACC", FORGETTING.title: "Forget-\nting"}
    heads = [short.get(head, head) for head in map(model.title, IN_TERMINAL)]
    heads += [f"Change\n{model.title(metric)}" for metric in model.changes]
    view = _new_table("Runs", "Seeds", *heads, name=name)
    for line in model.lines:
        style = "" if line.kind == "runs" else "italic"
        cells = [Text(line.label, style=style), Text(str(len(line.seeds)))]
        cells += [_cell(line.cells[metric.key], beside=beside) for metric in IN_TERMINAL]
        cells += [_change_cell(line, metric, beside=beside, intervals=intervals) for metric in model.changes]
        view.add_row(*cells)
    return view


def _cell(cell: Cell, *, beside: bool) -> Text:
    from rich.text import Text

    text = Text(number(cell.value.mean))
    if cell.value.error is None:
        return text
    # Errors beside the means have room for 99.9, so that the means stand in line.
    error = number(cell.value.error)
    return text.append(f" ±{error:>4}" if beside else f"\n±{error}", style="dim")


def _change_cell(line: Line, metric: Metric, *, beside: bool, intervals: bool) -> Text:
    from rich.text import Text

    pair = line.cells[metric.key].change
    if pair is None:
        return Text()
    bold = "bold" if pair.clear and line.kind != "test" else ""
    text = Text(number(pair.estimate.mean, sign=True), style=bold)
    if line.kind == "test" or pair.interval is None:
        return text
    spread = between(pair.interval) if intervals else f"±{number(pair.estimate.error or 0.0)}"
    return text.append(f"{' ' if beside else chr(10)}{spread}", style="dim not bold")


def _rich_paper(model: TableModel) -> RichTable:
    """Ours beside the paper's, a row for each number that the paper has."""
    from rich.text import Text

    view = _new_table("Beside the paper", "", "ours", "paper", "gap", "inside", name=NAME[1])
    for line in model.lines:
        for metric in model.printed:
            cell = line.cells[metric.key]
            if cell.paper is None or cell.gap is None:
                continue
            words = (model.title(metric), measured(cell.value), paper_words(cell), number(cell.gap, sign=True))
            view.add_row(Text(line.label), *(Text(word) for word in (*words, inside_word(cell))))
    return view


def paper_words(cell: Cell) -> str:
    """The paper's number as it is printed there, to one digit; empty where there is none."""
    if cell.paper is None:
        return ""
    error = "" if cell.paper.error is None else f" ± {number(cell.paper.error)}"
    return f"{number(cell.paper.mean)}{error}"


def inside_word(cell: Cell) -> str:
    """Whether the gap to the paper lies inside the combined error, in a word."""
    return {True: "inside", False: "outside", None: "–" if cell.paper else ""}[cell.inside]


def change_words(line: Line, metric: Metric) -> str:
    """A change with its interval and Holm's p; of a best on the test set the change alone."""
    cell = line.cells[metric.key]
    if cell.change is None:
        return ""
    text = number(cell.change.estimate.mean, sign=True)
    if line.kind == "test" or cell.change.interval is None:
        return text
    chance = "" if cell.corrected is None else f", {probability(cell.corrected)}"
    return f"{text} {between(cell.change.interval)}{chance}"


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown: mean ± standard error over seeds, changes with interval and Holm's p."""
    lines, head = model(table), ["Runs", "Seeds", *(table.title(metric) for metric in METRICS)]
    head += [f"Change in {table.title(metric)}" for metric in lines.changes]
    for metric in lines.printed:
        head += [f"Paper's {table.title(metric)}", "Gap"]
    text = [_bar(head), _bar(["---", *["---:"] * (len(head) - 1)])]
    for line in lines.lines:
        cells = [_plain_markdown(line.label), str(len(line.seeds))]
        cells += [measured(line.cells[metric.key].value) for metric in METRICS]
        cells += [change_words(line, metric) for metric in lines.changes]
        for metric in lines.printed:
            cells += [paper_words(line.cells[metric.key]), _gap_words(line.cells[metric.key])]
        text.append(_bar(cells))
    return "\n".join(text) + "\n"


def _gap_words(cell: Cell) -> str:
    if cell.gap is None:
        return ""
    where = "" if cell.inside is None else f" ({inside_word(cell)})"
    return number(cell.gap, sign=True) + where


def _bar(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain_markdown("a|b <i> DER++"))
    a\|b \<i\> DER++
    """
    return "".join("\\" + character if character in "\\`*_{}[]<>|#!&~" else character for character in text)


CHANGE_COLUMNS = ("", "_error", "_low", "_high", "_p", "_holm", "_n", "_better")
PAPER_COLUMNS = ("", "_error", "_gap", "_combined_error", "_inside")


def to_csv(table: Table) -> str:
    """The table in full precision; an empty cell means that there is no such number."""
    head = ["label", "kind", "data", "setting", "method", "memory", "capacity", "tasks", "seeds", "n"]
    for metric in METRICS:
        head += [metric.key, f"{metric.key}_error", f"{metric.key}_sd"]
    for metric in COMPARED:
        head += [f"{metric.key}_change{part}" for part in CHANGE_COLUMNS]
    for metric in COMPARED:
        head += [f"{metric.key}_paper{part}" for part in PAPER_COLUMNS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # which writes None as an empty cell
    writer.writerow(head)
    writer.writerows(_csv_cells(line) for line in model(table).lines)
    return text.getvalue()


def _csv_cells(line: Line) -> list[object]:
    group, own = line.group, line.group.settings
    names = ("data", "setting", "method", "memory.name", "memory.capacity")
    cells: list[object] = [line.label, line.kind, *(printable(own[name]) if name in own else None for name in names)]
    cells += [group.tasks, " ".join(str(seed) for seed in line.seeds), len(line.seeds)]
    for metric in METRICS:
        value = line.cells[metric.key].value
        cells += [value.mean, value.error, value.sd]
    for metric in COMPARED:
        cells += _csv_change(line, line.cells[metric.key])
    for metric in COMPARED:
        cell = line.cells[metric.key]
        paper = [cell.paper.mean, cell.paper.error] if cell.paper else [None, None]
        cells += [*paper, cell.gap, cell.combined, None if cell.inside is None else int(cell.inside)]
    return cells


def _csv_change(line: Line, cell: Cell) -> list[object]:
    pair = cell.change
    if pair is None:
        return [None] * len(CHANGE_COLUMNS)
    tested = line.kind != "test"
    low, high = pair.interval if pair.interval and tested else (None, None)
    p = pair.p if tested else None
    return [pair.estimate.mean, pair.estimate.error, low, high, p, cell.corrected, pair.estimate.n, pair.better]
