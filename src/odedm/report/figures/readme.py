"""Draws the picture at the top of the README: forgetting curves beside what the memory kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odedm.core.files import write_bytes
from odedm.report.figures.curves import ceiling, draw_forgetting, forgetting
from odedm.report.figures.memory_contents import left_margin
from odedm.report.figures.stored_images import PIXELS, PictureGrid, draw_grid, read_grid
from odedm.report.figures.style import Figure, png
from odedm.report.groups import Group
from odedm.report.load import load
from odedm.report.summary import summarise

WIDTH, HEIGHT = 600.0, 300.0
SMALL, NORMAL, HEADING = 8.5, 9.5, 10.5


def readme_figure(folders: Sequence[Path], out_png: Path) -> Path:
    """Forgetting curves of the first comparison beside its long-term pictures, on white, 1200 pixels wide."""
    table = summarise(load(folders))
    row = (table.compared or table.rows)[0]
    members = [group for group in (row.partner, row.group) if group is not None]
    found = "none" if row.group.plain else read_grid(row.group, PIXELS, classes=10, columns=6)

    def paint(figure: Figure) -> None:
        room = WIDTH if isinstance(found, str) else _add_pictures(figure, found[1])
        _add_curves(figure, members, room)

    out_png.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out_png, png(WIDTH, HEIGHT, paint, size=NORMAL, scale=2.0))
    return out_png


def _add_pictures(figure: Figure, grid: PictureGrid) -> float:
    """Put the pictures at the right edge and say how wide the rest is."""
    step = min((HEIGHT - 54) / grid.rows, 190 / grid.columns)
    wide, tall = grid.columns * step, grid.rows * step
    margin = left_margin(grid.names, step, SMALL)
    start = WIDTH - wide - 10
    axes = figure.add_axes((start / WIDTH, (HEIGHT - 38 - tall) / HEIGHT, wide / WIDTH, tall / HEIGHT))
    draw_grid(axes, grid=grid, step=step, size=SMALL)
    _add_heading(figure, start - margin + 8, "Kept in long-term memory")
    return start - margin - 16


def _add_curves(figure: Figure, groups: Sequence[Group], room: float) -> None:
    curves = forgetting(groups, "")
    columns = 2 if max(len(curve.name) for curve in curves) <= 18 else 1
    above = 46 + 14 * (len(curves) if columns == 1 else 1)
    axes = figure.add_axes((46 / WIDTH, 40 / HEIGHT, (room - 58) / WIDTH, (HEIGHT - 40 - above) / HEIGHT))
    draw_forgetting(axes, curves=curves, top=ceiling(groups), columns=columns)
    _add_heading(figure, 14, "Error on the tasks so far")


def _add_heading(figure: Figure, x: float, text: str) -> None:
    figure.text(x / WIDTH, 1 - 20 / HEIGHT, text, weight="bold", size=HEADING, va="center")
