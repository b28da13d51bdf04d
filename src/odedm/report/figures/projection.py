"""Draws the memory among its data in the plane where the data spread most, with a line through each (PCA)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.figures.style import INK, PLAIN, SERIES, WIDTH, Array, Axes, Figure, Panel
from odedm.report.groups import Group, by_distance, group_by_settings
from odedm.report.labels import belongs_to_memory
from odedm.report.saved_columns import first_evidence
from odedm.report.wording import number
from odedm.results.folder import FEATURES

PLANES = 12
"""Clouds that a page draws."""
DOTS = 4000
"""Data rows that are drawn; a page of more would be heavy and no clearer."""
FEW = 1500
"""Data rows that have room for larger dots."""


@dataclass(frozen=True)
class Projected:
    """Data [n, 2] and memory [m, 2] in one plane."""

    data: Array
    memory: Array

    @property
    def cosine(self) -> float:
        """Between the directions of the two."""
        return float(abs(direction(self.data) @ direction(self.memory)))

    @property
    def least_squares_cosine(self) -> float:
        """Between the two lines that predict the second component from the first with the least squares."""
        return float(abs(least_squares(self.data) @ least_squares(self.memory)))


def memory_projection(groups: Sequence[Group]) -> list[Panel]:
    """Draw PCA of memory against data for the first seed of a group that saved its features, of each distance.

    Each run has a network, and so a plane, of its own: directions are compared within a panel, not between panels.
    """
    panels = []
    for group in beside_the_plain_one([group for group in groups if first_evidence(group, FEATURES)]):
        for run, (data, memory) in first_evidence(group, FEATURES):
            name = f"{group.label}, seed {run.seed}"
            try:
                panels.append(memory_pca(name, data, memory))
            except UsageError as error:  # a page says what is wrong with one picture and shows the others
                panels.append(Panel(name, note=printable(error, 300)))
    return panels[:PLANES]


def beside_the_plain_one(groups: Sequence[Group]) -> list[Group]:
    """Return of each family the memory without ODEDM and those that differ in distance, else the first with ODEDM.

    Families that compare distances come first.
    """
    compared = [group for members in by_distance(groups) for group in members.values()]
    chosen: list[Group] = []
    for members in group_by_settings([*compared, *groups], belongs_to_memory):
        plain = [group for group in members if group.plain]
        rivals = [group for group in compared if group in members]
        chosen += [*plain[:1], *(rivals or [group for group in members if not group.plain][:1])]
    return chosen


def memory_pca(name: str, data: Array, memory: Array) -> Panel:
    """Draw the features of a memory's rows among those of the data, and the cosine between their directions.

    `data` [n, d] are features of the rows that could have been kept, the same number per class; `memory` [m, d] are
    features of the rows that were, all from one network. The plane is the data's first two principal components. The
    lines go through each cloud's middle along its first principal direction there, and, dotted, along the line of
    least squares; a cosine of 1 means that the memory lies along the data.
    """
    clouds = project(data, memory)
    cosine = number(clouds.cosine, 3)
    rows_of = f"{len(clouds.memory)} memory rows chosen by {name} and of {len(clouds.data)} data rows"
    alt = f"Main directions of {rows_of}: the cosine between them is {cosine}."
    points = {"data": clouds.data, "memory": clouds.memory}
    rows = [(kind, *point) for kind, cloud in points.items() for point in cloud.tolist()]
    rows += [(f"{kind}_line", *direction(cloud).tolist()) for kind, cloud in points.items()]
    rows += [(f"{kind}_least_squares", *least_squares(cloud).tolist()) for kind, cloud in points.items()]
    title = f"{printable(name, 100)}: cosine {cosine}, of least squares {number(clouds.least_squares_cosine, 3)}"
    columns = ("what", "first_component", "second_component")
    return Panel(title, alt, partial(_draw, clouds=clouds), columns, rows, (WIDTH, 346))


def project(data: Array, memory: Array) -> Projected:
    """Return both clouds in the data's principal plane."""
    data, memory = _matrix("data", data), _matrix("memory", memory)
    if data.shape[1] != memory.shape[1]:
        raise UsageError(
            f"The features of data and memory must have the same length; {data.shape[1]} and {memory.shape[1]} were "
            "given. Take both from one network."
        )
    middle = data.mean(axis=0)
    _, _, axes = np.linalg.svd(data - middle, full_matrices=False)
    plane = axes[:2].T
    return Projected((data - middle) @ plane, (memory - middle) @ plane)


def direction(points: Array) -> Array:
    """Return the unit vector along which points [n, 2] spread most: the line that is nearest to them all.

    >>> np.abs(direction(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))).round(3).tolist()
    [0.707, 0.707]
    """
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    main: Array = axes[0] * (1.0 if axes[0][0] >= 0 else -1.0)
    return main


def least_squares(points: Array) -> Array:
    """Return the unit vector along the line that predicts the second component of points [n, 2] from the first.

    Of the data in their principal plane it is the first axis, as the components are uncorrelated.

    >>> least_squares(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])).round(3).tolist()
    [0.707, 0.707]
    """
    x, y = (points - points.mean(axis=0)).T
    line: Array = np.array([x @ x, x @ y]) if x.any() else np.array([0.0, 1.0])
    unit: Array = line / np.linalg.norm(line)
    return unit


def _matrix(name: str, points: Array) -> Array:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or len(points) < 2 or points.shape[1] < 2 or not np.isfinite(points).all():
        raise UsageError(
            f"The features of the {name} must be a finite matrix of 2 or more rows and 2 or more columns; "
            f"the shape {points.shape} was given."
        )
    return points


def _draw(figure: Figure, *, clouds: Projected) -> None:
    axes = figure.subplots()
    dots = clouds.data[:: max(1, len(clouds.data) // DOTS)]
    axes.plot(*dots.T, ".", ms=5.0 if len(dots) <= FEW else 3.0, color=PLAIN, alpha=0.55, mew=0, rasterized=True)
    axes.plot([], [], ".", ms=7, color=PLAIN, mew=0, label="data")
    _draw_line(axes, clouds.data, INK, "-", "its main direction")
    _draw_line(axes, clouds.data, INK, (0, (1, 1.5)), "its least squares", least_squares)
    marks: dict[str, Any] = {"mfc": "none", "mec": SERIES[1], "mew": 1.3, "ms": 5.5}
    axes.plot(*clouds.memory.T, "^", **marks, label="memory", rasterized=len(clouds.memory) > DOTS)
    _draw_line(axes, clouds.memory, SERIES[1], (0, (5, 1.5)), "its main direction")
    _draw_line(axes, clouds.memory, SERIES[1], (0, (1, 1.5)), "its least squares", least_squares)
    axes.set_aspect("equal", adjustable="datalim")  # else no angle is what it seems
    axes.set(xlabel="first component", ylabel="second component")
    # the data and their lines in the first column, the memory and its lines in the second
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, columnspacing=1.0, handlelength=2.2)


def _draw_line(
    axes: Axes, points: Array, colour: str, dashes: Any, name: str, along: Callable[[Array], Array] = direction
) -> None:
    middle, line = points.mean(axis=0), along(points)
    reach = float(np.abs((points - middle) @ line).max())
    ends = middle + np.outer([-reach, reach], line)
    axes.plot(*ends.T, color=colour, linestyle=dashes, lw=2.4, label=name, zorder=4)
