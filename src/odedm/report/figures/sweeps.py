"""Accuracy against the room there is (λ) and against the share of it that is kept for good (ρ)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import cycle

from odedm.report.figures.lines import BASELINE_STROKE, STROKES, Stroke, draw_line
from odedm.report.figures.style import WIDTH, Axes, Frame, Panel, csv_text, legend, panel
from odedm.report.groups import BASELINES, Group
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import canonical, clean, number

Point = tuple[float, Estimate]
Series = tuple[str, Stroke, list[Point]]
FOLLOWS = {"memory.capacity": ("memory.capacity", "memory.k"), "memory.rho": ("memory.rho", "memory.k", "memory.dac")}
"""What may change along with the setting: k follows λ and ρ, and in the paper DAC follows ρ."""


def accuracy_over_capacity(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T against λ, a line per memory, where one was run at two or more capacities."""
    return _panels(groups, "memory.capacity", "rows in memory, λ")


def accuracy_over_share(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T against ρ, where one memory was run with two or more; its partner without ODEDM is the line beside it."""
    return _panels(groups, "memory.rho", "long-term share, ρ")


def _panels(groups: Sequence[Group], setting: str, title: str) -> list[Panel]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        rest = {k: v for k, v in group.settings.items() if k == "memory.capacity" or not k.startswith("memory.")}
        rest = {k: v for k, v in rest.items() if k not in {setting, "replay", "gamma"}}
        found.setdefault(canonical(rest), []).append(group)
    panels = []
    for members in found.values():
        series = _series(members, setting)
        if not any(len(points) > 1 for _, _, points in series):
            continue
        name = _title(members, setting)
        frame = Frame(WIDTH, 236 + 16 * len(series), top=8 + 16 * len(series))
        alt = f"Final accuracy against {title}: {name}. " + "; ".join(_told(*each) for each in series)
        rows = [(label, x, value.mean, value.error, value.n) for label, _, points in series for x, value in points]
        data = csv_text(["runs", setting.partition(".")[2], "acc_last", "standard_error", "seeds"], rows)
        panels.append(panel(name, frame, alt, partial(_draw, series=series, title=title), data))
    return panels


def _told(label: str, _: Stroke, points: list[Point]) -> str:
    return f"{label}: " + ", ".join(f"{number(value.mean)} at {x:g}" for x, value in points)


def _series(members: Sequence[Group], setting: str) -> list[Series]:
    """A line for each memory whose groups differ in the setting, and what goes along with it, alone."""
    lines: list[list[Group]] = []
    for own in _alike(members, FOLLOWS[setting]):
        places = {_place(group, setting) for group in own}
        lines += [own] if len(places) == len(own) else _alike(own, (setting, "memory.k"))
    free = cycle(STROKES)
    found: list[Series] = []
    for own in lines:
        plain = own[0].memory in BASELINES
        points = sorted(((_place(group, setting), _value(group)) for group in own), key=lambda point: point[0])
        distinct = len({x for x, _ in points}) == len(points) and not any(math.isnan(x) for x, _ in points)
        if distinct and (len(points) > 1 or plain):  # else it is a sweep of something else
            grey = plain and all(stroke is not BASELINE_STROKE for _, stroke, _ in found)
            found.append((_label(own), BASELINE_STROKE if grey else next(free), points))
    return found


def _alike(groups: Sequence[Group], free: Sequence[str]) -> list[list[Group]]:
    """The groups by everything but the free settings."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        rest = {key: value for key, value in group.settings.items() if key not in free}
        found.setdefault(canonical(rest), []).append(group)
    return list(found.values())


def _place(group: Group, setting: str) -> float:
    if setting == "memory.rho" and group.memory in BASELINES:
        return 0.0
    value = group.settings.get(setting)
    return float(value) if isinstance(value, int | float) else math.nan


def _value(group: Group) -> Estimate:
    return estimate(run.result.acc_last for run in group.runs)


def _label(own: Sequence[Group]) -> str:
    """What the groups of a line have in common."""
    parts = [group.names.member.split(" · ") for group in own]
    common = [part for part in parts[0] if all(part in other for other in parts)]
    return clean(" · ".join(common), 44)


def _title(members: Sequence[Group], setting: str) -> str:
    families = [group.names.family.split(" · ") for group in members]
    common = [part for part in families[0] if all(part in other for other in families)]
    return " · ".join(part for part in common if setting != "memory.capacity" or not part.startswith("λ="))


def _draw(axes: Axes, *, series: Sequence[Series], title: str) -> None:
    for label, stroke, points in series:
        x, values = [x for x, _ in points], [value for _, value in points]
        if len(points) == 1 and x == [0.0]:  # the partner has no share: it is the same at every one
            axes.axhline(values[0].mean, color=stroke[0], linestyle=stroke[1], lw=2.0, label=label)
            error = values[0].error or 0.0
            axes.axhspan(values[0].mean - error, values[0].mean + error, color=stroke[0], alpha=0.18, lw=0)
        else:
            draw_line(axes, x, values, stroke, label)
    places = sorted({x for _, _, points in series for x, _ in points if x})
    if "λ" in title:
        axes.set_xscale("log")
        axes.minorticks_off()
    else:
        axes.set_xlim(0.0, max(1.0, *places) * 1.03)
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="y")
    axes.set_xlabel(title)
    axes.set_ylabel("final accuracy, %")
    legend(axes, columns=1)
