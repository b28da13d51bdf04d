"""Draws the images in long-term memory: a row of them per class, or what each distance chose from each task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np

from odedm.core.text import printable
from odedm.report.figures.memory_contents import Span, draw_class_axis, left_margin
from odedm.report.figures.style import TEXT, Array, Axes, Frame, Panel, panel
from odedm.report.groups import Group, by_distance
from odedm.report.saved_columns import read_kept
from odedm.results.folder import MEMORY_FILE, FinishedRun

PIXELS = 450_000
"""Room for the pictures of a whole page: about a megabyte at worst."""
GAP = 0.22
"""Space between tasks, in rows."""
STEP = 40.0
"""The size of a picture on the page, in pixels."""
COLUMNS = 10
"""Pictures of a task that are shown for each distance."""


@dataclass(frozen=True)
class Strip:
    """The pictures of one class or one task, each [height, width, 3]."""

    task: int
    name: str
    pictures: list[Array]


@dataclass(frozen=True)
class PictureGrid:
    """Strips ordered by task."""

    strips: list[Strip]

    @property
    def tasks(self) -> list[list[Strip]]:
        """The strips of each task."""
        return [list(strips) for _, strips in groupby(self.strips, key=lambda strip: strip.task)]

    @property
    def names(self) -> list[str]:
        """The class of each strip."""
        return [strip.name for strip in self.strips]

    @property
    def rows(self) -> float:
        """The height, with the gaps between tasks."""
        return len(self.strips) + GAP * (len(self.tasks) - 1)

    @property
    def columns(self) -> int:
        """The width."""
        return max(len(strip.pictures) for strip in self.strips)

    @property
    def held(self) -> str:
        """How many pictures there are of what."""
        return ", ".join(f"{len(strip.pictures)} of {strip.name}" for strip in self.strips)

    def frame(self, left: float, step: float) -> Frame:
        """The frame that it fills, `step` pixels to the picture."""
        return Frame(left + self.columns * step + 8, self.rows * step + 12, left=left, right=8, top=6, bottom=6)


def long_term_pictures(groups: Sequence[Group]) -> list[Panel]:
    """The long-term rows of one seed per group that keeps any."""
    keepers = [group for group in groups if not group.plain]
    panels = []
    for group in keepers:
        found = read_grid(group, PIXELS // len(keepers))
        if isinstance(found, str):
            panels.append(Panel(group.label, "", found))
            continue
        run, grid = found
        parts = _parts(grid)
        for part in parts:
            tasks = "" if len(parts) == 1 else f", tasks {part.strips[0].task + 1} to {part.strips[-1].task + 1}"
            panels.append(_class_panel(f"{group.label}, seed {run.seed}{tasks}", part))
    return panels


def pictures_by_distance(groups: Sequence[Group]) -> list[Panel]:
    """What each distance chose, where a memory was run with two or more of them and nothing else differs.

    All panels of one memory are of the same seed where one is saved for each distance.
    """
    compared = by_distance(groups)
    panels = []
    for members in compared:
        first = next(iter(members.values()))
        family = f"{first.family}, " if len(compared) > 1 else ""
        for distance, group in members.items():
            run = _same_seed(group, [*members.values()])
            found = "The memory of these runs was not saved." if run is None else read_kept(run)
            name = f"{family}{distance}" + ("" if run is None else f", seed {run.seed}")
            if isinstance(found, str):
                panels.append(Panel(printable(name, 60), "", found))
                continue
            each = math.prod(thumbnail(found.image[0]).shape[:2])
            room = PIXELS // (sum(map(len, compared)) * each * len(set(found.task.tolist())))
            panels.append(task_pictures(name, found.image, found.task, columns=max(1, min(COLUMNS, room))))
    return panels


def _class_panel(title: str, grid: PictureGrid) -> Panel:
    step = STEP if grid.columns <= 8 else 28.0
    rows = [(strip.task + 1, strip.name, len(strip.pictures)) for strip in grid.strips]
    frame = grid.frame(left_margin(grid.names, step), step)
    alt = f"Long-term pictures of {title}: {grid.held}"
    return panel(title, frame, alt, partial(draw_grid, grid=grid, step=step), ["task", "class", "pictures"], rows)


def task_pictures(name: str, image: Array, task: Array, *, columns: int = COLUMNS) -> Panel:
    """A row per task: images [m, channels, height, width] of 8 bits and the task [m] of each.

    Where a task has more pictures than columns, those are taken at even steps, so that all its classes have a chance.
    """
    strips, rows = [], []
    for each in sorted(set(task.tolist())):
        own = np.flatnonzero(task == each)
        shown = own[np.linspace(0, len(own) - 1, min(columns, len(own))).round().astype(int)]
        strips.append(Strip(each, f"task {each + 1}", [thumbnail(image[i]) for i in shown]))
        rows += [(each + 1, int(i), int(i in shown)) for i in own]
    grid = PictureGrid(strips)
    alt = f"Pictures chosen by {name}: {grid.held}"
    paint = partial(draw_grid, grid=grid, step=STEP, brackets=False)
    return panel(printable(name, 60), grid.frame(54.0, STEP), alt, paint, ["task", "row", "shown"], rows)


def _same_seed(group: Group, members: Sequence[Group]) -> FinishedRun | None:
    """The run of the first seed that every member has saved, else of this group's first that is saved."""
    saved = [[run for run in each.runs if (run.folder / MEMORY_FILE).is_file()] for each in (group, *members)]
    seeds = [{run.seed for run in runs} for runs in saved]
    return min(saved[0], key=lambda run: not all(run.seed in own for own in seeds), default=None)


def read_grid(
    group: Group, pixels: int, *, classes: int = 40, columns: int = 16
) -> tuple[FinishedRun, PictureGrid] | str:
    """The first run whose memory can be read and its pictures, or a sentence why there are none."""
    reason = "The memory of these runs was not saved, so there are no pictures to show."
    for run in group.runs:
        found = read_kept(run) if (run.folder / MEMORY_FILE).is_file() else reason
        if isinstance(found, str):
            reason = found
            continue
        strips: dict[tuple[int, int], Strip] = {}
        for image, label, task in zip(found.image, found.label.tolist(), found.task.tolist(), strict=True):
            strip = strips.setdefault((task, label), Strip(task, run.class_name(label), []))
            strip.pictures.append(thumbnail(image))
        return run, _fewer(PictureGrid(list(strips.values())), pixels, classes, columns)
    return reason


def thumbnail(image: Array, most: int = 64) -> Array:
    """A picture as [height, width, 3], every n-th pixel of a large one."""
    every = max(1, math.ceil(max(image.shape[1:]) / most))
    picture = image[:, ::every, ::every].transpose(1, 2, 0)
    return np.broadcast_to(picture, (*picture.shape[:2], 3))


def _fewer(grid: PictureGrid, pixels: int, classes: int, columns: int) -> PictureGrid:
    """The first classes of each task and the first pictures of each class, as many as there is room for."""
    each = max(1, classes // len(grid.tasks))
    kept = [strip for strips in grid.tasks for strip in strips[:each]][:classes]
    height, width, _ = kept[0].pictures[0].shape
    most = max(1, min(columns, pixels // (height * width * len(kept))))
    return PictureGrid([Strip(strip.task, strip.name, strip.pictures[:most]) for strip in kept])


def _parts(grid: PictureGrid, most: int = 14) -> list[PictureGrid]:
    """Whole tasks, together about `most` classes, so that no grid becomes a tower."""
    parts: list[list[Strip]] = [[]]
    for strips in grid.tasks:
        if parts[-1] and len(parts[-1]) + len(strips) > most:
            parts.append([])
        parts[-1] += strips
    return [PictureGrid(part) for part in parts]


def draw_grid(axes: Axes, *, grid: PictureGrid, step: float, size: float = TEXT, brackets: bool = True) -> None:
    """One mosaic per task, a gap between tasks, names at the left."""
    places: list[float] = []
    spans: list[Span] = []
    y = 0.0
    for strips in grid.tasks:
        end = y + len(strips)
        mosaic = _mosaic(strips, grid.columns)
        axes.imshow(mosaic, interpolation="none", extent=(0.0, grid.columns, end, y), aspect="auto")
        places += [y + row + 0.5 for row in range(len(strips))]
        spans.append((strips[0].task, y, end))
        y = end + GAP
    draw_class_axis(axes, grid.names, places, spans if brackets else [], step, size)
    axes.set(xlim=(0.0, grid.columns), ylim=(grid.rows, 0.0), xticks=[])
    axes.spines[:].set_visible(False)


def _mosaic(strips: Sequence[Strip], columns: int) -> Array:
    """All pictures as one, see-through between them."""
    height, width, _ = strips[0].pictures[0].shape
    margin = max(1, round(0.04 * height))
    mosaic = np.zeros((len(strips), height + margin, columns, width + margin, 4), np.uint8)
    for row, strip in enumerate(strips):
        for column, picture in enumerate(strip.pictures):
            mosaic[row, :height, column, :width, :3] = picture
            mosaic[row, :height, column, :width, 3] = 255
    return mosaic.reshape(len(strips) * (height + margin), columns * (width + margin), 4)
