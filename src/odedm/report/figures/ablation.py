"""What each part of ODEDM is worth: the final accuracy with and without it, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from odedm.report.figures.lines import families
from odedm.report.figures.style import (
    INK,
    LONG,
    MUTED,
    SHORT,
    WIDTH,
    Axes,
    Frame,
    Panel,
    csv_text,
    panel,
    pitch,
    write_over,
)
from odedm.report.groups import BASELINES, Group
from odedm.report.statistics import Estimate, estimate
from odedm.report.wording import clean, measured, number

MOST = 12
"""Bars of one panel."""


def ablation_bars(groups: Sequence[Group]) -> list[Panel]:
    """ACC_T of a method with every memory it was run with, where there are at least two variants of one memory."""
    panels = []
    for title, members in families(groups, most=MOST):
        variants = [group.memory for group in members if group.memory not in BASELINES]
        if len(variants) < 2 or len({group.same_but_memory for group in members}) > 1:
            continue
        bars = [(_name(group), group, _estimate(group)) for group in members]
        frame = Frame(
            WIDTH,
            52 + pitch((name for name, _, _ in bars), 44) * len(bars),
            left=8,
            right=62,
            top=6,
            bottom=46,
            scale=1.45,
        )
        alt = f"Final accuracy by variant{': ' + title if title else ''}. " + "; ".join(
            f"{name} {measured(value)} %" for name, _, value in bars
        )
        rows = [(g.label, run.seed, run.result.acc_last) for _, g, _ in bars for run in g.runs]
        data = csv_text(["runs", "seed", "acc_last"], rows)
        panels.append(panel(title or members[0].names.family, frame, alt, partial(_draw, bars=bars), data))
    return panels


def _name(group: Group) -> str:
    """The memory, with its share in place of the k that follows from it where both are known."""
    rho, k = group.settings.get("memory.rho"), group.settings.get("memory.k")
    share = f"ρ={100 * rho:g} %" if isinstance(rho, int | float) else f"k={k}"
    return clean(" · ".join(share if part == f"k={k}" else part for part in group.names.member.split(" · ")), 108)


def _estimate(group: Group) -> Estimate:
    return estimate(run.result.acc_last for run in group.runs)


def _draw(axes: Axes, *, bars: Sequence[tuple[str, Group, Estimate]]) -> None:
    widest = max(max(run.result.acc_last for run in group.runs) for _, group, _ in bars)
    for place, (name, group, value) in enumerate(bars):
        plain = group.memory in BASELINES
        colour, hatch = (SHORT, "////") if plain else (LONG, "")
        axes.barh([place], [value.mean], height=0.4, color=colour, hatch=hatch, edgecolor=MUTED, linewidth=0.6)
        if value.error is not None:
            axes.errorbar([value.mean], [place], xerr=[value.error], color=INK, lw=1.4, capsize=3.5, zorder=4)
        seeds = [run.result.acc_last for run in group.runs]
        dots: dict[str, Any] = {"mfc": "none", "mec": INK, "mew": 0.9, "ms": 4.0}
        axes.plot(seeds, [place + 0.3] * len(seeds), "o", **dots, zorder=4, clip_on=False)
        write_over(axes, place - 0.43, name)
        axes.annotate(
            f"{number(value.mean)} %",
            (1.0, place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            annotation_clip=False,
        )
    axes.set_xlim(0.0, widest * 1.02 or 1.0)
    axes.set_ylim(len(bars) - 0.45, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("final accuracy, %")
