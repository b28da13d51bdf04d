"""The pictures that a memory chose, one row per task, a panel for each distance they were chosen by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from odedm.core.errors import UsageError
from odedm.report.figures.distances import by_distance, distance_of
from odedm.report.figures.pictures import PIXELS, Grid, Strip, draw_grid, read_kept, thumbnail
from odedm.report.figures.style import Array, Frame, Panel, csv_text, panel
from odedm.report.groups import Group
from odedm.report.load import Run
from odedm.report.wording import clean
from odedm.results.result import MEMORY_FILE

STEP, LEFT = 40.0, 54.0
COLUMNS = 10


def pictures_by_distance(groups: Sequence[Group]) -> list[Panel]:
    """What each distance chose, where a memory was run with two or more of them and nothing else differs.

    All panels of one memory are of the same seed where one is saved for each distance.
    """
    compared = by_distance(groups)
    panels = []
    for members in compared:
        family = f"{members[0].names.family}, " if len(compared) > 1 else ""
        for group in members:
            run = _same_seed(group, members)
            found = "The memory of these runs was not saved." if run is None else read_kept(run)
            name = f"{family}{distance_of(group)}" + ("" if run is None else f", seed {run.seed}")
            if isinstance(found, str):
                panels.append(Panel(clean(name, 60), "", found))
                continue
            room = PIXELS // (sum(map(len, compared)) * _pixels(found.image) * len(set(found.task.tolist())))
            panels += selection_grids({name: (found.image, found.task)}, columns=max(1, min(COLUMNS, room)))
    return panels


def _same_seed(group: Group, members: Sequence[Group]) -> Run | None:
    """The run of the first seed that every member has saved, else of this group's first that is saved."""
    saved = [{run.seed for run in each.runs if (run.folder / MEMORY_FILE).is_file()} for each in members]
    own = [run for run in group.runs if (run.folder / MEMORY_FILE).is_file()]
    common = [run for run in own if all(run.seed in seeds for seeds in saved)]
    return next(iter([*common, *own]), None)


def _pixels(image: Array) -> int:
    return int(np.prod(thumbnail(image[0]).shape[:2]))


def selection_grids(chosen: Mapping[str, tuple[Array, Array]], *, columns: int = COLUMNS) -> list[Panel]:
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
        return Panel(clean(name, 60), "", "No picture was chosen.")
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
    return panel(clean(name, 60), frame, alt, paint, data)
