"""Draws how a row was chosen or not: how near it was to each prototype of its class, and at which rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.figures.style import Array, Axes, Panel, draw_bar, finish, panel, row_frame, write_over
from odedm.report.groups import Group
from odedm.report.saved_columns import first_evidence, read_evidence
from odedm.results.folder import CHOICE, EVIDENCE_FILE, FinishedRun

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

    @property
    def nearest_first(self) -> list[Meeting]:
        """The prototypes by their distance."""
        return sorted(self.meetings, key=lambda meeting: meeting.distance)

    @property
    def end(self) -> str:
        """What became of the row."""
        kept = [meeting.prototype for meeting in self.meetings if meeting.kept]
        return f"kept for prototype {kept[0]}" if kept else "not kept"


def story_source(groups: Sequence[Group]) -> str:
    """The name of the run whose rows have their stories told; empty where no run saved its choices."""
    return next((f"{group.label}, seed {run.seed}" for group in groups for run, _ in first_evidence(group, CHOICE)), "")


def sample_stories(groups: Sequence[Group]) -> list[Panel]:
    """Three rows of the first run that saved its choices, of the first class there.

    The row kept for the first prototype; of those not kept the one nearest to a centre; the one farthest from all.
    """
    for group in groups:
        for run, columns in first_evidence(group, CHOICE):
            try:
                _check_choices(run, *columns)
                told = telling_rows(*columns)
                return [sample_story(story_of_row(run, index), f"{why} · ") for why, index in told.items()]
            except UsageError as error:  # a page says what is wrong with one picture and shows the others
                return [Panel(f"{group.label}, seed {run.seed}", "", printable(error, 300))]
    return []


def telling_rows(rows: Array, label: Array, kept: Array, distance: Array) -> dict[str, int]:
    """The rows of the first class whose stories are told, by why.

    >>> choices = np.array([10, 11, 12]), np.zeros(3), np.array([-1, 0, -1]), np.array([[2.0], [1.0], [9.0]])
    >>> telling_rows(*choices)
    {'Kept': 11, 'Near miss': 10, 'Far off': 12}
    """
    own = np.flatnonzero(label == label[0]) if len(label) else np.arange(0)
    nearest = np.nanmin(distance[own], axis=1) if distance.shape[1] and len(own) else np.zeros(len(own))
    lost = np.flatnonzero(kept[own] < 0)
    won = np.flatnonzero(kept[own] >= 0)
    places = {}
    if len(won):
        places["Kept"] = won[np.argmin(kept[own][won])]
    if len(lost):
        places["Near miss"] = lost[np.argmin(nearest[lost])]
    if len(lost) > 1:
        places["Far off"] = lost[np.argmax(nearest[lost])]
    return {why: int(rows[own[place]]) for why, place in places.items()}


def sample_story(told: Story, lead: str = "") -> Panel:
    """The sample's distance to each prototype of its class as bars, nearest first, with its rank at each.

    `lead` says in front of its name why it is shown.
    """
    near = told.nearest_first[:MOST]
    of = f"of {told.candidates}"
    ranks = [(f"prototype {m.prototype}", f"rank {m.rank} {of}{', kept' if m.kept else ''}") for m in near]
    labels = [" · ".join(pair) for pair in ranks]
    title = f"{lead}{printable(told.name, 40)}: {told.end}"
    alt = f"{title}. " + "; ".join(": ".join(pair) for pair in ranks)
    rows = [(m.prototype, m.distance, m.rank, told.candidates, int(m.kept)) for m in told.meetings]
    columns = ["prototype", "distance", "rank", "candidates", "kept"]
    return panel(title, row_frame(labels, 40, left=16), alt, partial(_draw, near=near, labels=labels), columns, rows)


def _draw(axes: Axes, *, near: Sequence[Meeting], labels: Sequence[str]) -> None:
    for place, (meeting, label) in enumerate(zip(near, labels, strict=True)):
        draw_bar(axes, place, meeting.distance, full=meeting.kept, height=0.36)
        write_over(axes, place - 0.42, label)
    widest = max(meeting.distance for meeting in near)
    axes.set(xlim=(0.0, widest * 1.05 or 1.0), ylim=(len(near) - 0.6, -0.75), yticks=[])
    finish(axes, grid="x", xlabel="distance to the prototype's centre")


def story_of_row(run: FinishedRun, index: int) -> Story:
    """The story of a row of the stream, from the choices its run saved."""
    found = read_evidence(run, CHOICE)
    if found is None:
        made = (run.folder / EVIDENCE_FILE).is_file()
        why = "its memory chose no rows of the stream for good" if made else "make one by its command with --evidence"
        raise UsageError(
            f"'{run.folder}' holds no {EVIDENCE_FILE} with choices, so it cannot tell what became of row {index}: "
            f"{why}{'' if made else ' and --overwrite'}."
        )
    rows, label, kept, distance = found
    _check_choices(run, rows, label, kept, distance)
    places = np.flatnonzero(rows == index)
    if not len(places):
        raise UsageError(
            f"Row {index} was no candidate of any consolidation of '{run.folder}': it is of the last task, or was left "
            f"out when its class was narrowed down, or there is no such row. {_examples(rows, kept)}"
        )
    place = places[0]
    rivals = distance[label == label[place]]
    known = ~np.isnan(rivals).any(axis=0)
    name = f"row {index} ({run.class_name(int(label[place]))})"
    return story(name, distance[place, known], rivals[:, known], int(kept[place]))


def _examples(rows: Array, kept: Array) -> str:
    """Which rows can be asked for."""
    some = [*rows[kept >= 0][:2], *rows[kept < 0][:2]]
    return f"There were {len(rows)} candidates, e.g. {', '.join(str(each) for each in some)}." if some else ""


def _check_choices(run: FinishedRun, rows: Array, label: Array, kept: Array, distance: Array) -> None:
    columns = (rows, label, kept)
    kinds = distance.dtype.kind == "f" and all(column.dtype.kind in "iu" for column in columns)
    fits = distance.ndim == 2 and distance.shape[1] and all(column.shape == (len(distance),) for column in columns)
    if not (kinds and fits and np.isfinite(distance[:, 0]).all() and not np.isinf(distance).any()):
        raise UsageError(f"The choices in '{run.folder / EVIDENCE_FILE}' do not belong together. Run it again.")


def story(name: str, own: Array, rivals: Array, kept: int) -> Story:
    """The story of one candidate.

    `own` [k] are its distances to each prototype's centre, `rivals` [n, k] those of every candidate of the class, and
    `kept` the prototype that it was kept for, −1 for none.

    >>> story("row 2", np.array([0.3, 2.0]), np.array([[0.1, 3.0], [0.2, 1.0], [0.3, 2.0]]), kept=-1).meetings[1]
    Meeting(prototype=1, distance=2.0, rank=2, kept=False)
    """
    ranks = 1 + (rivals < own).sum(axis=0)
    meetings = [Meeting(j, float(own[j]), int(ranks[j]), j == kept) for j in range(len(own))]
    return Story(name, len(rivals), tuple(meetings))
