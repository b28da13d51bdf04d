"""The table as text: Markdown, CSV, LaTeX with booktabs, and HTML for a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from odedm.core.text import counted, html_table, printable
from odedm.report.groups import Group
from odedm.report.model import Cell, Line, TableModel, model
from odedm.report.shared_settings import in_common
from odedm.report.statistics import FEWEST
from odedm.report.summary import (
    ACC_LAST,
    COMPARED,
    GRADIENTS,
    METRICS,
    NARROW,
    SECONDS,
    Metric,
    Row,
    Table,
    by_problem,
)
from odedm.report.wording import csv_text, format_interval, format_mean, format_p, number

LABEL = "tab:odedm"
"""What a table is called in LaTeX, unless somebody says otherwise."""
SEEDS_THAT_RANK = 3
"""Groups of fewer are not ranked among the others."""
CHANGE_COLUMNS = ("", "_error", "_low", "_high", "_p", "_holm", "_n", "_better")
PAPER_COLUMNS = ("", "_error", "_gap", "_allowed", "_verdict")
NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
MATHS = {"λ": "lambda", "ρ": "rho", "α": "alpha", "β": "beta", "γ": "gamma", "×": "times", "·": "cdot"}
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
    head, *rows = table_words(model(table), METRICS, paper=True)
    return markdown_rows(head, rows)


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
        head, *lines = table_words(model(replace(part, rows=rows)), (*NARROW, GRADIENTS, SECONDS), paper=False)
        sections.append(f"## {heading}\n\n{markdown_rows(head, lines)}\n{_origin(part)}\n")
    return "\n".join(sections)


def _rank(row: Row) -> tuple[bool, float]:
    return len(row.group.runs) < SEEDS_THAT_RANK, -row.values[ACC_LAST.key].mean


def _origin(table: Table) -> str:
    """How many runs a table has, their seeds, and what made them."""
    runs = [run for group in table.groups for run in group.runs]
    seeds = sorted({run.seed for run in runs})
    words = [counted(len(runs), "run"), f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"]
    for name, longest in (("commit", 7), ("device", 60), ("torch", 40)):
        values = sorted(
            {printable(run.result.provenance[name])[:longest] for run in runs if name in run.result.provenance}
        )
        words += [f"{name} {', '.join(values)}"] if values else []
    return f"{'; '.join(words)}."


def markdown_rows(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table in Markdown; the first word of each row is a name of anyone's.

    So many columns have `texts`, the first ones, and begin at the left; numbers end at the right.

    >>> print(markdown_rows(["host", "memory", "ACC"], [["ER", "reservoir", "40.0"]], texts=2))
    | host | memory | ACC |
    | --- | --- | ---: |
    | ER | reservoir | 40.0 |
    <BLANKLINE>
    """
    rule = [*["---"] * texts, *["---:"] * (len(head) - texts)]
    lines = [head, rule, *([_plain_markdown(name), *rest] for name, *rest in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_html(table: Table) -> str:
    """Return the table as HTML, narrow enough for a notebook: without the paper's numbers and lesser metrics."""
    head, *rows = table_words(model(table), table.narrow, paper=False)
    return html_table(head, rows)


def table_words(lines: TableModel, metrics: Sequence[Metric], *, paper: bool) -> list[list[str]]:
    """Return the heads of the columns, then the words of each line, with or without the paper's numbers."""
    table, printed = lines.table, lines.printed if paper else ()
    head = ["Runs", "Seeds", *map(table.title, metrics), *(f"Change in {table.title(m)}" for m in table.changes)]
    for metric in printed:
        head += [f"Paper's {table.title(metric)}", "Gap"]
    rows = [head]
    for line in lines.lines:
        words = [line.label, str(len(line.seeds))]
        words += [format_value(line, metric) for metric in metrics]
        words += [format_change(line.cells[metric.key]) for metric in table.changes]
        for metric in printed:
            cell = line.cells[metric.key]
            words += _paper_words(cell, f" ({cell.verdict})" if cell.verdict else "")
        rows.append(words)
    return rows


def format_value(line: Line, metric: Metric) -> str:
    """Return a mean with its standard error; of gradients per row, which seeds hardly change, the mean alone."""
    value = line.cells[metric.key].value
    return number(value.mean) if metric is GRADIENTS and value else format_mean(value)


def format_change(cell: Cell, *, with_p: bool = True) -> str:
    """Return a change with its interval and Holm's p; of a best on the test set the change alone."""
    if cell.change is None:
        return ""
    mean = number(cell.change.estimate.mean, sign=True)
    if cell.interval is None:
        return mean
    p = f", {format_p(cell.corrected)}" if with_p and cell.corrected is not None else ""
    return f"{mean} {format_interval(cell.interval)}{p}"


def _paper_words(cell: Cell, mark: str) -> list[str]:
    """The paper's number, and how far ours is from it with a mark behind."""
    if cell.paper is None or cell.gap is None:
        return ["", ""]
    return [format_mean(cell.paper), number(cell.gap, sign=True) + mark]


def _plain_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain_markdown("a|b <i> DER++"))
    a\|b \<i\> DER++
    """
    return "".join("\\" + character if character in "\\`*_{}[]<>|#!&~" else character for character in text)


def to_csv(table: Table) -> str:
    """Return the table in full precision, every setting a column; an empty cell means that there is no such number.

    `partner` is what a row is compared with, `differs_in` what else than the memory differs between the two.
    """
    head = ["label", "kind", "data", "imbalance", "method", "memory", "capacity", "tasks", "seeds", "n"]
    head += ["partner", "differs_in"]
    for metric in METRICS:
        head += [metric.key, f"{metric.key}_error", f"{metric.key}_sd"]
    for metric in COMPARED:
        head += [f"{metric.key}_change{part}" for part in CHANGE_COLUMNS]
    for metric in COMPARED:
        head += [f"{metric.key}_paper{part}" for part in PAPER_COLUMNS]
    settings = dict.fromkeys(
        key for group in table.groups for key in group.settings if key not in (*head, "class names")
    )
    partners = {id(row.group): [row.partner and row.partner.label, "; ".join(row.differs_in)] for row in table.rows}
    rows = [
        [
            *_csv_names(line),
            *partners[id(line.group)],
            *_csv_numbers(line),
            *(_csv_setting(line.group, key) for key in settings),
        ]
        for line in model(table).lines
    ]
    return csv_text([*head, *settings], rows)


def _csv_names(line: Line) -> list[object]:
    group, settings = line.group, line.group.settings
    keys = ("data", "imbalance", "method", "memory.capacity")
    data, imbalance, method, capacity = (printable(settings[key]) if key in settings else None for key in keys)
    memory = printable(settings.get("memory.policy") or settings["memory.name"])
    seeds = " ".join(str(seed) for seed in line.seeds)
    return [line.label, line.kind, data, imbalance, method, memory, capacity, group.tasks, seeds, len(line.seeds)]


def _csv_numbers(line: Line) -> list[object]:
    cells: list[object] = []
    for metric in METRICS:
        value = line.cells[metric.key].value
        cells += [None] * 3 if value is None else [value.mean, value.error, value.sd]
    for metric in COMPARED:
        cells += _csv_change(line.cells[metric.key])
    for metric in COMPARED:
        cell = line.cells[metric.key]
        paper = [cell.paper.mean, cell.paper.error] if cell.paper else [None, None]
        cells += [*paper, cell.gap, cell.allowed, cell.verdict]
    return cells


def _csv_change(cell: Cell) -> list[object]:
    pair = cell.change
    if pair is None:
        return [None] * len(CHANGE_COLUMNS)
    low, high = cell.interval or (None, None)
    p = pair.p if cell.tested else None
    return [pair.estimate.mean, pair.estimate.error, low, high, p, cell.corrected, pair.estimate.n, pair.better]


def _csv_setting(group: Group, key: str) -> object:
    """A setting as one cell: text and numbers as they are, pairs and tables as JSON."""
    value = group.settings.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        return json.dumps(value, ensure_ascii=False)
    return value


def to_latex(table: Table, *, caption: str = "", label: str = LABEL) -> str:
    """Return a `table` environment that needs `booktabs` alone; a clear change is bold.

    The caption says what all runs share and what the numbers are; text given goes before it, as a sentence.
    """
    lines = model(table)
    heads = ["Runs", "$n$", *(_latex_title(table, metric) for metric in table.narrow)]
    heads += [rf"$\Delta$ {_latex_title(table, metric)}" for metric in table.changes]
    for metric in lines.printed:
        heads += [f"Paper's {_latex_title(table, metric)}", "Gap"]
    rows: list[str] = []
    for i, line in enumerate(lines.lines):
        if i and line.group.same_but_memory != lines.lines[i - 1].group.same_but_memory:
            rows.append(r"\addlinespace")
        rows.append(_latex_row(lines, line))
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            r"\small",
            rf"\caption{{{escape(_sentence(caption))}{_latex_caption(lines)}}}",
            rf"\label{{{''.join(c for c in label if c.isalnum() or c in ':-')}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _sentence(text: str) -> str:
    """Text to be followed by another sentence: with a full stop where it has no end yet, and a space.

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


def _maths(words: str) -> str:
    r"""Numbers in words as LaTeX sets them, nothing for none.

    >>> print(_maths("[−0.9, 3.0]"), _maths("12.3 ± 1.2"))
    $[-0.9, 3.0]$ $12.3 \pm 1.2$
    """
    return words and "$" + words.replace("−", "-").replace("±", r"\pm") + "$"


def _latex_title(table: Table, metric: Metric) -> str:
    name, mark, index = table.title(metric).partition("_")
    return rf"{name}$_{{{index}}}$" if mark else escape(name)


def _latex_row(lines: TableModel, line: Line) -> str:
    name = escape(line.label)
    cells = [name if line.kind == "runs" else rf"\emph{{{name}}}", str(len(line.seeds))]
    cells += [_maths(format_value(line, metric)) for metric in lines.table.narrow]
    cells += [_latex_change(line.cells[metric.key]) for metric in lines.table.changes]
    for metric in lines.printed:
        cell = line.cells[metric.key]
        cells += map(_maths, _paper_words(cell, "^{*}" if cell.verdict in ("better", "worse") else ""))
    return " & ".join(cells) + r" \\"


def _latex_change(cell: Cell) -> str:
    mean, _, interval = format_change(cell, with_p=False).partition(" ")
    bold = rf"\mathbf{{{mean}}}" if cell.clear else mean
    return " ".join(filter(None, (_maths(bold), _maths(interval))))


def _latex_caption(lines: TableModel) -> str:
    table = lines.table
    shared = ", ".join(in_common([group.settings for group in table.groups]))
    sentences = [f"All runs: {escape(shared)}."] if shared else []
    sentences.append(r"Mean $\pm$ standard error over $n$ seeds, in per cent.")
    if len(table.replay_modes) > 1:
        modes = "; ".join(f"{mode} ({', '.join(methods)})" for mode, methods in table.replay_modes.items())
        sentences.append(f"Replay modes with ODEDM differ: {escape(modes)}.")
    if table.changes:
        few = table.fewest is not None and table.fewest < FEWEST
        student = " (Student's $t$ below five seeds)" if few else ""
        sentences.append(
            rf"$\Delta$: change against {escape(table.against)}, paired by seed, with its 95\,\% bootstrap interval"
            f"{student}; bold where that leaves zero out over at least five seeds."
        )
    if lines.printed:
        sentences.append("A star marks a gap to the paper larger than chance explains.")
    if any(line.kind == "test" for line in lines.lines):
        sentences.append(r"A best $\rho$ chosen on the test set is too good by construction.")
    return " ".join(sentences)
