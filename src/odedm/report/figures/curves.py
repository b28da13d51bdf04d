"""Draws accuracy and forgetting through the stream as lines, a panel for each method with its memories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.style import Axes, Draw, Figure, Panel, finish, task_ticks, titled
from odedm.report.groups import Group, group_by_settings
from odedm.report.labels import belongs_to_memory
from odedm.report.statistics import Estimate, estimate
from odedm.report.summary import other_problem
from odedm.report.wording import number

Stroke = tuple[str, Any, str]
"""Colour, dashes and marker of a line, so that lines differ without colour too."""
BASELINE_STROKE: Stroke = (style.PLAIN, (0, (4, 2)), "s")
BOUND_STROKES: tuple[Stroke, ...] = ((style.MUTED, (0, (1, 2)), ""), (style.MUTED, (0, (7, 2, 1, 2)), ""))
"""Of bounds: grey, thin to the eye, and without marks."""
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
STROKES: tuple[Stroke, ...] = tuple(zip(style.SERIES, DASHES, "o^DvPX", strict=True))


class Curve(NamedTuple):
    """A line of a panel: its name in the key and in the data, how it is drawn, and the estimate at each place."""

    name: str
    label: str
    stroke: Stroke
    x: Sequence[float]
    points: Sequence[Estimate]


def forgetting_curves(groups: Sequence[Group], most: int | None = None) -> list[Panel]:
    """Draw 100 − ACC_i over tasks, the paper's FR_i, mean and standard error; of the first so many families."""
    top = ceiling(groups)
    panels = []
    for title, members in families(groups)[:most]:
        curves = forgetting(members, title)
        ends = ", ".join(f"{curve.name} {number(curve.points[-1].mean)} %" for curve in curves)
        alt = f"{titled('Error on the tasks so far', title)}. After the last task: {ends}."
        panels.append(
            curve_panel(title, alt, partial(_draw_panel, curves=curves, top=top), curves, ("task", "forgetting_rate"))
        )
    return panels


def anytime_curves(groups: Sequence[Group], most: int | None = None) -> list[Panel]:
    """Draw accuracy over the classes seen so far against rows seen, of groups all of whose runs measured it."""
    panels = []
    measured = [group for group in groups if all(run.anytime for run in group.runs)]
    for title, members in families(measured)[:most]:
        curves = [Curve(name, g.label, stroke, *_anytime(g)) for g, name, stroke in named_strokes(members, title)]
        means = ", ".join(f"{c.name} {number(float(np.mean([point.mean for point in c.points])))} %" for c in curves)
        alt = f"{titled('Accuracy through the stream', title)}. Mean over it: {means}."
        panels.append(curve_panel(title, alt, partial(_draw_anytime, curves=curves), curves, ("rows_seen", "accuracy")))
    return panels


def families(groups: Sequence[Group], most: int = len(STROKES)) -> list[tuple[str, list[Group]]]:
    """Return groups that differ by the memory alone, together, each panel with as many as there are strokes.

    One panel without a title where there is one family, or where nobody has a partner. Bounds of the same problem are
    the last ones of every panel.
    """
    bounds = [group for group in groups if group.bound]
    if 0 < len(bounds) < len(groups):
        rest = [group for group in groups if not group.bound]
        panels = families(rest, max(most - len(bounds), 1))
        return [(title, members + bounds_beside(members, groups)) for title, members in panels]
    alike = group_by_settings(groups, belongs_to_memory)
    if groups and len(groups) <= most and (len(alike) == 1 or all(len(members) == 1 for members in alike)):
        return [("", list(groups))]
    panels = []
    for members in alike:
        title = max((group.family for group in members), key=len)
        plain = [group for group in members if group.plain]
        others = [group for group in members if not group.plain]
        room = max(most - len(plain), 1)
        for start in range(0, max(len(others), 1), room):
            panels.append((title, plain + others[start : start + room]))
    return panels


def bounds_beside(members: Sequence[Group], groups: Sequence[Group]) -> list[Group]:
    """Return the bounds among all groups that had the same problem, and as many passes, as these, none of them one."""
    first = members[0]
    if first.bound:
        return []
    bounds = [group for group in groups if group.bound and not other_problem(group, first)]
    return [group for group in bounds if group.settings.get("epochs", 1) == first.settings.get("epochs", 1)]


def named_strokes(groups: Sequence[Group], title: str) -> list[tuple[Group, str, Stroke]]:
    """Return how each group is called and drawn; a single baseline among other memories is grey."""
    baselines = [group for group in groups if group.plain]
    grey = baselines[0] if len(baselines) == 1 < sum(not group.bound for group in groups) else None
    names = [printable(group.member if title and not group.bound else group.label, 44) for group in groups]
    others, bounds = cycle(STROKES), cycle(BOUND_STROKES)
    strokes = [BASELINE_STROKE if group is grey else next(bounds if group.bound else others) for group in groups]
    return list(zip(groups, names, strokes, strict=True))


def forgetting(groups: Sequence[Group], title: str) -> list[Curve]:
    """Return the forgetting rate after each task as a line per group."""
    curves = []
    for group, name, stroke in named_strokes(groups, title):
        rates = [estimate(run.result.forgetting_rate[task] for run in group.runs) for task in range(group.tasks)]
        curves.append(Curve(name, group.label, stroke, range(1, group.tasks + 1), rates))
    return curves


def ceiling(groups: Sequence[Group]) -> float:
    """Return the top of the forgetting axis, the same for every panel."""
    worst = max(max(run.result.forgetting_rate) for group in groups for run in group.runs)
    return min(max(10.0 * math.ceil(worst / 10.0 + 0.2), 10.0), 104.0)


def _anytime(group: Group) -> tuple[list[float], list[Estimate]]:
    """The seeds' mean at the places of the first one; another seed's places are met by straight lines between them."""
    seen = [float(rows) for rows, _ in group.runs[0].anytime]
    lines = [np.interp(seen, [rows for rows, _ in run.anytime], [y for _, y in run.anytime]) for run in group.runs]
    return seen, [estimate(float(line[i]) for line in lines) for i in range(len(seen))]


def curve_panel(title: str, alt: str, draw: Draw, curves: Sequence[Curve], names: tuple[str, str]) -> Panel:
    """Return a panel with a key above its lines; `names` are those of both axes in the data."""
    rows = [
        (curve.label, x, point.mean, point.error, point.n)
        for curve in curves
        for x, point in zip(curve.x, curve.points, strict=True)
    ]
    size = (style.WIDTH, style.HEIGHT + style.LINE * len(curves))
    return Panel(title, alt, draw, ("runs", *names, "standard_error", "seeds"), rows, size)


def draw_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Draw means with a band of one standard error to each side."""
    for curve in curves:
        colour, dashes, marker = curve.stroke
        y = np.array([point.mean for point in curve.points])
        error = np.array([point.error or 0.0 for point in curve.points])
        if error.any():
            axes.fill_between(curve.x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
        line = {"color": colour, "linestyle": dashes, "lw": 2.0, "label": curve.name}
        axes.plot(curve.x, y, **line, marker=marker, markevery=max(1, len(y) // 20), ms=6, mec="white", mew=1.0)


def draw_forgetting(axes: Axes, curves: Sequence[Curve], top: float) -> None:
    """Draw the error on the tasks so far, which the paper calls the forgetting rate, over tasks and up to `top`."""
    draw_curves(axes, curves)
    longest = max(len(curve.x) for curve in curves)
    axes.set(xlim=(0.7, longest + 0.3), xticks=task_ticks(longest, 12), xlabel="tasks learned")
    ticks = range(0, min(int(top), 100) + 1, 20 if top > 40 else 10 if top > 20 else 5)
    finish(axes, grid="y", keys=1, ylim=(0.0, top), yticks=ticks, ylabel="error on tasks so far, %")


def _draw_panel(figure: Figure, *, curves: Sequence[Curve], top: float) -> None:
    draw_forgetting(figure.subplots(), curves, top)


def _draw_anytime(figure: Figure, *, curves: Sequence[Curve]) -> None:
    axes = figure.subplots()
    draw_curves(axes, curves)
    axes.set(xlim=(0.0, max(curve.x[-1] for curve in curves) * 1.01), xlabel="rows seen")
    axes.locator_params(axis="x", nbins=6)
    finish(axes, grid="y", keys=1, ylim=(0.0, 104.0), ylabel="accuracy, %")
