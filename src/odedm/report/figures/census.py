"""What the memory holds: rows by class at the end, rows in each part over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.class_axis import CROWDED, Span, draw_class_axis, left_margin
from odedm.report.figures.style import (
    BAND,
    INK,
    LONG,
    SHORT,
    WIDTH,
    Array,
    Axes,
    Frame,
    Panel,
    csv_text,
    legend,
    panel,
    task_ticks,
)
from odedm.report.groups import Group
from odedm.report.wording import number


def memory_by_class(groups: Sequence[Group]) -> list[Panel]:
    """Rows per class in the final memory, short-term and long-term stacked, mean over seeds."""
    counts = [final_census(group) for group in groups]
    widest = max((float((short + long).max(initial=0.0)) for short, long in counts), default=0.0)
    panels = []
    for group, (short, long) in zip(groups, counts, strict=True):
        if not len(short):
            panels.append(Panel(group.label, "", "These runs did not record what their memory held."))
            continue
        names = ordered_names(group)
        step = max(min(21.0, 520.0 / len(names)), 2.0)
        frame = Frame(WIDTH, 62 + step * len(names), left=left_margin(names, step), top=22, bottom=40)
        spans = task_spans(len(names), group.tasks) if group.one_order else []
        rows = f"{number(float(short.sum()))} short-term and {number(float(long.sum()))} long-term rows"
        alt = f"Final memory of {group.label}: {rows} over {len(names)} classes."
        paint = partial(_draw_classes, short=short, long=long, names=names, step=step, spans=spans, widest=widest)
        data = csv_text(["class", "short_term_rows", "long_term_rows"], zip(names, short, long, strict=True))
        panels.append(panel(group.label, frame, alt, paint, data))
    return panels


def memory_growth(groups: Sequence[Group]) -> list[Panel]:
    """Rows in each part after each task, mean over seeds; only groups that ever held a long-term row."""
    panels = []
    for group in groups:
        if any(len(run.result.census) != group.tasks for run in group.runs):
            continue
        short, long = (
            np.mean([[sum(entry.get(part, [])) for entry in run.result.census] for run in group.runs], axis=0)
            for part in ("short", "long")
        )
        if not long.any():
            continue
        ends = f"{number(float(short[-1]))} short-term and {number(float(long[-1]))} long-term rows"
        alt = f"Rows in each part of the memory over tasks, {group.label}. After the last task: {ends}."
        paint = partial(_draw_growth, short=short, long=long, room=group.settings.get("memory.capacity"))
        data = csv_text(
            ["task", "short_term_rows", "long_term_rows"], zip(range(1, len(long) + 1), short, long, strict=True)
        )
        panels.append(panel(group.label, Frame(WIDTH, 256, top=40), alt, paint, data))
    return panels


def final_census(group: Group) -> tuple[Array, Array]:
    """Rows per class in each part after the last task, mean over seeds; empty where it was not recorded.

    Where the seeds order the classes differently, counts are matched by name.
    """
    names = ordered_names(group)
    parts: dict[str, list[list[float]]] = {"short": [], "long": []}
    for run in group.runs:
        if not run.result.census:
            return np.zeros(0), np.zeros(0)
        places = list(range(len(names))) if group.one_order else [run.classes.index(name) for name in names]
        for part, kept in parts.items():
            counts = run.result.census[-1].get(part, [])
            kept.append([float(counts[place]) if place < len(counts) else 0.0 for place in places])
    return np.mean(parts["short"], axis=0), np.mean(parts["long"], axis=0)


def ordered_names(group: Group) -> list[str]:
    """Class names as figures show them: in the order of the stream where every seed has the same one, else sorted."""
    return group.classes if group.one_order else sorted(group.classes)


def task_spans(classes: int, tasks: int) -> list[Span]:
    """Where the bars of each task begin and end; nothing where the classes do not divide evenly.

    >>> task_spans(6, 3), task_spans(5, 3)
    ([(0, -0.5, 1.5), (1, 1.5, 3.5), (2, 3.5, 5.5)], [])
    """
    if classes == 0 or classes % tasks:
        return []
    each = classes // tasks
    return [(task, task * each - 0.5, (task + 1) * each - 0.5) for task in range(tasks)]


def _draw_classes(
    axes: Axes,
    *,
    short: Array,
    long: Array,
    names: Sequence[str],
    step: float,
    spans: Sequence[Span],
    widest: float,
) -> None:
    places = np.arange(len(names))
    height = 0.72 if step >= 8 else 1.0
    for _, first, last in spans[1::2]:
        axes.axhspan(first, last, color=BAND, linewidth=0, zorder=0)
    axes.barh(places, long, height=height, color=LONG, label="long-term")
    axes.barh(places, short, left=long, height=height, color=SHORT, label="short-term")
    draw_class_axis(axes, names, places.tolist(), spans, step)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0.0, widest * 1.04 or 1.0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("rows in the final memory")
    if not spans and step < CROWDED:
        axes.set_ylabel(f"{len(names)} classes")
    legend(axes, columns=2)


def _draw_growth(axes: Axes, *, short: Array, long: Array, room: object) -> None:
    x = np.arange(1, len(short) + 1)
    width = 0.72 if len(x) <= 30 else 1.0
    axes.bar(x, long, width=width, color=LONG, label="long-term")
    axes.bar(x, short, bottom=long, width=width, color=SHORT, label="short-term")
    top = float((short + long).max())
    if isinstance(room, int | float) and 0 < room < 4 * top:  # a far larger capacity would flatten the bars
        axes.axhline(float(room), color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label=f"capacity λ={room:g}")
        top = max(top, float(room))
    axes.set_xlim(0.4, len(x) + 0.6)
    axes.set_ylim(0.0, top * 1.06)
    axes.set_xticks(task_ticks(len(x), 12))
    axes.grid(axis="y")
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("rows")
    legend(axes, columns=2)
