"""Write the tables of our numbers in a page anew, from the packed results that each names, and its figures.

python tools/ledger_tables.py [PAGE.md …]

In the page a table stands between two comments, the first of which names the packed results or the command:
<!-- odedm ledger docs/results/NAME.jsonl.gz -->, <!-- odedm paper --markdown … --> or <!-- odedm report … --> and
<!-- end of table -->.
Where it is <!-- odedm paper --figure FILE.png … -->, the figure stands there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from odedm.report.model import Cell, model
from odedm.report.summary import CHANGES, Table, summarise
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_interval, format_mean, number
from odedm.studies.merging import read_all

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("REPRODUCTION.md", "docs/leaderboard.md", "docs/explanation/no-harm.md")
PLACE = re.compile(r"( *)<!-- odedm ((?:ledger|paper|report) [\w./ -]+?) -->\n(.*?) *<!-- end of table -->\n", re.S)


def renewed(page: str) -> str:
    """The page with every table as its command prints it now, indented as its comment is."""

    def print_again(found: re.Match[str]) -> str:
        margin, words = found[1], found[2].split()
        if "--figure" in words:
            return found[0]  # nothing of it is text
        rows = "".join(f"{margin}{line}\n" for line in spoken(words).splitlines())
        return f"{margin}<!-- odedm {found[2]} -->\n{rows}{margin}<!-- end of table -->\n"

    return PLACE.sub(print_again, page)


def spoken(words: list[str]) -> str:
    """What a command of ours prints, or the table of a ledger; a figure is written where it says."""
    if words[0] == "ledger":
        return to_ledger_table(summarise(list(read_all([ROOT / word for word in words[1:]]).values())))
    said = subprocess.run([sys.executable, "-P", "-m", "odedm", *words], cwd=ROOT, capture_output=True, check=True)
    return said.stdout.decode()


def to_ledger_table(table: Table) -> str:
    """The table as Markdown, with final accuracy and Task-IL side by side."""
    lines = model(table)
    head = ["Runs", "Seeds"]
    for metric in CHANGES:
        name, mark, index = table.title(metric).partition("_")
        head += [f"{name}<sub>{index}</sub>" if mark else name, "change", "paper", "gap"]
    rows = []
    for line in lines.lines:
        cells = [_words(line.cells[metric.key]) for metric in CHANGES]
        rows.append([line.label, str(len(line.seeds)), *(word for words in cells for word in words)])
    return markdown_rows(head, rows)


def _words(cell: Cell) -> list[str]:
    """A number, its change, the paper's and the gap to it."""
    change = "" if cell.change is None else number(cell.change.estimate.mean, sign=True)
    spread = "" if cell.interval is None else f" {format_interval(cell.interval)}"
    if cell.paper is None or cell.gap is None:
        return [format_mean(cell.value), change + spread, "", ""]
    mark = f" ({cell.verdict})" if cell.verdict else ""
    return [format_mean(cell.value), change + spread, format_mean(cell.paper), number(cell.gap, sign=True) + mark]


def main() -> None:
    """Write the tables and figures of the pages anew."""
    paths = [Path(word) for word in sys.argv[1:]] or [ROOT / name for name in PAGES]
    for path in paths:
        page = path.read_text(encoding="utf-8")
        for _, words, _ in PLACE.findall(page):
            if "--figure" in words.split():
                spoken(words.split())
        path.write_text(renewed(page), encoding="utf-8")


if __name__ == "__main__":
    main()
