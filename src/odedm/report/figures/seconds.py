"""Where the wall seconds of a run go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.style import (
    CARD,
    MUTED,
    PHASES,
    WIDTH,
    Array,
    Axes,
    Frame,
    Panel,
    csv_text,
    legend,
    panel,
    pitch,
    write_over,
)
from odedm.report.groups import Group
from odedm.report.wording import clean, number

HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\", "----", "", "++++", "||||")
"""For readers without colour: neighbours differ in them or in lightness."""
KNOWN = ("train", "evaluate", "embed", "reduce", "centre", "select", "observe")


def seconds_by_phase(groups: Sequence[Group]) -> Panel:
    """Mean wall seconds per run, stacked by phase, a bar per group."""
    means = _means(groups)
    labels = [group.label for group in groups]
    keys = 16 * math.ceil(len(means) / 3)
    tall = pitch(labels, 46) * len(groups)
    frame = Frame(WIDTH, 52 + keys + tall, left=8, right=54, top=8 + keys, scale=1.45)
    totals = [number(float(total)) for total in sum(means.values(), np.zeros(len(groups)))]
    alt = "Mean seconds per run: " + "; ".join(f"{label} {n}" for label, n in zip(labels, totals, strict=True))
    rows = [(label, phase, mean[i]) for i, label in enumerate(labels) for phase, mean in means.items()]
    return panel(
        "", frame, alt, partial(_draw, means=means, labels=labels), csv_text(["runs", "phase", "seconds"], rows)
    )


def _means(groups: Sequence[Group]) -> dict[str, Array]:
    """Seconds of each phase that took any, mean over seeds, [groups]; known phases first."""
    seen = {phase for group in groups for run in group.runs for phase in run.result.seconds}
    phases = [phase for phase in KNOWN if phase in seen] + sorted(seen - {*KNOWN})
    means = {
        phase: np.array([np.mean([run.result.seconds.get(phase, 0.0) for run in group.runs]) for group in groups])
        for phase in phases
    }
    return {phase: mean for phase, mean in means.items() if mean.any()}


def _draw(axes: Axes, *, means: dict[str, Array], labels: Sequence[str]) -> None:
    places = np.arange(len(labels))
    left = np.zeros(len(labels))
    for column, (phase, mean) in enumerate(means.items()):
        axes.barh(
            places,
            mean,
            left=left,
            height=0.42,
            label=clean(phase, 16),
            color=PHASES[column % len(PHASES)],
            hatch=HATCHES[column % len(HATCHES)],
            edgecolor=CARD,
            linewidth=0.8,
        )
        left = left + mean
    for place, (label, total) in enumerate(zip(labels, left.tolist(), strict=True)):
        write_over(axes, place - 0.42, label)
        axes.annotate(
            f"{number(total)} s",
            (total, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            annotation_clip=False,  # the longest bar ends on the edge
        )
    axes.set_ylim(len(labels) - 0.6, -0.75)
    axes.set_xlim(0.0, float(left.max(initial=0.0)) or 1.0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("seconds per run")
    if means:
        legend(axes, columns=3)
