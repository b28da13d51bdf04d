"""The table as text: Markdown, CSV, LaTeX with booktabs, and HTML for a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from odedm.core.text import html_table, printable
from odedm.report.groups import Group
from odedm.report.model import Cell, Line, TableModel, model
from odedm.report.shared_settings import in_common
from odedm.report.statistics import FEWEST
from odedm.report.summary import COMPARED, METRICS, NARROW, Metric, Table
from odedm.report.wording import between, csv_text, measured, number, probability

LABEL = "tab:odedm"
"""What a table is called in LaTeX, unless somebody says otherwise."""
CHANGE_COLUMNS = ("", "_error", "_low", "_high", "_p", "_holm", "_n", "_better")
PAPER_COLUMNS = ("", "_error", "_gap", "_allowed", "_verdict")
TEXT = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
MATHS = {"λ": "lambda", "ρ": "rho", "α": "alpha", "β": "beta", "γ": "gamma", "×": "times", "·": "cdot"}
SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: rf"\text{name}{{}}" for character, name in TEXT.items()},
    **{character: rf"$\{name}$" for character, name in MATHS.items()},
    "−": "$-$",
    "…": r"\dots{}",
}
"""What LaTeX would not set as it is, and how it is told to."""


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown: mean ± standard error over seeds, changes with interval and Holm's p."""
    head, *lines = _words(model(table), paper=True)
    return markdown_rows(head, lines)


def markdown_rows(head: Sequence[str], lines: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """A table in Markdown; the first word of each line is a name of anyone's.

    So many columns have `texts`, the first ones, and begin at the left; numbers end at the right.

    >>> print(markdown_rows(["host", "memory", "ACC"], [["ER", "reservoir", "40.0"]], texts=2))
    | host | memory | ACC |
    | --- | --- | ---: |
    | ER | reservoir | 40.0 |
    <BLANKLINE>
    """
    rows = [
        head,
        [*["---"] * texts, *["---:"] * (len(head) - texts)],
        *([_plain_markdown(name), *rest] for name, *rest in lines),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def to_html(table: Table) -> str:
    """The table as HTML, narrow enough for a notebook: without the paper's numbers, backward transfer and seconds."""
    head, *lines = _words(model(table), NARROW, paper=False)
    return html_table(head, lines)


def _words(lines: TableModel, metrics: Sequence[Metric] = METRICS, *, paper: bool) -> list[list[str]]:
    """The heads of the columns, then the words of each line, with or without the paper's numbers."""
    table, printed = lines.table, lines.printed if paper else ()
    head = ["Runs", "Seeds", *map(table.title, metrics)]
    head += [f"Change in {table.title(metric)}" for metric in table.changes]
    for metric in printed:
        head += [f"Paper's {table.title(metric)}", "Gap"]
    found = [head]
    for line in lines.lines:
        words = [line.label, str(len(line.seeds))]
        words += [measured(line.cells[metric.key].value) for metric in metrics]
        words += [_change(line.cells[metric.key]) for metric in table.changes]
        for metric in printed:
            cell = line.cells[metric.key]
            words += _paper(cell, f" ({cell.verdict})" if cell.verdict else "")
        found.append(words)
    return found


def _change(cell: Cell) -> str:
    """A change with its interval and Holm's p; of a best on the test set the change alone."""
    if cell.change is None:
        return ""
    text = number(cell.change.estimate.mean, sign=True)
    if cell.interval is None:
        return text
    chance = "" if cell.corrected is None else f", {probability(cell.corrected)}"
    return f"{text} {between(cell.interval)}{chance}"


def _paper(cell: Cell, mark: str) -> list[str]:
    """The paper's number, and how far ours is from it with a mark behind."""
    if cell.paper is None or cell.gap is None:
        return ["", ""]
    return [measured(cell.paper), number(cell.gap, sign=True) + mark]


def _plain_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain_markdown("a|b <i> DER++"))
    a\|b \<i\> DER++
    """
    return "".join("\\" + character if character in "\\`*_{}[]<>|#!&~" else character for character in text)


def to_csv(table: Table) -> str:
    """The table in full precision, every setting a column; an empty cell means that there is no such number."""
    head = ["label", "kind", "data", "imbalance", "method", "memory", "capacity", "tasks", "seeds", "n"]
    for metric in METRICS:
        head += [metric.key, f"{metric.key}_error", f"{metric.key}_sd"]
    for metric in COMPARED:
        head += [f"{metric.key}_change{part}" for part in CHANGE_COLUMNS]
    for metric in COMPARED:
        head += [f"{metric.key}_paper{part}" for part in PAPER_COLUMNS]
    known = dict.fromkeys(key for group in table.groups for key in group.settings if key not in (*head, "class names"))
    rows = [[*_csv_cells(line), *(_csv_setting(line.group, key) for key in known)] for line in model(table).lines]
    return csv_text([*head, *known], rows)


def _csv_setting(group: Group, key: str) -> object:
    """A setting as one cell: text and numbers as they are, pairs and tables as JSON."""
    value = group.settings.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        return json.dumps(value, ensure_ascii=False)
    return value


def _csv_cells(line: Line) -> list[object]:
    group, own = line.group, line.group.settings
    names = ("data", "imbalance", "method", "memory.capacity")
    data, setting, method, capacity = (printable(own[name]) if name in own else None for name in names)
    memory = printable(own.get("memory.policy") or own["memory.name"])
    cells: list[object] = [line.label, line.kind, data, setting, method, memory, capacity]
    cells += [group.tasks, " ".join(str(seed) for seed in line.seeds), len(line.seeds)]
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


def to_latex(table: Table, *, caption: str = "", label: str = LABEL) -> str:
    """A `table` environment that needs `booktabs` alone; a clear change is bold.

    The caption says what all runs share and what the numbers are; text given goes before it, as a sentence.
    """
    lines = model(table)
    heads = ["Runs", "$n$", *(_latex_title(table, metric) for metric in NARROW)]
    heads += [rf"$\Delta$ {_latex_title(table, metric)}" for metric in table.changes]
    for metric in lines.printed:
        heads += [f"Paper's {_latex_title(table, metric)}", "Gap"]
    body: list[str] = []
    for i, line in enumerate(lines.lines):
        if i and line.group.same_but_memory != lines.lines[i - 1].group.same_but_memory:
            body.append(r"\addlinespace")
        body.append(_latex_row(lines, line))
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            r"\small",
            rf"\caption{{{escape(_sentence(caption))}{_meaning(lines)}}}",
            rf"\label{{{''.join(c for c in label if c.isalnum() or c in ':-')}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _sentence(text: str) -> str:
    """Text to be followed by another sentence: with a full stop where it has no end of its own, and a space.

    >>> _sentence("Mine"), _sentence("Mine (all.)"), _sentence(" ")
    ('Mine. ', 'Mine (all.) ', '')
    """
    said = text.strip()
    return said and said + (" " if said.rstrip(")]}\"'”’").endswith((".", "!", "?", ":", "…")) else ". ")


def escape(text: str) -> str:
    r"""Text that LaTeX sets as it is; letters that pdflatex lacks become question marks.

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
    cells += [_maths(measured(line.cells[metric.key].value)) for metric in NARROW]
    cells += [_latex_change(line.cells[metric.key]) for metric in lines.table.changes]
    for metric in lines.printed:
        cell = line.cells[metric.key]
        cells += map(_maths, _paper(cell, "^{*}" if cell.verdict in ("better", "worse") else ""))
    return " & ".join(cells) + r" \\"


def _latex_change(cell: Cell) -> str:
    if cell.change is None:
        return ""
    mean = number(cell.change.estimate.mean, sign=True)
    bold = _maths(rf"\mathbf{{{mean}}}" if cell.clear else mean)
    return bold if cell.interval is None else f"{bold} {_maths(between(cell.interval))}"


def _meaning(lines: TableModel) -> str:
    shared = ", ".join(in_common([group.settings for group in lines.table.groups]))
    said = [f"All runs: {escape(shared)}."] if shared else []
    said += [r"Mean $\pm$ standard error over $n$ seeds, in per cent."]
    if lines.table.changes:
        said.append(
            rf"$\Delta$: change against {escape(lines.table.against)}, paired by seed, with its 95\,\% bootstrap"
        )
        few = lines.table.fewest
        student = " (Student's $t$ below five seeds)" if few is not None and few < FEWEST else ""
        said.append(f"interval{student}; bold where that leaves zero out over at least five seeds.")
    if lines.printed:
        said.append("A star marks a gap to the paper larger than chance explains.")
    if any(line.kind == "test" for line in lines.lines):
        said.append(r"A best $\rho$ chosen on the test set is too good by construction.")
    return " ".join(said)
