"""The table as text: Markdown, CSV, LaTeX with booktabs, and HTML for a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from odedm.core.text import counted, html_table, printable
from odedm.report.columns import ACC_LAST, COMPARED, GRADIENTS, KILOBYTES, METRICS, NARROW, SECONDS, Metric
from odedm.report.shared_settings import in_common
from odedm.report.statistics import Estimate
from odedm.report.summary import Row, Table, by_problem
from odedm.report.wording import csv_text, format_interval, format_mean, format_p, number

LABEL = "tab:odedm"
"""What a table is called in LaTeX, unless somebody says otherwise."""
SEEDS_THAT_RANK = 3
"""Groups of fewer are not ranked among the others."""
NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
MATHS = {"λ": "lambda", "ρ": "rho", "α": "alpha", "β": "beta", "γ": "gamma", "×": "times", "·": "cdot", "±": "pm"}
SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: rf"\text{name}{{}}" for character, name in NAMES.items()},
    **{character: rf"$\{name}$" for character, name in MATHS.items()},
    "−": "$-$",
    "…": r"\dots{}",
}
"""What LaTeX would not set as it is, and how it is told to."""


def to_markdown(table: Table) -> str:
    """Return the table as GitHub Markdown: mean ± standard error over seeds, changes with interval and Holm's p."""
    return markdown_rows(table_words(table, METRICS, paper=True))


def report_markdown(table: Table) -> str:
    """Return a table in Markdown for each problem and capacity, with a heading and the origin of its runs.

    Where there is one problem, it is the whole table alone. Against a named baseline the best group stands first, but
    for groups of few seeds.
    """
    tables = by_problem(table)
    if len(tables) < 2:
        return to_markdown(table)
    sections = []
    for heading, part in tables.items():
        rows = tuple(sorted(part.rows, key=_rank)) if table.baseline_name else part.rows
        kept = (KILOBYTES,) if any(KILOBYTES.key in row.values for row in rows) else ()
        lines = table_words(replace(part, rows=rows), (*NARROW, GRADIENTS, SECONDS, *kept))
        sections.append(f"## {heading}\n\n{markdown_rows(lines)}\n{_origin(part)}\n")
    return "\n".join(sections)


def _rank(row: Row) -> tuple[bool, float]:
    return len(row.seeds) < SEEDS_THAT_RANK, -row.values[ACC_LAST.key].mean


def _origin(table: Table) -> str:
    """Return how many runs a table has, their seeds, and what made them."""
    runs = [run for group in table.groups for run in group.runs]
    seeds = sorted({run.seed for run in runs})
    words = [counted(len(runs), "run"), f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"]
    for name, longest in (("commit", 7), ("device", 60), ("torch", 40)):
        values = sorted(
            {printable(run.result.provenance[name])[:longest] for run in runs if name in run.result.provenance}
        )
        words += [f"{name} {', '.join(values)}"] if values else []
    return f"{'; '.join(words)}."


def markdown_rows(rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    r"""Return a table in Markdown, the head first; the first word of each row is a name of anyone's.

    So many columns have `texts`, the first ones, and begin at the left; numbers end at the right.

    >>> print(markdown_rows([["host", "memory", "ACC"], ["a|b <i>", "reservoir", "40.0"]], texts=2))
    | host | memory | ACC |
    | --- | --- | ---: |
    | a\|b \<i\> | reservoir | 40.0 |
    <BLANKLINE>
    """
    head, *others = rows
    rule = [*["---"] * texts, *["---:"] * (len(head) - texts)]
    plain = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>|#!&~"})
    lines = [head, rule, *([name.translate(plain), *rest] for name, *rest in others)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_html(table: Table) -> str:
    """Return the table as HTML, narrow enough for a notebook: without the paper's numbers and lesser metrics."""
    head, *rows = table_words(table, table.narrow)
    return html_table(head, rows)


def table_words(table: Table, metrics: Sequence[Metric], *, paper: bool = False, p: bool = True) -> list[list[str]]:
    """Return the heads of the columns, then the words of each line, with or without the paper's numbers and p."""
    printed = table.printed if paper else ()
    head = ["Runs", "Seeds", *map(table.title, metrics), *(f"Change in {table.title(m)}" for m in table.changes)]
    for metric in printed:
        head += [f"Paper's {table.title(metric)}", "Gap"]
    rows = [head]
    for row in table.lines:
        words = [row.label, str(len(row.seeds)), *(format_value(row.values.get(m.key), m) for m in metrics)]
        words += [format_change(row, metric, p=p) for metric in table.changes]
        for metric in printed:
            ours = row.paper.get(metric.key)
            verdict = f" ({ours.verdict})" if ours and ours.verdict else ""
            words += [format_mean(ours.paper), number(ours.gap, sign=True) + verdict] if ours else ["", ""]
        rows.append(words)
    return rows


def format_value(value: Estimate | None, metric: Metric) -> str:
    """Return a mean with its standard error; of gradients per row, which seeds hardly change, the mean alone."""
    return number(value.mean) if metric is GRADIENTS and value else format_mean(value)


def format_change(row: Row, metric: Metric, *, p: bool = True) -> str:
    """Return a change with its interval and Holm's p; of a best on the test set the change alone."""
    change, interval = row.differences.get(metric.key), row.interval(metric)
    words = [number(change.estimate.mean, sign=True)] if change else []
    words += [format_interval(interval)] if interval else []
    corrected = row.corrected.get(metric.key)
    return " ".join(words) + (f", {format_p(corrected)}" if p and corrected is not None else "")


def to_csv(table: Table) -> str:
    """Return the table in full precision, every setting a column; an empty cell means that there is no such number.

    `partner` is what a row is compared with, `differs_in` what else than the memory differs between the two.
    """
    rows = [_csv_row(row) for row in table.lines]
    head = dict.fromkeys(key for row in rows for key in row)
    return csv_text(list(head), [[row.get(key) for key in head] for row in rows])


def _csv_row(row: Row) -> dict[str, object]:
    settings, change_names = row.group.settings, ("", "_error", "_low", "_high", "_p", "_holm", "_n", "_better")
    memory = printable(settings.get("memory.policy") or settings["memory.name"])
    cells: dict[str, object] = {"label": row.label, "kind": row.kind, "memory": memory, "tasks": row.group.tasks}
    cells |= {"capacity": settings.get("memory.capacity"), "seeds": " ".join(map(str, row.seeds)), "n": len(row.seeds)}
    cells["partner"] = row.partner.label if row.partner and row.kind == "runs" else None
    cells["differs_in"] = "; ".join(row.differs_in)
    for metric in METRICS:
        value = row.values.get(metric.key)
        numbers = (value.mean, value.error, value.sd) if value else (None,) * 3
        cells |= {f"{metric.key}{part}": number for part, number in zip(("", "_error", "_sd"), numbers, strict=True)}
    for metric in COMPARED:
        change = row.differences.get(metric.key)
        interval = row.interval(metric) or (None, None)
        p = change.p if change and row.kind != "test" else None
        mean = [change.estimate.mean, change.estimate.error] if change else [None] * 2
        counts = [change.estimate.n, change.better] if change else [None] * 2
        values = [*mean, *interval, p, row.corrected.get(metric.key), *counts]
        cells |= {f"{metric.key}_change{part}": value for part, value in zip(change_names, values, strict=True)}
        ours = row.paper.get(metric.key)
        paper = [ours.paper.mean, ours.paper.error, ours.gap, ours.allowed, ours.verdict] if ours else [None] * 5
        names = ("", "_error", "_gap", "_allowed", "_verdict")
        cells |= {f"{metric.key}_paper{part}": value for part, value in zip(names, paper, strict=True)}
    others = {key: value for key, value in settings.items() if key not in ("class names", "tasks")}
    return cells | {key: _csv_setting(value) for key, value in others.items()}


def _csv_setting(value: object) -> object:
    """Return a setting as one cell: text and numbers as they are, pairs and tables as JSON."""
    plain = isinstance(value, str | int | float | None) and not isinstance(value, bool)
    return value if plain else json.dumps(value, ensure_ascii=False)


def to_latex(table: Table, *, caption: str = "", label: str = LABEL) -> str:
    """Return a `table` environment that needs `booktabs` alone; a clear change is bold.

    The caption says what all runs share and what the numbers are; text given goes before it, as a sentence.
    """
    (_, *heads), *rows = table_words(table, table.narrow, paper=True, p=False)
    first = 2 + len(table.narrow)
    lines: list[str] = []
    for i, (row, words) in enumerate(zip(table.lines, rows, strict=True)):
        if i and row.group.same_but_memory != table.lines[i - 1].group.same_but_memory:
            lines.append(r"\addlinespace")
        cells = list(map(escape, words))
        for place, metric in enumerate(table.changes, start=first):
            mean, _, interval = cells[place].partition(" ")
            cells[place] = rf"\textbf{{{mean}}} {interval}" if row.is_clear(metric) else cells[place]
        cells[0] = cells[0] if row.kind == "runs" else rf"\emph{{{cells[0]}}}"
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            r"\small",
            rf"\caption{{{escape(_sentence(caption) + _caption(table))}}}",
            rf"\label{{{''.join(c for c in label if c.isalnum() or c in ':-')}}}",
            rf"\begin{{tabular}}{{l{'r' * len(heads)}}}",
            r"\toprule",
            " & ".join(["Runs", *map(_latex_head, heads)]) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_head(head: str) -> str:
    """Return a heading with ACC_5 set as a subscript.

    >>> print(_latex_head("Change in ACC_5"))
    Change in ACC$_{5}$
    """
    name, mark, index = escape(head).partition(r"\_")
    return rf"{name}$_{{{index}}}$" if mark else name


def _sentence(text: str) -> str:
    """Return text to be followed by another sentence: with a full stop where it has no end yet, and a space.

    >>> _sentence("Mine"), _sentence("Mine (all.)"), _sentence(" ")
    ('Mine. ', 'Mine (all.) ', '')
    """
    text = text.strip()
    return text and text + (" " if text.rstrip(")]}\"'”’").endswith((".", "!", "?", ":", "…")) else ". ")


def escape(text: str) -> str:
    r"""Return text that LaTeX sets as it is; letters that pdflatex lacks become question marks.

    >>> print(escape("DER++ · λ=5 & 50 %_x"))
    DER++ $\cdot$ $\lambda$=5 \& 50 \%\_x
    """
    return "".join(SPECIAL.get(character, character if ord(character) < 0x250 else "?") for character in text)


def _caption(table: Table) -> str:
    """Return what all runs share, and what the numbers are."""
    shared = ", ".join(in_common([group.settings for group in table.groups]))
    sentences = [f"All runs: {shared}."] if shared else []
    sentences.append("Mean ± standard error over seeds, in per cent.")
    if len(table.replay_modes) > 1:
        modes = "; ".join(f"{mode} ({', '.join(methods)})" for mode, methods in table.replay_modes.items())
        sentences.append(f"Replay modes with ODEDM differ: {modes}.")
    if table.changes:
        sentences.append(
            f"Change: against {table.against}, paired by seed, with its 95 % interval; bold where that leaves zero out "
            "over at least five seeds."
        )
    if any(row.kind == "test" for row in table.lines):
        sentences.append("A best ρ chosen on the test set is too good by construction.")
    return " ".join(sentences)
