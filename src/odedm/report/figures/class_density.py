"""Draws where the rows of a memory lie among the classes, as a density."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from odedm.report.figures import style
from odedm.report.figures.curves import Stroke, families, named_strokes
from odedm.report.figures.memory_contents import final_class_counts, ordered_names
from odedm.report.figures.style import Array, Axes, Frame, Panel, finish, panel, task_ticks, titled
from odedm.report.groups import Group
from odedm.report.wording import number

WIDE = 0.5
"""The kernel's deviation in classes: neighbours flow into each other, and no class vanishes."""
POINTS = 20
"""Places for each class at which the density is drawn."""


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
        frame = Frame(style.WIDTH, 210, top=10, left=62).with_key(len(lines) + 1)
        paint = partial(_draw, x=x, lines=lines, classes=classes, arrived=members[0].one_order)
        panels.append(panel(title, frame, alt, paint, ["runs", "class", "density"], rows))
    return panels


def _draw(axes: Axes, *, x: Array, lines: Sequence[Density], classes: int, arrived: bool) -> None:
    for line in lines:
        colour, dashes, _ = line.stroke
        axes.plot(x, line.y, color=colour, linestyle=dashes, lw=2.0, label=line.name)
        if len(lines) <= 2:  # fills of more lines would mix
            axes.fill_between(x, line.y, color=colour, alpha=0.12, linewidth=0)
    axes.axhline(1 / classes, color=style.INK, lw=0.9, linestyle=(0, (1, 2)), label="even", zorder=1.5)
    words = "class, in order of arrival" if arrived else "class, by name"
    axes.set(xlim=(0.5, classes + 0.5), ylim=(0.0, 1.08 * max(float(line.y.max()) for line in lines)))
    finish(axes, grid="y", keys=1, xticks=task_ticks(classes, 12), xlabel=words, ylabel="density")
