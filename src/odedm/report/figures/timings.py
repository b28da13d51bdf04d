"""Draws where the seconds go: those of a run by phase, and what divide-and-conquer (DAC) saves in choosing rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, pairwise, product
from typing import Any

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.curves import BASELINE_STROKE, STROKES, Curve, draw_curves
from odedm.report.figures.style import Array, Axes, Frame, Panel, finish, panel, row_frame, write_beside, write_over
from odedm.report.groups import Group
from odedm.report.statistics import estimate
from odedm.report.wording import number
from odedm.study.dac_timing_plan import Measured, Runtime, Timing

HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\", "----", "", "++++", "||||")
"""For readers without colour: neighbours differ in them or in lightness."""
ORDER = ("train", "evaluate", "embed", "reduce", "centre", "select", "observe")
"""Of the phases that are known; others follow."""
Dac = tuple[int, int] | None
AXES = {"n": "rows of a class, n", "k": "prototypes of a class, k"}


def seconds_by_phase(groups: Sequence[Group]) -> Panel:
    """Mean wall seconds per run, stacked by phase, a bar per group, for as many as one figure holds."""
    groups = groups[: style.MOST_ROWS]
    means = _means(groups)
    labels = [group.label for group in groups]
    frame = row_frame(labels, 46, right=54, top=8, bottom=44).with_key(len(means), 3)
    totals = [number(float(total)) for total in sum(means.values(), np.zeros(len(groups)))]
    alt = "Mean seconds per run: " + "; ".join(f"{label} {n}" for label, n in zip(labels, totals, strict=True))
    rows = [(label, phase, mean[i]) for i, label in enumerate(labels) for phase, mean in means.items()]
    return panel("", frame, alt, partial(_draw_phases, means=means, labels=labels), ["runs", "phase", "seconds"], rows)


def _means(groups: Sequence[Group]) -> dict[str, Array]:
    """Seconds of each phase that took any, mean over seeds, [groups]; known phases first."""
    seen = {phase for group in groups for run in group.runs for phase in run.result.seconds}
    means = {
        phase: np.array([np.mean([run.result.seconds.get(phase, 0.0) for run in group.runs]) for group in groups])
        for phase in (*(phase for phase in ORDER if phase in seen), *sorted(seen.difference(ORDER)))
    }
    return {phase: mean for phase, mean in means.items() if mean.any()}


def _draw_phases(axes: Axes, *, means: dict[str, Array], labels: Sequence[str]) -> None:
    left = np.zeros(len(labels))
    looks = zip(cycle(style.PHASES), cycle(HATCHES), strict=False)
    for (phase, mean), (colour, hatch) in zip(means.items(), looks, strict=False):
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": style.CARD, "linewidth": 0.8}
        axes.barh(range(len(labels)), mean, left=left, height=0.42, label=printable(phase, 16), **look)
        left = left + mean
    for place, (label, total) in enumerate(zip(labels, left.tolist(), strict=True)):
        write_over(axes, place - 0.42, label)
        write_beside(axes, total, place, f"{number(total)} s", gap=6)
    axes.set(xlim=(0.0, float(left.max(initial=0.0)) or 1.0), ylim=(len(labels) - 0.6, -0.75), yticks=[])
    finish(axes, grid="x", keys=3 if means else 0, xlabel="seconds per run")


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
        largest = [each for each in own if (each.cell.n, each.cell.k) == (n, k)]
        plain, *others = ([t.seconds for t in largest if t.cell.dac == dac] for dac in (None, *plan.dac))
        for dac, seconds in zip(plan.dac, others, strict=True):
            if plain and seconds:
                mean, without = estimate(seconds).mean, estimate(plain).mean
                took = f"{_seconds(mean)} {_name(dac)} and {_seconds(without)} without"
                said.append(f"{_upper(name)}{k} prototypes of {n} rows take {took}: {_times(without, mean)}.")
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
            parts = [printable(each.name, 24)] if len(measured) > 1 else []
            parts += [distance] if len(plan.distance) > 1 else []
            parts += [f"{dimension} features"] if len(plan.dimension) > 1 else []
            own = [t for t in each.timings if (t.cell.distance, t.cell.dimension) == (distance, dimension)]
            yield (", ".join(parts) + ": " if parts else ""), plan, own


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


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
    curves = []
    for dac, stroke in [(None, BASELINE_STROKE), *zip(dacs, STROKES, strict=False)]:
        seconds: dict[float, list[float]] = {}
        for each in sorted(timings, key=lambda each: getattr(each.cell, axis)):
            if each.cell.dac == dac:
                seconds.setdefault(float(getattr(each.cell, axis)), []).append(each.seconds)
        if seconds:
            points = [estimate(own) for own in seconds.values()]
            curves.append(Curve(_name(dac), _name(dac), stroke, list(seconds), points))
    ends = [f"{c.name} {_seconds(c.points[-1].mean)} at {axis} = {c.x[-1]:g}" for c in curves]
    head = ["distance", "dimension", "n", "k", "dac", "repeat", "seconds"]
    rows = []
    for each in timings:
        how = "none" if each.cell.dac is None else "{}x{}".format(*each.cell.dac)
        rows.append((each.cell.distance, each.cell.dimension, each.cell.n, each.cell.k, how, each.repeat, each.seconds))
    frame = Frame(style.WIDTH, 228, top=10, left=58).with_key(len(curves), 2)
    alt = f"Seconds to choose. {title}: {'; '.join(ends)}."
    return panel(title, frame, alt, partial(_draw_runtime, curves=curves, words=AXES[axis]), head, rows)


def _draw_runtime(axes: Axes, *, curves: Sequence[Curve], words: str) -> None:
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
