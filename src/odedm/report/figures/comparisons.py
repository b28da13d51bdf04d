"""Draws final accuracies side by side: paired differences, and sweeps over λ and ρ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import cycle

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.curves import (
    BASELINE_STROKE,
    BOUND_STROKES,
    STROKES,
    Curve,
    bounds_beside,
    curve_panel,
    draw_curves,
)
from odedm.report.figures.style import Figure, Panel, finish, height_of_rows, write_over
from odedm.report.groups import Group, group_by_settings, sweeps
from odedm.report.labels import belongs_to_memory
from odedm.report.statistics import Paired, estimate
from odedm.report.summary import ACC_LAST, Table
from odedm.report.wording import number


def difference_plot(table: Table) -> list[Panel]:
    """Draw what the memory changed in ACC_T: every seed, the mean and its 95 % interval; nothing without pairs."""
    pairs = {row.group.label: row.differences[ACC_LAST.key] for row in table.compared[: style.MOST_ROWS]}
    if not pairs:
        return []
    means = [f"{label} {number(pair.estimate.mean, sign=True)} points" for label, pair in pairs.items()]
    alt = f"Paired differences in the final accuracy. {'; '.join(means)}"
    rows = [(label, seed, value) for label, pair in pairs.items() for seed, value in pair.by_seed.items()]
    against = "with the memory minus without" if table.baseline is None else f"minus {printable(table.against, 40)}"
    draw = partial(_draw_differences, pairs=pairs, axis=f"points of final accuracy, {against}")
    size = (style.WIDTH, height_of_rows(pairs, 50, 52))
    return [Panel("", alt, draw, ("runs", "seed", "change_in_acc_last"), rows, size)]


def _draw_differences(figure: Figure, *, pairs: dict[str, Paired], axis: str) -> None:
    axes, ends = figure.subplots(), [0.0]
    for row, (label, pair) in enumerate(pairs.items()):
        mean, seeds = pair.estimate.mean, list(pair.by_seed.values())
        interval = list(pair.interval or (mean, mean))
        axes.plot(interval, [row, row], color=style.SERIES[0], linewidth=2.4, zorder=3)
        axes.plot([mean], [row], "D", color=style.SERIES[0], ms=8, zorder=4)
        axes.plot(seeds, [row + 0.22] * len(seeds), "o", mfc="none", mec=style.MUTED, mew=1.0, ms=5.5, zorder=4)
        # in pieces, so that it crosses no label
        axes.plot([0.0, 0.0], [row - 0.16, row + 0.42], color=style.INK, linewidth=1.0, zorder=1.5)
        write_over(axes, row - 0.4, label)
        ends += [*seeds, *interval]
    room = 0.06 * max(max(ends) - min(ends), 1.0)
    axes.set(xlim=(min(ends) - room, max(ends) + room), ylim=(len(pairs) - 0.5, -0.7), yticks=[])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    finish(axes, grid="x", xlabel=axis)


def accuracy_over_capacity(groups: Sequence[Group]) -> list[Panel]:
    """Draw ACC_T against λ, a line per memory, where one was run at two or more capacities."""
    return _sweep_panels(groups, "memory.capacity", "rows in memory, λ")


def accuracy_over_share(groups: Sequence[Group]) -> list[Panel]:
    """Draw ACC_T against ρ, where one memory was run with two or more, and its partner without ODEDM beside it."""
    return _sweep_panels(groups, "memory.rho", "long-term share, ρ")


def _sweep_panels(groups: Sequence[Group], setting: str, axis: str) -> list[Panel]:
    panels = []

    def varies(key: str) -> bool:
        return belongs_to_memory(key) or key == setting

    for members in group_by_settings(groups, varies):
        curves = _curves(members, setting)
        if not any(len(curve.x) > 1 for curve in curves):
            continue
        for bound, stroke in zip(bounds_beside(members, groups), cycle(BOUND_STROKES), strict=False):
            final = estimate(run.result.acc_last for run in bound.runs)
            curves.append(Curve(bound.label, bound.label, stroke, [0.0], [final]))
        shared = _shared_parts(group.family for group in members)
        title = " · ".join(part for part in shared if setting != "memory.capacity" or not part.startswith("λ="))
        points = [
            f"{curve.name}: "
            + ", ".join(f"{number(value.mean)} at {x:g}" for x, value in zip(curve.x, curve.points, strict=True))
            for curve in curves
        ]
        alt = f"Final accuracy against {axis}: {title}. {'; '.join(points)}"
        draw = partial(_draw_sweep, curves=curves, axis=axis)
        panels.append(curve_panel(title, alt, draw, curves, (setting.partition(".")[2], "acc_last")))
    return panels


def _curves(members: Sequence[Group], setting: str) -> list[Curve]:
    """A line for each memory whose groups differ in the setting, and what goes along with it, alone."""
    strokes = cycle(STROKES)
    curves: list[Curve] = []
    for groups in sweeps(members, setting, lambda group: _value(group, setting)):
        groups.sort(key=lambda group: _value(group, setting))
        x = [_value(group, setting) for group in groups]
        plain = groups[0].plain
        distinct = len(set(x)) == len(x) and not any(map(math.isnan, x))
        if distinct and (len(x) > 1 or plain):  # else it is a sweep of something else
            grey = plain and all(curve.stroke is not BASELINE_STROKE for curve in curves)
            name = printable(" · ".join(_shared_parts(group.member for group in groups)), 44)
            points = [estimate(run.result.acc_last for run in group.runs) for group in groups]
            curves.append(Curve(name, name, BASELINE_STROKE if grey else next(strokes), x, points))
    return curves


def _value(group: Group, setting: str) -> float:
    if setting == "memory.rho" and group.plain:
        return 0.0
    value = group.settings.get(setting)
    return float(value) if isinstance(value, int | float) else math.nan


def _shared_parts(names: Iterable[str]) -> list[str]:
    """The parts that all names have.

    >>> _shared_parts(["ER · λ=20 · cnn", "ER · λ=40 · cnn"])
    ['ER', 'cnn']
    """
    first, *others = [name.split(" · ") for name in names]
    return [part for part in first if all(part in other for other in others)]


def _draw_sweep(figure: Figure, *, curves: Sequence[Curve], axis: str) -> None:
    axes = figure.subplots()
    for curve in curves:
        if curve.x == [0.0]:  # the partner has no share: it is the same at every one
            colour, dashes, _ = curve.stroke
            mean, error = curve.points[0].mean, curve.points[0].error or 0.0
            axes.axhline(mean, color=colour, linestyle=dashes, lw=2.0, label=curve.name)
            axes.axhspan(mean - error, mean + error, color=colour, alpha=0.18, lw=0)
        else:
            draw_curves(axes, [curve])
    values = sorted({x for curve in curves for x in curve.x if x})
    if "λ" in axis:
        axes.set_xscale("log")
        axes.minorticks_off()
    else:
        axes.set_xlim(0.0, max(1.0, *values) * 1.03)
    axes.set_xticks(values, [f"{x:g}" for x in values])
    axes.set_ylim(bottom=0.0)
    finish(axes, grid="y", keys=1, xlabel=axis, ylabel="final accuracy, %")
