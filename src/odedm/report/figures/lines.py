"""Lines over tasks, rows or settings: their strokes, which read without colour too, and who shares a panel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from odedm.report.figures.style import CARD, PLAIN, SERIES, Axes
from odedm.report.groups import BASELINES, Group
from odedm.report.statistics import Estimate

Stroke = tuple[str, Any, str]
"""Colour, dashes and marker of a line."""
BASELINE_STROKE: Stroke = (PLAIN, (0, (4, 2)), "s")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
STROKES: tuple[Stroke, ...] = tuple(zip(SERIES, DASHES, "o^DvPX", strict=True))


def strokes(groups: Sequence[Group]) -> list[Stroke]:
    """A stroke for each group; a single baseline among other memories is grey, so that they stand out."""
    baselines = [group for group in groups if group.memory in BASELINES]
    grey = baselines[0] if len(baselines) == 1 < len(groups) else None
    others = cycle(STROKES)
    return [BASELINE_STROKE if group is grey else next(others) for group in groups]


def draw_line(axes: Axes, x: Sequence[float], points: Sequence[Estimate], stroke: Stroke, name: str) -> None:
    """Means with a band of one standard error to each side."""
    colour, dashes, marker = stroke
    y = np.array([point.mean for point in points])
    error = np.array([point.error or 0.0 for point in points])
    if error.any():
        axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
    every = max(1, len(points) // 20)
    line = {"color": colour, "linestyle": dashes, "lw": 2.0, "label": name}
    axes.plot(x, y, **line, marker=marker, markevery=every, ms=6, mec=CARD, mew=1.0)


def families(groups: Sequence[Group], most: int = len(STROKES)) -> list[tuple[str, list[Group]]]:
    """Groups that differ by the memory alone, together, each panel with as many as there are strokes.

    One panel without a title where there is one family, or where nobody has a partner.
    """
    if not groups:
        return []
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.same_but_memory, []).append(group)
    if len(groups) <= most and (len(found) == 1 or all(len(members) == 1 for members in found.values())):
        return [("", list(groups))]
    panels = []
    for members in found.values():
        title = max((group.names.family for group in members), key=len)
        plain = [group for group in members if group.memory in BASELINES]
        others = [group for group in members if group.memory not in BASELINES]
        room = max(most - len(plain), 1)
        for start in range(0, max(len(others), 1), room):
            panels.append((title, plain + others[start : start + room]))
    return panels
