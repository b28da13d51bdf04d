"""Forgetting over tasks as lines, a panel for each method with the memories it was run with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from odedm.report.figures.style import CARD, PLAIN, SERIES, WIDTH, Axes, Frame, Panel, legend, svg, task_ticks
from odedm.report.groups import BASELINES, Group
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import clean, number

Stroke = tuple[str, Any, str]
"""Colour, dashes and marker of a line."""
BASELINE_STROKE: Stroke = (PLAIN, (0, (4, 2)), "s")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
STROKES: tuple[Stroke, ...] = tuple(zip(SERIES, DASHES, "o^DvPX", strict=True))


def forgetting_curves(groups: Sequence[Group]) -> list[Panel]:
    """FR_i over tasks, mean and standard error."""
    top = ceiling(groups)
    panels = []
    for title, members in _families(groups):
        alone = title == ""
        names = [clean(group.label if alone else group.names.member, 40) for group in members]
        columns = 2 if max(map(len, names)) <= 16 else 1
        keys = 16 * math.ceil(len(members) / columns)
        frame = Frame(WIDTH, 240 + keys, top=8 + keys, scale=1.45 if alone else 1.25)
        ends = ", ".join(
            f"{name} {number(_points(group)[-1].mean)} %" for name, group in zip(names, members, strict=True)
        )
        alt = f"Forgetting rate over tasks{': ' + title if title else ''}. After the last task: {ends}."
        paint = partial(draw_curves, groups=members, names=names, top=top, columns=columns)
        panels.append(Panel(title, svg(frame, alt, paint)))
    return panels


def ceiling(groups: Sequence[Group]) -> float:
    """The top of the forgetting axis, the same for every panel."""
    worst = max(max(run.result.forgetting_rate) for group in groups for run in group.runs)
    return min(max(10.0 * math.ceil(worst / 10.0 + 0.2), 10.0), 104.0)


def draw_curves(axes: Axes, *, groups: Sequence[Group], names: Sequence[str], top: float, columns: int) -> None:
    """A line per group; a single baseline among other memories is grey, so that they stand out."""
    baselines = [group for group in groups if group.memory in BASELINES]
    grey = baselines[0] if len(baselines) == 1 < len(groups) else None
    strokes = cycle(STROKES)
    for group, name in zip(groups, names, strict=True):
        _draw_curve(axes, _points(group), BASELINE_STROKE if group is grey else next(strokes), name)
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


def _draw_curve(axes: Axes, points: Sequence[Estimate], stroke: Stroke, name: str) -> None:
    colour, dashes, marker = stroke
    x = np.arange(1, len(points) + 1)
    y = np.array([point.mean for point in points])
    error = np.array([point.error or 0.0 for point in points])
    if error.any():
        axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
    every = max(1, len(points) // 20)
    line = {"color": colour, "linestyle": dashes, "lw": 2.0, "label": name}
    axes.plot(x, y, **line, marker=marker, markevery=every, ms=6, mec=CARD, mew=1.0)


def _points(group: Group) -> list[Estimate]:
    return [estimate(run.result.forgetting_rate[task] for run in group.runs) for task in range(group.tasks)]


def _families(groups: Sequence[Group], most: int = len(STROKES)) -> list[tuple[str, list[Group]]]:
    """Groups that differ by the memory alone, together, each panel with as many as there are strokes.

    One panel without a title where there is one family, or where nobody has a partner.
    """
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.same_but_memory, []).append(group)
    if len(groups) <= most and (len(found) == 1 or all(len(members) == 1 for members in found.values())):
        return [("", list(groups))]
    panels = []
    for members in found.values():
        title = max((group.names.family for group in members), key=len)
        plain = [group for group in members if group.memory in BASELINES]
        others = [group for group in members if group.memory not in BASELINES]
        room = max(most - len(plain), 1)
        for start in range(0, max(len(others), 1), room):
            panels.append((title, plain + others[start : start + room]))
    return panels
