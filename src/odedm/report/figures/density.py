"""How evenly a memory holds the classes: its contents as a density over them, ODEDM against the reservoir."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.census import final_census, ordered_names, task_spans
from odedm.report.figures.lines import Stroke, families, strokes
from odedm.report.figures.style import (
    BAND,
    CARD,
    INK,
    PLAIN,
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
from odedm.report.wording import clean, number

MOST = 3
"""Lines of one panel; more would hide each other."""
Line = tuple[Group, str, Array, Stroke]


def memory_density(groups: Sequence[Group]) -> list[Panel]:
    """Share of the final memory by class, short-term and long-term together, mean over seeds; a line per memory.

    An even memory is a flat line at 1 / classes. Groups that recorded no census, and empty memories, are left out.
    """
    held = {id(group): np.sum(final_census(group), axis=0) for group in groups}
    panels = []
    for title, members in families([group for group in groups if held[id(group)].any()], most=MOST):
        if len({tuple(ordered_names(group)) for group in members}) > 1:
            continue
        lines = []
        for group, stroke in zip(members, strokes(members), strict=True):
            rows = held[id(group)]
            name = clean(group.names.member if title else group.label, 44)
            lines.append((group, name, 100.0 * rows / rows.sum(), stroke))
        frame = Frame(WIDTH, 226 + 16 * len(lines), top=10 + 16 * (len(lines) + 1), scale=1.25)
        alt = f"Share of the final memory by class{': ' + title if title else ''}. " + "; ".join(
            f"{name}: from {number(float(share.min()))} to {number(float(share.max()))} %"
            for _, name, share, _ in lines
        )
        names = ordered_names(members[0])
        rows_of = [(g.label, c, s) for g, _, share, _ in lines for c, s in zip(names, share, strict=True)]
        data = csv_text(["runs", "class", "share_of_memory"], rows_of)
        panels.append(panel(title, frame, alt, partial(_draw, lines=lines), data))
    return panels


def _draw(axes: Axes, *, lines: Sequence[Line]) -> None:
    group = lines[0][0]
    classes = len(lines[0][2])
    if group.one_order:
        for _, first, last in task_spans(classes, group.tasks)[1::2]:
            axes.axvspan(first + 1, last + 1, color=BAND, linewidth=0, zorder=0)
    edges = np.arange(classes + 1) + 0.5
    for _, name, share, (colour, dashes, marker) in lines:
        axes.stairs(share, edges, color=colour, linestyle=dashes, lw=2.0, baseline=None)
        if classes <= 40:
            axes.plot(edges[:-1] + 0.5, share, marker, color=colour, ms=6, mec=CARD, mew=1.0)
        axes.plot([], [], color=colour, linestyle=dashes, lw=2.0, marker=marker, ms=6, mec=CARD, mew=1.0, label=name)
        if len(lines) <= 2 and colour != PLAIN:  # fills of more lines would mix
            axes.stairs(share, edges, color=colour, alpha=0.12, fill=True, lw=0)
    axes.axhline(100.0 / classes, color=INK, lw=0.9, linestyle=(0, (1, 2)), label="even", zorder=1.5)
    axes.set_xlim(0.5, classes + 0.5)
    axes.set_ylim(0.0, 1.08 * max(float(share.max()) for _, _, share, _ in lines))
    axes.set_xticks(task_ticks(classes, 12))
    axes.grid(axis="y")
    axes.set_xlabel("class, in order of arrival" if group.one_order else "class, by name")
    axes.set_ylabel("share of the memory, %")
    legend(axes, columns=1)
