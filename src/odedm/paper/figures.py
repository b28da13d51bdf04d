"""Draws the paper's figures, each from the runs or the timings that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from odedm.paper.dac_timing import EMBEDDED, MINI, NONE, Timing
from odedm.report.figures import style
from odedm.report.figures.comparisons import accuracy_over_share
from odedm.report.figures.curves import (
    BASELINE_STROKE,
    STROKES,
    Curve,
    Stroke,
    curve_panel,
    draw_curves,
    families,
    forgetting_curves,
    named_strokes,
)
from odedm.report.figures.memory_contents import final_class_counts, ordered_names
from odedm.report.figures.projection import memory_projection
from odedm.report.figures.stored_images import pictures_by_distance
from odedm.report.figures.style import Array, Figure, Panel, finish, task_ticks, titled
from odedm.report.groups import Group, group_by_settings
from odedm.report.statistics import estimate
from odedm.report.summary import Table
from odedm.report.wording import number

WIDE = 0.5
"""The kernel's deviation in classes: neighbours flow into each other, and no class vanishes."""
POINTS = 20
"""Places for each class at which the density is drawn."""
FOLLOW = ("memory.k", "memory.rho", "memory.dac", "memory.capacity")
"""What may differ between the runs of one panel of training times."""
AXES = {"n": "rows of a class, n", "k": "prototypes of a class, k"}


def paper_figures(names: Sequence[str], table: Table, timings: Sequence[Timing] = ()) -> dict[str, list[Panel]]:
    """Return the panels of some figures by name; one without a panel has nothing to show yet."""
    panels = {name: OF_RUNS[name](table.groups) if table.groups else [] for name in names if name in OF_RUNS}
    return panels | ({"dac_timing": dac_timing(timings)} if "dac_timing" in names else {})


class Density(NamedTuple):
    """The density of a memory over the classes, and how it is drawn."""

    name: str
    label: str
    stroke: Stroke
    y: Array


def density_of(rows: Array) -> tuple[Array, Array]:
    """Places from 0.5 to C + 0.5, class c being at c + 1, and the density there of rows [C]; its area is 1.

    A kernel that reaches over an end is thrown back from it, so an even memory is level.

    >>> x, y = density_of(np.array([3.0, 3.0, 3.0, 3.0]))
    >>> bool(np.allclose(y, 0.25, atol=0.01)), round(float(np.trapezoid(y, x)), 2)
    (True, 1.0)
    """
    classes = len(rows)
    x = np.linspace(0.5, classes + 0.5, POINTS * classes + 1)
    centres = np.arange(1, classes + 1)
    images = (centres, 1 - centres, 2 * classes + 1 - centres)  # and their reflections in both ends
    kernel = sum(np.exp(-(((x[:, None] - each) / WIDE) ** 2) / 2) for each in images)
    y: Array = kernel @ (rows / rows.sum()) / (WIDE * np.sqrt(2 * np.pi))
    return x, y


def class_density(groups: Sequence[Group]) -> list[Panel]:
    """A panel for each method with its memories; what recorded no class counts, and empty memories, are left out."""
    held = {id(group): np.sum(final_class_counts(group), axis=0) for group in groups}
    panels = []
    for title, members in families([group for group in groups if held[id(group)].any()]):
        classes = len(ordered_names(members[0]))
        if classes < 2 or any(len(held[id(group)]) != classes for group in members):
            continue
        lines = [
            Density(name, group.label, stroke, density_of(held[id(group)])[1])
            for group, name, stroke in named_strokes(members, title)
        ]
        x = density_of(held[id(members[0])])[0]
        ranges = [f"{line.name}: from {number(line.y.min(), 3)} to {number(line.y.max(), 3)}" for line in lines]
        alt = f"{titled('Density of the final memory over the classes', title)}. {'; '.join(ranges)}"
        rows = [(line.label, *point) for line in lines for point in zip(x.tolist(), line.y.tolist(), strict=True)]
        size = (style.WIDTH, 210 + style.LINE * (len(lines) + 1))
        draw = partial(_draw_density, x=x, lines=lines, classes=classes, arrived=members[0].one_order)
        panels.append(Panel(title, alt, draw, ("runs", "class", "density"), rows, size))
    return panels


def _draw_density(figure: Figure, *, x: Array, lines: Sequence[Density], classes: int, arrived: bool) -> None:
    axes = figure.subplots()
    for line in lines:
        colour, dashes, _ = line.stroke
        axes.plot(x, line.y, color=colour, linestyle=dashes, lw=2.0, label=line.name)
        if len(lines) <= 2:  # fills of more lines would mix
            axes.fill_between(x, line.y, color=colour, alpha=0.12, linewidth=0)
    axes.axhline(1 / classes, color=style.INK, lw=0.9, linestyle=(0, (1, 2)), label="even", zorder=1.5)
    words = "class, in order of arrival" if arrived else "class, by name"
    axes.set(xlim=(0.5, classes + 0.5), ylim=(0.0, 1.08 * max(float(line.y.max()) for line in lines)))
    finish(axes, grid="y", keys=1, xticks=task_ticks(classes, 12), xlabel=words, ylabel="density")


def training_time(groups: Sequence[Group]) -> list[Panel]:
    """Seconds against k, where runs with DAC stand beside runs without."""
    panels = []
    for members in group_by_settings([group for group in groups if not group.plain], lambda key: key in FOLLOW):
        sides = {
            "with DAC": [group for group in members if group.settings.get("memory.dac") is not None],
            "without DAC": [group for group in members if group.settings.get("memory.dac") is None],
        }
        if all(sides.values()) and len({group.settings.get("memory.k") for group in members}) > 1:
            title = members[0].family.partition(" · ")[0]
            curves = [_time_curve(name, own, title) for name, own in sides.items()]
            told = [f"{c.name} " + ", ".join(f"{number(p.mean)} s" for p in c.points) for c in curves]
            alt = f"{titled('Seconds of a run against k', title)}. {'; '.join(told)}"
            panels.append(
                curve_panel(title, alt, partial(_draw_training_time, curves=curves), curves, ("k", "seconds"))
            )
    return panels


def _time_curve(name: str, groups: Sequence[Group], title: str) -> Curve:
    stroke = STROKES[0] if name == "with DAC" else BASELINE_STROKE
    seconds: dict[float, list[float]] = {}
    for group in sorted(groups, key=_prototypes):
        seconds.setdefault(_prototypes(group), []).extend(run.seconds for run in group.runs)
    return Curve(name, f"{title} · {name}", stroke, list(seconds), [estimate(own) for own in seconds.values()])


def _prototypes(group: Group) -> float:
    k = group.settings.get("memory.k")
    return float(k) if isinstance(k, int | float) else 0.0


def _draw_training_time(figure: Figure, *, curves: Sequence[Curve]) -> None:
    axes = figure.subplots()
    draw_curves(axes, curves)
    axes.set_ylim(bottom=0.0)
    finish(axes, grid="y", keys=2, xlabel="prototypes of a class, k", ylabel="seconds of a run")


def dac_timing(timings: Sequence[Timing]) -> list[Panel]:
    """Seconds to choose against n at the largest k, and against k at the largest n; both scales are log."""
    panels = []
    for axis, fixed in (("n", "k"), ("k", "n")):
        largest = max((getattr(timing, fixed) for timing in timings), default=0)
        members = [timing for timing in timings if getattr(timing, fixed) == largest]
        if len({getattr(timing, axis) for timing in members}) > 1:
            panels.append(_timing_panel(members, axis, f"Against {axis}, at {fixed} = {largest}"))
    return panels


def dac_timing_sentences(timings: Sequence[Timing]) -> list[str]:
    """What was timed at the largest size, and where."""
    if not timings:
        return []
    n, k = max(timing.n for timing in timings), max(timing.k for timing in timings)
    largest = [timing for timing in timings if (timing.n, timing.k) == (n, k)]
    seconds = {
        dac: estimate(timing.seconds for timing in largest if timing.dac == dac).mean
        for dac in dict.fromkeys(timing.dac for timing in largest)
    }
    times = ", ".join(f"{_seconds(mean)} {_dac_name(dac)}" for dac, mean in seconds.items())
    first = timings[0]
    whose = "all pictures" if first.data == EMBEDDED.data and n > max(MINI.rows) else "the first class"
    return [
        f"{k} prototypes of {n} rows take {times}.",
        f"Features of {whose} of {first.data} by a network that has learned the first task; {first.device}, "
        f"{first.threads} CPU thread{'' if first.threads == 1 else 's'}, torch {first.torch}.",
    ]


def _dac_name(dac: str) -> str:
    return "without DAC" if dac == NONE else f"with DAC {dac.replace('x', '×')}"


def _seconds(value: float) -> str:
    """Seconds with two figures or more.

    >>> _seconds(12.345), _seconds(0.01234), _seconds(0.0901)
    ('12.3 s', '0.012 s', '0.090 s')
    """
    return f"{value:.1f} s" if value >= 1 else f"{value:#.2g} s"


def _timing_panel(timings: Sequence[Timing], axis: str, title: str) -> Panel:
    names = sorted({timing.dac for timing in timings}, key=lambda dac: (dac != NONE, dac))
    curves = []
    for dac, stroke in zip(names, (BASELINE_STROKE, *STROKES), strict=False):
        seconds: dict[float, list[float]] = {}
        for timing in sorted(timings, key=lambda timing: float(getattr(timing, axis))):
            if timing.dac == dac:
                seconds.setdefault(float(getattr(timing, axis)), []).append(timing.seconds)
        points = [estimate(values) for values in seconds.values()]
        curves.append(Curve(_dac_name(dac), _dac_name(dac), stroke, list(seconds), points))
    ends = [f"{curve.name} {_seconds(curve.points[-1].mean)} at {axis} = {curve.x[-1]:g}" for curve in curves]
    size = (style.WIDTH, 228 + style.LINE * len(curves))
    alt = f"Seconds to choose. {title}: {'; '.join(ends)}."
    rows = [(timing.data, timing.n, timing.k, timing.dac, timing.repeat, timing.seconds) for timing in timings]
    draw = partial(_draw_timing, curves=curves, words=AXES[axis])
    return Panel(title, alt, draw, ("data", "n", "k", "dac", "repeat", "seconds"), rows, size)


def _draw_timing(figure: Figure, *, curves: Sequence[Curve], words: str) -> None:
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log")
    draw_curves(axes, curves)
    places = sorted({place for curve in curves for place in curve.x})
    axes.minorticks_off()
    whole = np.log(places[-1] / places[0])  # a label has room beside the one before it, or is left out
    shown = places[:1] + [here for last, here in pairwise(places) if np.log(here / last) > 0.1 * whole]
    axes.set_xticks(shown, [f"{place:g}" for place in shown])
    low, high = axes.get_ylim()
    steps = (1, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
    ticks = [step * 10.0**power for power in range(-9, 9) for step in steps]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])  # a range of less than ten has ticks too
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    finish(axes, grid="y", keys=2, xlabel=words, ylabel="seconds")


OF_RUNS: dict[str, Callable[[Sequence[Group]], list[Panel]]] = {
    "forgetting": forgetting_curves,
    "share": accuracy_over_share,
    "training_time": training_time,
    "class_density": class_density,
    "projection": memory_projection,
    "selections": pictures_by_distance,
}
