"""Pictures of runs: inline SVG for the page and a PNG for a README, the only file here that needs matplotlib."""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from odedm.errors import UsageError
from odedm.files import write_bytes
from odedm.report.statistics import Estimate, estimate
from odedm.report.tables import BASELINE, Group, Run, Table, class_names, clean, load, number, summarise
from odedm.run.results import MEMORY_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]

# Okabe and Ito's colours without the yellow, which white paper swallows. The page redefines each for dark screens.
INK, MUTED, RULE, CARD, BAND = "#1d2127", "#5d6571", "#dcdad4", "#fffffe", "#f4f2ed"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PLAIN = "#6b7280"
SHORT, LONG = "#b4bac4", "#0072b3"
PHASES = ("#0072b4", "#9aa1ac", "#e69f01", "#009e74", "#cc79a8", "#56b4ea", "#d55e01", "#5d6572")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    CARD: "--card",
    BAND: "--band",
    PLAIN: "--plain",
    SHORT: "--short",
    LONG: "--long",
    **{colour: f"--s{place}" for place, colour in enumerate(SERIES)},
    **{colour: f"--p{place}" for place, colour in enumerate(PHASES)},
}
LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
MARKERS = ("o", "^", "D", "v", "P", "X")
COLOURS = "cividis"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "text.color": INK,
    "text.parse_math": False,  # a name from a file may hold a dollar sign
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 11.0,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "odedm",
    "svg.image_inline": True,
}
PICTURE_PIXELS = 450_000
"""Room for the long-term pictures of a whole page: about a megabyte at worst."""


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: its title, the SVG, or in its place a note that says why there is none."""

    title: str
    svg: str
    note: str = ""


@dataclass(frozen=True)
class Frame:
    """Size and margins of a panel in CSS pixels, and how far the page may enlarge it."""

    width: float
    height: float
    left: float = 52.0
    right: float = 14.0
    top: float = 12.0
    bottom: float = 44.0
    scale: float = 1.2


@dataclass(frozen=True)
class Pictures:
    """Long-term rows as pictures: per class its name, its task and its thumbnails, ordered by task."""

    names: list[str]
    tasks: list[int]
    thumbnails: list[list[Array]]
    seed: int


def forgetting_curves(groups: Sequence[Group]) -> list[Panel]:
    """FR_i over tasks, mean and standard error: a panel for each method with the memories it was run with."""
    families = _families(groups)
    top = _ceiling(groups)
    panels = []
    for title, members in families:
        alone = title == ""
        names = [clean(group.label if alone else group.member, 44) for group in members]
        columns = 2 if max(map(len, names)) <= 20 else 1
        keys = 16 * math.ceil(len(members) / columns)
        frame = Frame(460 if alone else 400, (280 if alone else 246) + keys, top=8 + keys, scale=1.3 if alone else 1.2)

        paint = partial(_curves, groups=members, names=names, top=top, columns=columns)
        ends = ", ".join(
            f"{name} {number(estimate(run.result.forgetting_rate[-1] for run in group.runs).mean)} %"
            for name, group in zip(names, members, strict=True)
        )
        alt = f"Forgetting rate over tasks{': ' + title if title else ''}. After the last task: {ends}."
        panels.append(Panel(title, _svg(frame, alt, paint)))
    return panels


def difference_plot(table: Table) -> Panel | None:
    """Paired differences in ACC_T: every seed, the mean and two standard errors to each side."""
    rows = table.compared
    if not rows:
        return None
    step = 50
    frame = Frame(460, 52 + step * len(rows), left=8, top=6, bottom=46, scale=1.3)
    alt = "Paired differences in the final accuracy. " + "; ".join(
        f"{row.group.label} {number(row.differences['acc_last'].estimate.mean, sign=True)} points" for row in rows
    )

    def paint(axes: Axes) -> None:
        ends = [0.0]
        for place, row in enumerate(rows):
            pair = row.differences["acc_last"]
            mean, spread = pair.estimate.mean, 2.0 * (pair.estimate.error or 0.0)
            seeds = list(pair.by_seed.values())
            axes.plot([mean - spread, mean + spread], [place, place], color=SERIES[0], linewidth=2.4, zorder=3)
            axes.plot([mean], [place], "D", color=SERIES[0], ms=8, zorder=4)
            axes.plot(seeds, [place + 0.22] * len(seeds), "o", mfc="none", mec=MUTED, mew=1.0, ms=5.5, zorder=4)
            _over(axes, place - 0.4, row.group.label)
            ends += [*seeds, mean - spread, mean + spread]
        low, high = min(ends), max(ends)
        room = 0.06 * max(high - low, 1.0)
        axes.axvline(0.0, color=INK, linewidth=1.0, zorder=1.5)
        axes.set_xlim(low - room, high + room)
        axes.set_ylim(len(rows) - 0.5, -0.7)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
        axes.set_xlabel("points of final accuracy, with the memory minus without", color=MUTED)

    return Panel("", _svg(frame, alt, paint))


def accuracy_matrices(groups: Sequence[Group]) -> list[Panel]:
    """a_{i,j} as heat maps on one scale from 0 to 100 %, mean over seeds, a panel per group."""
    panels = []
    for group in groups:
        tasks = group.tasks
        cell = max(min(46.0, 330.0 / tasks), 3.0)
        frame = Frame(
            70 + max(cell * tasks, 90) + 10, 52 + cell * tasks, left=66, right=10, top=6, bottom=44, scale=1.1
        )
        mean = _mean_matrix(group)
        last = ", ".join(number(value, 0) for value in mean[-1]) if tasks <= 20 else number(float(mean[-1].mean()), 0)
        alt = f"Accuracy matrix of {group.label}. Final accuracy in per cent by task: {last}."

        paint = partial(_heat_map, mean=mean, cell=cell)
        panels.append(Panel(group.label, _svg(frame, alt, paint)))
    return panels


def colour_bar() -> str:
    """The key to every accuracy matrix."""

    def paint(axes: Axes) -> None:
        axes.imshow(np.linspace(0, 1, 101)[None, :], cmap=COLOURS, aspect="auto", extent=(0, 100, 0, 1))
        axes.set_yticks([])
        axes.set_xticks([0, 25, 50, 75, 100], ["0 %", "25", "50", "75", "100 %"])
        axes.spines[["left", "bottom"]].set_visible(False)

    return _svg(
        Frame(280, 34, left=16, right=20, top=2, bottom=20, scale=1.0),
        "Colour scale from 0 to 100 per cent accuracy",
        paint,
    )


def memory_by_class(groups: Sequence[Group]) -> list[Panel]:
    """Rows per class in the final memory, short-term and long-term stacked, mean over seeds."""
    counts = {id(group): _final_census(group) for group in groups}
    widest = max((float((short + long).max(initial=0.0)) for short, long in counts.values()), default=0.0)
    panels = []
    for group in groups:
        short, long = counts[id(group)]
        if not len(short):
            panels.append(Panel(group.label, "", "These runs did not record what their memory held."))
            continue
        names = _ordered_names(group)
        step = max(min(21.0, 520.0 / len(names)), 2.0)
        frame = Frame(400, 62 + step * len(names), left=_left(names, step), right=14, top=22, bottom=40)
        spans = _spans(len(names), group.tasks) if group.one_order else []
        alt = f"Final memory of {group.label}: {number(float(short.sum()))} short-term and " + (
            f"{number(float(long.sum()))} long-term rows over {len(names)} classes."
        )

        paint = partial(_class_bars, short=short, long=long, names=names, step=step, spans=spans, widest=widest)
        panels.append(Panel(group.label, _svg(frame, alt, paint)))
    return panels


def memory_growth(groups: Sequence[Group]) -> list[Panel]:
    """Rows in each part after each task, mean over seeds; only groups that ever held a long-term row."""
    panels = []
    for group in groups:
        if any(len(run.result.census) != group.tasks for run in group.runs):
            continue
        parts = [
            np.mean([[sum(entry.get(part, [])) for entry in run.result.census] for run in group.runs], axis=0)
            for part in ("short", "long")
        ]
        if not parts[1].any():
            continue
        room = group.settings.get("memory.capacity")
        ends = f"{number(float(parts[0][-1]))} short-term and {number(float(parts[1][-1]))} long-term rows"
        alt = f"Rows in each part of the memory over tasks, {group.label}. After the last task: {ends}."

        paint = partial(_growth, short=parts[0], long=parts[1], room=room)
        panels.append(Panel(group.label, _svg(Frame(400, 250, top=34), alt, paint)))
    return panels


def long_term_pictures(groups: Sequence[Group]) -> list[Panel]:
    """The long-term rows of one seed per group that keeps any, one row of pictures per class."""
    keepers = [group for group in groups if group.memory != BASELINE]
    panels = []
    for group in keepers:
        found = _pictures(group, PICTURE_PIXELS // len(keepers))
        if isinstance(found, str):
            panels.append(Panel(group.label, "", found))
            continue
        for part in _chunks(found):
            columns = max(len(row) for row in part.thumbnails)
            step = 40.0 if columns <= 8 else 28.0
            gaps = 0.22 * (len(set(part.tasks)) - 1)
            left = _left(part.names, step)
            tall = (len(part.names) + gaps) * step
            frame = Frame(left + columns * step + 8, tall + 12, left=left, right=8, top=6, bottom=6)
            first, last = min(part.tasks) + 1, max(part.tasks) + 1
            which = "" if len(part.names) == len(found.names) else f", tasks {first} to {last}"
            alt = f"Long-term pictures of {group.label}, seed {found.seed}{which}: " + ", ".join(
                f"{len(row)} of {name}" for name, row in zip(part.names, part.thumbnails, strict=True)
            )
            paint = partial(_picture_grid, found=part, step=step, interpolation="none")
            panels.append(Panel(f"{group.label}, seed {found.seed}{which}", _svg(frame, alt, paint)))
    return panels


def seconds_by_phase(groups: Sequence[Group]) -> Panel:
    """Mean wall seconds per run, stacked by phase, a bar per group."""
    known = ("train", "evaluate", "embed", "reduce", "centre", "select")
    others = sorted({phase for group in groups for run in group.runs for phase in run.result.seconds} - {*known})
    phases = [
        phase
        for phase in (*known, *others)
        if any(run.result.seconds.get(phase, 0.0) > 0 for group in groups for run in group.runs)
    ]
    means = np.array(
        [
            [estimate(float(run.result.seconds.get(phase, 0.0)) for run in group.runs).mean for phase in phases]
            for group in groups
        ]
    ).reshape(len(groups), len(phases))
    keys = 16 * math.ceil(len(phases) / 3)
    frame = Frame(460, 52 + keys + 46 * len(groups), left=8, right=62, top=8 + keys, bottom=44, scale=1.3)
    alt = "Mean seconds per run: " + "; ".join(
        f"{group.label} {number(float(total))}" for group, total in zip(groups, means.sum(axis=1), strict=True)
    )

    def paint(axes: Axes) -> None:
        left = np.zeros(len(groups))
        places = np.arange(len(groups))
        for column, phase in enumerate(phases):
            colour = PHASES[column % len(PHASES)]
            hatch = "" if column < len(PHASES) else "///"
            axes.barh(
                places,
                means[:, column],
                left=left,
                height=0.42,
                color=colour,
                label=clean(phase, 16),
                edgecolor=CARD,
                linewidth=0.8,
                hatch=hatch,
            )
            left += means[:, column]
        for place, group in enumerate(groups):
            _over(axes, place - 0.42, group.label)
            axes.annotate(
                f"{number(float(left[place]))} s",
                (float(left[place]), place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                annotation_clip=False,
            )
        axes.set_ylim(len(groups) - 0.6, -0.75)
        axes.set_xlim(0.0, float(left.max(initial=0.0)) or 1.0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel("seconds per run", color=MUTED)
        if phases:
            _legend(axes, columns=3)

    return Panel("", _svg(frame, alt, paint))


def readme_figure(folders: Sequence[Path], out_png: Path) -> Path:
    """Forgetting curves beside the long-term pictures, on white, 1200 pixels wide."""
    table = summarise(load(folders))
    family = next((row for row in table.rows if row.differences), table.rows[0])
    members = [group for group in (family.partner, family.group) if group is not None]
    found: Pictures | str = "none"
    if family.group.memory != BASELINE:
        found = _pictures(family.group, PICTURE_PIXELS, classes=10, columns=6)
    with _matplotlib(9.5) as figure_of:
        width, height, scale = 600.0, 300.0, 2.0
        figure = figure_of(figsize=(width / 72, height / 72), dpi=72 * scale, facecolor="white")
        share = 1.0
        if isinstance(found, Pictures):
            columns = max(len(row) for row in found.thumbnails)
            gaps = 0.22 * (len(set(found.tasks)) - 1)
            step = min((height - 54) / (len(found.names) + gaps), 190 / columns)
            left = _left(found.names, step, size=8.5)
            wide, tall = columns * step, (len(found.names) + gaps) * step
            share = (width - wide - left - 26) / width
            pictures = figure.add_axes(
                ((width - wide - 10) / width, (height - 38 - tall) / height, wide / width, tall / height)
            )
            pictures.tick_params(labelsize=8.5)
            _picture_grid(pictures, found=found, step=step, interpolation="nearest", size=8.5)
            place = (width - wide - 10 - left + 8) / width
            figure.text(place, 1 - 20 / height, "Kept in long-term memory", weight="bold", size=10.5, va="center")
        names = [clean(group.label, 44) for group in members]
        lines = len(names) if max(map(len, names)) > 18 else 1
        above = 46 + 14 * lines
        axes = figure.add_axes((46 / width, 40 / height, share - 58 / width, 1 - (40 + above) / height))
        _curves(axes, groups=members, names=names, top=_ceiling(members), columns=2 if lines == 1 else 1)
        figure.text(14 / width, 1 - 20 / height, "Forgetting rate over tasks", weight="bold", size=10.5, va="center")
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None}, facecolor="white")
    try:
        out_png.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out_png, content.getvalue())
    except OSError as error:
        raise UsageError(f"Cannot write the figure '{out_png}': {error.strerror or error}.") from error
    return out_png


@contextmanager
def _matplotlib(size: float = 11.0) -> Iterator[type[Figure]]:
    """Matplotlib's `Figure` in this file's style, without touching pyplot or the caller's settings."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("Figures need matplotlib, which is not installed: pip install 'odedm[plot]'.") from error
    with matplotlib.rc_context({**STYLE, "font.size": size, "legend.fontsize": size}), warnings.catch_warnings():
        # The browser has the glyphs that the measuring font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield Figure


def _svg(frame: Frame, alt: str, paint: Callable[[Axes], None]) -> str:
    """Paint one pair of axes and give it back as SVG to put inside a page."""
    with _matplotlib() as figure_of:
        figure = figure_of(figsize=(frame.width / 72, frame.height / 72), dpi=72)
        axes = figure.add_axes(
            (
                frame.left / frame.width,
                frame.bottom / frame.height,
                max(frame.width - frame.left - frame.right, 10) / frame.width,
                max(frame.height - frame.top - frame.bottom, 2) / frame.height,
            )
        )
        paint(axes)
        content = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(content, format="svg", metadata=nothing)
    return _tidy(content.getvalue(), alt, frame)


def _tidy(svg: str, alt: str, frame: Frame) -> str:
    """Make a standalone SVG fit to stand inside HTML: own ids, the page's colours, a name for who cannot see it."""
    body = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    mark = "f" + hashlib.sha256((alt + body).encode()).hexdigest()[:8]

    def inside(match: re.Match[str]) -> str:
        tag = match.group()
        tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}-", tag)
        return re.sub(r"#[0-9a-f]{6}\b", lambda m: _variable(m.group()), tag)

    body = re.sub(r"<[^>]*>", inside, body)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{html.escape(alt)}" viewBox="0 0 {frame.width:g} {frame.height:g}" '
        f'style="width: {frame.width * frame.scale:g}px; min-width: {min(frame.width, 290.0):g}px">'
    )
    body = re.sub(r"\s*\n\s*", "\n", body)
    return re.sub(r"^<svg[^>]*>", lambda _: head, body, count=1)


def _variable(colour: str) -> str:
    """A colour the page may redefine.

    >>> _variable("#1d2127"), _variable("#123456")
    ('var(--ink, #1d2127)', '#123456')
    """
    return f"var({VARIABLES[colour]}, {colour})" if colour in VARIABLES else colour


def _families(groups: Sequence[Group], most: int = len(SERIES)) -> list[tuple[str, list[Group]]]:
    """Groups that differ by the memory alone, together, each panel with as many as there are colours.

    One panel without a title where there is one family, or where nobody has a partner.
    """
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.same_but_memory, []).append(group)
    if len(groups) <= most and (len(found) == 1 or all(len(members) == 1 for members in found.values())):
        return [("", list(groups))]
    panels = []
    for members in found.values():
        title = max((group.family for group in members), key=len)
        plain = [group for group in members if group.memory == BASELINE]
        others = [group for group in members if group.memory != BASELINE]
        room = max(most - len(plain), 1)
        for start in range(0, max(len(others), 1), room):
            panels.append((title, plain + others[start : start + room]))
    return panels


def _ceiling(groups: Sequence[Group]) -> float:
    """The top of the forgetting axis, the same for every panel."""
    worst = max(max(run.result.forgetting_rate) for group in groups for run in group.runs)
    return min(max(10.0 * math.ceil(worst / 10.0 + 0.2), 10.0), 104.0)


def _curves(axes: Axes, *, groups: Sequence[Group], names: Sequence[str], top: float, columns: int) -> None:
    baselines = sum(group.memory == BASELINE for group in groups)
    coloured = 0
    for group, name in zip(groups, names, strict=True):
        points = [estimate(run.result.forgetting_rate[task] for run in group.runs) for task in range(group.tasks)]
        style: tuple[str, Any, str] = (PLAIN, (0, (4, 2)), "s")
        if group.memory != BASELINE or baselines > 1 or len(groups) == 1:
            style = (SERIES[coloured], LINES[coloured], MARKERS[coloured])
            coloured = (coloured + 1) % len(SERIES)
        _curve(axes, points, style, clean(name, 44))
    longest = max(group.tasks for group in groups)
    axes.set_xlim(0.7, longest + 0.3)
    axes.set_ylim(0.0, top)
    axes.set_xticks(_ticks(longest, 12))
    step = 20 if top > 40 else 10 if top > 20 else 5
    axes.set_yticks(list(range(0, min(int(top), 100) + 1, step)))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("tasks learned", color=MUTED)
    axes.set_ylabel("forgetting rate, %", color=MUTED)
    _legend(axes, columns=columns)


def _curve(axes: Axes, points: Sequence[Estimate], style: tuple[str, Any, str], name: str) -> None:
    colour, line, marker = style
    x = np.arange(1, len(points) + 1)
    y = np.array([point.mean for point in points])
    if points[0].error is not None:
        error = np.array([point.error for point in points], dtype=float)
        axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
    every = max(1, len(points) // 20)
    axes.plot(
        x, y, color=colour, linestyle=line, marker=marker, markevery=every, ms=6, mec=CARD, mew=1.0, lw=2.0, label=name
    )


def _over(axes: Axes, y: float, label: str) -> None:
    """A label at the left edge, on the card's own colour so that no line runs through it."""
    ground = {"facecolor": CARD, "edgecolor": "none", "pad": 1.5}
    axes.text(
        0.0, y, clean(label, 60), transform=axes.get_yaxis_transform(), va="center", color=INK, bbox=ground, zorder=6
    )


def _legend(axes: Axes, *, columns: int) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        borderpad=0.0,
        handlelength=2.4,
        columnspacing=1.6,
        labelspacing=0.3,
    )


def _ticks(n: int, most: int) -> list[int]:
    """Task numbers to write under an axis, from 1 to n.

    >>> _ticks(5, 12), _ticks(100, 6)
    ([1, 2, 3, 4, 5], [1, 20, 40, 60, 80, 100])
    """
    if n <= most:
        return list(range(1, n + 1))
    step = next(step for step in (2, 5, 10, 20, 50, 100, 200, 500, n) if n / step <= most)
    return [1, *range(step, n + 1, step)]


def _mean_matrix(group: Group) -> Array:
    """The accuracy matrix, mean over seeds; NaN where the task was not yet learned."""
    mean = np.full((group.tasks, group.tasks), np.nan)
    for i in range(group.tasks):
        for j in range(i + 1):
            mean[i, j] = estimate(float(run.result.class_il[i][j]) for run in group.runs).mean
    return mean


def _heat_map(axes: Axes, *, mean: Array, cell: float) -> None:
    import matplotlib

    tasks = len(mean)
    colours = matplotlib.colormaps[COLOURS]
    if cell >= 14:
        tiles = [(i + 1, j + 0.53, colours(mean[i, j] / 100.0)) for i in range(tasks) for j in range(i + 1)]
        after, left, fill = zip(*tiles, strict=True)
        axes.barh(after, 0.94, left=left, height=0.94, color=fill)
    else:
        axes.imshow(
            np.ma.masked_invalid(mean),
            cmap=colours,
            vmin=0,
            vmax=100,
            interpolation="none",
            extent=(0.5, tasks + 0.5, tasks + 0.5, 0.5),
        )
    if cell >= 24:
        for i in range(tasks):
            for j in range(i + 1):
                axes.text(
                    j + 1,
                    i + 1,
                    number(float(mean[i, j]), 0),
                    ha="center",
                    va="center_baseline",
                    size=min(11.5, cell * 0.36),
                    color=_on(colours(mean[i, j] / 100.0)),
                )
    ticks = _ticks(tasks, 14)
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.set_xlim(0.5, max(tasks + 0.5, 0.5 + 90 / cell))
    axes.set_ylim(tasks + 0.5, 0.5)
    axes.set_aspect("auto")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xlabel("accuracy on task", color=MUTED)
    axes.set_ylabel("after task", color=MUTED)


def _on(colour: Sequence[float]) -> str:
    """Black or white, whichever reads better on the colour (relative luminance as in WCAG 2).

    >>> _on((1.0, 0.9, 0.2)), _on((0.0, 0.1, 0.3))
    ('#111111', '#ffffff')
    """
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#111111" if (light + 0.05) / 0.0556 > 1.05 / (light + 0.05) else "#ffffff"


def _ordered_names(group: Group) -> list[str]:
    return group.classes if group.one_order else sorted(group.classes)


def _final_census(group: Group) -> tuple[Array, Array]:
    """Rows per class in each part after the last task, mean over seeds; empty where it was not recorded.

    Where the seeds order the classes differently, counts are matched by name.
    """
    names = _ordered_names(group)
    parts: dict[str, list[list[float]]] = {"short": [], "long": []}
    for run in group.runs:
        if not run.result.census:
            return np.zeros(0), np.zeros(0)
        own = class_names(run.result)
        places = list(range(len(names))) if group.one_order else [own.index(name) for name in names]
        for part, kept in parts.items():
            counts = run.result.census[-1].get(part, [])
            kept.append([float(counts[place]) if place < len(counts) else 0.0 for place in places])
    return np.mean(parts["short"], axis=0), np.mean(parts["long"], axis=0)


def _spans(classes: int, tasks: int) -> list[tuple[int, int]]:
    """First class and end of each task; nothing where the classes do not divide evenly.

    >>> _spans(6, 3), _spans(5, 3)
    ([(0, 2), (2, 4), (4, 6)], [])
    """
    if tasks < 1 or classes % tasks or classes == 0:
        return []
    each = classes // tasks
    return [(start, start + each) for start in range(0, classes, each)]


def _left(names: Sequence[str], step: float, size: float = 11.0) -> float:
    """The left margin that class names and task brackets ask for."""
    if step < 11:
        return 58.0
    return 34.0 + 0.6 * size * max(min(len(name), 18) for name in names)


def _class_ticks(axes: Axes, names: Sequence[str], places: Sequence[float], step: float, size: float) -> None:
    if step < 11:
        axes.set_yticks([])
        return
    axes.set_yticks(list(places), [clean(name, 18) for name in names], size=min(size, step * 0.75), color=INK)
    axes.tick_params(axis="y", length=0)


def _brackets(axes: Axes, spans: Sequence[tuple[int, float, float]], step: float, left: float, size: float) -> None:
    """A line and a number at the left edge for each task; a span is (task, first edge, last edge) in rows."""
    wide = axes.get_window_extent().width * 72 / axes.figure.dpi
    shortest = step * min((last - first for _, first, last in spans), default=1.0)
    every = max(1, math.ceil((size + 1) / max(shortest, 0.1)))
    beside = axes.get_yaxis_transform()
    for place, (task, first, last) in enumerate(spans):
        tall = step * (last - first)
        inset = min(3.0, 0.15 * tall) / step
        x = -(left - 23) / wide
        axes.plot([x, x], [first + inset, last - inset], color=MUTED, lw=1.0, transform=beside, clip_on=False)
        if place % every == 0:
            words = f"task {task + 1}" if tall >= 3.7 * size else str(task + 1)
            turn = 90 if " " in words else 0
            middle = (first + last) / 2
            x = -(left - 13) / wide
            axes.text(
                x, middle, words, rotation=turn, ha="center", va="center", size=size - 1, color=MUTED, transform=beside
            )


def _class_bars(
    axes: Axes,
    *,
    short: Array,
    long: Array,
    names: Sequence[str],
    step: float,
    spans: Sequence[tuple[int, int]],
    widest: float,
) -> None:
    places = np.arange(len(names))
    height = 0.72 if step >= 8 else 1.0
    for task, (first, last) in enumerate(spans):
        if task % 2:
            axes.axhspan(first - 0.5, last - 0.5, color=BAND, linewidth=0, zorder=0)
    axes.barh(places, long, height=height, color=LONG, label="long-term")
    axes.barh(places, short, left=long, height=height, color=SHORT, label="short-term")
    left = _left(names, step)
    _class_ticks(axes, names, places.tolist(), step, 11.0)
    _brackets(axes, [(task, first - 0.5, last - 0.5) for task, (first, last) in enumerate(spans)], step, left, 11.0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0.0, widest * 1.04 or 1.0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("rows in the final memory", color=MUTED)
    if not spans and step < 11:
        axes.set_ylabel(f"{len(names)} classes", color=MUTED)
    _legend(axes, columns=2)


def _growth(axes: Axes, *, short: Array, long: Array, room: object) -> None:
    x = np.arange(1, len(short) + 1)
    width = 0.72 if len(x) <= 30 else 1.0
    axes.bar(x, long, width=width, color=LONG, label="long-term")
    axes.bar(x, short, bottom=long, width=width, color=SHORT, label="short-term")
    top = float((short + long).max())
    if isinstance(room, int | float) and 0 < room < 4 * top:
        axes.axhline(float(room), color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label=f"capacity λ={room:g}")
        top = max(top, float(room))
    axes.set_xlim(0.4, len(x) + 0.6)
    axes.set_ylim(0.0, top * 1.06 or 1.0)
    axes.set_xticks(_ticks(len(x), 12))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("tasks learned", color=MUTED)
    axes.set_ylabel("rows", color=MUTED)
    _legend(axes, columns=3)


def _pictures(group: Group, pixels: int, *, classes: int = 40, columns: int = 16) -> Pictures | str:
    """Thumbnails of the long-term rows of the first seed whose memory can be read, or a sentence why there are none."""
    reason = "The memory of these runs was not saved, so there are no pictures to show."
    for run in group.runs:
        if not (run.folder / MEMORY_FILE).is_file():
            continue
        found = _read_pictures(run)
        if isinstance(found, Pictures):
            return _fewer(found, pixels, classes, columns)
        reason = found
    return reason


def _read_pictures(run: Run) -> Pictures | str:
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
    names = _names_by_label(run)
    rows = sorted(np.flatnonzero(prototype >= 0).tolist(), key=lambda i: (task[i], label[i], prototype[i], i))
    found: dict[tuple[int, int], list[Array]] = {}
    for i in rows:
        found.setdefault((int(task[i]), int(label[i])), []).append(_thumbnail(image[i]))
    if not found:
        return "This memory holds no long-term row."
    return Pictures(
        names=[names.get(label, str(label)) for _, label in found],
        tasks=[task for task, _ in found],
        thumbnails=list(found.values()),
        seed=run.seed,
    )


def _names_by_label(run: Run) -> dict[int, str]:
    names = run.result.experiment.get("classes")
    return {label: clean(name) for label, name in enumerate(names)} if isinstance(names, list) else {}


def _thumbnail(image: Array, most: int = 64) -> Array:
    """A picture as [height, width, 3], every n-th pixel of a large one."""
    every = max(1, math.ceil(max(image.shape[1:]) / most))
    picture = image[:, ::every, ::every].transpose(1, 2, 0)
    return np.ascontiguousarray(np.broadcast_to(picture, (*picture.shape[:2], 3)))


def _fewer(found: Pictures, pixels: int, classes: int, columns: int) -> Pictures:
    """The first classes of each task and the first pictures of each class, as many as there is room for."""
    each = max(1, classes // len(set(found.tasks)))
    seen: dict[int, int] = {}
    kept = []
    for place, task in enumerate(found.tasks):
        seen[task] = seen.get(task, 0) + 1
        if seen[task] <= each:
            kept.append(place)
    kept = kept[: max(classes, 1)]
    height, width = found.thumbnails[0][0].shape[:2]
    most = max(1, min(columns, pixels // (height * width * len(kept))))
    return Pictures(
        [found.names[place] for place in kept],
        [found.tasks[place] for place in kept],
        [found.thumbnails[place][:most] for place in kept],
        found.seed,
    )


def _chunks(found: Pictures, most: int = 14) -> list[Pictures]:
    """Whole tasks, together about `most` classes, so that no grid becomes a tower."""
    parts: list[list[int]] = []
    for task in sorted(set(found.tasks)):
        places = [place for place, own in enumerate(found.tasks) if own == task]
        if parts and len(parts[-1]) + len(places) <= most:
            parts[-1] += places
        else:
            parts.append(places)
    return [
        Pictures(
            [found.names[i] for i in part],
            [found.tasks[i] for i in part],
            [found.thumbnails[i] for i in part],
            found.seed,
        )
        for part in parts
    ]


def _picture_grid(axes: Axes, *, found: Pictures, step: float, interpolation: str, size: float = 11.0) -> None:
    """One mosaic per task, a gap between tasks, names at the left."""
    height, width = found.thumbnails[0][0].shape[:2]
    columns = max(len(row) for row in found.thumbnails)
    margin = max(1, round(0.04 * height))
    places: list[float] = []
    spans: list[tuple[int, float, float]] = []
    y = 0.0
    for task in sorted(set(found.tasks)):
        rows = [row for row, own in zip(found.thumbnails, found.tasks, strict=True) if own == task]
        mosaic = np.zeros((len(rows) * (height + margin), columns * (width + margin), 4), np.uint8)
        for r, row in enumerate(rows):
            for c, picture in enumerate(row):
                top, left = r * (height + margin), c * (width + margin)
                mosaic[top : top + height, left : left + width, :3] = picture
                mosaic[top : top + height, left : left + width, 3] = 255
        extent = (0.0, float(columns), y + len(rows), y)
        axes.imshow(mosaic, interpolation=interpolation, extent=extent, aspect="auto")
        places += [y + r + 0.5 for r in range(len(rows))]
        spans.append((task, y, y + len(rows)))
        y += len(rows) + 0.22
    _class_ticks(axes, found.names, places, step, size)
    _brackets(axes, spans, step, _left(found.names, step, size), size)
    axes.set_xlim(0.0, columns)
    axes.set_ylim(y - 0.22, 0.0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
