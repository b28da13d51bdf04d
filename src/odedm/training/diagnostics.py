"""Collects features and how prototypes were chosen, for a run that is to keep them, without changing the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from odedm.core.rng import generators_of, set_state, state_of
from odedm.core.rows import Rows, Task
from odedm.core.stored_names import stored
from odedm.methods.base import Method
from odedm.results.folder import CHOICE, FEATURES
from odedm.selection.nearest import Chosen
from odedm.training.model_view import MethodView

PER_CLASS, FEW, IN_ALL = 1000, 100, 10_000
"""Training rows of each class whose features are saved: as many as the paper draws, but where there are many classes no
more than some thousands in all, and 100 a class even then."""


def rows_per_class(classes: int) -> int:
    """Return how many rows of each class have their features saved.

    >>> [rows_per_class(classes) for classes in (2, 10, 20, 200)]
    [1000, 1000, 500, 100]
    """
    return max(FEW, min(PER_CLASS, IN_ALL // classes))


@stored("choices")
class Choices:
    """Records every choice of a run as it is made: to be set as a dual memory's `on_selection`.

    >>> seen = Choices()
    >>> rows = {"index": torch.tensor([4, 7, 9]), "label": torch.tensor([1, 1, 1])}
    >>> seen(rows, Chosen(torch.tensor([2]), torch.tensor([0])), torch.tensor([[3.0], [2.0], [1.0]]))
    >>> seen.columns()["choice.kept"].tolist()
    [-1, -1, 0]
    """

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def __call__(self, rows: Rows, chosen: Chosen, distance: Tensor) -> None:
        """Keep one class's choice, its last one."""
        kept = torch.full((len(rows["label"]),), -1, dtype=torch.int64)
        kept[chosen.row.cpu()] = chosen.center.cpu()
        label = rows["label"].cpu()
        self.parts = [part for part in self.parts if not part[1][:1].equal(label[:1])]  # a class that returned
        self.parts.append((rows["index"].cpu(), label, kept, distance.float().cpu()))

    def columns(self) -> Rows:
        """Return all choices below each other, distances padded with NaN; nothing where nothing was chosen."""
        if not self.parts:
            return {}
        index, label, kept, distances = zip(*self.parts, strict=True)
        widest = max(part.shape[1] for part in distances)
        wide = tuple(torch.nn.functional.pad(part, (0, widest - part.shape[1]), value=torch.nan) for part in distances)
        return {name: torch.cat(part) for name, part in zip(CHOICE, (index, label, kept, wide), strict=True)}


def features(probe: MethodView, tasks: Sequence[Task], stored: Rows) -> Rows:
    """Return features by the network as it is: of the first rows of every class, and of the stored rows in their order.

    Of a class that returns, of the first rows each time.
    """
    per_class = rows_per_class(sum(len(task.classes) for task in tasks))
    first = [
        probe.embed(task.rows["image"][(task.rows["label"] == label).nonzero().flatten()[:per_class]])
        for task in tasks
        for label in task.classes  # one at a time: large pictures of all classes need not fit into memory at once
    ]
    sets = [torch.cat(first)] + ([probe.embed(stored["image"])] if len(stored["label"]) else [])
    return {name: label.flatten(1).float().cpu() for name, label in zip(FEATURES, sets, strict=False)}


@contextmanager
def preserve_state(method: Method) -> Iterator[None]:
    """After the block the method is what it was before: what a look has cached, switched or drawn is undone.

    A recorded step would not notice such a change: what the method's code on the host resets in each step is not reset
    by a replay, and iCaRL would go on with class means of an earlier look. What the network learns is not kept: nobody
    may train in the block.
    """
    before = dict(vars(method))
    modes = [(module, module.training) for module in method.net.modules()]
    drawn = {rng: state_of(rng) for rng in generators_of([*vars(method).values()])}
    try:
        yield
    finally:
        vars(method).clear()
        vars(method).update(before)
        for module, mode in modes:
            module.training = mode
        for rng in generators_of([*vars(method).values()]):
            if rng in drawn:
                set_state(rng, drawn[rng])
            elif isinstance(rng, torch.Generator):  # born in the block, inside something that outlives it
                rng.manual_seed(rng.initial_seed())
