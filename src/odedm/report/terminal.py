"""What is printed on a terminal: the table with its notes, and one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from odedm.core.configuration import settings_of
from odedm.core.plain_data import flatten
from odedm.core.text import printable
from odedm.report.labels import memory_name
from odedm.report.model import Line, TableModel, model
from odedm.report.summary import ACC_MEAN, FORGETTING, TASK_IL, Metric, Table
from odedm.report.tables import LABEL, format_change, format_value, report_markdown, to_csv, to_latex
from odedm.report.verdicts import notes, undefined_numbers
from odedm.report.wording import format_mean, number
from odedm.results.result import Result
from odedm.training.experiment import Experiment

GAP = "  "
LONGEST_NAME = 44
"""Columns of a terminal that a name may take beside its numbers; a longer one stands above them."""
LESSER = ((), (ACC_MEAN,), (ACC_MEAN, FORGETTING), (ACC_MEAN, FORGETTING, TASK_IL))
"""What a narrow terminal does without, one after the other."""


def print_table(table: Table, console: Console, form: str = "rich", *, caption: str = "", label: str = LABEL) -> None:
    """Print the table on a console: for people, with notes below it, or as Markdown, CSV or LaTeX.

    LaTeX may have a caption and a label.
    """
    if form == "latex":
        console.file.write(to_latex(table, caption=caption, label=label))
    elif form != "rich":
        console.file.write({"markdown": report_markdown, "csv": to_csv}[form](table))
    else:
        lines = model(table)
        for text in [*_table_lines(lines, console.width), *_paper_lines(lines)]:
            console.print(text)
        for note in notes(table):
            console.print(Text(note))


def as_text(table: Table) -> str:
    """Return what `print_table` prints for people, as plain text as wide as the terminal, or 80 columns."""
    text = StringIO()
    print_table(table, Console(file=text, color_system=None, force_terminal=False, force_jupyter=False))
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


def _table_lines(lines: TableModel, width: int) -> list[Text]:
    """The table: names beside their numbers, else above them, with fewer columns, at last a line for each number."""
    table = lines.table
    names = [Text(line.label, style="" if line.kind == "runs" else "italic") for line in lines.lines]
    for names_above in (False, True):
        for left_out in LESSER if names_above else LESSER[:1]:
            metrics = [metric for metric in table.narrow if metric not in left_out]
            head, rows = _cells(lines, metrics, [metric for metric in table.changes if metric not in left_out])
            widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
            longest = max(map(len, names))
            if not names_above:
                widths = [max(longest, len("Runs")), *widths]
                head, rows = [Text("Runs"), *head], [[name, *row] for name, row in zip(names, rows, strict=True)]
            if sum(widths) + len(GAP) * (len(widths) - 1) <= width and (names_above or longest <= LONGEST_NAME):
                texts = _aligned(head, rows, widths, names_first=not names_above)
                if names_above:
                    texts[2:] = [text for pair in zip(names, texts[2:], strict=True) for text in pair]
                return [*texts, *_legend(table, left_out)]
    return [*_listed(lines, names), *_legend(table, ())]


def _cells(
    lines: TableModel, metrics: Sequence[Metric], changes: Sequence[Metric]
) -> tuple[list[Text], list[list[Text]]]:
    """The heads of the columns, and the cells of each line; a clear change is bold."""

    def title(metric: Metric) -> str:
        return lines.table.title(metric).replace("Gradients", "Grad.")

    head = [Text(word) for word in ("Seeds", *map(title, metrics), *(f"Change {title(m)}" for m in changes))]
    rows = []
    for line in lines.lines:
        cells = [Text(str(len(line.seeds))), *(Text(format_value(line, metric)) for metric in metrics)]
        rows.append([*cells, *(_change_text(line, metric) for metric in changes)])
    return head, rows


def _change_text(line: Line, metric: Metric) -> Text:
    cell = line.cells[metric.key]
    return Text(format_change(cell, with_p=False), style="bold" if cell.clear else "")


def _aligned(
    head: Sequence[Text], rows: Sequence[Sequence[Text]], widths: Sequence[int], *, names_first: bool
) -> list[Text]:
    """The head, a rule, and the rows in columns that end at the right; names begin at the left."""
    texts = []
    for row in (head, *rows):
        cells = [Text(" " * (width - len(cell))) + cell for cell, width in zip(row, widths, strict=True)]
        if names_first:
            cells[0] = row[0] + Text(" " * (widths[0] - len(row[0])))
        texts.append(Text(GAP).join(cells))
    return [texts[0], Text("─" * len(texts[0]), style="dim"), *texts[1:]]


def _listed(lines: TableModel, names: Sequence[Text]) -> list[Text]:
    """Each line's name and, below it, a line for each number: for a terminal where no table fits."""
    texts = []
    for line, name in zip(lines.lines, names, strict=True):
        texts += [name, Text(f"{GAP}Seeds {len(line.seeds)}")]
        for metric in lines.table.narrow:
            texts.append(Text(f"{GAP}{lines.table.title(metric)} {format_value(line, metric)}"))
        for metric in lines.table.changes:
            if line.cells[metric.key].change is not None:
                texts.append(Text(f"{GAP}Change {lines.table.title(metric)} ") + _change_text(line, metric))
    return texts


def _legend(table: Table, left_out: Sequence[Metric]) -> list[Text]:
    """What ± and changes are, as far as the table has them, and which columns it had no room for."""
    parts = ["± standard error over seeds"] if any(len(group.runs) > 1 for group in table.groups) else []
    if table.changes:
        parts.append(f"change against {table.against}, paired by seed, with its 95 % interval")
    sentence = "; ".join(parts)
    sentences = [f"{sentence[:1].upper()}{sentence[1:]}."] if parts else []
    if left_out:
        names = ", ".join(table.title(metric) for metric in left_out)
        sentences.append(f"No room for {names}: a wider terminal has it, and so do --csv and the page.")
    return [Text(sentence, style="dim") for sentence in sentences]


def _paper_lines(lines: TableModel) -> list[Text]:
    """Ours beside the paper's, a line for each number that the paper has."""
    texts = []
    for line in lines.lines:
        for metric in lines.printed:
            cell = line.cells[metric.key]
            if cell.paper is not None and cell.gap is not None:
                gap = number(cell.gap, sign=True) + (f" ({cell.verdict})" if cell.verdict else "")
                numbers = f"ours {format_mean(cell.value)}, paper {format_mean(cell.paper)}, gap {gap}"
                texts.append(Text(f"{GAP}{line.label}, {lines.table.title(metric)}: {numbers}"))
    return [Text("Beside the paper:"), *texts] if texts else []


def print_run(result: Result, out: Console) -> None:
    """Print what one run measured, the memory's contents, then what it was and where it was made."""
    plan = result.experiment
    memory = memory_name({"memory.name": plan["memory"]["name"], "memory.policy": plan["memory"].get("policy")})
    numbers = [f"ACC {result.acc_last:.2f} %", f"mean ACC {result.acc_mean:.2f} %"]
    numbers += [] if result.task_il_last is None else [f"Task-IL {result.task_il_last:.2f} %"]
    numbers += [] if result.forgetting is None else [f"forgetting {result.forgetting:.2f}"]
    name = f"{printable(plan['method'])} with {memory} on {printable(plan['data'])}, seed {plan.get('seed')}"
    out.print(Text(f"{name}: {', '.join(numbers)}"))
    for sentence in undefined_numbers([result]):
        out.print(Text(sentence))
    for title, matrix in (("Class-IL", result.class_il), ("Task-IL", result.task_il)):
        if matrix is None:
            continue
        tasks = [f"task {j + 1}" for j in range(len(matrix))]
        table = RichTable("after task", *tasks, "mean", title=f"{title} accuracy, %")
        for i, row in enumerate(matrix):
            cells = [f"{accuracy:.1f}" for accuracy in row] + [""] * (len(matrix) - 1 - i)
            table.add_row(str(i + 1), *cells, f"{sum(row) / len(row):.1f}")
        out.print(table)
    table = RichTable("class", "short-term rows", "long-term rows", title="Memory at the end")
    last = result.class_counts[-1] if result.class_counts else {}
    for label, short, long in zip(result.classes, last.get("short", []), last.get("long", []), strict=False):
        table.add_row(Text(printable(label)), str(short), str(long))
    out.print(table)
    for title, settings in _described(result).items():
        out.print(title, style="bold")
        width = max(map(len, settings), default=0)
        for key, value in sorted(settings.items()):
            out.print(f"  {key:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)


def _described(result: Result) -> dict[str, dict[str, str]]:
    """What a run was, by what people look for first: settings by name, but for those that have no value."""
    plan = {key: value for key, value in result.experiment.items() if key != "memory"}
    panels = {name: setting.panel for name, setting in settings_of(Experiment).items()}
    parts: dict[str, dict[str, Any]] = {"Method": {}, "Memory": flatten(result.experiment["memory"])}
    parts |= {"Stream": {}, "Run": {}}
    for name, value in flatten(plan).items():
        parts[panels.get(name.partition(".")[0], "Run")][name] = value
    cost = {f"seconds, {phase}": f"{value:.2f}" for phase, value in result.seconds.items()}
    if result.sample_gradients is not None:
        cost["gradients for each row of the stream"] = f"{result.sample_gradients:.2f}"
    parts |= {"Cost": cost, "Provenance": flatten(result.provenance)}
    return {
        title: {printable(key): _plain(value) for key, value in part.items() if value not in (None, {}) or key == "dac"}
        for title, part in parts.items()
    }


def _plain(value: object) -> str:
    if value is None:
        return "none"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200)
