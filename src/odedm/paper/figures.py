"""Draws the paper's figures, each from the runs or the timings that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from odedm.paper.dac_timing import NO_DAC, Timing
from odedm.report.figures.curves import (
    BASELINE,
    Curve,
    accuracy_over_share,
    curve_chart,
    families,
    forgetting_curves,
    named_strokes,
    whole_ticks,
)
from odedm.report.figures.memory import final_class_counts, memory_projection, pictures_by_distance
from odedm.report.figures.style import INK, Chart, look
from odedm.report.groups import Group, group_by_settings
from odedm.report.statistics import Estimate, estimate
from odedm.report.summary import Table

Floats = NDArray[np.float64]

WIDTH = 0.5
"""The kernel's deviation in classes: neighbours flow into each other, and no class vanishes."""
FOLLOW = ("memory.k", "memory.rho", "memory.dac", "memory.capacity")
"""What may differ between the runs of one figure of training times."""
AXES = {"n": "rows of a class, n", "k": "prototypes of a class, k"}


def paper_figures(names: Sequence[str], table: Table, timings: Sequence[Timing] = ()) -> dict[str, list[Chart]]:
    """Return some figures by name; a list is empty where there is nothing to show yet."""
    with look():
        charts = {name: OF_RUNS[name](table.groups) for name in names if name in OF_RUNS}
        return charts | ({"dac_timing": dac_timing(timings)} if "dac_timing" in names else {})


def density_of(rows: Floats) -> tuple[Floats, Floats]:
    """Return places from 0.5 to C + 0.5, class c being at c + 1, and the density there of rows [C]; its area is 1.

    A kernel that reaches over an end is thrown back from it, so an even memory is level.

    >>> x, y = density_of(np.array([3.0, 3.0, 3.0, 3.0]))
    >>> bool(np.allclose(y, 0.25, atol=0.01)), round(float(np.trapezoid(y, x)), 2)
    (True, 1.0)
    """
    classes = len(rows)
    x = np.linspace(0.5, classes + 0.5, 20 * classes + 1)
    centres = np.arange(1, classes + 1)
    mirrored = (centres, 1 - centres, 2 * classes + 1 - centres)
    kernel = sum(np.exp(-(((x[:, None] - centre) / WIDTH) ** 2) / 2) for centre in mirrored)
    y: Floats = kernel @ (rows / rows.sum()) / (WIDTH * np.sqrt(2 * np.pi))
    return x, y


def class_density(groups: Sequence[Group]) -> list[Chart]:
    """Draw the density of each memory over the classes; what recorded no class counts, and empty ones, are left out."""
    held = {group.label: np.sum(final_class_counts(group), axis=0) for group in groups}
    charts = []
    for title, members in families([group for group in groups if held[group.label].any()]):
        curves = []
        for group, name, stroke in named_strokes(members, title):
            x, y = density_of(held[group.label])
            points = [Estimate(value, None, len(group.runs)) for value in y.tolist()]
            curves.append(Curve(name, group.label, x.tolist(), points, {**stroke, "marker": ""}))
        order = "in order of arrival" if members[0].one_order else "by name"
        words = {"xlabel": f"class, {order}", "ylabel": "density"}
        what = "Density of the final memory over the classes"
        chart = curve_chart(title, what, curves, ("class", "density"), ylim=(0.0, None), **words)
        even = 1 / len(held[members[0].label])
        chart.figure.axes[0].axhline(even, color=INK, lw=0.9, linestyle=":", marker="", label="even")
        chart.figure.axes[0].set_xlim(x[0], x[-1])
        whole_ticks(chart)
        charts.append(chart)
    return charts


def training_time(groups: Sequence[Group]) -> list[Chart]:
    """Draw seconds against k, where runs with DAC stand beside runs without."""
    charts = []
    for members in group_by_settings([group for group in groups if not group.plain], FOLLOW.__contains__):
        curves = []
        for name, with_dac in (("with DAC", True), ("without DAC", False)):
            side = [group for group in members if (group.settings.get("memory.dac") is not None) is with_dac]
            seconds = [(float(group.settings["memory.k"]), run.seconds) for group in side for run in group.runs]
            label = f"{members[0].family.partition(' · ')[0]} · {name}"
            curves.append(_mean_curve(name, label, seconds, plain=not with_dac))
        if all(curve.x for curve in curves) and len({place for curve in curves for place in curve.x}) > 1:
            words = {"xlabel": AXES["k"], "ylabel": "seconds of a run", "ylim": (0.0, None)}
            title = members[0].family.partition(" · ")[0]
            charts.append(curve_chart(title, "Seconds of a run against k", curves, ("k", "seconds"), **words))
    return charts


def _mean_curve(name: str, label: str, points: Iterable[tuple[float, float]], *, plain: bool) -> Curve:
    """Return the mean of all values at each place."""
    values: dict[float, list[float]] = {}
    for place, value in sorted(points):
        values.setdefault(place, []).append(value)
    return Curve(
        name, label, list(values), [estimate(numbers) for numbers in values.values()], BASELINE if plain else {}
    )


def dac_timing(timings: Sequence[Timing]) -> list[Chart]:
    """Draw seconds to choose against n at the largest k, and against k at the largest n; both scales are log."""
    charts = []
    for axis, fixed in (("n", "k"), ("k", "n")):
        largest = max((getattr(timing, fixed) for timing in timings), default=0)
        members = [timing for timing in timings if getattr(timing, fixed) == largest]
        curves = []
        for dac in sorted({timing.dac for timing in members}, key=lambda dac: (dac != NO_DAC, dac)):
            points = [(float(getattr(timing, axis)), timing.seconds) for timing in members if timing.dac == dac]
            curves.append(_mean_curve(dac_title(dac), dac_title(dac), points, plain=dac == NO_DAC))
        places = sorted({place for curve in curves for place in curve.x})
        if len(places) > 1:
            title = f"Against {axis}, at {fixed} = {largest}"
            words = {"xlabel": AXES[axis], "ylabel": "seconds", "xscale": "log", "yscale": "log"}
            chart = curve_chart(title, "Seconds to choose", curves, (axis, "seconds"), **words)
            apart = [place for i, place in enumerate(places) if not i or place > 1.35 * places[i - 1]]
            axes = chart.figure.axes[0]
            axes.minorticks_off()
            axes.set_xticks(apart, [f"{place:g}" for place in apart])
            low, high = axes.get_ylim()
            ticks = [step * 10.0**power for power in range(-9, 9) for step in (1, 2, 5)]
            ticks = [tick for tick in ticks if low <= tick <= high]
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            charts.append(chart)
    return charts


def dac_timing_sentences(timings: Sequence[Timing]) -> list[str]:
    """Return what was timed at the largest size, and where."""
    if not timings:
        return []
    first, n, k = timings[0], max(timing.n for timing in timings), max(timing.k for timing in timings)
    largest = [timing for timing in timings if (timing.n, timing.k) == (n, k)]
    seconds = {
        dac: estimate(timing.seconds for timing in largest if timing.dac == dac).mean
        for dac in dict.fromkeys(timing.dac for timing in largest)
    }
    times = ", ".join(f"{_seconds(mean)} s {dac_title(dac)}" for dac, mean in seconds.items())
    whose = "all pictures" if first.whole else "the first class"
    threads = f"{first.threads} CPU thread{'' if first.threads == 1 else 's'}"
    return [
        f"{k} prototypes of {n} rows take {times}.",
        f"Features of {whose} of {first.data} by a network that has learned the first task; {first.device}, "
        f"{threads}, torch {first.torch}.",
    ]


def _seconds(value: float) -> str:
    """Return seconds with two figures or more.

    >>> _seconds(12.345), _seconds(0.01234), _seconds(0.0901)
    ('12.3', '0.012', '0.090')
    """
    return f"{value:.1f}" if value >= 1 else f"{value:#.2g}"


def dac_title(dac: str) -> str:
    """Return a DAC as people write it.

    >>> dac_title("3x4"), dac_title("none")
    ('with DAC 3×4', 'without DAC')
    """
    return "without DAC" if dac == NO_DAC else f"with DAC {dac.replace('x', '×')}"


OF_RUNS: dict[str, Callable[[Sequence[Group]], list[Chart]]] = {
    "forgetting": forgetting_curves,
    "share": accuracy_over_share,
    "training_time": training_time,
    "class_density": class_density,
    "projection": memory_projection,
    "selections": pictures_by_distance,
}
