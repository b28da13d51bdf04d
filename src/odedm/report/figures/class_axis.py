"""The left edge of a figure with a row per class: class names, and brackets around the classes of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence

from odedm.report.figures.style import INK, MUTED, TEXT, Axes
from odedm.report.wording import clean

LONGEST_NAME = 18
CROWDED = 11.0
"""Rows closer than this many pixels have no room for names."""

Span = tuple[int, float, float]
"""A task and where its classes begin and end, in rows."""


def left_margin(names: Sequence[str], step: float, size: float = TEXT) -> float:
    """The room that class names and task brackets ask for, `step` pixels to the row."""
    if step < CROWDED:
        return 58.0
    return 34.0 + 0.6 * size * max(min(len(name), LONGEST_NAME) for name in names)


def draw_class_axis(
    axes: Axes, names: Sequence[str], places: Sequence[float], spans: Sequence[Span], step: float, size: float = TEXT
) -> None:
    """Write each name at its place and bracket the tasks."""
    if step < CROWDED:
        axes.set_yticks([])
    else:
        shown = [clean(name, LONGEST_NAME) for name in names]
        axes.set_yticks(list(places), shown, size=min(size, step * 0.75), color=INK)
        axes.tick_params(axis="y", length=0)
    _draw_brackets(axes, spans, step, left_margin(names, step, size), size)


def _draw_brackets(axes: Axes, spans: Sequence[Span], step: float, left: float, size: float) -> None:
    wide = axes.get_window_extent().width * 72 / axes.figure.dpi
    line, middle = -(left - 23) / wide, -(left - 13) / wide
    shortest = step * min((last - first for _, first, last in spans), default=1.0)
    every = max(1, math.ceil((size + 1) / max(shortest, 0.1)))  # numbers must not run into each other
    beside = axes.get_yaxis_transform()
    for place, (task, first, last) in enumerate(spans):
        tall = step * (last - first)
        inset = min(3.0, 0.15 * tall) / step
        axes.plot([line, line], [first + inset, last - inset], color=MUTED, lw=1.0, transform=beside, clip_on=False)
        if place % every:
            continue
        words, turn = (f"task {task + 1}", 90) if tall >= 3.7 * size else (str(task + 1), 0)
        text = axes.text(middle, (first + last) / 2, words, size=size - 1, color=MUTED, transform=beside)
        text.set(rotation=turn, ha="center", va="center")
