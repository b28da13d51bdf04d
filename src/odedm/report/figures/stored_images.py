"""Draws the images in long-term memory: a row of them per class, or what each distance chose from each task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np

from odedm.core.text import printable
from odedm.report.figures.memory_contents import LONGEST_NAME, label_rows
from odedm.report.figures.style import Array, Figure, Panel
from odedm.report.groups import Group, by_distance
from odedm.report.saved_columns import read_kept
from odedm.results.folder import MEMORY_FILE, FinishedRun

PIXELS = 450_000
"""Room for the pictures of a whole page: about a megabyte at worst."""
STEP = 36.0
"""The size of a picture on the page, in pixels."""
COLUMNS = 10
"""Pictures of a task that are shown for each distance."""
TALLEST = 14
"""Classes of one panel, but for a task that has more by itself."""
UNSAVED = "The memory of these runs was not saved, so there are no pictures to show."


@dataclass(frozen=True)
class Strip:
    """The pictures of one class or one task, each [height, width, 3]."""

    task: int
    name: str
    pictures: list[Array]


def long_term_pictures(groups: Sequence[Group]) -> list[Panel]:
    """Draw the long-term rows of one seed per group that keeps any."""
    dual = [group for group in groups if not group.plain]
    panels = []
    for group in dual:
        grid = read_strips(group, PIXELS // len(dual))
        if isinstance(grid, str):
            panels.append(Panel(group.label, note=grid))
            continue
        run, strips = grid
        parts = _whole_tasks(strips)
        for part in parts:
            tasks = "" if len(parts) == 1 else f", tasks {part[0].task + 1} to {part[-1].task + 1}"
            title = f"{group.label}, seed {run.seed}{tasks}"
            rows = [(strip.task + 1, strip.name, len(strip.pictures)) for strip in part]
            panels.append(_strips_panel(title, f"Long-term pictures of {title}", part, ("class", "pictures"), rows))
    return panels


def pictures_by_distance(groups: Sequence[Group]) -> list[Panel]:
    """Draw what each distance chose, where a memory was run with two or more of them and nothing else differs.

    All panels of one memory are of the same seed where one is saved for each distance.
    """
    compared = by_distance(groups)
    panels = []
    for members in compared:
        first = next(iter(members.values()))
        family = f"{first.family}, " if len(compared) > 1 else ""
        for distance, group in members.items():
            run = _same_seed(group, [*members.values()])
            kept = "The memory of these runs was not saved." if run is None else read_kept(run)
            name = f"{family}{distance}" + ("" if run is None else f", seed {run.seed}")
            if isinstance(kept, str):
                panels.append(Panel(printable(name, 60), note=kept))
                continue
            pixels = math.prod(thumbnail(kept.image[0]).shape[:2])
            columns = PIXELS // (sum(map(len, compared)) * pixels * len(set(kept.task.tolist())))
            panels.append(task_pictures(name, kept.image, kept.task, columns=max(1, min(COLUMNS, columns))))
    return panels


def task_pictures(name: str, image: Array, task: Array, *, columns: int = COLUMNS) -> Panel:
    """Draw a row per task: images [m, channels, height, width] of 8 bits and the task [m] of each.

    Where a task has more pictures than columns, those are taken at even steps, so that all its classes have a chance.
    """
    strips, rows = [], []
    for number in sorted(set(task.tolist())):
        indices = np.flatnonzero(task == number)
        shown = indices[np.linspace(0, len(indices) - 1, min(columns, len(indices))).round().astype(int)]
        strips.append(Strip(number, f"task {number + 1}", [thumbnail(image[i]) for i in shown]))
        rows += [(number + 1, int(i), int(i in shown)) for i in indices]
    return _strips_panel(printable(name, 60), f"Pictures chosen by {name}", strips, ("row", "shown"), rows)


def _strips_panel(
    title: str, what: str, strips: Sequence[Strip], columns: tuple[str, str], rows: Sequence[Sequence[object]]
) -> Panel:
    held = ", ".join(f"{len(strip.pictures)} of {strip.name}" for strip in strips)
    longest = min(max(len(strip.name) for strip in strips), LONGEST_NAME)
    wide, tall = widest(strips) * STEP + 7.0 * longest + 40, len(strips) * STEP + 20
    return Panel(title, f"{what}: {held}", partial(draw_strips, strips=strips), ("task", *columns), rows, (wide, tall))


def widest(strips: Sequence[Strip]) -> int:
    """Return the pictures of the longest strip."""
    return max(len(strip.pictures) for strip in strips)


def draw_strips(figure: Figure, strips: Sequence[Strip]) -> None:
    """Draw one mosaic per task, below each other, with names at the left."""
    tasks = _by_task(strips)
    named = any(not strip.name.startswith("task ") for strip in strips)
    rows = figure.subplots(len(tasks), 1, squeeze=False, height_ratios=[len(members) for members in tasks])
    for axes, members in zip(rows[:, 0], tasks, strict=True):
        columns = widest(strips)
        axes.imshow(_mosaic(members, columns), interpolation="none", extent=(0, columns, len(members), 0))
        label_rows(axes, [row + 0.5 for row in range(len(members))], [strip.name for strip in members])
        axes.set(xticks=[], ylabel=f"task {members[0].task + 1}" if named else "")
        axes.spines[:].set_visible(False)


def _by_task(strips: Sequence[Strip]) -> list[list[Strip]]:
    return [list(members) for _, members in groupby(strips, key=lambda strip: strip.task)]


def _same_seed(group: Group, members: Sequence[Group]) -> FinishedRun | None:
    """The run of the first seed that every member has saved, else of this group's first that is saved."""
    saved = [[run for run in member.runs if (run.folder / MEMORY_FILE).is_file()] for member in (group, *members)]
    seeds = [{run.seed for run in runs} for runs in saved]
    return min(saved[0], key=lambda run: not all(run.seed in others for others in seeds), default=None)


def read_strips(
    group: Group, pixels: int, *, classes: int = 40, columns: int = 16
) -> tuple[FinishedRun, list[Strip]] | str:
    """Return the first run whose memory can be read and its pictures, or a sentence why there are none.

    Of a large memory these are the first classes of each task and the first pictures of each class.
    """
    reason = UNSAVED
    for run in group.runs:
        kept = read_kept(run) if (run.folder / MEMORY_FILE).is_file() else reason
        if isinstance(kept, str):
            reason = kept
            continue
        by_class: dict[tuple[int, int], Strip] = {}
        for image, label, task in zip(kept.image, kept.label.tolist(), kept.task.tolist(), strict=True):
            strip = by_class.setdefault((task, label), Strip(task, run.class_name(label), []))
            strip.pictures.append(thumbnail(image))
        tasks = _by_task([*by_class.values()])
        strips = [strip for members in tasks for strip in members[: max(1, classes // len(tasks))]][:classes]
        height, width, _ = strips[0].pictures[0].shape
        most = max(1, min(columns, pixels // (height * width * len(strips))))
        return run, [Strip(strip.task, strip.name, strip.pictures[:most]) for strip in strips]
    return reason


def thumbnail(image: Array, most: int = 64) -> Array:
    """Return a picture as [height, width, 3], every n-th pixel of a large one."""
    every = max(1, math.ceil(max(image.shape[1:]) / most))
    picture = image[:, ::every, ::every].transpose(1, 2, 0)
    return np.broadcast_to(picture, (*picture.shape[:2], 3))


def _whole_tasks(strips: Sequence[Strip]) -> list[list[Strip]]:
    """Whole tasks, together about `TALLEST` classes, so that no picture becomes a tower."""
    parts: list[list[Strip]] = [[]]
    for members in _by_task(strips):
        if parts[-1] and len(parts[-1]) + len(members) > TALLEST:
            parts.append([])
        parts[-1] += members
    return parts


def _mosaic(strips: Sequence[Strip], columns: int) -> Array:
    """All pictures as one, white between them."""
    height, width, _ = strips[0].pictures[0].shape
    margin = max(1, round(0.04 * height))
    mosaic = np.full((len(strips), height + margin, columns, width + margin, 3), 255, np.uint8)
    for row, strip in enumerate(strips):
        for column, picture in enumerate(strip.pictures):
            mosaic[row, :height, column, :width] = picture
    return mosaic.reshape(len(strips) * (height + margin), columns * (width + margin), 3)
