"""Draws how long whole runs take against the prototypes of a class, with divide-and-conquer (DAC) and without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from odedm.report.figures.curves import BASELINE_STROKE, STROKES, Curve, curve_panel, draw_curves
from odedm.report.figures.style import Axes, Panel, finish, titled
from odedm.report.groups import Group, alike
from odedm.report.statistics import estimate
from odedm.report.wording import number

FOLLOW = ("memory.k", "memory.rho", "memory.dac", "memory.capacity")
"""What may differ between the runs of one panel."""


def training_time(groups: Sequence[Group]) -> list[Panel]:
    """Seconds against k, where runs with DAC stand beside runs without."""
    panels = []
    for members in alike([group for group in groups if not group.plain], lambda key: key in FOLLOW):
        sides = {
            "with DAC": [group for group in members if group.settings.get("memory.dac") is not None],
            "without DAC": [group for group in members if group.settings.get("memory.dac") is None],
        }
        if all(sides.values()) and len({group.settings.get("memory.k") for group in members}) > 1:
            title = members[0].family.partition(" · ")[0]
            curves = [_curve(name, own, title) for name, own in sides.items()]
            told = [f"{c.name} " + ", ".join(f"{number(p.mean)} s" for p in c.points) for c in curves]
            alt = f"{titled('Seconds of a run against k', title)}. {'; '.join(told)}"
            panels.append(curve_panel(title, alt, partial(_draw, curves=curves), curves, ("k", "seconds")))
    return panels


def _curve(name: str, groups: Sequence[Group], title: str) -> Curve:
    stroke = STROKES[0] if name == "with DAC" else BASELINE_STROKE
    seconds: dict[float, list[float]] = {}
    for group in sorted(groups, key=_prototypes):
        seconds.setdefault(_prototypes(group), []).extend(run.seconds for run in group.runs)
    return Curve(name, f"{title} · {name}", stroke, list(seconds), [estimate(own) for own in seconds.values()])


def _prototypes(group: Group) -> float:
    k = group.settings.get("memory.k")
    return float(k) if isinstance(k, int | float) else 0.0


def _draw(axes: Axes, *, curves: Sequence[Curve]) -> None:
    draw_curves(axes, curves)
    axes.set_ylim(bottom=0.0)
    finish(axes, grid="y", keys=2, xlabel="prototypes of a class, k", ylabel="seconds of a run")
