"""Draws what the memory holds: rows by class, rows in each part over tasks, and how even the classes are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.curves import Stroke, families, named_strokes
from odedm.report.figures.style import TEXT, Array, Axes, Frame, Panel, finish, panel, task_ticks, titled
from odedm.report.groups import Group
from odedm.report.wording import number

T = TypeVar("T")

LONGEST_NAME = 18
CROWDED = 11.0
"""Rows closer than this many pixels have no room for names."""
MOST_LINES = 3
"""Lines of one panel; more would hide each other."""
MOST_NAMED = 3
"""Labels that a title lists."""
PARTS = ("short_term_rows", "long_term_rows")
"""Columns of the data."""

Span = tuple[int, float, float]
"""A task and where its classes begin and end, in rows."""
Share = tuple[str, str, Array, Stroke]
"""A memory's label, its name in the key, what each class has of it in per cent, and how that is drawn."""


def memory_by_class(groups: Sequence[Group]) -> list[Panel]:
    """Rows per class in the final memory, short-term and long-term stacked, mean over seeds."""
    counts = [final_class_counts(group) for group in groups]
    widest = max((float((short + long).max(initial=0.0)) for short, long in counts), default=0.0)
    same = merged((_content(group, *count), (group, *count)) for group, count in zip(groups, counts, strict=True))
    return [_class_panel(joined([each[0].label for each in own]), *own[0], widest) for own in same]


def _content(group: Group, short: Array, long: Array) -> Hashable:
    """What a panel of these rows shows beside its title."""
    return tuple(ordered_names(group)), group.one_order, short.tobytes(), long.tobytes()


def merged(panels: Iterable[tuple[Hashable, T]]) -> list[list[T]]:
    """What would be drawn alike, together: methods that share a memory's draws fill it with the same rows.

    >>> merged([("x", 1), ("y", 2), ("x", 3)])
    [[1, 3], [2]]
    """
    found: dict[Hashable, list[T]] = {}
    for content, one in panels:
        found.setdefault(content, []).append(one)
    return list(found.values())


def joined(labels: Sequence[str]) -> str:
    """The title of what several groups have in common.

    >>> joined(["ER"]), joined(["ER", "DER"]), joined(["a", "b", "c", "d"])
    ('ER', 'ER and DER', 'a, b and 2 more')
    """
    if len(labels) <= MOST_NAMED:
        return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))
    return f"{labels[0]}, {labels[1]} and {len(labels) - 2} more"


def _class_panel(title: str, group: Group, short: Array, long: Array, widest: float) -> Panel:
    if not len(short):
        return Panel(title, "", "These runs did not record what their memory held.")
    names = ordered_names(group)
    step = max(min(21.0, 520.0 / len(names)), 2.0)
    spans = task_spans(group.runs[0].result.labels, len(names)) if group.one_order else []

    def paint(axes: Axes) -> None:
        places = np.arange(len(names))
        height = 0.72 if step >= 8 else 1.0
        for _, first, last in spans[1::2]:
            axes.axhspan(first, last, color=style.BAND, linewidth=0, zorder=0)
        if long.any():  # the key has what is there
            axes.barh(places, long, height=height, color=style.LONG, label="long-term")
        if short.any() or not long.any():
            axes.barh(places, short, left=long, height=height, color=style.SHORT, label="short-term")
        draw_class_axis(axes, names, places.tolist(), spans, step)
        if not spans and step < CROWDED:
            axes.set_ylabel(f"{len(names)} classes")
        axes.set(xlim=(0.0, widest * 1.04 or 1.0), ylim=(len(names) - 0.5, -0.5))
        finish(axes, grid="x", keys=2, xlabel="rows in the final memory")

    frame = Frame(style.WIDTH, 62 + step * len(names), left=left_margin(names, step), top=22, bottom=40)
    alt = f"Final memory of {title}: {_rows(short.sum(), long.sum())} over {len(names)} classes."
    return panel(title, frame, alt, paint, ["class", *PARTS], zip(names, short, long, strict=True))


def memory_growth(groups: Sequence[Group]) -> list[Panel]:
    """Rows in each part after each task, mean over seeds; only groups that ever held a long-term row."""
    found = []
    for group in groups:
        if any(len(run.result.class_counts) != group.tasks for run in group.runs):
            continue
        short, long = (
            np.mean([[sum(entry.get(part, [])) for entry in run.result.class_counts] for run in group.runs], axis=0)
            for part in ("short", "long")
        )
        if long.any():
            room = group.settings.get("memory.capacity")
            found.append(((short.tobytes(), long.tobytes(), str(room)), (group.label, short, long, room)))
    panels = []
    for own in merged(found):
        _, short, long, room = own[0]
        title, ends = joined([label for label, *_ in own]), _rows(short[-1], long[-1])
        alt = f"Rows in each part of the memory over tasks, {title}. After the last task: {ends}."
        paint = partial(_draw_growth, short=short, long=long, room=room)
        rows = zip(range(1, len(short) + 1), short, long, strict=True)
        panels.append(panel(title, Frame(style.WIDTH, 256, top=40), alt, paint, ["task", *PARTS], rows))
    return panels


def _draw_growth(axes: Axes, *, short: Array, long: Array, room: object) -> None:
    x = np.arange(1, len(short) + 1)
    width = 0.72 if len(x) <= 30 else 1.0
    axes.bar(x, long, width=width, color=style.LONG, label="long-term")
    axes.bar(x, short, bottom=long, width=width, color=style.SHORT, label="short-term")
    top = float((short + long).max())
    if isinstance(room, int | float) and 0 < room < 4 * top:  # a far larger capacity would flatten the bars
        axes.axhline(float(room), color=style.INK, linestyle=(0, (4, 2)), linewidth=1.0, label=f"capacity λ={room:g}")
        top = max(top, float(room))
    axes.set(xlim=(0.4, len(x) + 0.6), ylim=(0.0, top * 1.06), xticks=task_ticks(len(x), 12))
    finish(axes, grid="y", keys=2, xlabel="tasks learned", ylabel="rows")


def memory_density(groups: Sequence[Group]) -> list[Panel]:
    """Share of the final memory by class, short-term and long-term together, mean over seeds; a line per memory.

    An even memory is a flat line at 1 / classes. Groups without class counts and empty memories are left out.
    """
    held = {id(group): np.sum(final_class_counts(group), axis=0) for group in groups}
    drawn = []
    for family, members in families([group for group in groups if held[id(group)].any()], most=MOST_LINES):
        classes = ordered_names(members[0])
        if any(ordered_names(group) != classes for group in members):
            continue
        lines: list[Share] = [
            (group.label, name, 100.0 * held[id(group)] / held[id(group)].sum(), stroke)
            for group, name, stroke in named_strokes(members, family)
        ]
        content = (tuple(classes), *((name, share.tobytes()) for _, name, share, _ in lines))
        drawn.append((content, (family, members, classes, lines)))
    panels = []
    for own in merged(drawn):
        _, members, classes, lines = own[0]
        title = joined([family for family, *_ in own])
        frame = Frame(style.WIDTH, 210, top=10).with_key(len(lines) + 1)
        ranges = [f"{name}: from {number(share.min())} to {number(share.max())} %" for _, name, share, _ in lines]
        alt = f"{titled('Share of the final memory by class', title)}. {'; '.join(ranges)}"
        rows = [(label, *cell) for label, _, share, _ in lines for cell in zip(classes, share, strict=True)]
        paint = partial(_draw_density, group=members[0], lines=lines)
        panels.append(panel(title, frame, alt, paint, ["runs", "class", "share_of_memory"], rows))
    return panels


def _draw_density(axes: Axes, *, group: Group, lines: Sequence[Share]) -> None:
    classes = len(lines[0][2])
    edges = np.arange(classes + 1) + 0.5
    for _, first, last in task_spans(group.runs[0].result.labels, classes)[1::2] if group.one_order else []:
        axes.axvspan(first + 1, last + 1, color=style.BAND, linewidth=0, zorder=0)
    for _, name, share, (colour, dashes, marker) in lines:
        mark: dict[str, Any] = {"color": colour, "ms": 6, "mec": style.CARD, "mew": 1.0}
        axes.stairs(share, edges, color=colour, linestyle=dashes, lw=2.0, baseline=None)
        if classes <= 40:
            axes.plot(edges[:-1] + 0.5, share, marker, **mark)
        axes.plot([], [], linestyle=dashes, lw=2.0, marker=marker, label=name, **mark)
        if len(lines) <= 2 and colour != style.PLAIN:  # fills of more lines would mix
            axes.stairs(share, edges, color=colour, alpha=0.12, fill=True, lw=0)
    axes.axhline(100.0 / classes, color=style.INK, lw=0.9, linestyle=(0, (1, 2)), label="even", zorder=1.5)
    axes.set(xlim=(0.5, classes + 0.5), ylim=(0.0, 1.08 * max(float(share.max()) for _, _, share, _ in lines)))
    words = "class, in order of arrival" if group.one_order else "class, by name"
    finish(axes, grid="y", keys=1, xticks=task_ticks(classes, 12), xlabel=words, ylabel="share of the memory, %")


def _rows(short: float, long: float) -> str:
    return f"{number(short)} short-term and {number(long)} long-term rows"


def final_class_counts(group: Group) -> tuple[Array, Array]:
    """Rows per class in each part after the last task, mean over seeds; empty where it was not recorded.

    Where the seeds order the classes differently, counts are matched by name.
    """
    names = ordered_names(group)
    parts: dict[str, list[list[float]]] = {"short": [], "long": []}
    for run in group.runs:
        if not run.result.class_counts:
            return np.zeros(0), np.zeros(0)
        places = list(range(len(names))) if group.one_order else [run.classes.index(name) for name in names]
        for part, kept in parts.items():
            counts = run.result.class_counts[-1].get(part, [])
            kept.append([float(counts[place]) if place < len(counts) else 0.0 for place in places])
    return np.mean(parts["short"], axis=0), np.mean(parts["long"], axis=0)


def ordered_names(group: Group) -> list[str]:
    """Class names as figures show them: in the order of the stream where every seed has the same one, else sorted."""
    return group.classes if group.one_order else sorted(group.classes)


def task_spans(labels: Sequence[Sequence[int]], classes: int) -> list[Span]:
    """Where the bars of each task's labels begin and end; nothing where tasks share classes or leave some out.

    >>> task_spans([[0, 1], [2]], 3), task_spans([[0, 1], [0, 1]], 2)
    ([(0, -0.5, 1.5), (1, 1.5, 2.5)], [])
    """
    if [each for own in labels for each in own] != list(range(classes)):
        return []
    return [(task, own[0] - 0.5, own[-1] + 0.5) for task, own in enumerate(labels) if own]


def left_margin(names: Sequence[str], step: float, size: float = TEXT) -> float:
    """The room that class names and task brackets ask for at the left edge, `step` pixels to the row."""
    if step < CROWDED:
        return 58.0
    return 34.0 + 0.6 * size * max(min(len(name), LONGEST_NAME) for name in names)


def draw_class_axis(
    axes: Axes, names: Sequence[str], places: Sequence[float], spans: Sequence[Span], step: float, size: float = TEXT
) -> None:
    """The left edge of a figure with a row per class: each name at its place, and brackets around each task."""
    if step < CROWDED:
        axes.set_yticks([])
    else:
        shown = [printable(name, LONGEST_NAME) for name in names]
        axes.set_yticks(list(places), shown, size=min(size, step * 0.75), color=style.INK)
        axes.tick_params(axis="y", length=0)
    left, wide = left_margin(names, step, size), axes.get_window_extent().width * 72 / axes.figure.dpi
    line, middle = -(left - 23) / wide, -(left - 13) / wide
    shortest = step * min((last - first for _, first, last in spans), default=1.0)
    every = max(1, math.ceil((size + 1) / max(shortest, 0.1)))  # numbers must not run into each other
    beside = axes.get_yaxis_transform()
    for place, (task, first, last) in enumerate(spans):
        tall = step * (last - first)
        inset = min(3.0, 0.15 * tall) / step
        ends = [first + inset, last - inset]
        axes.plot([line, line], ends, color=style.MUTED, lw=1.0, transform=beside, clip_on=False)
        if place % every == 0:
            words, turn = (f"task {task + 1}", 90) if tall >= 3.7 * size else (str(task + 1), 0)
            text = axes.text(middle, (first + last) / 2, words, size=size - 1, color=style.MUTED, transform=beside)
            text.set(rotation=turn, ha="center", va="center")
