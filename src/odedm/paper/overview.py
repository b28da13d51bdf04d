"""What of the paper stands, in one page of Markdown: cells by verdict, the worse ones by name, and seconds a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from odedm.core.registry import METHODS, title
from odedm.paper.items import ITEMS, PaperProgress, progress
from odedm.paper.printed_tables import MARKS, METRIC_TITLES, Beside, beside, counted, method_title
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_mean, number
from odedm.results.folder import FinishedRun

VERDICTS = tuple(str(name) for name in MARKS if name)


def to_markdown(finished: Mapping[str, FinishedRun]) -> str:
    """Return three tables: every table and figure, the cells that are worse, and the time that a run takes.

    `finished` are runs by their signature.
    """
    states = {name: progress(item, finished) for name, item in ITEMS.items() if item.study}
    cells = {name: beside(item.tables, item.data, states[name].done) for name, item in ITEMS.items() if name in states}
    parts = [_standing(states, cells), _worse(cells), _times(list(finished.values()))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _standing(states: Mapping[str, PaperProgress], cells: Mapping[str, Sequence[Beside]]) -> str:
    rows = []
    for name, item in ITEMS.items():
        if name not in states:
            rows.append([item.number, f"{item.title}; {item.source}", *[""] * (3 + len(VERDICTS))])
            continue
        state, printed = states[name], cells[name]
        verdicts = counted(printed)
        counts = [str(verdicts.get(each, 0)) if verdicts else "" for each in VERDICTS]
        total = str(len(printed)) if printed else ""
        rows.append([item.number, item.title, str(state.runs), str(len(state.done)), *counts, total])
    return markdown_rows(["", "what", "runs", "done", *VERDICTS, "printed"], rows, texts=2)


def _worse(cells: Mapping[str, Sequence[Beside]]) -> str:
    """The cells below the paper's by more than chance, each once."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for each in cells.values():
        for cell in each:
            if cell.ours is not None and cell.ours.verdict == "worse" and cell.ours.gap is not None:
                _, data, setting, size, method, _, metric = cell.place
                label = [METRIC_TITLES[metric], data, setting, f"λ={size}", method_title(method), cell.row[1]]
                paper = format_mean(cell.ours.paper) if cell.ours.paper else ""
                key = (*label[:-1], paper)  # a best of several ρ repeats one of them
                if key not in rows or "best" in rows[key][5]:
                    rows[key] = [*label, paper, format_mean(cell.ours.value), number(cell.ours.gap, sign=True)]
    head = ["metric", "data", "setting", "memory", "method", "with", "paper", "ours", "gap"]
    return markdown_rows(head, [rows[key] for key in sorted(rows)], texts=6)


def _times(runs: Sequence[FinishedRun]) -> str:
    """Seconds of a run by method and data, plain and with ODEDM, as measured beside the others."""
    found: dict[tuple[str, str], dict[bool, list[float]]] = {}
    for run in runs:
        plan = run.result.experiment
        sides = found.setdefault((str(plan["data"]), str(plan["method"])), {})
        sides.setdefault(plan["memory"]["name"] == "odedm", []).append(run.seconds)
    rows = [
        [
            data,
            title(METHODS, method),
            *(f"{mean(sides[with_]):.0f}" if with_ in sides else "" for with_ in (False, True)),
        ]
        for (data, method), sides in sorted(found.items())
    ]
    return markdown_rows(["data", "method", "seconds, plain", "seconds, with ODEDM"], rows, texts=2)
