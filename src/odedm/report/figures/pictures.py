"""The rows in long-term memory as pictures, a row of thumbnails per class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
from safetensors import SafetensorError, safe_open

from odedm.report.figures.class_axis import Span, draw_class_axis, left_margin
from odedm.report.figures.style import TEXT, Array, Axes, Frame, Panel, csv_text, panel
from odedm.report.groups import BASELINES, Group
from odedm.report.load import Run
from odedm.report.wording import clean
from odedm.results.result import MEMORY_FILE

PIXELS = 450_000
"""Room for the pictures of a whole page: about a megabyte at worst."""
GAP = 0.22
"""Space between tasks, in rows."""


@dataclass(frozen=True)
class Strip:
    """The pictures of one class, each [height, width, 3]."""

    task: int
    name: str
    pictures: list[Array]


@dataclass(frozen=True)
class Grid:
    """Strips ordered by task, all from one seed."""

    strips: list[Strip]
    seed: int

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


def long_term_pictures(groups: Sequence[Group]) -> list[Panel]:
    """The long-term rows of one seed per group that keeps any."""
    keepers = [group for group in groups if group.memory not in BASELINES]
    panels = []
    for group in keepers:
        found = read_grid(group, PIXELS // len(keepers))
        if isinstance(found, str):
            panels.append(Panel(group.label, "", found))
        else:
            parts = _parts(found)
            panels += [_panel(group, part, whole=len(parts) == 1) for part in parts]
    return panels


def _panel(group: Group, grid: Grid, *, whole: bool) -> Panel:
    step = 40.0 if grid.columns <= 8 else 28.0
    left = left_margin(grid.names, step)
    frame = Frame(left + grid.columns * step + 8, grid.rows * step + 12, left=left, right=8, top=6, bottom=6)
    which = f"seed {grid.seed}"
    if not whole:
        which += f", tasks {grid.strips[0].task + 1} to {grid.strips[-1].task + 1}"
    held = ", ".join(f"{len(strip.pictures)} of {strip.name}" for strip in grid.strips)
    alt = f"Long-term pictures of {group.label}, {which}: {held}"
    data = csv_text(["task", "class", "pictures"], ((s.task + 1, s.name, len(s.pictures)) for s in grid.strips))
    return panel(f"{group.label}, {which}", frame, alt, partial(draw_grid, grid=grid, step=step), data)


def read_grid(group: Group, pixels: int, *, classes: int = 40, columns: int = 16) -> Grid | str:
    """The pictures of the first seed whose memory can be read, or a sentence why there are none."""
    reason = "The memory of these runs was not saved, so there are no pictures to show."
    for run in group.runs:
        if not (run.folder / MEMORY_FILE).is_file():
            continue
        found = _read(run)
        if isinstance(found, Grid):
            return _fewer(found, pixels, classes, columns)
        reason = found
    return reason


@dataclass(frozen=True)
class Kept:
    """The long-term rows of a run, ordered by task, class and prototype: images of 8 bits, labels and tasks."""

    image: Array
    label: Array
    task: Array


def read_kept(run: Run) -> Kept | str:
    """The pictures in a run's long-term memory, or a sentence why there are none."""
    try:
        with safe_open(run.folder / MEMORY_FILE, framework="np") as file:
            present = set(file.keys())
            missing = {"label", "task", "prototype"} - present
            if missing:
                return f"The saved memory has no column {', '.join(sorted(missing))}."
            if "image" not in present or len(file.get_slice("image").get_shape()) != 4:
                return "The rows of this memory are vectors, not images, so there are no pictures to show."
            image, label, task, prototype = (file.get_tensor(name) for name in ("image", "label", "task", "prototype"))
    except (SafetensorError, OSError) as error:
        return clean(f"The saved memory cannot be read: {error}.", 200)
    sound = image.shape[1] in (1, 3) and image.dtype == np.uint8 and min(image.shape[2:]) > 0
    if not sound or any(column.shape != (len(image),) for column in (label, task, prototype)):
        return "The saved memory does not hold 8-bit grey or colour images with a label, a task and a prototype each."
    rows = sorted(np.flatnonzero(prototype >= 0).tolist(), key=lambda i: (task[i], label[i], prototype[i], i))
    return Kept(image[rows], label[rows], task[rows]) if rows else "This memory holds no long-term row."


def _read(run: Run) -> Grid | str:
    found = read_kept(run)
    if isinstance(found, str):
        return found
    strips: dict[tuple[int, int], Strip] = {}
    for image, label, task in zip(found.image, found.label.tolist(), found.task.tolist(), strict=True):
        strip = strips.setdefault((task, label), Strip(task, _class_name(run, label), []))
        strip.pictures.append(thumbnail(image))
    return Grid(list(strips.values()), run.seed)


def _class_name(run: Run, label: int) -> str:
    return run.classes[label] if 0 <= label < len(run.classes) else str(label)


def thumbnail(image: Array, most: int = 64) -> Array:
    """A picture as [height, width, 3], every n-th pixel of a large one."""
    every = max(1, math.ceil(max(image.shape[1:]) / most))
    picture = image[:, ::every, ::every].transpose(1, 2, 0)
    return np.broadcast_to(picture, (*picture.shape[:2], 3))


def _fewer(grid: Grid, pixels: int, classes: int, columns: int) -> Grid:
    """The first classes of each task and the first pictures of each class, as many as there is room for."""
    each = max(1, classes // len(grid.tasks))
    kept = [strip for strips in grid.tasks for strip in strips[:each]][:classes]
    height, width, _ = kept[0].pictures[0].shape
    most = max(1, min(columns, pixels // (height * width * len(kept))))
    return Grid([Strip(strip.task, strip.name, strip.pictures[:most]) for strip in kept], grid.seed)


def _parts(grid: Grid, most: int = 14) -> list[Grid]:
    """Whole tasks, together about `most` classes, so that no grid becomes a tower."""
    parts: list[list[Strip]] = [[]]
    for strips in grid.tasks:
        if parts[-1] and len(parts[-1]) + len(strips) > most:
            parts.append([])
        parts[-1] += strips
    return [Grid(part, grid.seed) for part in parts]


def draw_grid(
    axes: Axes,
    *,
    grid: Grid,
    step: float,
    interpolation: str = "none",
    size: float = TEXT,
    brackets: bool = True,
) -> None:
    """One mosaic per task, a gap between tasks, names at the left."""
    places: list[float] = []
    spans: list[Span] = []
    y = 0.0
    for strips in grid.tasks:
        end = y + len(strips)
        mosaic = _mosaic(strips, grid.columns)
        axes.imshow(mosaic, interpolation=interpolation, extent=(0.0, grid.columns, end, y), aspect="auto")
        places += [y + row + 0.5 for row in range(len(strips))]
        spans.append((strips[0].task, y, end))
        y = end + GAP
    draw_class_axis(axes, grid.names, places, spans if brackets else [], step, size)
    axes.set_xlim(0.0, grid.columns)
    axes.set_ylim(grid.rows, 0.0)
    axes.set_xticks([])
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
