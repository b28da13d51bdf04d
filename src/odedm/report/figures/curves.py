"""Draws accuracy and error as lines: through the stream, and over λ and ρ; a figure for a method and its memories."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from odedm.core.text import printable
from odedm.report.figures.style import COLOURS, GREY, HEIGHT, LINE, MUTED, Axes, Chart, finish, new_figure
from odedm.report.groups import Group, group_by_settings, other_problem, sweeps
from odedm.report.labels import belongs_to_memory
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import number

KEY = 44
"""Letters of a line of the key."""
BASELINE: Mapping[str, Any] = {"color": GREY, "linestyle": (0, (4, 2)), "marker": "s"}
BOUNDS: tuple[Mapping[str, Any], ...] = (
    {"color": MUTED, "linestyle": (0, (1, 2)), "marker": ""},
    {"color": MUTED, "linestyle": "-.", "marker": ""},
)


class Curve(NamedTuple):
    """A line of a figure: its name in the key and in the data, the estimate at each place, and how it is drawn."""

    name: str
    label: str
    x: Sequence[float]
    points: Sequence[Estimate]
    stroke: Mapping[str, Any] = {}


def curve_chart(title: str, what: str, curves: Sequence[Curve], columns: tuple[str, str], **properties: Any) -> Chart:
    """Return lines with a band of one standard error to each side; `columns` are the names of both axes in the data."""
    figure = new_figure(height=HEIGHT + LINE * sum(1 + _key(curve).count("\n") for curve in curves))
    axes = figure.subplots()
    draw_curves(axes, curves)
    finish(axes, grid="y", keys=1, **properties)
    rows = [
        (curve.label, x, point.mean, point.error, point.n)
        for curve in curves
        for x, point in zip(curve.x, curve.points, strict=True)
    ]
    ends = "; ".join(f"{curve.name} {number(curve.points[-1].mean)}" for curve in curves)
    alt = f"{what}{': ' if title else ''}{title}. At the end {ends}."
    return Chart(title, alt, figure, ("runs", *columns, "standard_error", "seeds"), rows)


def draw_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Draw means with a band of one standard error to each side."""
    for curve in curves:
        y = np.array([point.mean for point in curve.points])
        error = np.array([point.error or 0.0 for point in curve.points])
        (line,) = axes.plot(curve.x, y, label=_key(curve), markevery=max(1, len(y) // 20), **curve.stroke)
        if error.any():
            axes.fill_between(curve.x, y - error, y + error, color=line.get_color(), alpha=0.18, linewidth=0)


def _key(curve: Curve) -> str:
    return textwrap.fill(curve.name, KEY)


def forgetting_curves(groups: Sequence[Group], most: int | None = None) -> list[Chart]:
    """Draw 100 − ACC_i over tasks, the paper's FR_i, mean and standard error; of the first so many families."""
    return [forgetting_chart(members, title, ceiling(groups)) for title, members in families(groups)[:most]]


def forgetting_chart(groups: Sequence[Group], title: str, top: float) -> Chart:
    """Return the error on the tasks so far, which the paper calls the forgetting rate, over tasks and up to `top`."""
    curves = error_curves(groups, title)
    what, columns = "Error on the tasks so far", ("task", "forgetting_rate")
    words = {"xlabel": "tasks learned", "ylabel": "error on tasks so far, %"}
    chart = curve_chart(title, what, curves, columns, ylim=(0.0, top), **words)
    whole_ticks(chart)
    return chart


def error_curves(groups: Sequence[Group], title: str) -> list[Curve]:
    """Return the error on the tasks so far after each task, a line for each group."""
    curves = []
    for group, name, stroke in named_strokes(groups, title):
        tasks = range(group.tasks)
        rates = [estimate(run.result.forgetting_rate[task] for run in group.runs) for task in tasks]
        curves.append(Curve(name, group.label, [task + 1 for task in tasks], rates, stroke))
    return curves


def ceiling(groups: Sequence[Group]) -> float:
    """Return the top of the axis of errors, the same for every figure."""
    worst = max(max(run.result.forgetting_rate) for group in groups for run in group.runs)
    return min(max(1.1 * worst, 10.0), 104.0)


def whole_ticks(chart: Chart) -> None:
    """Put whole numbers alone under the axis."""
    chart.figure.axes[0].locator_params(axis="x", integer=True, nbins=10)


def anytime_curves(groups: Sequence[Group], most: int | None = None) -> list[Chart]:
    """Draw accuracy over the classes seen so far against rows seen, of groups all of whose runs measured it."""
    measured = [group for group in groups if all(run.anytime for run in group.runs)]
    charts = []
    for title, members in families(measured)[:most]:
        curves = [Curve(name, g.label, *_anytime(g), stroke) for g, name, stroke in named_strokes(members, title)]
        words = {"xlabel": "rows seen", "ylabel": "accuracy, %", "ylim": (0.0, 104.0)}
        columns = ("rows_seen", "accuracy")
        charts.append(curve_chart(title, "Accuracy through the stream", curves, columns, **words))
        charts[-1].figure.axes[0].locator_params(axis="x", nbins=6)
    return charts


def _anytime(group: Group) -> tuple[list[float], list[Estimate]]:
    """Return the seeds' mean at the places of the first one; other seeds' are interpolated."""
    seen = [float(rows) for rows, _ in group.runs[0].anytime]
    lines = [np.interp(seen, [rows for rows, _ in run.anytime], [y for _, y in run.anytime]) for run in group.runs]
    return seen, [estimate(float(line[i]) for line in lines) for i in range(len(seen))]


def families(groups: Sequence[Group], most: int = len(COLOURS)) -> list[tuple[str, list[Group]]]:
    """Return groups that differ by the memory alone, each set with as many as there are strokes.

    One set without a title where there is one family, or where nobody has a partner. Bounds of the same problem are
    the last ones of every set.
    """
    runs = [group for group in groups if not group.bound] or list(groups)
    sets = group_by_settings(runs, belongs_to_memory)
    most = max(most - sum(group.bound for group in groups), 2)
    if runs and len(runs) <= most and (len(sets) == 1 or all(len(members) == 1 for members in sets)):
        return [("", runs + bounds_beside(runs, groups))]
    panels = []
    for members in sets:
        title = max((group.family for group in members), key=len)
        plain = [group for group in members if group.plain]
        others = [group for group in members if not group.plain]
        size = max(most - len(plain), 1)
        for start in range(0, max(len(others), 1), size):
            panels.append((title, [*plain, *others[start : start + size], *bounds_beside(members, groups)]))
    return panels


def bounds_beside(members: Sequence[Group], groups: Sequence[Group]) -> list[Group]:
    """Return the bounds among all groups that had the same problem, and as many passes, as these, none of them one."""
    first = members[0]
    bounds = [group for group in groups if group.bound and not first.bound and not other_problem(group, first)]
    return [group for group in bounds if group.settings.get("epochs", 1) == first.settings.get("epochs", 1)]


def named_strokes(groups: Sequence[Group], title: str) -> list[tuple[Group, str, Mapping[str, Any]]]:
    """Return how each group is called and drawn; a single baseline among other memories is grey, and so are bounds."""
    baselines = [group for group in groups if group.plain and not group.bound]
    grey = baselines[0] if len(baselines) == 1 < sum(not group.bound for group in groups) else None
    names = [printable(group.member if title and not group.bound else group.label, 120) for group in groups]
    bounds = cycle(BOUNDS)
    strokes: list[Mapping[str, Any]] = [
        next(bounds) if group.bound else BASELINE if group is grey else {} for group in groups
    ]
    return list(zip(groups, names, strokes, strict=True))


def accuracy_over_capacity(groups: Sequence[Group]) -> list[Chart]:
    """Draw ACC_T against λ, a line per memory, where one was run at two or more capacities."""
    return _sweep_charts(groups, "memory.capacity", "rows in memory, λ")


def accuracy_over_share(groups: Sequence[Group]) -> list[Chart]:
    """Draw ACC_T against ρ, where one memory was run with two or more, and its partner without ODEDM beside it."""
    return _sweep_charts(groups, "memory.rho", "long-term share, ρ")


def _sweep_charts(groups: Sequence[Group], setting: str, axis: str) -> list[Chart]:
    charts = []
    for members in group_by_settings(groups, lambda key: belongs_to_memory(key) or key == setting):
        curves = _sweep_curves(members, setting)
        if not any(len(curve.x) > 1 for curve in curves):
            continue
        for bound, stroke in zip(bounds_beside(members, groups), BOUNDS, strict=False):
            final = estimate(run.result.acc_last for run in bound.runs)
            curves.append(Curve(bound.label, bound.label, [0.0], [final], stroke))
        parts = _shared_parts(group.family for group in members)
        title = " · ".join(part for part in parts if setting != "memory.capacity" or not part.startswith("λ="))
        columns = (setting.partition(".")[2], "acc_last")
        words = {"xlabel": axis, "ylabel": "final accuracy, %"}
        chart = curve_chart(title, f"Final accuracy against {axis}", curves, columns, **words)
        _scale_sweep(chart.figure.axes[0], curves, logarithmic=setting == "memory.capacity")
        charts.append(chart)
    return charts


def _sweep_curves(members: Sequence[Group], setting: str) -> list[Curve]:
    """Return a line for each memory whose groups differ in the setting, and what goes along with it, alone."""
    curves: list[Curve] = []
    for groups in sweeps(members, setting, lambda group: _value(group, setting)):
        groups.sort(key=lambda group: _value(group, setting))
        x, plain = [_value(group, setting) for group in groups], groups[0].plain
        distinct = len(set(x)) == len(x) and not any(map(math.isnan, x))
        if distinct and (len(x) > 1 or plain):  # else it is a sweep of something else
            stroke = BASELINE if plain and all(curve.stroke is not BASELINE for curve in curves) else {}
            name = printable(" · ".join(_shared_parts(group.member for group in groups)), 120)
            points = [estimate(run.result.acc_last for run in group.runs) for group in groups]
            curves.append(Curve(name, name, x, points, stroke))
    return curves


def _value(group: Group, setting: str) -> float:
    if setting == "memory.rho" and group.plain:
        return 0.0
    value = group.settings.get(setting)
    return float(value) if isinstance(value, int | float) else math.nan


def _shared_parts(names: Iterable[str]) -> list[str]:
    """Return the parts that all names have.

    >>> _shared_parts(["ER · λ=20 · cnn", "ER · λ=40 · cnn"])
    ['ER', 'cnn']
    """
    first, *others = [name.split(" · ") for name in names]
    return [part for part in first if all(part in other for other in others)]


def _scale_sweep(axes: Axes, curves: Sequence[Curve], *, logarithmic: bool) -> None:
    """Set the places of a sweep under its axis; what has no place of its own is a level line."""
    for curve, line in zip(curves, axes.lines[: len(curves)], strict=True):
        if curve.x == [0.0]:
            axes.axhline(curve.points[0].mean, color=line.get_color(), linestyle=curve.stroke.get("linestyle", "-"))
    values = sorted({x for curve in curves for x in curve.x if x})
    if logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    else:
        axes.set_xlim(0.0, max(1.0, *values) * 1.03)
    axes.set_xticks(values, [f"{x:g}" for x in values])
    axes.set_ylim(bottom=0.0)
