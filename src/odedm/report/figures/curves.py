"""Forgetting over tasks as lines, a panel for each method with the memories it was run with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from odedm.report.figures.lines import draw_line, families, strokes
from odedm.report.figures.style import WIDTH, Axes, Frame, Panel, csv_text, legend, panel, task_ticks
from odedm.report.groups import Group
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import clean, number


def forgetting_curves(groups: Sequence[Group]) -> list[Panel]:
    """FR_i over tasks, mean and standard error."""
    top = ceiling(groups)
    panels = []
    for title, members in families(groups):
        alone = title == ""
        names = [clean(group.label if alone else group.names.member, 44) for group in members]
        columns = 2 if max(map(len, names)) <= 16 else 1
        keys = 16 * math.ceil(len(members) / columns)
        frame = Frame(WIDTH, 240 + keys, top=8 + keys, scale=1.45 if alone else 1.25)
        ends = ", ".join(
            f"{name} {number(_points(group)[-1].mean)} %" for name, group in zip(names, members, strict=True)
        )
        alt = f"Forgetting rate over tasks{': ' + title if title else ''}. After the last task: {ends}."
        paint = partial(draw_curves, groups=members, names=names, top=top, columns=columns)
        panels.append(panel(title, frame, alt, paint, _data(members)))
    return panels


def ceiling(groups: Sequence[Group]) -> float:
    """The top of the forgetting axis, the same for every panel."""
    worst = max(max(run.result.forgetting_rate) for group in groups for run in group.runs)
    return min(max(10.0 * math.ceil(worst / 10.0 + 0.2), 10.0), 104.0)


def draw_curves(axes: Axes, *, groups: Sequence[Group], names: Sequence[str], top: float, columns: int) -> None:
    """A line per group."""
    for group, name, stroke in zip(groups, names, strokes(groups), strict=True):
        draw_line(axes, range(1, group.tasks + 1), _points(group), stroke, name)
    longest = max(group.tasks for group in groups)
    axes.set_xlim(0.7, longest + 0.3)
    axes.set_ylim(0.0, top)
    axes.set_xticks(task_ticks(longest, 12))
    step = 20 if top > 40 else 10 if top > 20 else 5
    axes.set_yticks(list(range(0, min(int(top), 100) + 1, step)))
    axes.grid(axis="y")
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("forgetting rate, %")
    legend(axes, columns=columns)


def _points(group: Group) -> list[Estimate]:
    return [estimate(run.result.forgetting_rate[task] for run in group.runs) for task in range(group.tasks)]


def _data(groups: Sequence[Group]) -> str:
    rows = [
        (group.label, task, point.mean, point.error, point.n)
        for group in groups
        for task, point in enumerate(_points(group), start=1)
    ]
    return csv_text(["runs", "task", "forgetting_rate", "standard_error", "seeds"], rows)
