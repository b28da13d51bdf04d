"""What of the paper stands, in one page of Markdown: cells by verdict, the worse ones by name, and seconds a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from odedm.core.registry import METHODS, title
from odedm.execute.eta import in_words
from odedm.report.paper_tables import MARKS, METRIC_TITLES, Beside, beside, counted, method_title
from odedm.report.tables import markdown_rows
from odedm.report.wording import measured, number
from odedm.results.folder import FinishedRun
from odedm.study.paper_catalogue import ITEMS, PaperProgress, progress

VERDICTS = tuple(str(name) for name in MARKS if name)


def to_markdown(finished: Mapping[str, FinishedRun]) -> str:
    """Three tables from the runs there are: every table and figure, the cells that are worse, and the time a run takes.

    `finished` are runs by `same_run`.
    """
    found = {name: progress(name, finished) for name, item in ITEMS.items() if item.study}
    cells = {name: beside(item.tables, item.data, found[name].done) for name, item in ITEMS.items() if name in found}
    parts = [_standing(found, cells), _worse(cells), _times(list(finished.values()))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _standing(found: Mapping[str, PaperProgress], cells: Mapping[str, Sequence[Beside]]) -> str:
    rows = []
    for name, item in ITEMS.items():
        if name not in found:
            rows.append([name, item.title, "", "", *[""] * len(VERDICTS), "", item.without])
            continue
        own, printed = found[name], cells[name]
        verdicts = counted(printed)
        counts = [str(verdicts.get(each, 0)) if verdicts else "" for each in VERDICTS]
        rest = in_words(own.seconds) if own.left > own.unknown else ""
        unmeasured = f"{own.unknown} runs unmeasured" if own.unknown else ""
        left = " + ".join(part for part in (rest, unmeasured) if part) or "none"
        total = str(len(printed)) if printed else ""
        rows.append([name, item.title, str(own.runs), str(len(own.done)), *counts, total, left])
    return markdown_rows(["", "what", "runs", "done", *VERDICTS, "printed", "run time left"], rows, texts=2)


def _worse(cells: Mapping[str, Sequence[Beside]]) -> str:
    """The cells below the paper's by more than chance, each once."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for each in cells.values():
        for cell in each:
            if cell.ours is not None and cell.ours.verdict == "worse" and cell.ours.gap is not None:
                _, data, setting, size, method, _, metric = cell.place
                label = [METRIC_TITLES[metric], data, setting, f"λ={size}", method_title(method), cell.row[1]]
                paper = measured(cell.ours.paper) if cell.ours.paper else ""
                key = (*label[:-1], paper)  # a best of several ρ repeats one of them
                if key not in rows or "best" in rows[key][5]:
                    rows[key] = [*label, paper, measured(cell.ours.value), number(cell.ours.gap, sign=True)]
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
