"""A small picture for a notebook: accuracy over tasks as lines, drawn without any library, for light and dark pages."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, as in reports: told apart by colour-blind readers, too."""
WIDTH, HEIGHT, LEFT, TOP = 420, 180, 34, 10
LETTERS = 52
"""Of a label; longer ones are cut."""


def accuracy_picture(curves: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Accuracy after each task as SVG: a line through the means over seeds, and a band of one standard deviation.

    Args:
        curves: for each label one list of accuracies a seed; a label may be anyone's text, and is shown as text.

    Returns:
        The picture, empty where there are more lines than can be told apart or less than two tasks.

    >>> accuracy_picture({"ER": [[90.0, 60.0], [80.0, 50.0]]}).count("<circle")
    2
    >>> accuracy_picture({"ER": [[90.0]]})
    ''
    """
    tasks = max((len(seed) for seeds in curves.values() for seed in seeds), default=0)
    if tasks < 2 or len(curves) > len(COLOURS):
        return ""
    across, down = WIDTH - LEFT - 14, HEIGHT - TOP - 26

    def place(task: int, accuracy: float) -> str:
        return f"{LEFT + across * task / (tasks - 1):.1f},{TOP + down * (1 - min(max(accuracy, 0), 100) / 100):.1f}"

    parts = [
        f'<path d="M{LEFT} {TOP + down * (1 - level / 100):.1f}h{across}" stroke="currentColor" stroke-opacity=".15"/>'
        f'<text x="{LEFT - 6}" y="{TOP + down * (1 - level / 100) + 4:.1f}" text-anchor="end">{level}</text>'
        for level in (0, 25, 50, 75, 100)
    ]
    every = -(-tasks // 10)
    parts += [
        f'<text x="{LEFT + across * task / (tasks - 1):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{task + 1}</text>'
        for task in range(0, tasks, every)
    ]
    for colour, seeds in zip(COLOURS, curves.values(), strict=False):
        spread = [_spread([seed[task] for seed in seeds]) for task in range(min(map(len, seeds)))]
        band = [place(task, mean + sd) for task, (mean, sd) in enumerate(spread)]
        band += [place(task, mean - sd) for task, (mean, sd) in reversed([*enumerate(spread)])]
        line = [place(task, mean) for task, (mean, _) in enumerate(spread)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity=".16"/>')
        parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += ['<circle cx="{}" cy="{}" r="2.6" fill="{}"/>'.format(*at.split(","), colour) for at in line]
    keys = "".join(
        f'<span style="white-space:nowrap;margin-right:1.2em"><span style="color:{colour}">&#9632;</span> '
        f"{_cut(label)}</span>"
        for colour, label in zip(COLOURS, curves, strict=False)
    )
    said = "Accuracy in % over all tasks so far, after each task"
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{said}" '
        f'style="max-width:100%;font:11px sans-serif;fill:currentColor">{"".join(parts)}</svg>'
    )
    return f'<div style="margin-top:.6em"><div style="font-size:.9em">{said}. {keys}</div>{picture}</div>'


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; a single value has none."""
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))


def _cut(label: str) -> str:
    return html.escape(label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…")
