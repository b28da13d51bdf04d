"""The pictures that a memory chose, one row per task, a panel for each distance they were chosen by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from odedm.errors import UsageError
from odedm.report.figures.pictures import Grid, Strip, draw_grid, thumbnail
from odedm.report.figures.style import Array, Frame, Panel, csv_text, panel
from odedm.report.wording import clean

STEP, LEFT = 40.0, 54.0


def selection_grids(chosen: Mapping[str, tuple[Array, Array]], *, columns: int = 10) -> list[Panel]:
    """A panel for each distance: images [m, channels, height, width] of 8 bits and the task [m] of each.

    Where a task has more pictures than columns, those are taken at even steps, so that all its classes have a chance.
    """
    return [_panel(name, image, task, columns) for name, (image, task) in chosen.items()]


def _panel(name: str, image: Array, task: Array, columns: int) -> Panel:
    image, task = np.asarray(image), np.asarray(task)
    if image.ndim != 4 or image.shape[1] not in (1, 3) or image.dtype != np.uint8 or task.shape != (len(image),):
        raise UsageError(
            "Pictures must be 8-bit images [rows, 1 or 3 channels, height, width] with a task each; "
            f"{image.dtype} of shape {image.shape} with {task.shape} tasks was given."
        )
    if not len(image):
        return Panel(clean(name, 40), "", "No picture was chosen.")
    strips, rows = [], []
    for each in sorted(set(task.tolist())):
        own = np.flatnonzero(task == each)
        shown = own[np.linspace(0, len(own) - 1, min(columns, len(own))).round().astype(int)]
        strips.append(Strip(each, f"task {each + 1}", [thumbnail(image[i]) for i in shown]))
        rows += [(each + 1, int(i), int(i in shown)) for i in own]
    grid = Grid(strips, seed=0)
    frame = Frame(LEFT + STEP * grid.columns + 8, STEP * grid.rows + 12, left=LEFT, right=8, top=6, bottom=6)
    alt = f"Pictures chosen by {name}: " + ", ".join(f"{len(s.pictures)} of {s.name}" for s in strips)
    data = csv_text(["task", "row", "shown"], rows)
    paint = partial(draw_grid, grid=grid, step=STEP, brackets=False)
    return panel(clean(name, 40), frame, alt, paint, data)
