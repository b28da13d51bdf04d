"""What is printed on a terminal: the table with its sentences, and one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from odedm.core.configuration import settings_of
from odedm.core.plain_data import flatten
from odedm.core.text import printable
from odedm.report.labels import memory_name
from odedm.report.model import Cell, TableModel, caveats, model
from odedm.report.summary import ACC_MEAN, FORGETTING, NARROW, TASK_IL, Metric, Table, cost_told, left_out
from odedm.report.tables import LABEL, to_csv, to_latex, to_markdown
from odedm.report.verdicts import verdicts
from odedm.report.wording import between, measured, number
from odedm.results.result import Result
from odedm.training.experiment import Experiment

NAME = (14, 30)
"""The least and the most columns of a terminal that names of groups take."""
GAP = 2
"""Columns between two of a table's."""
LESSER = (ACC_MEAN, TASK_IL, FORGETTING)
"""What a narrow terminal may do without, in this order: changes keep their intervals."""
MOST_LINES, HEAD_LINES = 2, 3
"""Lines of a name beside its numbers, which take two; lines of a table's head with its rule."""


def _say(out: Console, line: str, *, soft_wrap: bool = False) -> None:
    """A line as it is: names in it are no markup."""
    indent = len(line) - len(line.lstrip())
    text: RenderableType = Padding(Text(line.strip()), (0, 0, 0, indent)) if indent else line  # so wrapped lines align
    out.print(text, markup=False, highlight=False, soft_wrap=soft_wrap)


def print_table(
    table: Table,
    console: Console,
    form: str = "rich",
    *,
    most: int | None = None,
    caption: str = "",
    label: str = LABEL,
) -> None:
    """Print the table on a console: for people, with up to `most` sentences about it, or as Markdown, CSV, LaTeX.

    LaTeX may have a caption and a label of its own.
    """
    if form != "rich":
        if form == "latex":
            console.file.write(to_latex(table, caption=caption, label=label))
        else:
            console.file.write({"markdown": to_markdown, "csv": to_csv}[form](table))
        return
    console.print(ForTerminal(model(table)))
    said = [*verdicts(table), *caveats(table)] if len(table.rows) > 1 else []
    said += left_out(run.result for group in table.groups for run in group.runs)
    said += cost_told(table)
    for sentence in said[:most]:
        _say(console, sentence)
    if most is not None and len(said) > most:
        _say(console, f"… and {len(said) - most} more sentences in the report.")


def as_text(table: Table) -> str:
    """What `print_table` prints for people, as plain text that is as wide as the terminal, or 80 columns."""
    text = StringIO()
    print_table(table, Console(file=text, color_system=None, force_terminal=False, force_jupyter=False))
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


@dataclass(frozen=True)
class ForTerminal:
    """A table that puts errors and intervals beside the means, else under them, and lets go of lesser columns to fit.

    It is for a terminal of 80 columns or more, to be printed by rich. What its signs mean stands below it, and the
    paper's numbers below that.
    """

    model: TableModel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        free = options.update(width=10_000)

        def room(table: RichTable) -> int:
            return options.max_width - console.measure(table, options=free).maximum

        dropped: tuple[Metric, ...] = ()
        wide = _summary(self.model, beside=True)
        if room(wide) >= 0:
            yield wide
        else:
            tried = [LESSER[:n] for n in range(len(LESSER))]
            dropped = next((each for each in tried if room(_without_names(self._narrow(each))) >= 0), LESSER)
            narrow = self._narrow(dropped)
            left = room(_without_names(narrow)) - GAP
            if left < NAME[0] or max(map(len, _wrapped(self.model, console, min(left, NAME[1])))) > MOST_LINES:
                yield from self._names_above(narrow, console, options)
            else:
                yield narrow
        yield from (Text(line, style="dim") for line in _signs(self.model, dropped))
        if self.model.printed:
            yield ""
            yield _beside_paper(self.model)

    def _narrow(self, dropped: Sequence[Metric]) -> RichTable:
        return _summary(self.model, beside=False, dropped=dropped)

    def _names_above(self, table: RichTable, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table with every name on a line of its own, where a column for names would break them into pieces."""
        lines = iter(console.render_lines(_without_names(table, options.max_width), options, pad=False))
        for _ in range(HEAD_LINES):
            yield from (*next(lines), Segment.line())
        for line in self.model.lines:
            yield Text(line.label, style="" if line.kind == "runs" else "italic")
            for _ in range(1 + any(cell.value and cell.value.error is not None for cell in line.cells.values())):
                yield from (*next(lines), Segment.line())


def _without_names(table: RichTable, width: int | None = None) -> RichTable:
    """The same table less its first column, as wide as it is to be."""
    view = RichTable(box=table.box, padding=table.padding, pad_edge=False, show_edge=False, width=width)
    view.columns = [replace(column, _index=place) for place, column in enumerate(table.columns[1:])]
    view.rows = list(table.rows)
    return view


def _wrapped(model: TableModel, console: Console, width: int) -> list[list[Text]]:
    return [list(Text(line.label).wrap(console, width)) for line in model.lines]


def _new_table(*heads: str) -> RichTable:
    view = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    view.add_column(heads[0], overflow="fold", min_width=NAME[0], max_width=NAME[1])
    for head in heads[1:]:
        view.add_column(head, justify="right", no_wrap=True)
    return view


def _summary(model: TableModel, *, beside: bool, dropped: Sequence[Metric] = ()) -> RichTable:
    """The table less some metrics, their changes included; errors and intervals stand beside the means or below."""
    table = model.table
    short = {ACC_MEAN.title: "mean\nACC", FORGETTING.title: "Forget"}
    metrics, changes = ([each for each in own if each not in dropped] for own in (NARROW, table.changes))
    heads = [short.get(head, head) for head in map(table.title, metrics)]
    heads += [f"Change\n{table.title(metric)}" for metric in changes]
    view = _new_table("Runs", "Seeds", *heads)
    for line in model.lines:
        style = "" if line.kind == "runs" else "italic"
        cells = [Text(line.label, style=style), Text(str(len(line.seeds)))]
        cells += [_value(line.cells[metric.key], beside=beside) for metric in metrics]
        cells += [_change(line.cells[metric.key], beside=beside) for metric in changes]
        view.add_row(*cells)
    return view


def _signs(model: TableModel, dropped: Sequence[Metric]) -> list[str]:
    """What ± and brackets are, as far as the table has them, and which columns it had no room for."""
    cells = [cell for line in model.lines for cell in line.cells.values()]
    said = ["± standard error over seeds"] if any(cell.value and cell.value.error for cell in cells) else []
    if any(cell.change for cell in cells):
        interval = ", with its 95 % interval" if any(cell.interval for cell in cells) else ""
        said.append(f"change against {model.table.against}, paired by seed{interval}")
    signs = "; ".join(said)
    lines = [f"{signs[:1].upper()}{signs[1:]}."] if said else []
    if dropped:
        names = ", ".join(model.table.title(metric) for metric in dropped)
        lines.append(f"No room for {names}: a wider terminal has it, and so do --csv and the page.")
    return lines


def _value(cell: Cell, *, beside: bool) -> Text:
    if cell.value is None:
        return Text("–")
    text = Text(number(cell.value.mean))
    if cell.value.error is None:
        return text
    # Errors beside the means have room for 99.9, so that the means stand in line.
    error = number(cell.value.error)
    return text.append(f" ±{error:>4}" if beside else f"\n±{error}", style="dim")


def _change(cell: Cell, *, beside: bool) -> Text:
    if cell.change is None:
        return Text()
    text = Text(number(cell.change.estimate.mean, sign=True), style="bold" if cell.clear else "")
    if cell.interval is None:
        return text
    return text.append(f"{' ' if beside else chr(10)}{between(cell.interval)}", style="dim not bold")


def _beside_paper(model: TableModel) -> RichTable:
    """Ours beside the paper's, a row for each number that the paper has."""
    view = _new_table("Beside the paper", "", "ours", "paper", "gap", "verdict")
    for line in model.lines:
        for metric in model.printed:
            cell = line.cells[metric.key]
            if cell.paper is not None and cell.gap is not None:
                words = [line.label, model.table.title(metric), measured(cell.value), measured(cell.paper)]
                view.add_row(*map(Text, [*words, number(cell.gap, sign=True), cell.verdict or "–"]))
    return view


def print_run(result: Result, out: Console) -> None:
    """What one run measured, the memory's contents, then what it was and where it was made, for a terminal."""
    plan = result.experiment
    memory = memory_name({"memory.name": plan["memory"]["name"], "memory.policy": plan["memory"].get("policy")})
    method, data = printable(plan["method"]), printable(plan["data"])
    said = [f"ACC {result.acc_last:.2f} %", f"mean ACC {result.acc_mean:.2f} %"]
    said += [] if result.task_il_last is None else [f"Task-IL {result.task_il_last:.2f} %"]
    said += [] if result.forgetting is None else [f"forgetting {result.forgetting:.2f}"]
    _say(out, f"{method} with {memory} on {data}, seed {plan.get('seed')}: {', '.join(said)}")
    for sentence in left_out([result]):
        _say(out, sentence)
    for title, matrix in (("Class-IL", result.class_il), ("Task-IL", result.task_il)):
        if matrix is None:
            continue
        tasks = [f"task {j + 1}" for j in range(len(matrix))]
        table = RichTable("after task", *tasks, "mean", title=f"{title} accuracy, %")
        for i, row in enumerate(matrix):
            learned = [f"{each:.1f}" for each in row] + [""] * (len(matrix) - 1 - i)
            table.add_row(str(i + 1), *learned, f"{sum(row) / len(row):.1f}")
        out.print(table)
    table = RichTable("class", "short-term rows", "long-term rows", title="Memory at the end")
    last = result.class_counts[-1] if result.class_counts else {}
    for name, short, long in zip(result.classes, last.get("short", []), last.get("long", []), strict=False):
        table.add_row(Text(printable(name)), str(short), str(long))
    out.print(table)
    for title, lines in _described(result).items():
        out.print(title, style="bold")
        wide = max(map(len, lines), default=0)
        for name, value in sorted(lines.items()):
            out.print(f"  {name:<{wide}}  {value}", markup=False, highlight=False, soft_wrap=True)


def _described(result: Result) -> dict[str, dict[str, str]]:
    """What a run was, by what people look for first: settings by name, but for those that are not there."""
    plan = {key: value for key, value in result.experiment.items() if key != "memory"}
    panel = {name: own.panel for name, own in settings_of(Experiment).items()}
    parts: dict[str, dict[str, Any]] = {"Method": {}, "Memory": flatten(result.experiment["memory"])}
    parts |= {"Stream": {}, "Run": {}}
    for name, value in flatten(plan).items():
        parts[panel.get(name.partition(".")[0], "Run")][name] = value
    cost = {f"seconds, {phase}": f"{value:.2f}" for phase, value in result.seconds.items()}
    if result.sample_gradients is not None:
        cost["gradients for each row of the stream"] = f"{result.sample_gradients:.2f}"
    parts |= {"Cost": cost, "Provenance": flatten(result.provenance)}
    return {
        title: {printable(key): _plain(value) for key, value in own.items() if value not in (None, {}) or key == "dac"}
        for title, own in parts.items()
    }


def _plain(value: object) -> str:
    if value is None:
        return "none"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200)
