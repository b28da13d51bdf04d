"""The rows among which prototypes are chosen: all rows of classes until they are consolidated, or a few inside λ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import ColumnSpec, Rows, take
from odedm.core.store import EMPTY, Accepted, Store
from odedm.core.stored_names import stored

FREE = torch.iinfo(torch.int64).min
"""Stands for the label of a compartment that has no class."""


class CandidatePool(ABC):
    """Rows since their classes were last consolidated."""

    @abstractmethod
    def insert(self, rows: Rows) -> None:
        """Offer rows of the stream."""

    @abstractmethod
    def rows(self) -> Rows:
        """Return every candidate."""

    @abstractmethod
    def classes(self) -> list[int]:
        """Return the classes that have candidates, by arrival."""

    @abstractmethod
    def forget(self, classes: Sequence[int]) -> None:
        """Drop the rows of these classes, which have been chosen from."""

    def join(self, classes: Sequence[int], room: int | None = None) -> list[int]:  # noqa: ARG002
        """Collect rows of these classes, in up to `room` rows of λ; return the classes for which there is none."""
        return []

    def without(self, classes: Sequence[int]) -> list[int]:  # noqa: ARG002
        """Return those of these classes whose rows are not collected."""
        return []

    def reserved(self, leaving: Sequence[int] = ()) -> int:  # noqa: ARG002
        """Return how many rows of λ the pool takes, or will take when classes have left."""
        return 0


class TaskPool(CandidatePool):
    """Every row: a second store beyond λ until its class is consolidated, as in the paper.

    >>> pool = TaskPool([ColumnSpec("label", dtype=torch.int64)])
    >>> pool.insert({"label": torch.tensor([4, 4, 5])})
    >>> pool.forget([4])
    >>> pool.classes()
    [5]
    """

    def __init__(self, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        self._parts = [{f.name: torch.zeros((0, *f.shape), dtype=f.dtype, device=device) for f in fields}]

    def insert(self, rows: Rows) -> None:
        """Copy rows."""
        # a loop may use its batch's memory again
        self._parts.append({name: rows[name].to(c.dtype, copy=True) for name, c in self._parts[0].items()})

    def rows(self) -> Rows:
        """Return all rows by arrival."""
        if len(self._parts) > 1:
            self._parts = [{name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}]
        return self._parts[0]

    def classes(self) -> list[int]:
        """Return the classes with rows, by arrival."""
        return list(dict.fromkeys(self.rows()["label"].tolist()))

    def forget(self, classes: Sequence[int]) -> None:
        """Drop the rows of these classes."""
        rows = self.rows()
        self._parts = [take(rows, (~is_among(rows["label"], classes)).nonzero().flatten())]


@stored("memory/candidates")
class ClassReservoirPool(CandidatePool):
    """A reservoir of `per_class` rows for each class, inside λ: one store with a compartment for each class.

    A class that joins takes a free compartment, and where there is none a new one is made; those of classes that are
    forgotten are given up. With `compartments` there are so many all the time, and nothing moves: a recorded step
    writes into them.

    >>> pool = ClassReservoirPool(2, [ColumnSpec("label", dtype=torch.int64)], rng=torch.Generator().manual_seed(0))
    >>> pool.join([4, 5, 6], room=4)
    [6]
    >>> pool.insert({"label": torch.tensor([4, 4, 4, 5, 6])})
    >>> pool.rows()["label"].tolist(), pool.reserved(), pool.reserved(leaving=[5])
    ([4, 4, 5], 4, 2)
    """

    def __init__(
        self,
        per_class: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        rng: torch.Generator,
        compartments: int = 0,
    ) -> None:
        if per_class < 1:
            raise UsageError(f"Bounded candidates need at least 1 row per class; {per_class} was given.")
        self.per_class, self.rng, self.fixed = per_class, rng, compartments > 0
        self.store = Store(per_class * compartments, fields, device)
        self.labels = torch.full((compartments,), FREE, device=device)
        self._labels = [FREE] * compartments  # the same on the host

    def reserved(self, leaving: Sequence[int] = ()) -> int:
        """Return `per_class` rows for each class or fixed compartment, used or not."""
        if self.fixed:
            return self.store.capacity
        return self.per_class * len({*self.classes()} - {*leaving})

    def classes(self) -> list[int]:
        """Return the classes with a compartment, by arrival."""
        return [label for label in self._labels if label != FREE]

    def without(self, classes: Sequence[int]) -> list[int]:
        """Return those of these classes that have no compartment."""
        return [label for label in classes if label not in self._labels]

    def join(self, classes: Sequence[int], room: int | None = None) -> list[int]:
        """Give classes that have none a compartment, as far as the room reaches."""
        new = self.without(list(dict.fromkeys(classes)))
        fitting = len(new) if room is None else max(0, (room - self.reserved()) // self.per_class)
        for label in new[:fitting]:
            if FREE not in self._labels:
                self._rebuild([*self._labels, FREE])
            self._labels[self._labels.index(FREE)] = label
        if new[:fitting]:
            self.labels.copy_(torch.tensor(self._labels, dtype=torch.int64))
        return new[fitting:]

    def insert(self, rows: Rows) -> None:
        """Offer rows to the compartments of their classes; rows of other classes are passed over."""
        label = rows["label"]
        priority = torch.rand(len(label), dtype=torch.float64, generator=self.rng, device=label.device)
        if not self._labels or (label.is_cpu and len(self._labels) > 1 and self._insert_into_full(rows, priority)):
            return
        is_member = label == self.labels[:, None]  # [compartments, rows]
        priorities = priority.expand_as(is_member).where(is_member, EMPTY)
        if len(self._labels) == 1:  # a store without groups takes a priority for each row
            priorities = priorities[0]
        offered = {name: rows[name] for name in self.store.columns}
        self.store.insert(offered, priorities, groups=len(self._labels))

    def _insert_into_full(self, rows: Rows, priority: Tensor) -> bool:
        """Offer rows [n] with priorities [n] on the host, where they win only in full compartments; else do nothing.

        The i-th best newcomer takes the place of the i-th worst resident, if it is better. Most win nowhere, which a
        look at the worst of each compartment says.
        """
        priorities = self.store.priority.numpy().reshape(-1, self.per_class)
        worst, values = priorities.min(1).tolist(), priority.tolist()
        compartments = {label: i for i, label in enumerate(self._labels) if label != FREE}
        newcomers: dict[int, list[int]] = {}
        for row, label in enumerate(rows["label"].tolist()):
            at = compartments.get(label)
            if at is not None and values[row] > worst[at]:
                if worst[at] == EMPTY:
                    return False
                newcomers.setdefault(at, []).append(row)
        winners, slots = [], []
        for at, members in newcomers.items():
            members.sort(key=values.__getitem__, reverse=True)
            for row, place in zip(members, priorities[at].argsort().tolist(), strict=False):
                if values[row] > priorities[at, place]:
                    winners.append(row)
                    slots.append(at * self.per_class + place)
        self.store.put(Accepted(winners, slots), rows, priority)
        return True

    def rows(self) -> Rows:
        """Return every candidate, class by class."""
        return self.store.read((self.store.priority >= 0).nonzero().flatten())

    def forget(self, classes: Sequence[int]) -> None:
        """Free the compartments of these classes, and give them up unless their number is fixed."""
        gone = {label for label in classes if label != FREE} & {*self._labels}
        if not gone:
            return
        if not self.fixed:
            self._rebuild([label for label in self._labels if label not in gone])
            return
        self.store.priority.view(-1, self.per_class).masked_fill_(is_among(self.labels, [*gone])[:, None], EMPTY)
        self._labels = [FREE if label in gone else label for label in self._labels]
        self.labels.copy_(torch.tensor(self._labels, dtype=torch.int64))

    def _rebuild(self, labels: Sequence[int]) -> None:
        """Make a store with compartments of these labels only; those that are here already keep their rows."""
        old, device = self.store, self.store.priority.device
        self.store = Store(self.per_class * len(labels), old.fields, device)
        for place, label in enumerate(labels):
            if label == FREE:
                continue
            slots = torch.arange(self.per_class, device=device)
            before = slots + self._labels.index(label) * self.per_class
            self.store.write(slots + place * self.per_class, old.read(before))
            self.store.priority[slots + place * self.per_class] = old.priority[before]
        self._labels, self.labels = [*labels], torch.tensor(labels, dtype=torch.int64, device=device)


def is_among(label: Tensor, classes: Sequence[int]) -> Tensor:
    """Return which rows are of these classes [n]."""
    return torch.isin(label, torch.tensor(classes, dtype=torch.int64, device=label.device))
