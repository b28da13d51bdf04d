"""The dual memory: a host memory for the short term, and pinned prototypes of finished tasks for the long term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from odedm.consolidate.consolidator import Consolidator, OnSelection
from odedm.core.errors import UsageError
from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, Task, count, take
from odedm.core.store import EMPTY, Store
from odedm.core.stored_names import stored
from odedm.core.timer import Timer
from odedm.memory.base import Memory


class Host(Memory, Protocol):
    """A memory that can keep rows for good."""

    def pin(self, rows: Rows) -> None:
        """Keep rows for good, in the place of short-term ones."""
        ...

    def unpin_classes(self, classes: Sequence[int]) -> None:
        """Forget the pinned rows of these classes; their room is the short-term part's again."""
        ...


@stored("memory/dual")
class TaskDualMemory:
    """ODEDM: when a task ends its prototypes are pinned into the host, which shrinks by as many rows.

    Without a consolidator nothing is ever pinned: the host alone, by the same code path.

    `candidates=None` chooses among all rows of the finished task, a second store beyond the capacity while the task
    lasts. Otherwise the choice is among `candidates`, whose rows count: host and candidates share the capacity.

    The prototypes of a class that returns are chosen anew, among them and the rows that came since, and replaced. So
    a class has k prototypes at most, or as many as `quota` [C] says for its label.
    """

    def __init__(
        self,
        host: Host,
        consolidator: Consolidator | None,
        *,
        rng: torch.Generator,
        timer: Timer,
        candidates: Candidates | None = None,
        quota: tuple[int, ...] | None = None,
    ) -> None:
        self.quota = quota
        self.host, self.consolidator, self.timer, self.candidates = host, consolidator, timer, candidates
        self.rng = rng  # of its own, on the CPU: choosing prototypes must not shift what the host draws
        self.capacity = host.capacity + (candidates.capacity if candidates else 0)
        self.on_selection: OnSelection | None = None
        """Shown how prototypes were chosen; set it to look on."""

    @property
    def only_at_borders(self) -> bool:
        """Whether nothing is stored while a task lasts."""
        return self.candidates is None and getattr(self.host, "only_at_borders", False)

    def size(self, part: MemoryPart = MemoryPart.ALL) -> int:
        """How many rows a part holds; candidates belong to neither."""
        return self.host.size(part)

    def begin_task(self, task: Task) -> None:
        """Collect candidates for this task's classes."""
        self.host.begin_task(task)
        if self.candidates:
            self.candidates.begin(task.classes)

    def add(self, rows: Rows, probe: ModelView, *, rng: torch.Generator) -> None:
        """Hand a stream batch to the host, and to the candidates where they are bounded."""
        self.host.add(rows, probe, rng=rng)
        if self.candidates:
            self.candidates.see(rows)

    def sample(self, n: int, *, part: MemoryPart = MemoryPart.ALL, rng: torch.Generator) -> Rows:
        """min(n, size) distinct rows of a part, uniformly at random."""
        return self.host.sample(n, part=part, rng=rng)

    def frozen(self, n: int) -> tuple[int, ...]:
        """The host's numbers that `add` and draws of up to n rows depend on."""
        return self.host.frozen(n)

    def replayed(self, n: int) -> None:
        """Count n rows that a recorded step has added."""
        self.host.replayed(n)

    def rows(self, part: MemoryPart = MemoryPart.ALL) -> Rows:
        """All rows of a part: short-term by arrival, then long-term by the order of pinning."""
        return self.host.rows(part)

    def class_counts(self, classes: int) -> dict[str, list[int]]:
        """Rows per class in the short-term and in the long-term part."""
        return self.host.class_counts(classes)

    def end_task(self, task: Task, probe: ModelView, *, rng: torch.Generator) -> None:
        """Pin the prototypes of every class of the finished task, unless it was the last one."""
        if not task.last and self.consolidator is not None:
            rows = self._with_prototypes(self.candidates.rows() if self.candidates else task.rows, task.classes)
            chosen = [
                choose(rows, classes, probe, rng=self.rng, timer=self.timer, on_selection=self.on_selection)
                for choose, classes in self._choices(self.consolidator, task.classes)
            ]
            self.host.unpin_classes(task.classes)
            for part in chosen:
                if count(part):
                    self.host.pin(part)
        self.host.end_task(task, probe, rng=rng)

    def _choices(self, choose: Consolidator, classes: Sequence[int]) -> Iterator[tuple[Consolidator, Sequence[int]]]:
        """How to choose prototypes of which classes: of all at once, or by quota."""
        if self.quota is None:
            yield choose, classes
            return
        quota = {each: self.quota[each] for each in classes}
        for k in sorted({*quota.values()} - {0}):
            yield replace(choose, k=k), [each for each in classes if quota[each] == k]

    def _with_prototypes(self, rows: Rows, classes: Sequence[int]) -> Rows:
        """The rows to choose from: behind the prototypes that these classes have from earlier tasks, if any."""
        pinned = self.host.rows(MemoryPart.LONG)
        own = torch.isin(pinned["label"], torch.tensor(classes, device=pinned["label"].device))
        if not bool(own.any()):
            return rows
        before = take(pinned, own.nonzero().flatten())
        return {name: torch.cat([before[name], column]) for name, column in rows.items()}


@stored("memory/candidates")
class Candidates:
    """A reservoir of fixed size for each class of the running task: the strictly online choice of prototypes.

    They begin and end with a run's tasks. Where there are none, see `collected.ClassReservoirs`. Checkpoints name this
    class, so it keeps its name.

    >>> seen = Candidates(2, 2, [ColumnSpec("label", dtype=torch.int64)], rng=torch.Generator().manual_seed(0))
    >>> seen.begin((4, 5))
    >>> seen.see({"label": torch.tensor([4, 4, 4, 5])})
    >>> sorted(seen.rows()["label"].tolist())
    [4, 4, 5]
    """

    def __init__(
        self,
        per_class: int,
        classes: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        rng: torch.Generator,
    ) -> None:
        if per_class < 1:
            raise UsageError(f"Bounded candidates need at least 1 row per class; {per_class} was given.")
        self.capacity, self.rng = per_class * classes, rng
        self.names = [field.name for field in fields]
        self.store = Store(self.capacity, fields, device)
        self.classes = torch.zeros(classes, dtype=torch.int64, device=device)

    def begin(self, classes: Sequence[int]) -> None:
        """Forget the last task's rows and watch these classes."""
        self.store.clear()
        self.classes.fill_(-1)  # no label: a smaller task leaves compartments empty
        self.classes[: len(classes)].copy_(torch.tensor(classes))

    def see(self, rows: Rows) -> None:
        """Offer rows to the compartment of their class."""
        label = rows["label"]
        key = torch.rand(len(label), dtype=torch.float64, generator=self.rng, device=label.device)
        own = key.expand(len(self.classes), -1).where(label == self.classes[:, None], EMPTY)
        self.store.insert({name: rows[name] for name in self.names}, own, groups=len(self.classes))

    def rows(self) -> Rows:
        """Every candidate, class by class."""
        return self.store.read((self.store.key >= 0).nonzero().flatten())
