"""Draws the accuracy on each task after each task, as heat maps on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.style import COLOUR_MAP, Array, Figure, Panel, task_ticks
from odedm.report.groups import Group
from odedm.report.wording import number

MOST_WRITTEN = 12
"""Tasks up to which the numbers are written into the map."""


def accuracy_matrices(groups: Sequence[Group]) -> list[Panel]:
    """Draw a_{i,j} from 0 to 100 %, mean over seeds, a panel per group."""
    panels = []
    for group in groups:
        tasks = group.tasks
        mean = _mean_matrix(group)
        last = ", ".join(number(value, 0) for value in mean[-1]) if tasks <= 20 else number(float(mean[-1].mean()), 0)
        alt = f"Accuracy matrix of {group.label}. Final accuracy in per cent by task: {last}."
        rows = [(i + 1, j + 1, mean[i, j]) for i in range(tasks) for j in range(i + 1)]
        side = 36.0 * min(max(tasks, 4), 9)
        columns = ("after_task", "on_task", "accuracy")
        panels.append(Panel(group.label, alt, partial(_draw_map, mean=mean), columns, rows, (side + 100, side + 40)))
    return panels


def _mean_matrix(group: Group) -> Array:
    """The accuracy matrix, mean over seeds; NaN where the task was not yet learned."""
    mean = np.full((group.tasks, group.tasks), np.nan)
    for i in range(group.tasks):
        mean[i, : i + 1] = np.mean([run.result.class_il[i] for run in group.runs], axis=0)
    return mean


def _draw_map(figure: Figure, *, mean: Array) -> None:
    axes, tasks = figure.subplots(), len(mean)
    extent = (0.5, tasks + 0.5, tasks + 0.5, 0.5)
    colours = {"cmap": COLOUR_MAP, "vmin": 0, "vmax": 100}
    image = axes.imshow(np.ma.masked_invalid(mean), interpolation="none", extent=extent, **colours)  # type: ignore[arg-type]
    for i in range(tasks if tasks <= MOST_WRITTEN else 0):
        for j in range(i + 1):
            ink = "white" if mean[i, j] < 55 else "black"  # whichever reads better on the colour
            value = number(float(mean[i, j]), 0)
            axes.text(j + 1, i + 1, value, ha="center", va="center", color=ink, size=11 if tasks <= 9 else 8)
    ticks = task_ticks(tasks, 12)
    axes.set(xticks=ticks, yticks=ticks, xlabel="accuracy on task", ylabel="after task")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[0, 50, 100], format=lambda value, _: f"{value:g} %")
    bar.outline.set_visible(False)
