"""The paper's tables and figures in miniature as one HTML page, in the paper's own order, rows and headings."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from odedm.core.files import write_text
from odedm.core.registry import normalize_name
from odedm.memory.paper_preset import DAC_BY_RHO
from odedm.paper.items import CITATION, PaperItem
from odedm.paper.mini import SCALE, small_capacity
from odedm.paper.printed import EPOCHS, TASKS
from odedm.paper.printed_tables import BEST, NONE, Beside, method_title, prototype_counts
from odedm.report.page import check_page

DATA = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "tinyimagenet": "TINYIMG", "imagenetr": "ImageNet-R"}
PROTOCOLS = {EPOCHS[1]: "Online training (1 epoch)", EPOCHS[50]: "Offline training (50 epochs)"}
METRICS = {"acc_last": "ACC_{}", "acc_mean": "mean ACC_{}", "task_il_last": "ACC_{}^Task-IL"}
ACC = re.compile(r"(mean )?\bACC_(\d+|T)(\^Task-IL)?")


class Place(NamedTuple):
    """Where a number stands: a group of rows, its row there, and its column under headings.

    `block` names the rows between two rules; with `competes` the best of a column among them is set in bold.
    """

    group: str
    row: str
    column: tuple[str, ...]
    block: str = ""
    competes: bool = False
    chosen: bool = False


@dataclass
class TableEntry:
    """A number of a table as words, with what the paper prints; `best` is set in bold, `chosen` on blue."""

    ours: str = "-"
    sd: str = ""
    printed: str = ""
    mean: float | None = None
    best: bool = False
    chosen: bool = False


@dataclass
class PaperTable:
    """A table of the page: headings above columns, and rows in groups."""

    corner: tuple[str, str]
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


@dataclass(frozen=True)
class Section:
    """A table or a figure on the page: its number, caption, note, and what is shown of it."""

    number: str
    caption: str
    note: str = ""
    tables: Sequence[PaperTable] = ()
    pictures: Sequence[str] = ()


def section(item: PaperItem, cells: Sequence[Beside], pictures: Sequence[Path] = (), note: str = "") -> Section:
    """Return what the page shows of a table or figure: its cells, and pictures from SVG files."""
    tables = [prototype_table()] if item.name == "table2" else [_to_table(item, cells)] if cells else []
    images = [f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}" for path in pictures]
    return Section(item.number, item.caption, note, tables, images)


def _to_table(item: PaperItem, cells: Sequence[Beside]) -> PaperTable:
    corners = {"table3": ("K", "depth"), "table4": ("", "Buffer Method"), "figure4": ("", "Distance")}
    table = PaperTable(corners.get(item.name, ("Buffer", "Method")))
    place_of = PLACES.get(item.name, _by_buffer_and_method)
    rivals: dict[tuple[str, str, tuple[str, ...]], list[TableEntry]] = {}
    for cell in cells:
        if cell.rate:
            continue
        place, printed = place_of(cell), f"{cell.paper.mean:.2f}"
        printed += "" if cell.paper.error is None else f" ± {cell.paper.error:.2f}"
        entry = TableEntry(printed=printed, chosen=place.chosen)
        if cell.ours is not None and (value := cell.ours.value) is not None:
            entry.ours, entry.mean = f"{value.mean:.2f}", value.mean
            entry.sd = "" if value.sd is None else f"±{value.sd:.2f}"
        table.add(place, entry)
        if place.competes and entry.mean is not None:
            rivals.setdefault((place.group, place.block, place.column), []).append(entry)
    for entries in rivals.values():
        max(entries, key=lambda entry: entry.mean or 0.0).best = True
    return table


def _by_buffer_and_method(cell: Beside) -> Place:
    """Table 1 and those by method and k: λ, then each method plain and with ODEDM."""
    table, data, setting, capacity, method, variant, metric = cell.place
    name = method_title(method)
    row = name if variant == NONE else f"{name} w/ ODEDM" if variant == BEST else f"{name} (ODEDM-{cell.k})"
    column = (setting.capitalize(), METRICS[metric].format(TASKS[data]))
    above = (DATA[data],) if table == "table1" else ()
    return Place(_buffer(capacity), row, (*above, *column), method, competes=metric != "acc_mean")


def _by_dac(cell: Beside) -> Place:
    rho, clusters, depth = re.findall(r"\d+", cell.place[5])
    column = (f"{rho}%", METRICS[cell.place[6]].format(TASKS[cell.place[1]]))
    chosen = DAC_BY_RHO[int(rho) / 100] == (int(clusters), int(depth))
    return Place(clusters, depth, column, chosen=chosen)


def _by_protocol(cell: Beside) -> Place:
    setting, capacity, method, variant = cell.place[2:6]
    group = "Ours" if variant == BEST else PROTOCOLS[setting]
    row = method_title(method) + (" w/ ODEDM" if variant == BEST else "")
    return Place(group, row, (f"M = {_buffer(capacity)}",))


def _by_distance(cell: Beside) -> Place:
    name = cell.place[5].rpartition("-")[2]
    distance = name.capitalize() if name == "sinkhorn" else name.upper()
    return Place("", distance, (METRICS[cell.place[6]].format(TASKS[cell.place[1]]),), competes=True)


PLACES: Mapping[str, Callable[[Beside], Place]] = {
    "table3": _by_dac,
    "table4": _by_protocol,
    "figure4": _by_distance,
}


def _buffer(capacity: str) -> str:
    return str(small_capacity(int(capacity)))


def prototype_table() -> PaperTable:
    """Return Table 2 for the sizes of the miniature: k by F_k and the long-term share, by λ, ρ and data."""
    table = PaperTable(("Buffer Size", "ρ"))
    for row in prototype_counts(small=True):
        entry = TableEntry(row["ours"], printed=row["printed"])
        place = Place(_buffer(row["capacity"]), f"{float(row['rho']):.0%}", (DATA[normalize_name(row["data"])],))
        table.add(place, entry)
    return table


def save_paper_page(sections: Sequence[Section], out: Path, facts: Sequence[str]) -> Path:
    """Write the page, whole or not at all; nothing but a page of odedm's is written over."""
    check_page(out)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"acc": _acc}
    template = files(__package__).joinpath("paper_page.html.j2").read_text(encoding="utf-8")
    scale = [(DATA[normalize_name(name)], small["name"], small["tasks"]) for name, small in SCALE["data"].items()]
    page = environment.from_string(template).render(
        sections=sections,
        facts=facts,
        citation=CITATION,
        scale=scale,
        capacities=SCALE["capacity"],
        epochs=SCALE["epochs"],
    )
    write_text(out, page)
    return out


def _acc(text: str) -> Markup:
    """Return escaped text with ACC_5, mean ACC_5 and ACC_5^Task-IL set as the paper does.

    >>> str(_acc("mean ACC_10 & ACC_T^Task-IL"))
    '<i><span class="mean">ACC</span><sub>10</sub></i> &amp; <i>ACC<sub>T</sub><sup>Task-IL</sup></i>'
    """

    def mark(found: re.Match[str]) -> str:
        name = '<span class="mean">ACC</span>' if found[1] else "ACC"
        return f"<i>{name}<sub>{found[2]}</sub>{'<sup>Task-IL</sup>' if found[3] else ''}</i>"

    return Markup(ACC.sub(mark, html.escape(text)))
