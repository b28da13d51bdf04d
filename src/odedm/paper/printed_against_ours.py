"""Draws every printed number of the paper against ours, a dot a cell, by method: what was reproduced at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import write_bytes
from odedm.paper.items import ITEMS, progress
from odedm.paper.printed_tables import BEST, METRIC_TITLES, NONE, Beside, beside, method_title
from odedm.report.figures import style
from odedm.report.figures.style import Axes, Figure, render
from odedm.results.folder import FinishedRun

PANEL, KEY_HEIGHT = 300.0, 50.0
SIZE = 10.0
MARKS = tuple(zip((*style.SERIES, style.INK, style.MUTED), "o^Dvs<P>", strict=True))
"""Colour and shape of a method's dots: they differ without colour too."""


def printed_cells(finished: Mapping[str, FinishedRun]) -> list[Beside]:
    """The cells that were run, each once, whichever table repeats it; `finished` are runs by their signature.

    A best of several ρ repeats one of them, and rows at another learning rate are not the paper's: neither is here.
    """
    found: dict[tuple[str, ...], Beside] = {}
    for item in ITEMS.values():
        if item.study and item.tables:
            for cell in beside(item.tables, item.data, progress(item, finished).done):
                if cell.ours is not None and cell.place[5] != BEST and not cell.rate:
                    found.setdefault(cell.place[1:], cell)
    return list(found.values())


def save_printed_against_ours(finished: Mapping[str, FinishedRun], path: Path) -> int:
    """Write the figure as PNG, a panel for each metric, and say how many cells it shows."""
    if path.suffix.lower() != ".png" or not path.parent.is_dir():
        raise UsageError(
            f"--figure takes a file name that ends with .png, in a folder that is there; '{path}' was given."
        )
    cells = printed_cells(finished)
    if not cells:
        raise UsageError(
            "No run of the paper's is here yet, so there is nothing to draw. Give results by --with-results."
        )
    metrics = [metric for metric in METRIC_TITLES if any(cell.place[6] == metric for cell in cells)]
    methods = list(dict.fromkeys(cell.place[4] for cell in cells))
    strokes = {name: MARKS[place % len(MARKS)] for place, name in enumerate(methods)}
    width, height = len(metrics) * PANEL, PANEL + KEY_HEIGHT

    def paint(figure: Figure) -> None:
        row = figure.subplots(1, len(metrics), squeeze=False)[0]
        for place, (axes, metric) in enumerate(zip(row, metrics, strict=True)):
            own = [cell for cell in cells if cell.place[6] == metric]
            _draw(axes, own, strokes, METRIC_TITLES[metric], key=place == 0)
        figure.legend(loc="outside upper left", ncols=5, **style.KEY)

    write_bytes(path, render(paint, width, height, "png", size=SIZE, scale=2.0))
    return len(cells)


def _draw(
    axes: Axes, cells: Sequence[Beside], strokes: Mapping[str, tuple[str, str]], title: str, *, key: bool
) -> None:
    """Dots around the line where both are the same: open without ODEDM, full with it."""
    for name, (colour, marker) in strokes.items():
        if key:
            axes.plot([], [], marker, color=colour, ms=6, label=method_title(name))
        for plain in (True, False):
            own = [each for each in cells if each.place[4] == name and (each.place[5] == NONE) is plain]
            x, y = [each.paper.mean for each in own], [_value(each) for each in own]
            face = "none" if plain else colour
            axes.plot(x, y, marker, mfc=face, mec=colour, mew=1.2, ms=6, linestyle="none", alpha=0.85, zorder=3)
    ends = [number for each in cells for number in (each.paper.mean, _value(each))]
    room = 0.05 * (max(ends) - min(ends)) + 1.0
    low, high = max(0.0, min(ends) - room), max(ends) + room
    axes.plot([low, high], [low, high], color=style.MUTED, lw=1.0, zorder=1)
    axes.set(xlim=(low, high), ylim=(low, high), xlabel="printed, %", ylabel="ours, %" if key else "")
    axes.set_title(f"{title}: {len(cells)} cells", loc="left", fontsize=SIZE, color=style.INK)
    axes.grid(visible=True)
    axes.set_box_aspect(1)
    if key:
        axes.plot([], [], "o", mfc="none", mec=style.PLAIN, label="open: without ODEDM")
        axes.plot([], [], "o", color=style.PLAIN, label="full: with ODEDM")


def _value(cell: Beside) -> float:
    assert cell.ours is not None
    assert cell.ours.value is not None
    return cell.ours.value.mean
