"""ODEDM's memory: a short-term buffer and long-term prototypes of classes that are over, in one budget of λ rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from odedm.core.errors import UsageError
from odedm.core.rows import MemoryPart, ModelView, Rows, Task, count, distinct, take
from odedm.core.stored_names import stored
from odedm.core.timer import Timer
from odedm.core.validators import LARGEST
from odedm.memory.admission import ConsolidationOutcome, admit, amounts, classes_that_give_way
from odedm.memory.buffer import Buffer
from odedm.memory.candidate_pool import CandidatePool, is_among
from odedm.memory.prototype_quotas import EqualShare, FixedQuota
from odedm.selection.selector import OnSelection, PrototypeSelector


@stored("memory/dual")
class DualBuffer:
    """ODEDM: a short-term buffer, and prototypes of finished classes that are pinned into it, its long-term part.

    While the stream goes by, `buffer` keeps rows by its policy, and `pool` collects candidates. When classes are over,
    `consolidate` lets `selector` choose prototypes among their candidates and the prototypes they have already: DAC
    narrows them down, k-means finds centres in the network's features, and the nearest rows by `distance` stay (F_k
    rows a class, by `quota`). They are pinned in the place of old ones, and the short-term part gives up as many rows,
    those of the smallest priorities: it stays a uniform sample of the whole stream, so a row that became a prototype
    may be there, too, unless prototypes are chosen `from_short_term`.

    `buffer` has all of λ that the pool does not reserve. Without a pool a run's prototypes are chosen among all rows of
    the finished task, and without a selector nothing is ever pinned: the short-term buffer alone, by the same code.

    Args:
        buffer: the short-term rows by a policy, and what is pinned.
        selector: chooses k prototypes of each class; its own k does not count.
        pool: where candidates are collected, if anywhere.
        quota: how many prototypes a class may have.
        rng: on the CPU, of its own: choosing prototypes must not shift what the buffer draws.
        timer: of the parts of a choice.
        columns: those that rows to choose from bring along, all that candidates have unless given; others are taken
            anew from the network.
        all_or_nothing: pin nothing if any class is refused or missing. Else what fits is pinned, and candidates of
            other classes give way to prototypes.
        from_short_term: choose among the short-term rows of classes that have no candidates, and take rows that become
            prototypes out of the short-term part, for else each would cost two rows of λ. All rows have an `index`,
            their place in the stream, by which none is chosen twice.
        in_place: never make a new store, for a recorded step goes on with the one that is there.
    """

    def __init__(
        self,
        buffer: Buffer,
        selector: PrototypeSelector | None,
        pool: CandidatePool | None,
        quota: FixedQuota | EqualShare,
        *,
        rng: torch.Generator,
        timer: Timer | None = None,
        columns: Sequence[str] = (),
        all_or_nothing: bool = False,
        from_short_term: bool = False,
        in_place: bool = False,
    ) -> None:
        self.buffer, self.selector, self.pool, self.quota = buffer, selector, pool, quota
        self.rng, self.timer, self.columns = rng, timer or Timer(), tuple(columns)
        self.all_or_nothing, self.from_short_term, self.in_place = all_or_nothing, from_short_term, in_place
        self.on_selection: OnSelection | None = None
        """Shown how prototypes were chosen; set it to look on."""

    @property
    def capacity(self) -> int:
        """λ: the rows of both parts and of the candidates."""
        return self.buffer.capacity + self.reserved()

    @property
    def only_at_borders(self) -> bool:
        """Return whether nothing is stored while a task lasts."""
        return self.pool is None and self.buffer.only_at_borders

    def add(self, rows: Rows, probe: ModelView, *, rng: torch.Generator) -> None:
        """Offer a stream batch to the short-term part and to the candidates."""
        self.buffer.add(rows, probe, rng=rng)
        if self.pool:
            self.pool.insert(rows)

    def begin_task(self, task: Task) -> None:
        """Collect candidates of this task's classes, and of no others."""
        self.buffer.begin_task(task)
        if self.pool:
            self.pool.forget(self.pool.classes())
            self.pool.join(task.classes)

    def end_task(self, task: Task, probe: ModelView, *, rng: torch.Generator) -> None:
        """Pin the prototypes of every class of the finished task, unless it was the last one."""
        if not task.last and self.selector is not None:
            classes = [label for label in task.classes if self.quota.of(label, classes=1, room=self.capacity)]
            outcome = self.consolidate(classes, probe, candidates=None if self.pool else task.rows)
            if outcome.error:
                raise outcome.error
        self.buffer.end_task(task, probe, rng=rng)

    def consolidate(
        self,
        classes: Sequence[int],
        view: ModelView,
        *,
        candidates: Rows | None = None,
        annotate: Callable[[Rows], Rows] | None = None,
    ) -> ConsolidationOutcome:
        """Choose prototypes of classes anew and pin them; other classes lose their last ones where shares shrink.

        Where the network cannot be asked nothing changes, and no generator moves.

        Args:
            classes: their labels.
            view: asked for features, and for the method's columns of the chosen rows.
            candidates: to choose from in the place of the pool's.
            annotate: gives new values of columns of the chosen rows.
        """
        if self.selector is None:
            return ConsolidationOutcome()
        rows = self._rows_to_choose_from(classes, candidates)
        outcome = admit(self, classes, rows)
        if outcome.pinned:
            self._pin(outcome.pinned, rows, view, annotate)
        if not self.all_or_nothing:  # candidates of the others are over, too
            self.forget_candidates(classes)
        return outcome

    def _rows_to_choose_from(self, classes: Sequence[int], candidates: Rows | None) -> Rows:
        """Return these classes' prototypes so far, then their candidates, or short-term rows where they have none."""
        if candidates is None and self.pool:
            candidates = self.pool.rows()
        parts = [_of_classes(self.buffer.rows(MemoryPart.LONG), classes)]
        parts += [candidates] if candidates is not None else []
        if self.from_short_term:
            bounded = self.pool.classes() if self.pool else []
            parts.append(_of_classes(self.buffer.rows(MemoryPart.SHORT), [c for c in classes if c not in bounded]))
        names = self.columns or tuple(parts[-1])
        parts = [part for part in parts if count(part)] or parts[-1:]
        rows = {name: torch.cat([part[name] for part in parts]) if parts[1:] else parts[0][name] for name in names}
        return take(rows, distinct(rows["index"])) if self.from_short_term else rows

    def _pin(
        self, classes: Sequence[int], rows: Rows, view: ModelView, annotate: Callable[[Rows], Rows] | None
    ) -> None:
        """Choose prototypes of classes that fit, make room for them, and pin them."""
        held = amounts(self.buffer.rows(MemoryPart.LONG))
        closing = classes_that_give_way(self, classes, rows)
        room = self.capacity - self.reserved(leaving=closing)
        amount = len({*held, *classes})
        quota = {label: self.quota.of(label, classes=amount, room=room) for label in {*held, *classes}}
        chosen = []
        with _unmoved(self.rng):
            for k in sorted({quota[label] for label in classes}):
                alike = [label for label in classes if quota[label] == k]
                chosen.append(self._choose(k, alike, rows, view))
            if annotate:
                chosen = [part | annotate(part) for part in chosen]
        self.forget_candidates(closing)
        self._forget_prototypes(classes, quota, chosen)
        for part in chosen:
            if count(part):
                self.buffer.pin(part)

    def _choose(self, k: int, classes: Sequence[int], rows: Rows, view: ModelView) -> Rows:
        """Return k prototypes of each of these classes."""
        assert self.selector is not None
        select = replace(self.selector, k=k)
        return select(rows, classes, view, rng=self.rng, timer=self.timer, on_selection=self.on_selection)

    def _forget_prototypes(self, classes: Sequence[int], quota: dict[int, int], chosen: Sequence[Rows]) -> None:
        """Unpin what is chosen anew or beyond its quota; forget what was chosen from the short-term part."""
        store = self.buffer.store
        label, pinned = store.columns["label"], store.key > 1
        gone = is_among(label, classes)
        for k in {*quota.values()}:
            alike = [other for other, most in quota.items() if most == k]
            gone |= is_among(label, alike) & (store.columns["prototype"] >= k)
        gone &= pinned
        if self.from_short_term:
            index = torch.cat([part["index"] for part in chosen])
            gone |= (store.key >= 0) & ~pinned & torch.isin(store.columns["index"], index)
        self.buffer.forget(gone, in_place=self.in_place)

    def release(self, classes: Sequence[int]) -> int:
        """Forget the prototypes of some classes; return how many rows that were."""
        before = self.buffer.size(MemoryPart.LONG)
        self.buffer.unpin(is_among(self.buffer.store.columns["label"], classes))
        return before - self.buffer.size(MemoryPart.LONG)

    def join(self, classes: Sequence[int], room: int) -> list[int]:
        """Give classes candidates of their own as far as `room` rows reach; return those that have none."""
        if self.pool is None:
            return []
        left, capacity = [], self.capacity
        for label in classes:
            if label in self.pool.classes():
                continue
            if self.pool.reserved([label]) > room:
                left.append(label)
            else:
                self.pool.join([label])
        self._fit(capacity)
        return left

    def resize(self, capacity: int, quota: FixedQuota | EqualShare) -> None:
        """Give memory and candidates another number of rows in all, and prototypes another quota, which they keep to.

        What is refused changes nothing.
        """
        room, pinned = capacity - self.reserved(), self.buffer.rows(MemoryPart.LONG)
        amount, most = len(amounts(pinned)), LARGEST
        if isinstance(quota, EqualShare) and amount:
            most = quota.of(0, classes=amount, room=room)
            if not most:
                raise quota.refusal(0, count(pinned), classes=amount, capacity=capacity, room=room)
        left = int((pinned["prototype"] < most).sum())
        if left > room:
            raise UsageError(
                f"{capacity} rows cannot hold the {left} long-term rows and what candidates take. Release "
                "classes first, or give a larger capacity."
            )
        self.buffer.unpin(self.buffer.store.columns["prototype"] >= most)
        self.quota = quota
        self._fit(capacity)

    def reserved(self, leaving: Sequence[int] = ()) -> int:
        """Return how many rows of λ candidates take, or will take when classes have left."""
        return self.pool.reserved(leaving=leaving) if self.pool else 0

    def forget_candidates(self, classes: Sequence[int]) -> None:
        """Drop what was collected of these classes; the short-term part has its room."""
        capacity = self.capacity
        if self.pool:
            self.pool.forget(classes)
        self._fit(capacity)

    def _fit(self, capacity: int) -> None:
        """Give the buffer all of λ that candidates leave."""
        room = capacity - self.reserved()
        if self.buffer.capacity != room:
            self.buffer.resize(room)

    def size(self, part: MemoryPart = MemoryPart.ALL) -> int:
        """Return how many rows a part holds; candidates belong to neither."""
        return self.buffer.size(part)

    def sample(self, n: int, *, part: MemoryPart = MemoryPart.ALL, rng: torch.Generator) -> Rows:
        """Draw min(n, size) distinct rows of a part, uniformly at random."""
        return self.buffer.sample(n, part=part, rng=rng)

    def rows(self, part: MemoryPart = MemoryPart.ALL) -> Rows:
        """Return all rows of a part: short-term by arrival, then long-term by the order of pinning."""
        return self.buffer.rows(part)

    def pinned_classes(self) -> int:
        """Return of how many classes there are prototypes."""
        return len(amounts(self.rows(MemoryPart.LONG)))

    def class_counts(self, classes: int) -> dict[str, list[int]]:
        """Return the rows per class in the short-term and in the long-term part."""
        return self.buffer.class_counts(classes)

    def graph_key(self, n: int) -> tuple[int, ...]:
        """Return the buffer's numbers that `add` and draws of up to n rows depend on."""
        return self.buffer.graph_key(n)

    def on_graph_replay(self, n: int) -> None:
        """Count n rows that a recorded step has added."""
        self.buffer.on_graph_replay(n)


AnyBuffer = Buffer | DualBuffer
"""The memory of a run: one policy alone, or the dual memory."""


def _of_classes(rows: Rows, classes: Sequence[int]) -> Rows:
    return take(rows, is_among(rows["label"], classes).nonzero().flatten())


@contextmanager
def _unmoved(rng: torch.Generator) -> Iterator[None]:
    """Return a block after which a generator is where it was, should the block fail."""
    before = rng.get_state()
    try:
        yield
    except BaseException:
        rng.set_state(before)
        raise
