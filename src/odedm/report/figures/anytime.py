"""Accuracy at any time: measured through the stream, not only where tasks end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from odedm.report.figures.lines import draw_line, families, strokes
from odedm.report.figures.style import WIDTH, Axes, Frame, Panel, csv_text, legend, panel
from odedm.report.groups import Group
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import clean, number

Curve = tuple[list[float], list[Estimate]]


def anytime_curves(groups: Sequence[Group]) -> list[Panel]:
    """Accuracy over the classes seen so far against rows seen, mean and standard error; groups that measured it."""
    measured = [group for group in groups if all(run.anytime for run in group.runs)]
    panels = []
    for title, members in families(measured):
        alone = title == ""
        names = [clean(group.label if alone else group.names.member, 44) for group in members]
        curves = [curve(group) for group in members]
        frame = Frame(WIDTH, 240 + 16 * len(members), top=8 + 16 * len(members), scale=1.45 if alone else 1.25)
        means = ", ".join(
            f"{name} {number(float(np.mean([point.mean for point in points])))} %"
            for name, (_, points) in zip(names, curves, strict=True)
        )
        alt = f"Accuracy through the stream{': ' + title if title else ''}. Mean over it: {means}."
        rows = [
            (group.label, x, point.mean, point.error, point.n)
            for group, (seen, points) in zip(members, curves, strict=True)
            for x, point in zip(seen, points, strict=True)
        ]
        data = csv_text(["runs", "rows_seen", "accuracy", "standard_error", "seeds"], rows)
        panels.append(panel(title, frame, alt, partial(_draw, groups=members, names=names, curves=curves), data))
    return panels


def curve(group: Group) -> Curve:
    """The seeds' mean at the places of the first one; another seed's places are met by straight lines between them."""
    seen = [float(rows) for rows, _ in group.runs[0].anytime]
    lines = [
        np.interp(seen, [rows for rows, _ in run.anytime], [value for _, value in run.anytime]) for run in group.runs
    ]
    return seen, [estimate(float(line[i]) for line in lines) for i in range(len(seen))]


def _draw(axes: Axes, *, groups: Sequence[Group], names: Sequence[str], curves: Sequence[Curve]) -> None:
    for stroke, name, (seen, points) in zip(strokes(groups), names, curves, strict=True):
        draw_line(axes, seen, points, stroke, name)
    axes.set_xlim(0.0, max(seen[-1] for seen, _ in curves) * 1.01)
    axes.set_ylim(0.0, 104.0)
    axes.grid(axis="y")
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel("rows seen")
    axes.set_ylabel("accuracy, %")
    legend(axes, columns=1)
