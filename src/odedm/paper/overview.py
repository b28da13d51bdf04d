"""What of the paper stands: runs and verdicts by table and figure, the cells that are worse, and seconds a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from odedm.core.registry import METHODS, title
from odedm.paper.items import CHANGED, ITEMS, PaperItem, changes_since, progress
from odedm.paper.paper_cells import MARKS, METRIC_TITLES, PaperCell, paper_cells, verdict_counts
from odedm.report.published_number import TOO_FEW
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_mean, number
from odedm.results.folder import FinishedRun

VERDICTS = {**{str(name): mark for name, mark in MARKS.items() if name}, TOO_FEW: "?"}
"""By name, each with its sign."""


@dataclass(frozen=True)
class Standing:
    """What stands of a table or figure: its runs, and the printed numbers with ours."""

    item: PaperItem
    runs: int = 0
    done: tuple[FinishedRun, ...] = ()
    cells: tuple[PaperCell, ...] = ()

    def words(self) -> list[str]:
        """Return its number, what it is, its runs, and how many printed numbers have each verdict, of all."""
        if not self.item.study:
            return [self.item.number, f"{self.item.title} ({self.item.source})", *[""] * (2 + len(VERDICTS))]
        counts = verdict_counts(self.cells)
        older = CHANGED if changes_since(self.done) else ""
        numbers = [str(counts.get(name, "")) for name in VERDICTS]
        printed = str(len(self.cells)) if self.cells else ""
        return [self.item.number, self.item.title, f"{len(self.done)}/{self.runs}{older}", *numbers, printed]


def standings(finished: Mapping[str, FinishedRun]) -> list[Standing]:
    """Return what stands of every table and figure; `finished` are runs by their signature."""
    shown = []
    for item in ITEMS.values():
        state = progress(item, finished) if item.study else None
        done = tuple(state.done) if state else ()
        cells = tuple(paper_cells(item.tables, item.data, done)) if item.study else ()
        shown.append(Standing(item, state.runs if state else 0, done, cells))
    return shown


def to_markdown(finished: Mapping[str, FinishedRun]) -> str:
    """Return three tables: every table and figure, the cells that are worse, and the time that a run takes."""
    shown = standings(finished)
    standing = markdown_rows([["", "what", "done", *VERDICTS, "of"], *(line.words() for line in shown)], texts=2)
    return "\n".join([standing, _worse(shown), _times(finished)])


def _worse(shown: list[Standing]) -> str:
    """Return the cells below the paper's by more than chance, each once; a best of several ρ repeats one of them."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for cell in (cell for line in shown for cell in line.cells):
        if cell.ours is not None and cell.ours.verdict == "worse":
            _, data, setting, size, method, _, metric = cell.cell
            place = (METRIC_TITLES[metric], data, setting, f"λ={size}", title(METHODS, method))
            key = (*place, format_mean(cell.paper))
            if key not in rows or "best" in rows[key][5]:
                numbers = [format_mean(cell.paper), format_mean(cell.ours.ours), number(cell.ours.gap, sign=True)]
                rows[key] = [*place, cell.memory, *numbers]
    head = ["metric", "data", "setting", "memory", "method", "with", "paper", "ours", "gap"]
    return markdown_rows([head, *(rows[key] for key in sorted(rows))], texts=6)


def _times(finished: Mapping[str, FinishedRun]) -> str:
    """Return seconds of a run by data and method, plain and with ODEDM, as measured beside the others."""
    seconds: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for run in finished.values():
        plan = run.result.experiment
        sides = seconds.setdefault((str(plan["data"]), str(plan["method"])), ([], []))
        sides[plan["memory"]["name"] == "odedm"].append(run.seconds)
    rows = [
        [data, title(METHODS, method), *(f"{mean(side):.0f}" if side else "" for side in sides)]
        for (data, method), sides in sorted(seconds.items())
    ]
    return markdown_rows([["data", "method", "seconds, plain", "seconds, with ODEDM"], *rows], texts=2)
