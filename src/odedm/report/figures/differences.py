"""What the memory changed in the final accuracy, seed by seed."""

from __future__ import annotations

from functools import partial

from odedm.report.figures.style import INK, MUTED, SERIES, WIDTH, Axes, Frame, Panel, csv_text, panel, pitch, write_over
from odedm.report.statistics import Paired
from odedm.report.summary import ACC_LAST, Table
from odedm.report.wording import number


def difference_plot(table: Table) -> Panel | None:
    """Paired differences in ACC_T: every seed, the mean and its 95 % bootstrap interval."""
    pairs = {row.group.label: row.differences[ACC_LAST.key] for row in table.compared}
    if not pairs:
        return None
    frame = Frame(WIDTH, 52 + pitch(pairs, 50) * len(pairs), left=8, top=6, bottom=46, scale=1.45)
    alt = "Paired differences in the final accuracy. " + "; ".join(
        f"{label} {number(pair.estimate.mean, sign=True)} points" for label, pair in pairs.items()
    )
    rows = [(label, seed, value) for label, pair in pairs.items() for seed, value in pair.by_seed.items()]
    return panel("", frame, alt, partial(_draw, pairs=pairs), csv_text(["runs", "seed", "change_in_acc_last"], rows))


def _draw(axes: Axes, *, pairs: dict[str, Paired]) -> None:
    ends = [0.0]
    for place, (label, pair) in enumerate(pairs.items()):
        mean, seeds = pair.estimate.mean, list(pair.by_seed.values())
        bar = list(pair.interval or (mean, mean))
        axes.plot(bar, [place, place], color=SERIES[0], linewidth=2.4, zorder=3)
        axes.plot([mean], [place], "D", color=SERIES[0], ms=8, zorder=4)
        axes.plot(seeds, [place + 0.22] * len(seeds), "o", mfc="none", mec=MUTED, mew=1.0, ms=5.5, zorder=4)
        write_over(axes, place - 0.4, label)
        ends += [*seeds, *bar]
    room = 0.06 * max(max(ends) - min(ends), 1.0)
    axes.axvline(0.0, color=INK, linewidth=1.0, zorder=1.5)
    axes.set_xlim(min(ends) - room, max(ends) + room)
    axes.set_ylim(len(pairs) - 0.5, -0.7)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    axes.set_xlabel("points of final accuracy, with the memory minus without")
