"""Draws where the seconds of a run go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.style import Array, Figure, Panel, finish, height_of_rows, write_over
from odedm.report.groups import Group
from odedm.report.wording import number

COLOURS = (style.SERIES[0], "#9aa1ac", *(style.SERIES[i] for i in (4, 2, 3, 5, 1)), style.MUTED)
HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\", "----", "", "++++", "||||")
"""For readers without colour: neighbours differ in them or in lightness."""
ORDER = ("train", "evaluate", "embed", "reduce", "centre", "select", "observe")
"""Of the phases that are known; others follow."""


def seconds_by_phase(groups: Sequence[Group]) -> Panel:
    """Draw mean wall seconds per run, stacked by phase, a bar per group, for as many as one figure holds."""
    groups = groups[: style.MOST_ROWS]
    means = _means(groups)
    labels = [group.label for group in groups]
    totals = [number(float(total)) for total in sum(means.values(), np.zeros(len(groups)))]
    alt = "Mean seconds per run: " + "; ".join(f"{label} {n}" for label, n in zip(labels, totals, strict=True))
    rows = [(label, phase, mean[i]) for i, label in enumerate(labels) for phase, mean in means.items()]
    height = height_of_rows(labels, 46, 60 + style.LINE * (1 + len(means) // 3))
    draw = partial(_draw_phases, means=means, labels=labels)
    return Panel("", alt, draw, ("runs", "phase", "seconds"), rows, (style.WIDTH, height))


def _means(groups: Sequence[Group]) -> dict[str, Array]:
    """Seconds of each phase that took any, mean over seeds, [groups]; known phases first."""
    seen = {phase for group in groups for run in group.runs for phase in run.result.seconds}
    means = {
        phase: np.array([np.mean([run.result.seconds.get(phase, 0.0) for run in group.runs]) for group in groups])
        for phase in (*(phase for phase in ORDER if phase in seen), *sorted(seen.difference(ORDER)))
    }
    return {phase: mean for phase, mean in means.items() if mean.any()}


def _draw_phases(figure: Figure, *, means: dict[str, Array], labels: Sequence[str]) -> None:
    axes = figure.subplots()
    left = np.zeros(len(labels))
    for (phase, mean), colour, hatch in zip(means.items(), cycle(COLOURS), cycle(HATCHES), strict=False):
        bars = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8}
        axes.barh(range(len(labels)), mean, left=left, height=0.42, label=printable(phase, 16), **bars)  # type: ignore[arg-type]
        left = left + mean
    for row, (label, total) in enumerate(zip(labels, left.tolist(), strict=True)):
        write_over(axes, row - 0.42, label)
        axes.annotate(
            f"{number(total)} s", (total, row), (6, 0), textcoords="offset points", va="center", color=style.MUTED
        )
    axes.set(xlim=(0.0, float(left.max(initial=0.0)) or 1.0), ylim=(len(labels) - 0.6, -0.75), yticks=[])
    finish(axes, grid="x", keys=3 if means else 0, xlabel="seconds per run")
