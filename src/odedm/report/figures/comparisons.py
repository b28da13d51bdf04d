"""Draws groups side by side: paired differences, seconds by phase, and the accuracy on each task after each task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from odedm.core.text import printable
from odedm.report.columns import ACC_LAST
from odedm.report.figures import style
from odedm.report.figures.style import Chart, finish, name_rows, new_figure
from odedm.report.groups import Group
from odedm.report.statistics import Paired, estimate
from odedm.report.summary import Table
from odedm.report.wording import number

MOST_WRITTEN = 12
"""Tasks up to which the numbers are written into a matrix."""
HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "||||")
"""Of phases, for readers without colour."""
PHASES = ("train", "evaluate", "embed", "reduce", "centre", "select", "observe")
"""Those that are known, in their order; others follow."""


def difference_plot(table: Table) -> list[Chart]:
    """Draw what the memory changed in ACC_T: every seed, the mean and its 95 % interval; nothing without pairs."""
    pairs = {row.group.label: row.differences[ACC_LAST.key] for row in table.compared[: style.MOST_ROWS]}
    if not pairs:
        return []
    figure = new_figure(height=60 + 56 * len(pairs))
    axes = figure.subplots()
    for row, pair in enumerate(pairs.values()):
        mean, seeds = pair.estimate.mean, list(pair.by_seed.values())
        axes.plot(pair.interval or (mean, mean), [row, row], "-", color=style.COLOURS[0], linewidth=2.4)
        axes.plot([mean], [row], "D", color=style.COLOURS[0], ms=8)
        axes.plot(seeds, [row + 0.22] * len(seeds), "o", mfc="none", mec=style.MUTED, ms=5.5)
        axes.plot([0.0, 0.0], [row - 0.16, row + 0.42], "-", color=style.INK, linewidth=1.0, zorder=1.5)
    name_rows(axes, list(pairs))
    axes.margins(x=0.06)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    against = "with the memory minus without" if table.baseline is None else f"minus {printable(table.against, 40)}"
    finish(axes, grid="x", xlabel=f"points of final accuracy, {against}")
    means = [f"{label} {number(pair.estimate.mean, sign=True)} points" for label, pair in pairs.items()]
    alt = f"Paired differences in the final accuracy. {'; '.join(means)}"
    return [Chart("", alt, figure, ("runs", "seed", "change_in_acc_last"), _by_seed(pairs))]


def _by_seed(pairs: dict[str, Paired]) -> list[tuple[object, ...]]:
    return [(label, seed, value) for label, pair in pairs.items() for seed, value in pair.by_seed.items()]


def seconds_by_phase(groups: Sequence[Group]) -> Chart:
    """Draw mean wall seconds per run, stacked by phase, a bar per group, for as many as one figure holds."""
    groups = groups[: style.MOST_ROWS]
    seen = {phase for group in groups for run in group.runs for phase in run.result.seconds}
    phases = [*(phase for phase in PHASES if phase in seen), *sorted(seen.difference(PHASES))]
    labels, left, rows = [group.label for group in groups], np.zeros(len(groups)), []
    figure = new_figure(height=60 + style.LINE * (1 + len(phases) // 3) + 52 * len(groups))
    axes = figure.subplots()
    for phase, colour, hatch in zip(
        phases, cycle([style.COLOURS[0], style.GREY, *style.COLOURS[1:]]), cycle(HATCHES), strict=False
    ):
        means = [estimate(run.result.seconds.get(phase, 0.0) for run in group.runs).mean for group in groups]
        bars: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "height": 0.42}
        axes.barh(range(len(groups)), means, left=left, label=printable(phase, 16), **bars)
        left = left + means
        rows += [(label, phase, mean) for label, mean in zip(labels, means, strict=True)]
    for row, total in enumerate(left.tolist()):
        axes.annotate(f"{number(total)} s", (total, row), (6, 0), textcoords="offset points", va="center")
    name_rows(axes, labels)
    finish(
        axes, grid="x", keys=3 if phases else 0, xlim=(0.0, 1.12 * float(left.max()) or 1.0), xlabel="seconds per run"
    )
    totals = "; ".join(f"{label} {number(total)}" for label, total in zip(labels, left.tolist(), strict=True))
    return Chart("", f"Mean seconds per run: {totals}", figure, ("runs", "phase", "seconds"), rows)


def accuracy_matrices(groups: Sequence[Group]) -> list[Chart]:
    """Draw a_{i,j} from 0 to 100 %, mean over seeds, a figure per group."""
    charts = []
    for group in groups:
        tasks, mean = group.tasks, np.full((group.tasks, group.tasks), np.nan)
        lower = [(i, j) for i in range(tasks) for j in range(i + 1)]
        for i in range(tasks):
            mean[i, : i + 1] = np.mean([run.result.class_il[i] for run in group.runs], axis=0)
        side = 36.0 * min(max(tasks, 4), 9)
        figure = new_figure(side + 100, side + 40)
        axes = figure.subplots()
        extent = (0.5, tasks + 0.5, tasks + 0.5, 0.5)
        map_ = axes.imshow(mean, interpolation="none", extent=extent, cmap="cividis", vmin=0, vmax=100)
        for i, j in lower if tasks <= MOST_WRITTEN else ():
            ink = "white" if mean[i, j] < 55 else "black"  # whichever reads better on the colour
            words = number(float(mean[i, j]), 0)
            axes.text(j + 1, i + 1, words, ha="center", va="center", color=ink, size=11 if tasks <= 9 else 8)
        axes.locator_params(integer=True, nbins=10)
        axes.set(xlabel="accuracy on task", ylabel="after task")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        figure.colorbar(map_, ax=axes, shrink=0.8, ticks=[0, 50, 100], format="%g %%").outline.set_visible(False)
        final = ", ".join(number(value, 0) for value in mean[-1, :20])
        alt = f"Accuracy matrix of {group.label}. Final accuracy in per cent by task: {final}."
        rows = [(i + 1, j + 1, mean[i, j]) for i, j in lower]
        charts.append(Chart(group.label, alt, figure, ("after_task", "on_task", "accuracy"), rows))
    return charts
