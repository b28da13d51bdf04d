"""The table as data: every cell with its mean, its change, what chance would do, and the paper's number beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from odedm.report.groups import Group
from odedm.report.share_choice import choices
from odedm.report.statistics import Estimate, Paired
from odedm.report.summary import METRICS, Metric, Row, Table
from odedm.study.paper_numbers import Published, published

PRINTED = ("acc_last", "acc_mean", "task_il_last")
"""The metrics that the paper prints."""


@dataclass(frozen=True)
class Cell:
    """One number: measured over seeds, its change against the partner, Holm's p of it, and the paper's number."""

    value: Estimate
    change: Paired | None = None
    corrected: float | None = None
    paper: Published | None = None

    @property
    def gap(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None else self.value.mean - self.paper.mean

    @property
    def combined(self) -> float | None:
        """Both errors together: √(our standard error² + the paper's ±²); None where the paper's ± is not over runs."""
        if self.paper is None or self.paper.error is None or self.paper.spread != "runs":
            return None
        return math.hypot(self.value.error or 0.0, self.paper.error)

    @property
    def inside(self) -> bool | None:
        """Whether the gap lies inside the combined error; None where there is none."""
        gap, combined = self.gap, self.combined
        return None if gap is None or combined is None else abs(gap) <= combined


@dataclass(frozen=True)
class Line:
    """A row of the table: a group of runs, or one of several chosen by ρ."""

    label: str
    group: Group
    cells: dict[str, Cell]
    kind: Literal["runs", "test", "held-out"] = "runs"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds behind every number of the line."""
        return tuple(run.seed for run in self.group.runs)

    @property
    def beside_paper(self) -> bool:
        """Whether the paper has a number for any of its cells."""
        return any(cell.paper for cell in self.cells.values())


@dataclass(frozen=True)
class TableModel:
    """All lines, and the columns that they need."""

    lines: tuple[Line, ...]
    metrics: tuple[Metric, ...]
    changes: tuple[Metric, ...]
    table: Table

    @property
    def printed(self) -> tuple[Metric, ...]:
        """The metrics that the paper has a number for in any line."""
        return tuple(m for m in self.metrics if any(line.cells[m.key].paper for line in self.lines))

    def title(self, metric: Metric) -> str:
        """The metric's heading."""
        return self.table.title(metric)


def model(table: Table) -> TableModel:
    """The table with the paper's numbers, and a line for each choice among several ρ after the last of them."""
    found = [Line(row.group.label, row.group, _cells(row)) for row in table.rows]
    for choice in choices(table):
        best = choice.how == "test"
        line = Line(choice.label, choice.row.group, _cells(choice.row, best=best, chosen=True), choice.how)
        family = [i for i, each in enumerate(found) if _alike(each.group, choice.row.group)]
        found.insert(max(family) + 1, line)
    return TableModel(tuple(found), METRICS, table.changes, table)


def _alike(one: Group, other: Group) -> bool:
    return one.same_but_memory == other.same_but_memory


def _cells(row: Row, *, best: bool = False, chosen: bool = False) -> dict[str, Cell]:
    """A chosen line repeats its runs, so it adds no test of its own; of the best on the test set p says nothing."""
    return {
        metric.key: Cell(
            row.values[metric.key],
            row.differences.get(metric.key),
            None if best else row.corrected.get(metric.key),
            None if chosen and not best else beside(row.group, metric.key, best=best),
        )
        for metric in METRICS
    }


def beside(group: Group, metric: str, *, best: bool = False) -> Published | None:
    """The paper's number for a group's configuration, None where the paper has none or varies something else."""
    own = group.settings
    capacity = own.get("memory.capacity")
    named = all(isinstance(own.get(key), str) for key in ("data", "method"))
    if metric not in PRINTED or not isinstance(capacity, int) or not named or not _as_printed(own):
        return None
    dac, k, rho = own.get("memory.dac"), own.get("memory.k"), own.get("memory.rho")
    return published(
        metric,
        data=own["data"],
        method=own["method"],
        capacity=capacity,
        memory="odedm" if group.memory == "odedm" else str(own.get("memory.policy", "reservoir")),
        setting=str(own.get("setting", "standard")),
        tasks=group.tasks,
        k=k if isinstance(k, int) else None,
        rho=rho if isinstance(rho, int | float) else None,
        dac=(int(dac[0]), int(dac[1])) if isinstance(dac, list) and len(dac) == 2 else None,
        distance=str(own.get("memory.distance", "sinkhorn")),
        best=best,
        fit=own.get("options.fit") is True,
        epochs=own["epochs"] if isinstance(own.get("epochs"), int) else 1,
    )


def _as_printed(own: dict[str, Any]) -> bool:
    """Whether nothing is varied that the paper gives no number for: mixup, no DAC, blurred tasks, wrong labels."""
    odedm = own.get("memory.name") == "odedm"
    if odedm and (own.get("memory.mixup") or own.get("memory.dac", ()) is None or not own.get("memory.k", 1)):
        return False
    return not own.get("blur") and not own.get("noise")
