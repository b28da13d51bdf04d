"""What divide-and-conquer saves: seconds to choose prototypes with and without it, against n and against k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from odedm.report.figures.lines import BASELINE_STROKE, STROKES, draw_line
from odedm.report.figures.style import WIDTH, Axes, Frame, Panel, csv_text, legend, panel
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import number


@dataclass(frozen=True)
class Timing:
    """One measured consolidation of one class: `n` candidates, `k` prototypes, with or without DAC."""

    n: int
    k: int
    dac: bool
    seconds: float


Line = tuple[list[float], list[Estimate]]


def dac_runtime(timings: Sequence[Timing]) -> list[Panel]:
    """Seconds against n at the k measured most often, and against k at the n measured most often; log scales.

    Repeated measurements give a mean and a standard error. An axis with a single value has no panel.
    """
    panels = []
    for axis, fixed in (("n", "k"), ("k", "n")):
        times = Counter(_size(timing, fixed) for timing in timings)
        if not times:
            continue
        kept = max(value for value, seen in times.items() if seen == max(times.values()))
        chosen = [timing for timing in timings if _size(timing, fixed) == kept]
        if len({_size(timing, axis) for timing in chosen}) > 1:
            panels.append(_panel(chosen, axis, f"{fixed} = {kept}"))
    return panels


def _size(timing: Timing, axis: str) -> int:
    return timing.n if axis == "n" else timing.k


def _panel(timings: Sequence[Timing], axis: str, where: str) -> Panel:
    lines = {dac: _line([t for t in timings if t.dac is dac], axis) for dac in (False, True)}
    title = f"Against {axis}, at {where}"
    ends = [
        f"{_name(dac)} {number(points[-1].mean, 2)} s at {axis} = {x[-1]:g}" for dac, (x, points) in lines.items() if x
    ]
    rows = [(t.n, t.k, int(t.dac), t.seconds) for t in timings]
    data = csv_text(["n", "k", "dac", "seconds"], rows)
    words = {"n": "candidate rows of a class, n", "k": "prototypes of a class, k"}[axis]
    paint = partial(_draw, lines=lines, words=words)
    return panel(title, Frame(WIDTH, 262, top=40), f"Seconds to choose. {title}: {'; '.join(ends)}.", paint, data)


def _name(dac: bool) -> str:
    return "with DAC" if dac else "without DAC"


def _line(timings: Sequence[Timing], axis: str) -> Line:
    x = sorted({_size(timing, axis) for timing in timings})
    return [float(v) for v in x], [estimate(t.seconds for t in timings if _size(t, axis) == v) for v in x]


def _draw(axes: Axes, *, lines: dict[bool, Line], words: str) -> None:
    for dac, (x, points) in lines.items():
        if x:
            draw_line(axes, x, points, STROKES[0] if dac else BASELINE_STROKE, _name(dac))
    places = sorted({place for x, _ in lines.values() for place in x})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    shown = [place for i, place in enumerate(places) if i == 0 or _apart(places, i)]
    axes.set_xticks(shown, [f"{place:g}" for place in shown])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(axis="y")
    axes.set_xlabel(words)
    axes.set_ylabel("seconds")
    legend(axes, columns=2)


def _apart(places: Sequence[float], i: int) -> bool:
    """Whether a label has room beside the one before it, on a log scale."""
    whole = np.log(places[-1] / places[0])
    return bool(np.log(places[i] / places[i - 1]) > 0.1 * whole)
