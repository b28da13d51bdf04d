"""What a run can save beside its result for those who want to look closer: features, and how prototypes were chosen."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from odedm.consolidate.nearest import Chosen
from odedm.rows import Rows, Task, take
from odedm.run.probe import LearnerProbe

PER_CLASS = 100
"""Training rows of each class whose features are saved."""


class Choices:
    """Every choice of a run as it is made: the witness of a dual memory.

    >>> seen = Choices()
    >>> rows = {"index": torch.tensor([4, 7, 9]), "label": torch.tensor([1, 1, 1])}
    >>> seen(rows, Chosen(torch.tensor([2]), torch.tensor([0])), torch.tensor([[3.0], [2.0], [1.0]]))
    >>> seen.columns()["choice.kept"].tolist()
    [-1, -1, 0]
    """

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def __call__(self, rows: Rows, chosen: Chosen, distance: Tensor) -> None:
        """Keep one class's choice."""
        kept = torch.full((len(rows["label"]),), -1, dtype=torch.int64)
        kept[chosen.row.cpu()] = chosen.centroid.cpu()
        self.parts.append((rows["index"].cpu(), rows["label"].cpu(), kept, distance.float().cpu()))

    def columns(self) -> Rows:
        """All choices below each other, distances padded with NaN; nothing where nothing was chosen."""
        if not self.parts:
            return {}
        index, label, kept, distances = zip(*self.parts, strict=True)
        most = max(each.shape[1] for each in distances)
        wide = [torch.nn.functional.pad(each, (0, most - each.shape[1]), value=torch.nan) for each in distances]
        return {
            "choice.index": torch.cat(index),
            "choice.label": torch.cat(label),
            "choice.kept": torch.cat(kept),
            "choice.distance": torch.cat(wide),
        }


def features(probe: LearnerProbe, tasks: Sequence[Task], stored: Rows, per_class: int = PER_CLASS) -> Rows:
    """Features by the network as it is: of the first rows of every class, and of the stored rows in their order."""
    first = [
        take(task.rows, (task.rows["label"] == each).nonzero().flatten()[:per_class])["image"]
        for task in tasks
        for each in task.classes
    ]
    columns = {"feature.data": probe.embed(torch.cat(first)).flatten(1).float().cpu()}
    if len(stored["label"]):
        columns["feature.memory"] = probe.embed(stored["image"]).flatten(1).float().cpu()
    return columns
