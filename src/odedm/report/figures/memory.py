"""Draws what memories hold: rows by class, their features among those of the data, and the long-term pictures.

The last two read what a run saved beside its result: `memory.safetensors`, and `evidence.safetensors` with features
by the final network of training rows, `feature.data` [n, d], and of the memory's rows, `feature.memory` [m, d].
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.figures.style import COLOURS, GREY, INK, TEXT, WIDTH, Axes, Chart, finish, new_figure
from odedm.report.groups import Group, by_distance
from odedm.report.wording import number
from odedm.results.folder import EVIDENCE_FILE, FEATURES, MEMORY_FILE, FinishedRun, read_columns

Array = NDArray[Any]

SHORT, LONG = "#b4bac4", "#0072b2"
"""Colours of the two parts of a memory."""
CROWDED = 40
"""Classes beyond which there is no room for their names."""
LONGEST_NAME = 18
PLANES, DOTS = 12, 4000
"""Clouds that a page draws, and rows of data in each: a page of more would be heavy and no clearer."""
PIXELS = 450_000
"""Room for the pictures of a whole page: about a megabyte at worst."""
STEP, LINES, COLUMNS = 36.0, 24, 12
"""The size of a picture on the page in pixels, and how many lines and columns of them a figure has."""

log = logging.getLogger(__name__)


def memory_by_class(groups: Sequence[Group]) -> list[Chart]:
    """Draw rows per class in the final memory, short-term and long-term stacked, mean over seeds.

    Groups whose memories hold the same rows, as methods do that share a memory's draws, have one figure.
    """
    same: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        short, long = final_class_counts(group)
        if len(short):
            same.setdefault((*ordered_names(group), short.tobytes(), long.tobytes()), []).append(group)
    return [_class_chart(members) for members in same.values()]


def _class_chart(members: Sequence[Group]) -> Chart:
    names, (short, long) = ordered_names(members[0]), final_class_counts(members[0])
    labels = [group.label for group in members]
    title = " and ".join(labels if len(labels) < 3 else [labels[0], f"{len(labels) - 1} more"])
    places = np.arange(len(names))
    figure = new_figure(height=76 + max(min(21.0, 520.0 / len(names)), 2.0) * len(names))
    axes = figure.subplots()
    height = 0.72 if len(names) <= CROWDED else 1.0
    if long.any():  # the key has what is in the memory
        axes.barh(places, long, height=height, color=LONG, label="long-term")
    if short.any() or not long.any():
        axes.barh(places, short, left=long, height=height, color=SHORT, label="short-term")
    axes.set(ylim=(len(names) - 0.5, -0.5))
    if len(names) > CROWDED:
        axes.set(yticks=[], ylabel=f"{len(names)} classes")
    else:
        name_lines(axes, places.tolist(), names)
    finish(axes, grid="x", keys=2, xlabel="rows in the final memory")
    held = f"{number(short.sum())} short-term and {number(long.sum())} long-term rows"
    rows = list(zip(names, short, long, strict=True))
    alt = f"Final memory of {title}: {held} over {len(names)} classes."
    return Chart(title, alt, figure, ("class", "short_term_rows", "long_term_rows"), rows)


def name_lines(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Write a name at the left of each line."""
    axes.set_yticks(places, [printable(name, LONGEST_NAME) for name in names], size=min(TEXT, 320.0 / len(names)))
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def final_class_counts(group: Group) -> tuple[Array, Array]:
    """Return rows per class in each part after the last task, mean over seeds; empty where it was not recorded.

    Where the seeds order the classes differently, counts are matched by name.
    """
    names = ordered_names(group)
    if not names or not all(run.result.class_counts for run in group.runs):
        return np.zeros(0), np.zeros(0)
    short, long = (
        np.mean(
            [
                [(run.result.class_counts[-1].get(part) or [0] * len(names))[run.classes.index(name)] for name in names]
                for run in group.runs
            ],
            axis=0,
        )
        for part in ("short", "long")
    )
    return short, long


def ordered_names(group: Group) -> list[str]:
    """Return class names in the order of the stream where every seed has the same one, else sorted."""
    return group.classes if group.one_order else sorted(group.classes)


class Projected(NamedTuple):
    """Data [n, 2] and memory [m, 2] in one plane."""

    data: Array
    memory: Array

    def cosine(self, line: Callable[[Array], Array]) -> float:
        """Return the cosine between the lines through both, `direction` or `least_squares`."""
        return float(abs(line(self.data) @ line(self.memory)))


def memory_projection(groups: Sequence[Group]) -> list[Chart]:
    """Draw PCA of memory against data for the first seed of each group that saved its features.

    Each run has a network, and so a plane, of its own: directions are compared within a figure, not between figures.
    """
    charts: list[Chart] = []
    for group in groups:
        for run in group.runs:
            try:
                columns = read_columns(run.folder / EVIDENCE_FILE, FEATURES)
                if len(columns) == len(FEATURES):
                    charts.append(memory_pca(f"{group.label}, seed {run.seed}", *columns.values()))
                    break
            except UsageError as error:
                if (run.folder / EVIDENCE_FILE).exists():  # a page shows what can be read
                    log.warning("Cannot read '%s': %s", run.folder / EVIDENCE_FILE, printable(error, 300))
    return charts[:PLANES]


def memory_pca(name: str, data: Array, memory: Array) -> Chart:
    """Draw the features of a memory's rows among those of the data, and the cosine between their directions.

    `data` [n, d] are features of the rows that could have been kept, the same number per class; `memory` [m, d] are
    features of the rows that were, all from one network. The plane is the data's first two principal components. The
    lines go through each cloud's middle along its first principal direction there, and, dotted, along the line of
    least squares; a cosine of 1 means that the memory lies along the data.
    """
    clouds = project(data, memory)
    figure = new_figure(WIDTH, 346)
    axes = figure.subplots()
    dots = clouds.data[:: max(1, len(clouds.data) // DOTS)]
    axes.plot(*dots.T, ".", ms=4.0, color=GREY, alpha=0.55, mew=0, rasterized=True, label="data")
    _draw_lines(axes, clouds.data, INK)
    marks: dict[str, Any] = {"mfc": "none", "mec": COLOURS[1], "mew": 1.3, "ms": 5.5}
    axes.plot(*clouds.memory.T, "^", **marks, label="memory", rasterized=len(clouds.memory) > DOTS)
    _draw_lines(axes, clouds.memory, COLOURS[1])
    axes.set_aspect("equal", adjustable="datalim")  # else no angle is what it seems
    finish(axes, grid="x", keys=2, xlabel="first component", ylabel="second component")
    cosines = [number(clouds.cosine(line), 3) for line in (direction, least_squares)]
    rows: list[tuple[object, ...]] = []
    for kind, cloud in clouds._asdict().items():
        rows += [(kind, *point) for point in cloud.tolist()]
        rows += [(f"{kind}_line", *direction(cloud)), (f"{kind}_least_squares", *least_squares(cloud))]
    title = f"{printable(name, 100)}: cosine {cosines[0]}, of least squares {cosines[1]}"
    alt = f"Main directions of {len(clouds.memory)} memory rows and of {len(clouds.data)} data rows. {title}"
    return Chart(title, alt, figure, ("what", "first_component", "second_component"), rows)


def project(data: Array, memory: Array) -> Projected:
    """Return both clouds in the data's principal plane."""
    for name, points in (("data", data), ("memory", memory)):
        if points.ndim != 2 or min(points.shape) < 2 or not np.isfinite(points).all():
            raise UsageError(
                f"The features of the {name} must be a finite matrix of 2 or more rows and 2 or more columns; "
                f"the shape {points.shape} was given."
            )
    if data.shape[1] != memory.shape[1]:
        raise UsageError(
            f"The features of data and memory must have the same length; {data.shape[1]} and {memory.shape[1]} were "
            "given. Take both from one network."
        )
    middle = data.mean(axis=0)
    _, _, axes = np.linalg.svd(data - middle, full_matrices=False)
    return Projected((data - middle) @ axes[:2].T, (memory - middle) @ axes[:2].T)


def direction(points: Array) -> Array:
    """Return the unit vector along which points [n, 2] spread most: the line that is nearest to them all.

    >>> np.abs(direction(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))).round(3).tolist()
    [0.707, 0.707]
    """
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    main: Array = axes[0] * (1.0 if axes[0][0] >= 0 else -1.0)
    return main


def least_squares(points: Array) -> Array:
    """Return the unit vector along the line that predicts the second component of points [n, 2] from the first.

    Of the data in their principal plane it is the first axis, as the components are uncorrelated.

    >>> least_squares(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])).round(3).tolist()
    [0.707, 0.707]
    """
    x, y = (points - points.mean(axis=0)).T
    line: Array = np.array([x @ x, x @ y]) if x.any() else np.array([0.0, 1.0])
    unit: Array = line / np.linalg.norm(line)
    return unit


def _draw_lines(axes: Axes, points: Array, colour: str) -> None:
    for line, dashes, name in (
        (direction, "-", "its main direction"),
        (least_squares, (0, (1, 1.5)), "its least squares"),
    ):
        middle, unit = points.mean(axis=0), line(points)
        reach = float(np.abs((points - middle) @ unit).max())
        ends = middle + np.outer([-reach, reach], unit)
        axes.plot(*ends.T, color=colour, linestyle=dashes, marker="", lw=2.4, label=name, zorder=4)


class KeptPictures(NamedTuple):
    """The long-term rows of a run, ordered by task, class and prototype: images of 8 bits, labels and tasks."""

    run: FinishedRun
    image: Array
    label: Array
    task: Array

    def by_class(self) -> dict[str, Array]:
        """Return the pictures of each class by its name, with the number of its task before it."""
        places = dict.fromkeys(zip(self.task.tolist(), self.label.tolist(), strict=True))
        return {
            f"{task + 1}: {self.run.class_name(label)}": self.image[(self.task == task) & (self.label == label)]
            for task, label in places
        }


def read_kept(group: Group) -> KeptPictures | None:
    """Return the pictures in long-term memory of the group's first seed that saved any; None where none has."""
    names = ("image", "label", "task", "prototype")
    for run in group.runs:
        if not (run.folder / MEMORY_FILE).is_file():
            continue
        try:
            columns = read_columns(run.folder / MEMORY_FILE, names)
        except UsageError as error:
            log.warning("The saved memory cannot be read: %s", printable(error, 200))
            continue
        image, label, task, prototype = (columns.get(name, np.zeros(0)) for name in names)
        pictures = image.dtype == np.uint8 and image.ndim == 4 and image.shape[1] in (1, 3) and image.size
        if pictures and label.shape == task.shape == prototype.shape == image.shape[:1]:
            rows = np.lexsort((prototype, label, task))
            rows = rows[prototype[rows] >= 0]
            if len(rows):
                return KeptPictures(run, image[rows], label[rows], task[rows])
    return None


def long_term_pictures(groups: Sequence[Group]) -> list[Chart]:
    """Draw the long-term rows of one seed per group that keeps any, a line per class."""
    kept = {group.label: pictures for group in groups if not group.plain and (pictures := read_kept(group))}
    return [
        picture_chart(f"{name}, seed {pictures.run.seed}", pictures.by_class(), PIXELS // len(kept))
        for name, pictures in kept.items()
    ]


def pictures_by_distance(groups: Sequence[Group]) -> list[Chart]:
    """Draw what each distance chose, a line per task, where runs differ in the distance alone."""
    compared = by_distance(groups)
    charts = []
    for members in compared:
        family = f"{next(iter(members.values())).family}, " if len(compared) > 1 else ""
        for distance, group in members.items():
            if pictures := read_kept(group):
                run, image, _, task = pictures
                lines = {f"task {t + 1}": image[task == t] for t in dict.fromkeys(task.tolist())}
                title = f"{family}{distance}, seed {run.seed}"
                charts.append(picture_chart(title, lines, PIXELS // sum(map(len, compared))))
    return charts


def picture_chart(title: str, lines: dict[str, Array], pixels: int) -> Chart:
    """Draw lines of pictures [m, channels, height, width] of 8 bits, as many as so many pixels hold.

    Of more lines, or more pictures in a line, those at even steps are drawn.
    """
    lines = {name: lines[name] for name in (list(lines)[i] for i in _even_steps(len(lines), LINES))}
    longest, most = max(map(len, lines)), max(map(len, lines.values()))
    sides = next(iter(lines.values())).shape[2:]
    columns = max(1, min(COLUMNS, most, pixels // (math.prod(min(side, 64) for side in sides) * len(lines))))
    figure = new_figure(columns * STEP + 7.0 * min(longest, LONGEST_NAME) + 40, len(lines) * STEP + 20)
    draw_pictures(figure.subplots(), lines, columns)
    rows = [
        (name, i, int(i in _even_steps(len(pictures), columns)))
        for name, pictures in lines.items()
        for i in range(len(pictures))
    ]
    held = ", ".join(f"{len(pictures)} of {name}" for name, pictures in lines.items())
    return Chart(printable(title, 100), f"Pictures of {title}: {held}", figure, ("line", "picture", "shown"), rows)


def draw_pictures(axes: Axes, lines: dict[str, Array], columns: int) -> None:
    """Draw so many pictures of each line, white between them, every n-th pixel of a large one."""
    every = max(1, math.ceil(max(next(iter(lines.values())).shape[2:]) / 64))
    shown = [pictures[:, :, ::every, ::every].transpose(0, 2, 3, 1) for pictures in lines.values()]
    height, width = shown[0].shape[1:3]
    margin = max(1, round(0.04 * height))
    mosaic = np.full((len(lines), height + margin, columns, width + margin, 3), 255, np.uint8)
    for line, pictures in enumerate(shown):
        for column, i in enumerate(_even_steps(len(pictures), columns)):
            mosaic[line, :height, column, :width] = pictures[i]
    extent = (0, columns, len(lines), 0)
    axes.imshow(mosaic.reshape(len(lines) * (height + margin), -1, 3), interpolation="none", extent=extent)
    name_lines(axes, [line + 0.5 for line in range(len(lines))], list(lines))
    axes.set(xticks=[])
    axes.spines[:].set_visible(False)


def _even_steps(n: int, most: int) -> list[int]:
    """Return up to `most` of the places 0 to n − 1 at even steps.

    >>> _even_steps(3, 5), _even_steps(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    steps: list[int] = np.linspace(0, n - 1, min(n, most)).round().astype(int).tolist()
    return steps
