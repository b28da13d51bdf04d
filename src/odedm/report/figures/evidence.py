"""What a run may save beside its result for figures that need features and distances; read without torch.

The file `evidence.safetensors` in a run's folder may hold, each group of columns by itself:

- `feature.data` [n, d], `feature.memory` [m, d]: features by the final network of training rows, as many of each class,
  and of the rows of `memory.safetensors` in their order.
- `choice.index`, `choice.label`, `choice.kept` [n] and `choice.distance` [n, k]: every candidate of a consolidation,
  its row in the stream, its class, the prototype it was kept for (−1 for none), and its distance to the centre of each
  prototype of its class (NaN beyond the last).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError, safe_open

from odedm.errors import UsageError
from odedm.report.figures.projection import memory_pca
from odedm.report.figures.story import Story, story
from odedm.report.figures.style import Array, Panel
from odedm.report.groups import Group
from odedm.report.runs import Run
from odedm.report.wording import clean

EVIDENCE_FILE = "evidence.safetensors"
CHOICE = ("choice.index", "choice.label", "choice.kept", "choice.distance")
FEATURES = ("feature.data", "feature.memory")


def memory_projection(groups: Sequence[Group]) -> list[Panel]:
    """PCA of memory against data for the first seed of each group that saved its features; nothing for the others.

    Each run has a network, and so a plane, of its own: directions are compared within a panel, not between panels.
    """
    panels = []
    for group in groups:
        for run in group.runs:
            found = read_columns(run, FEATURES)
            if found is not None:
                panels.append(_projected(f"{group.label}, seed {run.seed}", *found))
                break
    return panels


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
    if distance.ndim != 2 or any(column.shape != (len(distance),) for column in (rows, label, kept)):
        raise UsageError(f"The choices in '{run.folder / EVIDENCE_FILE}' do not belong together. Run it again.")
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


def read_columns(run: Run, names: Sequence[str]) -> list[Array] | None:
    """These columns of a run's evidence, None where one is not there or the file cannot be read."""
    path = run.folder / EVIDENCE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="np") as file:
            present = set(file.keys())
            return [file.get_tensor(name) for name in names] if present.issuperset(names) else None
    except (SafetensorError, OSError):
        return None
