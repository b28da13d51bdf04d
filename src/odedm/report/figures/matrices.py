"""Draws the accuracy on each task after each task, as heat maps on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.style import COLOUR_MAP, Array, Axes, Frame, Panel, colour_of, panel, svg, task_ticks
from odedm.report.groups import Group
from odedm.report.wording import number

NARROWEST = 90.0
"""Room for the axis label under the map of a stream with one or two tasks."""


def accuracy_matrices(groups: Sequence[Group]) -> list[Panel]:
    """a_{i,j} from 0 to 100 %, mean over seeds, a panel per group."""
    panels = []
    for group in groups:
        tasks = group.tasks
        cell = max(min(46.0, 330.0 / tasks), 3.0)
        width = 80 + max(cell * tasks, NARROWEST)
        frame = Frame(width, 52 + cell * tasks, left=66, right=10, top=6, bottom=44, scale=1.1)
        mean = _mean_matrix(group)
        last = ", ".join(number(value, 0) for value in mean[-1]) if tasks <= 20 else number(float(mean[-1].mean()), 0)
        alt = f"Accuracy matrix of {group.label}. Final accuracy in per cent by task: {last}."
        rows = [(i + 1, j + 1, mean[i, j]) for i in range(tasks) for j in range(i + 1)]
        paint = partial(_draw_map, mean=mean, cell=cell)
        panels.append(panel(group.label, frame, alt, paint, ["after_task", "on_task", "accuracy"], rows))
    return panels


def colour_bar() -> str:
    """The key to every accuracy matrix."""

    def paint(axes: Axes) -> None:
        axes.imshow(np.linspace(0, 1, 101)[None, :], cmap=COLOUR_MAP, aspect="auto", extent=(0, 100, 0, 1))
        axes.set_yticks([])
        axes.set_xticks([0, 25, 50, 75, 100], ["0 %", "25", "50", "75", "100 %"])
        axes.spines[["left", "bottom"]].set_visible(False)

    frame = Frame(280, 34, left=16, right=20, top=2, bottom=20, scale=1.0)
    return svg(frame, "Colour scale from 0 to 100 per cent accuracy", paint)


def _mean_matrix(group: Group) -> Array:
    """The accuracy matrix, mean over seeds; NaN where the task was not yet learned."""
    mean = np.full((group.tasks, group.tasks), np.nan)
    for i in range(group.tasks):
        mean[i, : i + 1] = np.mean([run.result.class_il[i] for run in group.runs], axis=0)
    return mean


def _draw_map(axes: Axes, *, mean: Array, cell: float) -> None:
    tasks = len(mean)
    if cell >= 14:
        _draw_tiles(axes, mean, write=cell >= 24, size=min(11.5, cell * 0.36))
    else:  # thousands of tiles would make a heavy page
        extent = (0.5, tasks + 0.5, tasks + 0.5, 0.5)
        axes.imshow(np.ma.masked_invalid(mean), cmap=COLOUR_MAP, vmin=0, vmax=100, interpolation="none", extent=extent)
    axes.set(xticks=task_ticks(tasks, 14), yticks=task_ticks(tasks, 14), aspect="auto")
    axes.set(xlim=(0.5, max(tasks + 0.5, 0.5 + NARROWEST / cell)), ylim=(tasks + 0.5, 0.5))
    axes.set(xlabel="accuracy on task", ylabel="after task")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)


def _draw_tiles(axes: Axes, mean: Array, *, write: bool, size: float) -> None:
    for i in range(len(mean)):
        fill = [colour_of(value / 100.0) for value in mean[i, : i + 1]]
        axes.barh([i + 1] * (i + 1), 0.94, left=np.arange(i + 1) + 0.53, height=0.94, color=fill)
        for j in range(i + 1) if write else ():
            value, ink = number(float(mean[i, j]), 0), _readable_on(fill[j])
            axes.text(j + 1, i + 1, value, ha="center", va="center_baseline", size=size, color=ink)


def _readable_on(colour: Sequence[float]) -> str:
    """Black or white, whichever reads better on the colour (relative luminance as in WCAG 2).

    >>> _readable_on((1.0, 0.9, 0.2)), _readable_on((0.0, 0.1, 0.3))
    ('#111111', '#ffffff')
    """
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#111111" if (light + 0.05) / 0.0556 > 1.05 / (light + 0.05) else "#ffffff"
