"""Draws what ODEDM changes for each method, up to three changes of a method below each other.

A method has the same row in panels that are beside each other, empty where one has nothing of it: rows are named once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odedm.core.files import write_bytes
from odedm.report.figures import style
from odedm.report.figures.style import Axes, Figure, render

PANEL, ROW, GAP, LEFT, TOP, BOTTOM, TITLE = 300.0, 46.0, 30.0, 96.0, 56.0, 44.0, 24.0
ACROSS = 2
"""Panels beside each other: three could not be read in a page's column."""
SIZE = 10.0
LOOKS = ((style.MUTED, "D", "none"), (style.SERIES[1], "o", style.SERIES[1]), (style.SERIES[0], "s", style.SERIES[0]))
"""Colour, shape and filling of the three: they differ without colour too. Where there are two, the last two."""


class Change(NamedTuple):
    """A change with its interval, either of which may not be there."""

    words: str
    mean: float | None
    interval: tuple[float, float] | None


Hosts = Sequence[tuple[str, Sequence[Change]]]


def save_figure(panels: Mapping[str, Hosts], path: Path) -> None:
    """Write the figure as PNG, a panel for each data set, two beside each other, a row for each method."""
    shown = list(panels.items())
    lines = [shown[first : first + ACROSS] for first in range(0, len(shown), ACROSS)]
    names = [list(dict.fromkeys(name for _, own in line for name, _ in own)) for line in lines]
    width = LEFT + min(ACROSS, len(shown)) * (PANEL + GAP)
    height = TOP + sum(ROW * len(own) + BOTTOM for own in names) + (len(lines) - 1) * TITLE

    def paint(figure: Figure) -> None:
        top = height - TOP
        for line, own in zip(lines, names, strict=True):
            bottom = top - ROW * len(own)
            for across, (data, hosts) in enumerate(line):
                box = ((LEFT + across * (PANEL + GAP)) / width, bottom / height, PANEL / width, (top - bottom) / height)
                keyed = across == 0 and line is lines[0]
                _draw(figure.add_axes(box), data, hosts, own, named=across == 0, keyed=keyed)
            top = bottom - BOTTOM - TITLE

    write_bytes(path, render(paint, width, height, "png", size=SIZE, scale=2.0))


def _draw(axes: Axes, data: str, hosts: Hosts, names: Sequence[str], *, named: bool, keyed: bool) -> None:
    """Rows from the top, in each its marks below each other."""
    looks = LOOKS[-len(hosts[0][1]) :]
    axes.axvline(0.0, color=style.MUTED, lw=1.0, zorder=1)
    for name, marks in hosts:
        row = names.index(name)
        for place, (change, (colour, shape, face)) in enumerate(zip(marks, looks, strict=True)):
            y = row + 0.22 * (place - (len(looks) - 1) / 2)
            if change.interval is not None:
                axes.plot(change.interval, [y, y], color=colour, lw=1.6, zorder=2)
            if change.mean is not None:
                axes.plot([change.mean], [y], shape, mfc=face, mec=colour, ms=6, zorder=3)
    axes.set(ylim=(len(names) - 0.5, -0.5), xlabel="change, points of ACC")
    axes.set_yticks(range(len(names)), names if named else [""] * len(names))
    axes.set_title(data, loc="left", fontsize=SIZE, color=style.INK)
    axes.grid(visible=True, axis="x")
    if keyed:
        for change, (colour, shape, face) in zip(hosts[0][1], looks, strict=True):
            axes.plot([], [], shape, mfc=face, mec=colour, label=change.words)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0 + 24.0 / (ROW * len(names))), ncols=3, **style.KEY)
