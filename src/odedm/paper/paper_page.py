"""The paper's tables and figures in miniature as one HTML page, in the paper's own order, rows and headings."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from odedm.core.files import write_text
from odedm.paper.items import CITATION, PaperItem
from odedm.paper.mini import SCALE
from odedm.paper.paper_cells import PaperCell
from odedm.paper.paper_tables import DATA_TITLES, PaperTable, as_printed, prototype_table
from odedm.report.page import check_page, data_link

ACC = re.compile(r"(mean )?\bACC_(\d+|T)(\^Task-IL)?")


@dataclass(frozen=True)
class Section:
    """A table or a figure on the page: its item, note, and what is shown of it."""

    item: PaperItem
    note: str = ""
    tables: Sequence[PaperTable] = ()
    pictures: Sequence[str] = ()


def section(item: PaperItem, cells: Sequence[PaperCell], pictures: Sequence[Path] = (), note: str = "") -> Section:
    """Return what the page shows of a table or figure: its cells, and pictures from SVG files."""
    tables = [as_printed(item.name, cells)] if cells else []
    tables += [prototype_table(small=True)] if item.name == "table2" else []
    images = [data_link(path.read_text(encoding="utf-8"), "image/svg+xml") for path in pictures]
    return Section(item, note, tables, images)


def save_paper_page(sections: Sequence[Section], out: Path, facts: Sequence[str]) -> Path:
    """Write the page, whole or not at all; nothing but a page of odedm's is written over."""
    check_page(out)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"acc": _acc}
    template = files(__package__).joinpath("paper_page.html.j2").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        sections=sections, facts=facts, citation=CITATION, scale=SCALE, titles=DATA_TITLES
    )
    write_text(out, page)
    return out


def _acc(text: str) -> Markup:
    """Return escaped text with ACC_5, mean ACC_5 and ACC_5^Task-IL set as the paper does.

    >>> str(_acc("mean ACC_10 & ACC_T^Task-IL"))
    '<i><span class="mean">ACC</span><sub>10</sub></i> &amp; <i>ACC<sub>T</sub><sup>Task-IL</sup></i>'
    """

    def mark(match: re.Match[str]) -> str:
        name = '<span class="mean">ACC</span>' if match[1] else "ACC"
        return f"<i>{name}<sub>{match[2]}</sub>{'<sup>Task-IL</sup>' if match[3] else ''}</i>"

    return Markup(ACC.sub(mark, html.escape(text)))
