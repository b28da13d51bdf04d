"""Draws what the memory holds of each class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.style import Array, Axes, Figure, Panel, finish
from odedm.report.groups import Group
from odedm.report.wording import number

LONGEST_NAME = 18
CROWDED = 40
"""Classes beyond which there is no room for their names."""
MOST_NAMED = 3
"""Labels that a title lists."""

Span = tuple[int, float, float]
"""A task and where its classes begin and end, in rows of the picture."""


def memory_by_class(groups: Sequence[Group]) -> list[Panel]:
    """Draw rows per class in the final memory, short-term and long-term stacked, mean over seeds.

    Groups whose memories hold the same rows, as methods do that share a memory's draws, have one panel.
    """
    counts = [final_class_counts(group) for group in groups]
    widest = max((float((short + long).max(initial=0.0)) for short, long in counts), default=0.0)
    alike: dict[Hashable, list[int]] = {}
    for i, (group, (short, long)) in enumerate(zip(groups, counts, strict=True)):
        content = (tuple(ordered_names(group)), group.one_order, short.tobytes(), long.tobytes())
        alike.setdefault(content, []).append(i)
    return [
        _class_panel(joined([groups[i].label for i in members]), groups[members[0]], *counts[members[0]], widest)
        for members in alike.values()
    ]


def joined(labels: Sequence[str]) -> str:
    """Return the title of what several groups have in common.

    >>> joined(["ER"]), joined(["ER", "DER"]), joined(["a", "b", "c", "d"])
    ('ER', 'ER and DER', 'a, b and 2 more')
    """
    if len(labels) <= MOST_NAMED:
        return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))
    return f"{labels[0]}, {labels[1]} and {len(labels) - 2} more"


def _class_panel(title: str, group: Group, short: Array, long: Array, widest: float) -> Panel:
    if not len(short):
        return Panel(title, note="These runs did not record what their memory held.")
    names = ordered_names(group)
    spans = task_spans(group.runs[0].result.labels, len(names)) if group.one_order else []
    held = f"{number(short.sum())} short-term and {number(long.sum())} long-term rows"
    alt = f"Final memory of {title}: {held} over {len(names)} classes."
    draw = partial(_draw_classes, names=names, short=short, long=long, spans=spans, widest=widest)
    rows = list(zip(names, short, long, strict=True))
    size = (style.WIDTH, 76 + max(min(21.0, 520.0 / len(names)), 2.0) * len(names))
    return Panel(title, alt, draw, ("class", "short_term_rows", "long_term_rows"), rows, size)


def _draw_classes(
    figure: Figure, *, names: Sequence[str], short: Array, long: Array, spans: Sequence[Span], widest: float
) -> None:
    axes, rows = figure.subplots(), np.arange(len(names))
    height = 0.72 if len(names) <= CROWDED else 1.0
    for _, first, last in spans[1::2]:
        axes.axhspan(first, last, color=style.BAND, linewidth=0, zorder=0)
    if long.any():  # the key has what is in the memory
        axes.barh(rows, long, height=height, color=style.LONG, label="long-term")
    if short.any() or not long.any():
        axes.barh(rows, short, left=long, height=height, color=style.SHORT, label="short-term")
    axes.set(xlim=(0.0, widest * 1.04 or 1.0), ylim=(len(names) - 0.5, -0.5))
    if len(names) > CROWDED:
        axes.set(yticks=[], ylabel=f"{len(names)} classes")
    else:
        label_rows(axes, rows.tolist(), names)
    finish(axes, grid="x", keys=2, xlabel="rows in the final memory")
    if spans:
        every = 1 + len(spans) // 20  # numbers must not run into each other
        tasks = axes.secondary_yaxis("right")
        tasks.set_yticks([(first + last) / 2 for _, first, last in spans[::every]])
        tasks.set_yticklabels([f"task {task + 1}" for task, _, _ in spans[::every]])
        tasks.tick_params(length=0)
        tasks.spines[:].set_visible(False)


def label_rows(axes: Axes, rows: Sequence[float], names: Sequence[str]) -> None:
    """Write the name of a class at the left of each row."""
    axes.set_yticks(rows, [printable(name, LONGEST_NAME) for name in names], size=min(style.TEXT, 320.0 / len(names)))
    axes.tick_params(axis="y", length=0, labelcolor=style.INK)


def final_class_counts(group: Group) -> tuple[Array, Array]:
    """Return rows per class in each part after the last task, mean over seeds; empty where it was not recorded.

    Where the seeds order the classes differently, counts are matched by name.
    """
    names = ordered_names(group)
    parts: dict[str, list[list[float]]] = {"short": [], "long": []}
    for run in group.runs:
        if not run.result.class_counts:
            return np.zeros(0), np.zeros(0)
        order = list(range(len(names))) if group.one_order else [run.classes.index(name) for name in names]
        for part, counts_by_run in parts.items():
            counts = run.result.class_counts[-1].get(part, [])
            counts_by_run.append([float(counts[i]) if i < len(counts) else 0.0 for i in order])
    return np.mean(parts["short"], axis=0), np.mean(parts["long"], axis=0)


def ordered_names(group: Group) -> list[str]:
    """Return class names in the order of the stream where every seed has the same one, else sorted."""
    return group.classes if group.one_order else sorted(group.classes)


def task_spans(labels: Sequence[Sequence[int]], classes: int) -> list[Span]:
    """Return where the bars of each task's labels begin and end; nothing where tasks share classes or leave some out.

    >>> task_spans([[0, 1], [2]], 3), task_spans([[0, 1], [0, 1]], 2)
    ([(0, -0.5, 1.5), (1, 1.5, 2.5)], [])
    """
    if [label for task_labels in labels for label in task_labels] != list(range(classes)):
        return []
    return [(task, labels[task][0] - 0.5, labels[task][-1] + 0.5) for task in range(len(labels)) if labels[task]]
