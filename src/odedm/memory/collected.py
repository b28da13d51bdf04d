"""The rows since classes were last consolidated, among which prototypes are chosen: all of them, or a few inside λ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import ColumnSpec, Rows, count, take
from odedm.memory.keyed import KeyedMemory
from odedm.memory.reservoir import ReservoirMemory


class Collected(Protocol):
    """Rows to choose from, class by class."""

    def reserved(self, joining: Sequence[int] = (), leaving: Sequence[int] = ()) -> int:
        """How many rows of the capacity are taken, or will be when classes have joined or left."""
        ...

    def classes(self) -> list[int]:
        """The classes with rows, by arrival."""
        ...

    def see(self, rows: Rows) -> None:
        """Rows of the stream."""
        ...

    def rows(self) -> Rows:
        """All that was collected."""
        ...

    def forget(self, classes: Sequence[int]) -> None:
        """These classes have been chosen from."""
        ...


class AllRows:
    """Every row: a second store beyond the capacity until its class is consolidated, as in the paper.

    >>> seen = AllRows([ColumnSpec("label", dtype=torch.int64)])
    >>> seen.see({"label": torch.tensor([4, 4, 5])})
    >>> seen.forget([4])
    >>> seen.classes()
    [5]
    """

    def __init__(self, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        self._parts = [{f.name: torch.zeros((0, *f.shape), dtype=f.dtype, device=device) for f in fields}]

    def reserved(self, joining: Sequence[int] = (), leaving: Sequence[int] = ()) -> int:  # noqa: ARG002
        """None."""
        return 0

    def classes(self) -> list[int]:
        """The classes with rows, by arrival."""
        return list(dict.fromkeys(self.rows()["label"].tolist()))

    def see(self, rows: Rows) -> None:
        """Copies, since a loop may use its batch's memory again."""
        self._parts.append({name: rows[name].to(c.dtype, copy=True) for name, c in self._parts[0].items()})

    def rows(self) -> Rows:
        """All rows by arrival."""
        if len(self._parts) > 1:
            self._parts = [{name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}]
        return self._parts[0]

    def forget(self, classes: Sequence[int]) -> None:
        """Drop the rows of these classes."""
        rows = self.rows()
        self._parts = [take(rows, (~among(rows["label"], classes)).nonzero().flatten())]


class ClassReservoirs:
    """A reservoir of `per_class` rows for each class since it was consolidated, inside the capacity.

    Classes join and leave one by one. Those of a run's task, all at once, are `dual.Candidates`.

    >>> seen = ClassReservoirs(2, [ColumnSpec("label", dtype=torch.int64)], rng=torch.Generator().manual_seed(0))
    >>> seen.see({"label": torch.tensor([4, 4, 4, 5])})
    >>> seen.rows()["label"].tolist(), seen.reserved(), seen.reserved([5, 6])
    ([4, 4, 5], 4, 6)
    """

    def __init__(
        self, per_class: int, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu", *, rng: torch.Generator
    ) -> None:
        self.per_class, self.rng, self.fields, self._device = per_class, rng, fields, device
        self.compartments: dict[int, ReservoirMemory] = {}

    def reserved(self, joining: Sequence[int] = (), leaving: Sequence[int] = ()) -> int:
        """`per_class` rows of each class, used or not."""
        return self.per_class * len({*self.compartments, *joining} - {*leaving})

    def classes(self) -> list[int]:
        """The classes with rows, by arrival."""
        return list(self.compartments)

    def open(self, label: int) -> ReservoirMemory:
        """The compartment of a class, a new one where there is none."""
        if label not in self.compartments:
            self.compartments[label] = ReservoirMemory(self.per_class, self.fields, self._device)
        return self.compartments[label]

    def see(self, rows: Rows) -> None:
        """Offer rows to the compartments of their classes."""
        for label in dict.fromkeys(rows["label"].tolist()):
            own = (rows["label"] == label).nonzero().flatten()
            self.open(label).see(take(rows, own), rng=self.rng)

    def rows(self) -> Rows:
        """Every candidate, class by class."""
        parts = [each.rows() for each in self.compartments.values()] or [
            ReservoirMemory(0, self.fields, self._device).rows()
        ]
        return {field.name: torch.cat([part[field.name] for part in parts]) for field in self.fields}

    def forget(self, classes: Sequence[int]) -> None:
        """Give the room of these classes back."""
        for label in classes:
            self.compartments.pop(label, None)


def fit(host: KeyedMemory, capacity: int, collected: Collected | None) -> None:
    """Give a host all of the capacity that collected rows leave."""
    room = capacity - (collected.reserved() if collected else 0)
    if host.capacity != room:
        host.resize(room)


def among(label: Tensor, classes: Sequence[int]) -> Tensor:
    """Which rows are of these classes [n]."""
    return torch.isin(label, torch.tensor(classes, dtype=torch.int64, device=label.device))


def joined(collected: Rows, pinned: Rows, classes: Sequence[int]) -> Rows:
    """What these classes can be chosen from: their prototypes so far and the rows collected since.

    A class that has neither is refused.
    """
    rows = {name: torch.cat([pinned[name], column]) for name, column in collected.items()}
    rows = take(rows, among(rows["label"], classes).nonzero().flatten())
    here = set(rows["label"].tolist())
    missing = [label for label in classes if label not in here]
    if missing and count(collected):
        known = ", ".join(map(str, dict.fromkeys(collected["label"].tolist())))
        raise UsageError(f"There are no rows of class {missing[0]} to choose from. Since the last call came: {known}.")
    if missing:
        raise UsageError(
            f"There are no rows of class {missing[0]} to choose from: none came since the last call. Add some first."
        )
    return rows
