"""What divide-and-conquer saves: seconds to choose prototypes with and without it, against n and against k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from odedm.report.figures.lines import BASELINE_STROKE, STROKES, Stroke, draw_line
from odedm.report.figures.style import WIDTH, Axes, Frame, Panel, csv_text, legend, panel
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import clean
from odedm.study.dac_timing_plan import Measured, Runtime, Timing

Dac = tuple[int, int] | None
Line = tuple[str, Stroke, list[float], list[Estimate]]
AXES = {"n": "rows of a class, n", "k": "prototypes of a class, k"}


def dac_runtime(measured: Sequence[Measured]) -> list[Panel]:
    """Seconds against n at the largest k, and against k at the largest n, for each distance; both scales are log.

    A line is a mean over repeats with its standard error. An axis with a single value has no panel.
    """
    panels = []
    for name, plan, own in _kinds(measured):
        for axis, fixed, kept in (("n", "k", max(plan.k)), ("k", "n", max(plan.rows))):
            chosen = [each for each in own if getattr(each.cell, fixed) == kept]
            if len({getattr(each.cell, axis) for each in chosen}) > 1:
                title = f"{name}against {axis}, at {fixed} = {kept}"
                panels.append(_panel(chosen, axis, _upper(title), plan.dac))
    return panels


def runtime_sentences(measured: Sequence[Measured]) -> list[str]:
    """What was timed at the largest size of each kind, and where the file is not finished yet."""
    said = []
    for name, plan, own in _kinds(measured):
        n, k = max(plan.rows), max(plan.k)
        means = {dac: _mean([t for t in own if (t.cell.n, t.cell.k, t.cell.dac) == (n, k, dac)]) for dac in _dacs(plan)}
        plain = means.pop(None)
        for dac, mean in means.items():
            if plain is not None and mean is not None:
                took = f"{_seconds(mean.mean)} {_name(dac)} and {_seconds(plain.mean)} without"
                said.append(f"{_upper(name)}{k} prototypes of {n} rows take {took}: {_times(plain.mean, mean.mean)}.")
    for each in measured:
        left = len(each.missing())
        if left:
            done = len(each.plan.timings()) - left
            said.append(f"{done} of {done + left} timings are made; the study's command goes on with the others.")
    return said


def _kinds(measured: Sequence[Measured]) -> Iterator[tuple[str, Runtime, list[Timing]]]:
    """What is drawn by itself: a study's timings of one distance and dimension, named where there are several."""
    for each in measured:
        plan = each.plan
        for distance, dimension in product(plan.distance, plan.dimension):
            parts = [clean(each.name, 24)] if len(measured) > 1 else []
            parts += [distance] if len(plan.distance) > 1 else []
            parts += [f"{dimension} features"] if len(plan.dimension) > 1 else []
            own = [t for t in each.timings if (t.cell.distance, t.cell.dimension) == (distance, dimension)]
            yield (", ".join(parts) + ": " if parts else ""), plan, own


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _dacs(plan: Runtime) -> tuple[Dac, ...]:
    return (None, *plan.dac)


def _mean(timings: Sequence[Timing]) -> Estimate | None:
    return estimate(each.seconds for each in timings) if timings else None


def _name(dac: Dac) -> str:
    return "without DAC" if dac is None else f"with DAC {dac[0]}×{dac[1]}"


def _seconds(value: float) -> str:
    """Seconds with two figures or more.

    >>> _seconds(12.345), _seconds(0.01234), _seconds(0.0901)
    ('12.3 s', '0.012 s', '0.090 s')
    """
    return f"{value:.1f} s" if value >= 1 else f"{value:#.2g} s"


def _times(plain: float, dac: float) -> str:
    """How the two compare, in words.

    >>> _times(3.0, 1.0), _times(1.0, 2.0), _times(1.0, 1.01)
    ('DAC is 3.0 times as fast', 'DAC takes 2.0 times as long', 'DAC makes no difference')
    """
    more, less = max(plain, dac), max(min(plain, dac), 1e-9)
    if more / less < 1.05:
        return "DAC makes no difference"
    return f"DAC {'is' if plain >= dac else 'takes'} {more / less:.1f} times as {'fast' if plain >= dac else 'long'}"


def _panel(timings: Sequence[Timing], axis: str, title: str, dacs: Sequence[Dac]) -> Panel:
    kinds: list[tuple[Dac, Stroke]] = [(None, BASELINE_STROKE), *zip(dacs, STROKES, strict=False)]
    lines = [_line(_name(dac), stroke, [t for t in timings if t.cell.dac == dac], axis) for dac, stroke in kinds]
    lines = [line for line in lines if line[2]]
    ends = [f"{name} {_seconds(points[-1].mean)} at {axis} = {x[-1]:g}" for name, _, x, points in lines]
    head = ["distance", "dimension", "n", "k", "dac", "repeat", "seconds"]
    rows = [(t.cell.distance, t.cell.dimension, t.cell.n, t.cell.k, _csv(t.cell.dac), t.repeat, t.seconds)
            for t in timings]  # fmt: skip
    frame = Frame(WIDTH, 228 + 16 * ((len(lines) + 1) // 2), top=10 + 16 * ((len(lines) + 1) // 2), left=58)
    alt = f"Seconds to choose. {title}: {'; '.join(ends)}."
    return panel(title, frame, alt, partial(_draw, lines=lines, words=AXES[axis]), csv_text(head, rows))


def _csv(dac: Dac) -> str:
    return "none" if dac is None else f"{dac[0]}x{dac[1]}"


def _line(name: str, stroke: Stroke, timings: Sequence[Timing], axis: str) -> Line:
    x = sorted({getattr(each.cell, axis) for each in timings})
    return (
        name,
        stroke,
        [float(v) for v in x],
        [estimate(each.seconds for each in timings if getattr(each.cell, axis) == v) for v in x],
    )


def _draw(axes: Axes, *, lines: Sequence[Line], words: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, stroke, x, points in lines:
        draw_line(axes, x, points, stroke, name)
    places = sorted({place for _, _, x, _ in lines for place in x})
    axes.minorticks_off()
    shown = [place for i, place in enumerate(places) if i == 0 or _apart(places, i)]
    axes.set_xticks(shown, [f"{place:g}" for place in shown])
    low, high = axes.get_ylim()
    steps = (1, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
    ticks = [step * 10.0**power for power in range(-9, 9) for step in steps]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])  # a range of less than ten has ticks too
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(axis="y")
    axes.set_xlabel(words)
    axes.set_ylabel("seconds")
    legend(axes, columns=2)


def _apart(places: Sequence[float], i: int) -> bool:
    """Whether a label has room beside the one before it, on a log scale."""
    whole = np.log(places[-1] / places[0])
    return bool(np.log(places[i] / places[i - 1]) > 0.1 * whole)
