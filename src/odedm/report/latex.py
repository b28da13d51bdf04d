r"""The table for a paper: LaTeX with booktabs, `\pm` and the paper's own numbers where it has them."""

from __future__ import annotations

from odedm.report.model import Cell, Line, TableModel, model
from odedm.report.statistics import Estimate
from odedm.report.summary import ACC_LAST, ACC_MEAN, FORGETTING, TASK_IL, Metric, Table
from odedm.report.wording import number

COLUMNS = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "λ": r"$\lambda$",
    "ρ": r"$\rho$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "…": r"\dots{}",
}


def to_latex(table: Table, *, caption: str = "", label: str = "tab:odedm") -> str:
    """A `table` environment that needs `booktabs` alone; a clear change is bold.

    The caption says what the numbers are; text given goes before it.
    """
    lines = model(table)
    heads = ["Runs", "$n$", *(_title(lines, metric) for metric in COLUMNS)]
    heads += [rf"$\Delta$ {_title(lines, metric)}" for metric in lines.changes]
    for metric in lines.printed:
        heads += [f"Paper's {_title(lines, metric)}", "Gap"]
    body: list[str] = []
    for i, line in enumerate(lines.lines):
        if i and line.group.same_but_memory != lines.lines[i - 1].group.same_but_memory:
            body.append(r"\addlinespace")
        body.append(_row(lines, line))
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            r"\small",
            rf"\caption{{{escape(caption)}{' ' if caption else ''}{_meaning(lines)}}}",
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


def escape(text: str) -> str:
    r"""Text that LaTeX sets as it is; letters that pdflatex lacks become question marks.

    >>> print(escape("DER++ · λ=5 & 50 %_x"))
    DER++ $\cdot$ $\lambda$=5 \& 50 \%\_x
    """
    return "".join(SPECIAL.get(character, character if ord(character) < 0x250 else "?") for character in text)


def _row(lines: TableModel, line: Line) -> str:
    name = escape(line.label)
    cells = [name if line.kind == "runs" else rf"\emph{{{name}}}", str(len(line.seeds))]
    cells += [_measured(line.cells[metric.key].value) for metric in COLUMNS]
    cells += [_change(line, metric) for metric in lines.changes]
    for metric in lines.printed:
        cells += _paper(line.cells[metric.key])
    return " & ".join(cells) + r" \\"


def _measured(value: Estimate) -> str:
    error = "" if value.error is None else rf" \pm {_number(value.error)}"
    return f"${_number(value.mean)}{error}$"


def _change(line: Line, metric: Metric) -> str:
    pair = line.cells[metric.key].change
    if pair is None:
        return ""
    mean = _number(pair.estimate.mean, sign=True)
    if line.kind == "test" or pair.interval is None:
        return f"${mean}$"
    bold = rf"\mathbf{{{mean}}}" if pair.clear else mean
    return rf"${bold}$ $[{_number(pair.interval[0])}, {_number(pair.interval[1])}]$"


def _paper(cell: Cell) -> list[str]:
    if cell.paper is None or cell.gap is None:
        return ["", ""]
    error = "" if cell.paper.error is None else rf" \pm {_number(cell.paper.error)}"
    star = "^{*}" if cell.inside is False else ""
    return [f"${_number(cell.paper.mean)}{error}$", f"${_number(cell.gap, sign=True)}{star}$"]


def _title(lines: TableModel, metric: Metric) -> str:
    title = lines.title(metric)
    name, mark, index = title.partition("_")
    return rf"{name}$_{{{index}}}$" if mark else escape(title)


def _number(value: float, *, sign: bool = False) -> str:
    return number(value, sign=sign).replace("−", "-")


def _meaning(lines: TableModel) -> str:
    said = [r"Mean $\pm$ standard error over $n$ seeds, in per cent."]
    if lines.changes:
        said.append(r"$\Delta$: change against the same runs without ODEDM, paired by seed, with its 95\,\% bootstrap")
        said.append(r"interval; bold where that leaves zero out over at least five seeds.")
    if lines.printed:
        said.append("A star marks a gap to the paper outside the combined error.")
    if any(line.kind == "test" for line in lines.lines):
        said.append(r"A best $\rho$ chosen on the test set is too good by construction.")
    return " ".join(said)
