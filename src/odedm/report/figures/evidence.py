"""What a run may save beside its result for figures that need features and distances; read without torch.

The file `evidence.safetensors` in a run's folder may hold, each group of columns by itself:

- `feature.data` [n, d], `feature.memory` [m, d]: features by the final network of training rows, as many of each class,
  and of the rows of `memory.safetensors` in their order.
- `choice.index`, `choice.label`, `choice.kept` [n] and `choice.distance` [n, k]: every candidate of a consolidation,
  its row in the stream, its class, the prototype it was kept for (−1 for none), and its distance to the centre of each
  prototype of its class (NaN beyond the last).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError, safe_open

from odedm.core.errors import UsageError
from odedm.report.figures.distances import beside_the_plain_one
from odedm.report.figures.projection import memory_pca
from odedm.report.figures.story import Story, sample_story, story
from odedm.report.figures.style import Array, Panel
from odedm.report.groups import Group
from odedm.report.load import Run
from odedm.report.wording import clean
from odedm.results.result import EVIDENCE_FILE

CHOICE = ("choice.index", "choice.label", "choice.kept", "choice.distance")
FEATURES = ("feature.data", "feature.memory")

log = logging.getLogger(__name__)


PLANES = 12
"""Clouds that a page draws."""


def memory_projection(groups: Sequence[Group]) -> list[Panel]:
    """PCA of memory against data for the first seed of a group that saved its features, without ODEDM and by distance.

    Each run has a network, and so a plane, of its own: directions are compared within a panel, not between panels.
    """
    panels = []
    for group in beside_the_plain_one([group for group in groups if _first(group, FEATURES)]):
        for run, found in _first(group, FEATURES):
            panels.append(_projected(f"{group.label}, seed {run.seed}", *found))
    return panels[:PLANES]


def _first(group: Group, names: Sequence[str]) -> list[tuple[Run, list[Array]]]:
    """The first run of a group that saved these columns, with them; none where none has."""
    for run in group.runs:
        try:
            found = read_columns(run, names)
        except UsageError as error:  # a page shows what can be read
            log.warning("%s", error)
            continue
        if found is not None:
            return [(run, found)]
    return []


def story_source(groups: Sequence[Group]) -> str:
    """The name of the run whose rows have their stories told; empty where no run saved its choices."""
    return next((f"{group.label}, seed {run.seed}" for group in groups for run, _ in _first(group, CHOICE)), "")


def sample_stories(groups: Sequence[Group]) -> list[Panel]:
    """Three rows of the first run that saved its choices, of the first class there.

    The row kept for the first prototype; of those not kept the one nearest to a centre; the one farthest from all.
    """
    for group in groups:
        for run, columns in _first(group, CHOICE):
            try:
                _check_choices(run, *columns)
                told = telling_rows(*columns)
                return [sample_story(story_of_row(run, index), f"{why} · ") for why, index in told.items()]
            except UsageError as error:  # a page says what is wrong with one picture and shows the others
                return [Panel(f"{group.label}, seed {run.seed}", "", clean(error, 300))]
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


def _projected(name: str, data: Array, memory: Array) -> Panel:
    try:
        (panel,) = memory_pca(data, {name: memory})
    except UsageError as error:  # a page says what is wrong with one picture and shows the others
        return Panel(name, "", clean(error, 300))
    return panel


def story_of_row(run: Run, index: int) -> Story:
    """The story of a row of the stream, from the choices its run saved."""
    found = read_columns(run, CHOICE)
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
    own = int(label[places[0]])
    rivals = np.flatnonzero(label == own)
    known = ~np.isnan(distance[rivals]).any(axis=0)
    winners = [np.flatnonzero(kept[rivals] == j) for j in np.flatnonzero(known)]
    at = int(np.flatnonzero(rivals == places[0])[0])
    # a prototype may keep several rows: if this one is among them, it is the one to be told of
    taken = np.array([at if at in winner else int(winner[0]) if len(winner) else -1 for winner in winners])
    name = run.classes[own] if 0 <= own < len(run.classes) else str(own)
    return story(distance[rivals][:, known], taken, at, name=f"row {index} ({name})")


def _examples(rows: Array, kept: Array) -> str:
    """Which rows can be asked for."""
    some = [*rows[kept >= 0][:2], *rows[kept < 0][:2]]
    return f"There were {len(rows)} candidates, e.g. {', '.join(str(each) for each in some)}." if some else ""


def _check_choices(run: Run, rows: Array, label: Array, kept: Array, distance: Array) -> None:
    columns = (rows, label, kept)
    fits = distance.ndim == 2 and all(column.shape == (len(distance),) for column in columns)
    kinds = distance.dtype.kind == "f" and all(column.dtype.kind in "iu" for column in columns)
    if not (
        fits and kinds and distance.shape[1] and np.isfinite(distance[:, 0]).all() and not np.isinf(distance).any()
    ):
        raise UsageError(f"The choices in '{run.folder / EVIDENCE_FILE}' do not belong together. Run it again.")


def read_columns(run: Run, names: Sequence[str]) -> list[Array] | None:
    """These columns of a run's evidence, None where one is not there; an error where the file cannot be read."""
    path = run.folder / EVIDENCE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="np") as file:
            present = set(file.keys())
            return [file.get_tensor(name) for name in names] if present.issuperset(names) else None
    except (SafetensorError, OSError, TypeError, ValueError, KeyError) as error:
        raise UsageError(f"Cannot read '{path}': {clean(error, 200)}. Run it again with --overwrite.") from None
