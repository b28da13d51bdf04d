"""The table as data: each number with its change, what chance would do and the paper's, and which ρ would be chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from odedm.core.registry import REFERENCE
from odedm.report.groups import Group, sweeps
from odedm.report.published_number import Published
from odedm.report.statistics import Estimate, Paired
from odedm.report.summary import ACC_LAST, COMPARED, METRICS, Metric, Row, Table
from odedm.report.wording import canonical

Verdict = Literal["reproduced", "better", "worse", "not comparable"]
Kind = Literal["runs", "test", "validation"]
"""What a line of the table is: runs, or a choice among them by the test set or by training rows held out."""


@dataclass(frozen=True)
class Cell:
    """One number: measured over seeds, its change against the partner, Holm's p of it, and the paper's number.

    The best on the test set is not `tested`: chance would not have chosen it, so it has no interval and no p.
    """

    value: Estimate | None
    change: Paired | None = None
    corrected: float | None = None
    paper: Published | None = None
    tested: bool = True
    same_protocol: bool = True
    """Whether the runs are what the paper ran, as far as it says."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the change."""
        return self.change.interval if self.change and self.tested else None

    @property
    def clear(self) -> bool:
        """Whether the change is one that the seeds can tell from chance."""
        return self.change is not None and self.change.clear and self.tested

    @property
    def gap(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None or self.value is None else self.value.mean - self.paper.mean

    @property
    def allowed(self) -> float | None:
        """The largest gap that chance explains: 2·√(our standard error² + the paper's sd²/3), for it has three runs.

        None where there is no verdict: without a ± of the paper's over runs, and with a single seed of ours.
        """
        if self.paper is None or self.paper.error is None or not self.same_protocol:
            return None
        if self.value is None or self.value.error is None:
            return None
        return 2 * math.hypot(self.value.error, self.paper.error / math.sqrt(3)) if self.paper.comparable else None

    @property
    def verdict(self) -> Verdict | None:
        """What our number says of the paper's; None where it has none, or where errors are missing."""
        if self.paper is None or self.gap is None:
            return None
        if not self.same_protocol or not self.paper.comparable:
            return "not comparable"
        if self.allowed is None:
            return None
        return "reproduced" if abs(self.gap) <= self.allowed else "better" if self.gap > 0 else "worse"


@dataclass(frozen=True)
class Line:
    """A row of the table: a group of runs, or one of several chosen by ρ."""

    label: str
    group: Group
    cells: dict[str, Cell]
    kind: Kind = "runs"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds behind every number of the line."""
        return tuple(run.seed for run in self.group.runs)


@dataclass(frozen=True)
class TableModel:
    """All lines of a table."""

    lines: tuple[Line, ...]
    table: Table

    @property
    def printed(self) -> tuple[Metric, ...]:
        """The metrics that the paper has a number for in any line."""
        return tuple(metric for metric in METRICS if any(line.cells[metric.key].paper for line in self.lines))


@dataclass(frozen=True)
class BestRow:
    """One row out of several that differ in ρ alone; `how` says what it was chosen on."""

    row: Row
    tried: int
    how: Kind

    @property
    def label(self) -> str:
        """What was chosen, from how many, on what."""
        parts = self.row.group.label.split(" · ")
        named = [part for part in parts if not part.startswith(("ρ=", "k=", "DAC ", "no DAC"))]
        share = _share(self.row.group)
        if self.how == "test":
            return " · ".join([*named, f"best of {self.tried} ρ ({share}), chosen on the test set"])
        return " · ".join([*named, f"{share}, chosen on validation rows"])


def model(table: Table) -> TableModel:
    """Return the table with the paper's numbers, and a line for each choice among several ρ after the last of them."""
    lines = [Line(row.group.label, row.group, _cells(row)) for row in table.rows]
    for choice in choices(table):
        group = choice.row.group
        line = Line(choice.label, group, _cells(choice.row, choice.how), choice.how)
        family = [i for i, other in enumerate(lines) if other.group.same_but_memory == group.same_but_memory]
        lines.insert(max(family) + 1, line)
    return TableModel(tuple(lines), table)


def choices(table: Table) -> list[BestRow]:
    """Return of each set of rows that differ in ρ alone the best on the test set, as in the paper, and an honest one.

    The second needs the same runs with the setting `validation`, which take the place of the test rows.
    """
    chosen = []
    row_of = {id(row.group): row for row in table.rows}
    validated = {
        _but_validation(row.group): _accuracy(row)
        for row in table.rows
        if row.group.settings.get("validation") is not None
    }
    for groups in sweeps([group for group in table.groups if group.memory == "odedm"], "memory.rho", _share):
        if len(groups) == 1 or len({_share(group) for group in groups}) < len(groups):
            continue
        rows = [row_of[id(group)] for group in groups]
        if groups[0].settings.get("validation") is not None:
            chosen.append(BestRow(max(rows, key=_accuracy), len(rows), "validation"))
            continue
        chosen.append(BestRow(max(rows, key=_accuracy), len(rows), "test"))
        scores = {id(row): validated.get(_but_validation(row.group)) for row in rows}
        known = [row for row in rows if scores[id(row)] is not None]
        if len(known) == len(rows):
            chosen.append(BestRow(max(rows, key=lambda row: scores[id(row)] or 0.0), len(rows), "validation"))
    return chosen


def _accuracy(row: Row) -> float:
    return row.values[ACC_LAST.key].mean


def _but_validation(group: Group) -> str:
    """What runs that are tested on other rows, maybe after fewer tasks, share with these, as one comparable text."""
    other = ("validation", "first_tasks", "tasks", "class names")
    return canonical({key: value for key, value in group.settings.items() if key not in other})


def _share(group: Group) -> str:
    rho = group.settings.get("memory.rho")
    return f"ρ={rho:g}" if isinstance(rho, int | float) else f"k={group.settings.get('memory.k')}"


def _cells(row: Row, kind: Kind = "runs") -> dict[str, Cell]:
    """A chosen line repeats its runs, so it adds no test of its own, and stands beside the paper's best alone."""
    best, cells = kind == "test", {}
    reference = REFERENCE.load()
    same = not reference.deviations(row.group.settings)
    for metric in METRICS:
        change = row.differences.get(metric.key)
        corrected = None if best else row.corrected.get(metric.key)
        paper = None if kind == "validation" else _paper_value(row.group, metric, best=best)
        value = row.values.get(metric.key)
        cells[metric.key] = Cell(value, change, corrected, paper, tested=not best, same_protocol=same)
    return cells


def _paper_value(group: Group, metric: Metric, *, best: bool) -> Published | None:
    if metric not in COMPARED:
        return None
    value: Published | None = REFERENCE.load().value(metric.key, group.settings, tasks=group.tasks, best=best)
    return value
