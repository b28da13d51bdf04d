"""The paper's tables with our numbers beside: in its own layout, or by metric for a terminal and LaTeX."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby, pairwise
from typing import NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS, title
from odedm.memory.paper_preset import DAC_BY_RHO
from odedm.memory.quotas import prototypes_per_class
from odedm.paper.items import CHANGED
from odedm.paper.mini import small_capacity, small_stream
from odedm.paper.paper_cells import MARKS, PaperCell
from odedm.paper.printed import BEST, NONE, Cell
from odedm.paper.protocol import DATA, EPOCHS
from odedm.report.tables import escape
from odedm.report.wording import format_mean

LEGEND = (
    "printed, below it ours: = reproduced, + better, − worse, ~ not comparable; a best of several ρ is the test set's"
)
DATA_TITLES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "tiny-imagenet": "TINYIMG", "imagenet-r": "ImageNet-R"}
PROTOCOLS = {EPOCHS[1]: "Online training (1 epoch)", EPOCHS[50]: "Offline training (50 epochs)"}
ACCURACY = {"acc_last": "ACC_{}", "acc_mean": "mean ACC_{}", "task_il_last": "ACC_{}^Task-IL"}


class Place(NamedTuple):
    """Where a number stands: a table, a group of rows, its row there, and its column under headings.

    `block` names the rows between two rules; with `competes` the best of a column among them is set in bold.
    """

    group: str
    row: str
    column: tuple[str, ...]
    block: str = ""
    competes: bool = False
    chosen: bool = False
    table: str = ""


@dataclass
class TableEntry:
    """A number of a table as words, with what the paper prints; `best` is set in bold, `chosen` on blue."""

    printed: str
    ours: str = "-"
    sd: str = ""
    mean: float | None = None
    best: bool = False
    chosen: bool = False


@dataclass
class PaperTable:
    """A table: headings above columns, and rows in groups."""

    title: str = ""
    corner: tuple[str, str] = ("", "")
    columns: list[tuple[str, ...]] = field(default_factory=list)
    groups: dict[str, dict[str, dict[tuple[str, ...], TableEntry]]] = field(default_factory=dict)
    blocks: dict[tuple[str, str], str] = field(default_factory=dict)

    def headings(self) -> list[list[tuple[str, int]]]:
        """Return each line of headings as words, with how many columns they stand over."""
        levels = range(len(self.columns[0]) if self.columns else 0)
        runs = [groupby(self.columns, key=lambda column, depth=level: column[: depth + 1]) for level in levels]  # type: ignore[misc]
        return [[(heading[-1], len(list(members))) for heading, members in line] for line in runs]

    def add(self, place: Place, entry: TableEntry) -> None:
        """Put a number in its place; rows and columns are in the order in which they come."""
        if place.column not in self.columns:
            self.columns.append(place.column)
        self.groups.setdefault(place.group, {}).setdefault(place.row, {})[place.column] = entry
        self.blocks[place.group, place.row] = place.block

    def ruled(self, group: str) -> set[str]:
        """Return the rows of a group above which there is a rule: each begins another block."""
        rows = [*self.groups[group]]
        return {row for before, row in pairwise(rows) if self.blocks[group, row] != self.blocks[group, before]}

    def lines(self) -> list[list[str | TableEntry]]:
        """Return each row flat: its group where that begins, its name, and its numbers, "" where there is none."""
        return [
            [group if i == 0 else "", row, *(entries.get(column, "") for column in self.columns)]
            for group, rows in self.groups.items()
            for i, (row, entries) in enumerate(rows.items())
        ]


def by_metric(cells: Iterable[PaperCell]) -> list[PaperTable]:
    """Return a table for each metric, data set and setting: a row for each method and memory, a column for each λ."""
    tables: dict[str, PaperTable] = {}
    for cell in cells:
        entry = TableEntry(format_mean(cell.paper), "–")
        if cell.ours is not None:
            mark = MARKS[cell.ours.verdict] + (CHANGED if cell.changed else "")
            entry.ours = f"{format_mean(cell.ours.ours)} {mark}".strip()
        table = tables.setdefault(cell.heading, PaperTable(cell.heading))
        table.add(Place(title(METHODS, cell.cell.method), cell.memory, (f"λ={cell.cell.capacity}",)), entry)
    return list(tables.values())


def as_printed(name: str, cells: Iterable[PaperCell]) -> PaperTable:
    """Return a table by its name in the paper's own layout, with our means and standard deviations."""
    table = PaperTable(corner=CORNERS.get(name, ("Buffer", "Method")))
    rivals: dict[tuple[str, str, tuple[str, ...]], list[TableEntry]] = {}
    for cell in cells:
        place, printed = PLACES.get(name, _by_buffer_and_method)(cell), f"{cell.paper.mean:.2f}"
        printed += "" if cell.paper.error is None else f" ± {cell.paper.error:.2f}"
        entry = TableEntry(printed, chosen=place.chosen)
        if cell.ours is not None:
            value = cell.ours.ours
            entry.ours, entry.mean = f"{value.mean:.2f}", value.mean
            entry.sd = "" if value.sd is None else f"±{value.sd:.2f}"
            if place.competes:
                rivals.setdefault((place.group, place.block, place.column), []).append(entry)
        table.add(place, entry)
    for entries in rivals.values():
        max(entries, key=lambda entry: entry.mean or 0.0).best = True
    return table


def _accuracy_title(cell: Cell) -> str:
    return ACCURACY[cell.metric].format(DATA[cell.data]["tasks"])


def _by_buffer_and_method(paper_cell: PaperCell) -> Place:
    """Table 1 and those by method and k: λ, then each method plain and with ODEDM."""
    cell = paper_cell.cell
    name = title(METHODS, cell.method)
    row = {NONE: name, BEST: f"{name} w/ ODEDM"}.get(cell.variant, f"{name} (ODEDM-{paper_cell.k})")
    column = (cell.setting.capitalize(), _accuracy_title(cell))
    above = (DATA_TITLES[cell.data],) if cell.table == "table1" else ()
    return Place(_buffer(cell), row, (*above, *column), cell.method, competes=cell.metric != "acc_mean")


def _by_dac(paper_cell: PaperCell) -> Place:
    rho, clusters, depth = re.findall(r"\d+", paper_cell.cell.variant)
    chosen = DAC_BY_RHO[int(rho) / 100] == (int(clusters), int(depth))
    return Place(clusters, depth, (f"{rho}%", _accuracy_title(paper_cell.cell)), chosen=chosen)


def _by_protocol(paper_cell: PaperCell) -> Place:
    cell = paper_cell.cell
    group = "Ours" if cell.variant == BEST else PROTOCOLS[cell.setting]
    row = title(METHODS, cell.method) + (" w/ ODEDM" if cell.variant == BEST else "")
    return Place(group, row, (f"M = {_buffer(cell)}",))


def _by_distance(paper_cell: PaperCell) -> Place:
    name = paper_cell.cell.variant.rpartition("-")[2]
    row = name.capitalize() if name == "sinkhorn" else name.upper()
    return Place("", row, (_accuracy_title(paper_cell.cell),), competes=True)


def _buffer(cell: Cell) -> str:
    return str(small_capacity(int(cell.capacity)))


CORNERS = {"table3": ("K", "depth"), "table4": ("", "Buffer Method"), "figure4": ("", "Distance")}
PLACES: Mapping[str, Callable[[PaperCell], Place]] = {
    "table3": _by_dac,
    "table4": _by_protocol,
    "figure4": _by_distance,
}


def prototype_table(*, small: bool = False) -> PaperTable:
    """Return Table 2: k and the long-term share by λ, ρ and data, printed and by F_k.

    With `small` the latter are for the λ, tasks and classes of the paper in miniature.
    """
    table = PaperTable("k of ODEDM and the long-term share, printed and by F_k", ("Buffer Size", "ρ"))
    for line in csv.DictReader(files(__package__).joinpath("table2.csv").read_text(encoding="utf-8").splitlines()):
        data, capacity, rho = line["data"], int(line["capacity"]), float(line["rho"])
        tasks, classes = DATA[data]["tasks"], DATA[data]["classes"]
        if small:
            capacity, (tasks, classes) = small_capacity(capacity), small_stream(data)
        entry = TableEntry(f"{line['k']} ({line['percent']}%)" if line["k"] else "-")
        try:
            k = prototypes_per_class(rho, capacity, tasks=tasks, classes=classes // tasks)
            entry.ours = f"{k} ({100 * k * (tasks - 1) * (classes // tasks) / capacity:.0f}%)"
        except UsageError:  # rounds to no prototype at all
            pass
        table.add(Place(str(capacity), f"{rho:.0%}", (DATA_TITLES[data],)), entry)
    return table


def to_rich(table: PaperTable) -> RichTable:
    """Return a table for a terminal: each printed number above ours."""
    view = RichTable(*table.corner, *(column[-1] for column in table.columns), title=table.title, title_justify="left")
    for line in table.lines():
        view.add_row(*(Text(word if isinstance(word, str) else f"{word.printed}\n{word.ours}") for word in line))
    return view


def to_latex(tables: Iterable[PaperTable]) -> str:
    """Return tables with booktabs; each printed number stands before ours."""
    parts = [f"% {LEGEND}"]
    for table in tables:
        lines = [[*table.corner, *(column[-1] for column in table.columns)]]
        lines += [[w if isinstance(w, str) else f"{w.printed} / {w.ours}" for w in line] for line in table.lines()]
        head, *rows = [" & ".join(map(escape, line)) + r" \\" for line in lines]
        start = [f"% {escape(table.title)}", rf"\begin{{tabular}}{{ll{'r' * len(table.columns)}}}"]
        parts.append("\n".join([*start, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(parts) + "\n"
