"""Draws final accuracies side by side: paired differences, variants of a memory, and sweeps over λ and ρ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

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
    families,
)
from odedm.report.figures.style import Axes, Panel, draw_bar, finish, panel, row_frame, titled, write_beside, write_over
from odedm.report.groups import Group, alike, sweeps
from odedm.report.labels import belongs_to_memory
from odedm.report.statistics import Estimate, Paired, estimate
from odedm.report.summary import ACC_LAST, Table
from odedm.report.wording import measured, number

MOST = 12
"""Bars of one panel."""


def difference_plot(table: Table) -> list[Panel]:
    """What the memory changed in ACC_T: every seed, the mean and its 95 % interval; none without pairs."""
    pairs = {row.group.label: row.differences[ACC_LAST.key] for row in table.compared[: style.MOST_ROWS]}
    if not pairs:
        return []
    told = [f"{label} {number(pair.estimate.mean, sign=True)} points" for label, pair in pairs.items()]
    alt = f"Paired differences in the final accuracy. {'; '.join(told)}"
    rows = [(label, seed, value) for label, pair in pairs.items() for seed, value in pair.by_seed.items()]
    columns = ["runs", "seed", "change_in_acc_last"]
    against = "with the memory minus without" if table.baseline is None else f"minus {printable(table.against, 40)}"
    paint = partial(_draw_differences, pairs=pairs, axis=f"points of final accuracy, {against}")
    return [panel("", row_frame(pairs, 50), alt, paint, columns, rows)]


def ablation_bars(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T of a method with every memory it was run with, where there are at least two variants of one memory."""
    panels = []
    for title, members in families([group for group in groups if not group.bound], most=MOST):
        if sum(not group.plain for group in members) < 2 or len({group.same_but_memory for group in members}) > 1:
            continue
        bars = [(_variant(group), group, _final(group)) for group in members]
        bounds = [(group.label, _final(group)) for group in bounds_beside(members, groups)]
        told = "; ".join(f"{name} {measured(value)} %" for name, value in [(n, v) for n, _, v in bars] + bounds)
        frame = row_frame([name for name, _, _ in bars], 44, right=62)
        alt = f"{titled('Final accuracy by variant', title)}. {told}"
        paint = partial(_draw_variants, bars=bars, bounds=bounds)
        rows = [(group.label, run.seed, run.result.acc_last) for group in members for run in group.runs]
        panels.append(panel(title or members[0].family, frame, alt, paint, ["runs", "seed", "acc_last"], rows))
    return panels


def accuracy_over_capacity(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T against λ, a line per memory, where one was run at two or more capacities."""
    return _sweeps(groups, "memory.capacity", "rows in memory, λ")


def accuracy_over_share(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T against ρ, where one memory was run with two or more; its partner without ODEDM is the line beside it."""
    return _sweeps(groups, "memory.rho", "long-term share, ρ")


def _final(group: Group) -> Estimate:
    return estimate(run.result.acc_last for run in group.runs)


def _variant(group: Group) -> str:
    """The memory, without the k that follows from a share, which is per cent here."""
    rho, k = group.settings.get("memory.rho"), group.settings.get("memory.k")
    parts = group.member.split(" · ")
    if isinstance(rho, int | float):
        parts = [f"ρ={100 * rho:g} %" if part.startswith("ρ=") else part for part in parts if part != f"k={k}"]
    return printable(" · ".join(parts), 108)


def _draw_differences(axes: Axes, *, pairs: dict[str, Paired], axis: str) -> None:
    ends = [0.0]
    for place, (label, pair) in enumerate(pairs.items()):
        mean, seeds = pair.estimate.mean, list(pair.by_seed.values())
        bar = list(pair.interval or (mean, mean))
        axes.plot(bar, [place, place], color=style.SERIES[0], linewidth=2.4, zorder=3)
        axes.plot([mean], [place], "D", color=style.SERIES[0], ms=8, zorder=4)
        axes.plot(seeds, [place + 0.22] * len(seeds), "o", mfc="none", mec=style.MUTED, mew=1.0, ms=5.5, zorder=4)
        axes.plot([0.0, 0.0], [place - 0.16, place + 0.42], color=style.INK, linewidth=1.0, zorder=1.5)
        write_over(axes, place - 0.4, label)
        ends += [*seeds, *bar]
    room = 0.06 * max(max(ends) - min(ends), 1.0)
    axes.set(xlim=(min(ends) - room, max(ends) + room), ylim=(len(pairs) - 0.5, -0.7), yticks=[])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    finish(axes, grid="x", xlabel=axis)


def _draw_variants(
    axes: Axes, *, bars: Sequence[tuple[str, Group, Estimate]], bounds: Sequence[tuple[str, Estimate]]
) -> None:
    dots: dict[str, Any] = {"mfc": "none", "mec": style.INK, "mew": 0.9, "ms": 4.0}
    ends: list[float] = []
    for place, (name, group, value) in enumerate(bars):
        seeds = [run.result.acc_last for run in group.runs]
        draw_bar(axes, place, value.mean, full=not group.plain, height=0.4)
        if value.error is not None:
            axes.errorbar([value.mean], [place], xerr=[value.error], color=style.INK, lw=1.4, capsize=3.5, zorder=4)
        axes.plot(seeds, [place + 0.3] * len(seeds), "o", **dots, zorder=4, clip_on=False)
        write_over(axes, place - 0.43, name)
        write_beside(axes, 1.0, place, f"{number(value.mean)} %", gap=10, within=axes.get_yaxis_transform())
        ends += seeds
    for (_, value), (colour, dashes, _) in zip(bounds, cycle(BOUND_STROKES), strict=False):
        axes.axvline(value.mean, color=colour, linestyle=dashes, lw=1.6, zorder=5)
        ends.append(value.mean)
    axes.set(xlim=(0.0, max(ends) * 1.02 or 1.0), ylim=(len(bars) - 0.45, -0.75), yticks=[])
    named = f"; grey lines: {', '.join(label for label, _ in bounds)}" if bounds else ""
    finish(axes, grid="x", xlabel=f"final accuracy, %{printable(named, 60)}")


def _sweeps(groups: Sequence[Group], setting: str, axis: str) -> list[Panel]:
    panels = []
    for members in alike(groups, lambda key: key == setting or belongs_to_memory(key)):
        curves = _sweep(members, setting)
        if not any(len(curve.x) > 1 for curve in curves):
            continue
        beside = zip(bounds_beside(members, groups), cycle(BOUND_STROKES), strict=False)
        curves += [Curve(g.label, g.label, stroke, [0.0], [_final(g)]) for g, stroke in beside]
        shared = _shared(group.family for group in members)
        title = " · ".join(part for part in shared if setting != "memory.capacity" or not part.startswith("λ="))
        told = []
        for curve in curves:
            places = zip(curve.x, curve.points, strict=True)
            told.append(f"{curve.name}: " + ", ".join(f"{number(value.mean)} at {x:g}" for x, value in places))
        alt = f"Final accuracy against {axis}: {title}. {'; '.join(told)}"
        paint = partial(_draw_sweep, curves=curves, axis=axis)
        names = (setting.partition(".")[2], "acc_last")
        panels.append(curve_panel(title, alt, paint, curves, names, height=236))
    return panels


def _sweep(members: Sequence[Group], setting: str) -> list[Curve]:
    """A line for each memory whose groups differ in the setting, and what goes along with it, alone."""
    free = cycle(STROKES)
    found: list[Curve] = []
    for own in sweeps(members, setting, lambda group: _place(group, setting)):
        own.sort(key=lambda group: _place(group, setting))
        x = [_place(group, setting) for group in own]
        plain = own[0].plain
        distinct = len(set(x)) == len(x) and not any(map(math.isnan, x))
        if distinct and (len(x) > 1 or plain):  # else it is a sweep of something else
            grey = plain and all(curve.stroke is not BASELINE_STROKE for curve in found)
            name = printable(" · ".join(_shared(group.member for group in own)), 44)
            stroke = BASELINE_STROKE if grey else next(free)
            found.append(Curve(name, name, stroke, x, [_final(group) for group in own]))
    return found


def _place(group: Group, setting: str) -> float:
    if setting == "memory.rho" and group.plain:
        return 0.0
    value = group.settings.get(setting)
    return float(value) if isinstance(value, int | float) else math.nan


def _shared(names: Iterable[str]) -> list[str]:
    """The parts that all names have.

    >>> _shared(["ER · λ=20 · cnn", "ER · λ=40 · cnn"])
    ['ER', 'cnn']
    """
    first, *others = [name.split(" · ") for name in names]
    return [part for part in first if all(part in other for other in others)]


def _draw_sweep(axes: Axes, *, curves: Sequence[Curve], axis: str) -> None:
    for curve in curves:
        if curve.x == [0.0]:  # the partner has no share: it is the same at every one
            colour, dashes, _ = curve.stroke
            mean, error = curve.points[0].mean, curve.points[0].error or 0.0
            axes.axhline(mean, color=colour, linestyle=dashes, lw=2.0, label=curve.name)
            axes.axhspan(mean - error, mean + error, color=colour, alpha=0.18, lw=0)
        else:
            draw_curves(axes, [curve])
    places = sorted({x for curve in curves for x in curve.x if x})
    if "λ" in axis:
        axes.set_xscale("log")
        axes.minorticks_off()
    else:
        axes.set_xlim(0.0, max(1.0, *places) * 1.03)
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.set_ylim(bottom=0.0)
    finish(axes, grid="y", keys=1, xlabel=axis, ylabel="final accuracy, %")
