"""A sample's story: how near it was to each prototype of its class, at which rank, and whether it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from odedm.core.errors import UsageError
from odedm.report.figures.style import (
    LONG,
    MUTED,
    SHORT,
    WIDTH,
    Array,
    Axes,
    Frame,
    Panel,
    csv_text,
    panel,
    write_over,
)
from odedm.report.wording import clean

MOST = 16
"""Prototypes that are drawn, the nearest first."""


@dataclass(frozen=True)
class Meeting:
    """One prototype as the sample met it: its distance, its rank among the candidates (1 is nearest), kept or not."""

    prototype: int
    distance: float
    rank: int
    kept: bool


@dataclass(frozen=True)
class Story:
    """A row of the stream and every prototype of its class, in their order; `candidates` competed with it."""

    name: str
    candidates: int
    meetings: tuple[Meeting, ...]


def story(distance: Array, kept: Array, row: int, *, name: str) -> Story:
    """The story of one candidate.

    `distance` [n, k] is from each candidate of the class to each prototype's centre, `kept` [k] the candidate that was
    taken for each prototype, `row` the candidate asked about.

    >>> story(np.array([[0.1, 3.0], [0.2, 1.0], [0.3, 2.0]]), np.array([0, 1]), 2, name="row 2").meetings[1]
    Meeting(prototype=1, distance=2.0, rank=2, kept=False)
    """
    distance, kept = np.asarray(distance, dtype=np.float64), np.asarray(kept)
    if distance.ndim != 2 or kept.shape != (distance.shape[1],) or not 0 <= row < len(distance):
        raise UsageError(
            "A story needs distances [candidates, prototypes], the kept candidate of each prototype, and one of the "
            f"candidates; shapes {distance.shape} and {kept.shape} and row {row} were given."
        )
    own = distance[row]
    ranks = 1 + (distance < own).sum(axis=0)
    meetings = [Meeting(j, float(own[j]), int(ranks[j]), bool(kept[j] == row)) for j in range(len(own))]
    return Story(name, len(distance), tuple(meetings))


def sample_story(told: Story, lead: str = "") -> Panel:
    """The sample's distance to each prototype of its class as bars, nearest first, with its rank at each.

    `lead` says in front of its name why it is shown.
    """
    near = sorted(told.meetings, key=lambda meeting: meeting.distance)[:MOST]
    frame = Frame(WIDTH, 52 + 40 * len(near), left=16, right=14, top=6, bottom=46, scale=1.45)
    kept = [meeting for meeting in told.meetings if meeting.kept]
    end = f"kept for prototype {kept[0].prototype}" if kept else "not kept"
    title = f"{lead}{clean(told.name, 40)}: {end}"
    alt = f"{title}. " + "; ".join(f"prototype {m.prototype}: {_words(m, told.candidates)}" for m in near)
    rows = [(m.prototype, m.distance, m.rank, told.candidates, int(m.kept)) for m in told.meetings]
    data = csv_text(["prototype", "distance", "rank", "candidates", "kept"], rows)
    return panel(title, frame, alt, partial(_draw, near=near, candidates=told.candidates), data)


def _words(meeting: Meeting, candidates: int) -> str:
    return f"rank {meeting.rank} of {candidates}{', kept' if meeting.kept else ''}"


def _draw(axes: Axes, *, near: Sequence[Meeting], candidates: int) -> None:
    for place, meeting in enumerate(near):
        colour, hatch = (LONG, "") if meeting.kept else (SHORT, "////")
        axes.barh([place], [meeting.distance], height=0.36, color=colour, hatch=hatch, edgecolor=MUTED, linewidth=0.6)
        write_over(axes, place - 0.42, f"prototype {meeting.prototype} · {_words(meeting, candidates)}")
    axes.set_ylim(len(near) - 0.6, -0.75)
    axes.set_xlim(0.0, max(meeting.distance for meeting in near) * 1.05 or 1.0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("distance to the prototype's centre")
