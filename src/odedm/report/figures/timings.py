"""Draws where the seconds of a run go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.style import Array, Axes, Panel, finish, panel, row_frame, write_beside, write_over
from odedm.report.groups import Group
from odedm.report.wording import number

HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\", "----", "", "++++", "||||")
"""For readers without colour: neighbours differ in them or in lightness."""
ORDER = ("train", "evaluate", "embed", "reduce", "centre", "select", "observe")
"""Of the phases that are known; others follow."""


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
