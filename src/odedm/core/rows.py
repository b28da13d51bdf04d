"""Rows with named columns, tasks of a stream, and what a memory may ask of the learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import short_repr
from odedm.core.stored_names import stored

Rows = dict[str, Tensor]
"""Columns by name that share their first dimension."""


@dataclass(frozen=True)
class ColumnSpec:
    """A column to be stored: its name, the shape of one entry, its type."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


@stored("part")
class MemoryPart(Enum):
    """Which rows of a memory are meant."""

    ALL = "all"
    """Every row."""
    SHORT = "short"
    """Rows that a policy chooses while the stream goes by."""
    LONG = "long"
    """Prototypes of what is over, pinned."""


@stored("task")
@dataclass(frozen=True)
class Task:
    """One task of a stream: its place, its classes, and its training rows in the order they arrive."""

    index: int
    total: int
    classes: tuple[int, ...]
    rows: Rows

    @property
    def last(self) -> bool:
        """Return whether no task follows."""
        return self.index == self.total - 1

    def __len__(self) -> int:
        return len(self.rows["label"])

    def __repr__(self) -> str:
        return (
            f"<Task {self.index + 1} of {self.total}: {len(self)} rows of the classes {short_repr(list(self.classes))}>"
        )


class ModelView(Protocol):
    """All that a memory may ask of the learner, with the network in evaluation mode and without gradients."""

    def embed(self, image: Tensor) -> Tensor:
        """Return features [n, d] of raw images [n, ...] by the current network."""
        ...

    def annotate(self, rows: Rows) -> Rows:
        """Return the method's own fields (e.g. logits) for rows that carry raw images."""
        ...

    def features_and_losses(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return features [n, d] and cross-entropies [n] of rows with raw images and labels, from one forward."""
        ...

    def predict(self, image: Tensor) -> Tensor:
        """Return scores [n, C] of raw images [n, ...]."""
        ...

    def gradients(self, rows: Rows, *, of: str = "head", then: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return each row's own gradient [n, P] of its cross-entropy, by the weights of the "head" or by "all" weights.

        A few rows are derived at a time; `then` turns their gradients [m, P] into what is kept of them, so that n · P
        numbers need never be there at once.
        """
        ...

    def class_weights(self) -> Tensor:
        """Return the head's weights [C, d]: what each class looks for in the features."""
        ...

    def training_loss(self) -> Tensor:
        """Return the loss of the last update, a 0-d tensor."""
        ...


def int_tensor(numbers: list[int]) -> Tensor:
    """Return whole numbers as a tensor [n]; `torch.tensor` reads a list ten times as slowly.

    >>> int_tensor([3, 5])
    tensor([3, 5])
    """
    return torch.from_numpy(np.array(numbers, dtype=np.int64))


def take(rows: Rows, index: Tensor) -> Rows:
    """Return the rows at `index` [n], column by column.

    >>> take({"label": torch.tensor([5, 6, 7])}, torch.tensor([2, 0]))
    {'label': tensor([7, 5])}
    """
    return {name: column.index_select(0, index) for name, column in rows.items()}


def distinct(index: Tensor) -> Tensor:
    """Return positions [m] of the rows that are the first of their index [n]; an index below 0 is no row of the stream.

    >>> distinct(torch.tensor([4, 7, -1, 4, -1])).tolist()
    [0, 1, 2, 4]
    """
    order = index.argsort(stable=True)
    value = index[order]
    repeated = torch.zeros_like(value, dtype=torch.bool)
    repeated[1:] = (value[1:] == value[:-1]) & (value[1:] >= 0)
    return order[~repeated].sort().values


def rank_within(label: Tensor) -> Tensor:
    """Return how many rows of the same label [n] come before each row [n].

    >>> rank_within(torch.tensor([4, 4, 0, 4, 0])).tolist()
    [0, 1, 0, 2, 1]
    """
    order = label.argsort(stable=True)
    grouped = label[order]
    rank = torch.empty_like(label)
    rank[order] = torch.arange(len(label), device=label.device) - torch.searchsorted(grouped, grouped)
    return rank


def count(rows: Rows) -> int:
    """Return how many rows the columns hold.

    >>> count({"label": torch.zeros(3)})
    3
    """
    return next(iter(rows.values())).shape[0]  # not by `len`, which torch answers in Python
