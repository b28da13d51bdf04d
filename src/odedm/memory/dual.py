"""ODEDM's memory: a short-term part and a long-term part in one budget of λ rows.

Bounded pools of candidates are inside λ, too; the rows of the task under way that a run reads are not.

1. While a task lasts, `add` offers each stream batch to the short-term part, by default a reservoir: a uniform sample
   of all rows so far. A pool may collect candidates for prototypes meanwhile.
2. When it is over, `consolidate` chooses prototypes of each of its classes among their candidates: F_k of them
   (`memory.quotas`), by DAC, k-means and the nearest rows in the network's features (`selection.selector`).
3. They are pinned, which makes them long-term. They use empty slots first, then replace the short-term rows with the
   smallest priorities. Those of a reservoir are random, so what stays is a uniform sample, unless prototypes are taken
   from the short-term rows, or the part grows (`Buffer.resize`).
4. `sample` draws from either part or from both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from odedm.core.errors import UsageError
from odedm.core.rows import MemoryPart, ModelView, Rows, Task, count, distinct, take
from odedm.core.store import check_room
from odedm.core.stored_names import stored
from odedm.core.timer import Timer
from odedm.core.validators import LARGEST
from odedm.memory.buffer import Buffer
from odedm.memory.candidate_pool import CandidatePool, is_among
from odedm.memory.changing import OnChange
from odedm.memory.quotas import ConsolidationOutcome, EqualShare, FixedQuota, admit
from odedm.selection.selector import OnSelection, PrototypeSelector


@stored("memory/dual")
class DualBuffer:
    """ODEDM: a buffer whose short-term rows a policy chooses, and whose long-term rows are pinned prototypes.

    Candidates come from the first source there is: rows that the caller passes, for all classes (a run passes the whole
    finished task, as in the paper); otherwise, for each class, its rows in the pool, or its short-term rows. The
    prototypes that the class has are candidates, too. Rows of the caller and of the pool are copies: pinning them takes
    nothing out of the short-term part, and a row may be in both parts. A short-term row that becomes a prototype moves.

    `buffer` has all of λ that the pool does not reserve. Without a selector nothing is ever pinned: the short-term
    buffer alone, by the same code.

    Args:
        buffer: the short-term rows by a policy, and what is pinned.
        selector: chooses k prototypes of each class; its own k does not count.
        pool: where candidates are collected, if they are; it may have no room for some classes.
        quota: how many prototypes a class may have.
        rng: on the CPU, of its own: choosing prototypes must not shift what the buffer draws.
        timer: of the parts of a choice.
        columns: those that rows to choose from bring along, all that candidates have unless given; others are taken
            anew from the network.
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
        in_place: bool = False,
    ) -> None:
        self.buffer, self.selector, self.pool, self.quota = buffer, selector, pool, quota
        self.rng, self.timer, self.columns, self.in_place = rng, timer or Timer(), tuple(columns), in_place
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

    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """Offer a stream batch to the short-term part and to the candidates."""
        self.buffer.add(rows, view, rng=rng)
        if self.pool:
            self.pool.insert(rows)

    def begin_task(self, task: Task) -> None:
        """Collect candidates of this task's classes, and of no others."""
        self.buffer.begin_task(task)
        if self.pool:
            self.pool.forget(self.pool.classes())
            self.pool.join(task.classes)

    def end_task(self, task: Task, view: ModelView, *, rng: torch.Generator) -> None:
        """Pin the prototypes of every class of the finished task, unless it was the last one."""
        if not task.last and self.selector is not None:
            # one class alone and the whole room: whoever gets nothing even then has a quota of 0
            classes = [label for label in task.classes if self.quota.of(label, classes=1, room=self.capacity)]
            outcome = self.consolidate(classes, view, candidates=None if self.pool else task.rows)
            if outcome.error:
                raise outcome.error
        self.buffer.end_task(task, view, rng=rng)

    def consolidate(
        self,
        classes: Sequence[int],
        view: ModelView,
        *,
        candidates: Rows | None = None,
        annotate: Callable[[Rows], Rows] | None = None,
        all_or_nothing: bool = False,
        on_change: OnChange = None,
    ) -> ConsolidationOutcome:
        """Choose prototypes of classes again and pin them.

        Where shares shrink, other classes lose the prototypes with the highest numbers.

        Where the choice ends early, for the network cannot be asked say, nothing changes, and no generator moves.

        Args:
            classes: their labels.
            view: asked for features, and for the method's columns of the chosen rows.
            candidates: rows to choose from; neither the pool nor the short-term rows are used then.
            annotate: gives new values of columns of the chosen rows.
            all_or_nothing: change nothing if any class is refused or missing. Else what fits is pinned.
            on_change: called when all is chosen, before the first row moves.
        """
        if self.selector is None:
            return ConsolidationOutcome()
        from_short_term = self._without_candidates(classes) if candidates is None else []
        rows = self._rows_to_choose_from(classes, from_short_term, candidates)
        outcome = admit(
            self.quota,
            classes,
            available=class_sizes(rows),
            held=class_sizes(self.rows(MemoryPart.LONG)),
            capacity=self.capacity,
            room=self.capacity - self.reserved(self.candidate_classes()),  # once all candidates have given way
        )
        if all_or_nothing and (outcome.refused or outcome.missing):
            outcome.pinned = []
            return outcome
        rng = self.rng.clone_state()
        chosen = self._chosen(outcome, rows, view, annotate, rng)
        if on_change:
            on_change()
        if outcome.pinned:
            self.rng.set_state(rng.get_state())
            self._pin(outcome, from_short_term, chosen)
        self.forget_candidates(classes)
        return outcome

    def _without_candidates(self, classes: Sequence[int]) -> list[int]:
        """Return the classes that are chosen among their short-term rows."""
        return self.pool.without(classes) if self.pool else list(classes)

    def _rows_to_choose_from(
        self, classes: Sequence[int], from_short_term: Sequence[int], candidates: Rows | None
    ) -> Rows:
        """Return these classes' prototypes so far, then their candidates, then short-term rows of classes without."""
        if candidates is None and self.pool:
            candidates = self.pool.rows()
        parts = [self._rows_of(classes, MemoryPart.LONG)]
        parts += [] if candidates is None else [candidates]
        parts += [self._rows_of(from_short_term, MemoryPart.SHORT)] if from_short_term else []
        names = self.columns or tuple(parts[1])
        parts = [part for part in parts if count(part)] or parts[-1:]
        rows = {name: torch.cat([part[name] for part in parts]) if parts[1:] else parts[0][name] for name in names}
        # a prototype that came from the pool may be among the short-term rows, too
        return take(rows, distinct(rows["index"])) if from_short_term else rows

    def _rows_of(self, classes: Sequence[int], part: MemoryPart) -> Rows:
        slot = self.buffer.ordered_slots(part)
        return self.buffer.store.read(slot[is_among(self.buffer.labels(part), classes)])

    def _chosen(
        self,
        outcome: ConsolidationOutcome,
        rows: Rows,
        view: ModelView,
        annotate: Callable[[Rows], Rows] | None,
        rng: torch.Generator,
    ) -> list[Rows]:
        """Return prototypes of the classes that were admitted."""
        quota = outcome.quota
        chosen = [
            self._choose(k, [label for label in outcome.pinned if quota[label] == k], rows, view, rng)
            for k in sorted({quota[label] for label in outcome.pinned})
        ]
        return [part | annotate(part) for part in chosen] if annotate else chosen

    def _choose(self, k: int, classes: Sequence[int], rows: Rows, view: ModelView, rng: torch.Generator) -> Rows:
        """Return k prototypes of each of these classes."""
        assert self.selector is not None
        select = replace(self.selector, k=k)
        return select(rows, classes, view, rng=rng, timer=self.timer, on_selection=self.on_selection)

    def _pin(self, outcome: ConsolidationOutcome, from_short_term: Sequence[int], chosen: Sequence[Rows]) -> None:
        """Make room for the prototypes that were chosen, and pin them."""
        self.forget_candidates(self.classes_giving_way(outcome.rows, outcome.pinned))
        self._forget_prototypes(outcome.pinned, outcome.quota)
        if from_short_term:
            self._take_from_short_term([_of_classes(part, from_short_term) for part in chosen])
        for part in chosen:
            if count(part):
                self.buffer.pin(part)

    def _forget_prototypes(self, classes: Sequence[int], quota: dict[int, int]) -> None:
        """Unpin what is chosen anew or beyond its quota."""
        label, prototype = self.buffer.store.columns["label"], self.buffer.store.columns["prototype"]
        gone = is_among(label, classes)
        for k in {*quota.values()}:
            gone |= is_among(label, [other for other, allowed in quota.items() if allowed == k]) & (prototype >= k)
        self.buffer.unpin(gone, in_place=self.in_place)

    def _take_from_short_term(self, chosen: Sequence[Rows]) -> None:
        """Take chosen rows out of the short-term part."""
        store = self.buffer.store
        index = torch.cat([part["index"] for part in chosen])
        gone = (store.priority >= 0) & (store.priority < 1) & torch.isin(store.columns["index"], index)
        self.buffer.forget(gone, in_place=self.in_place)

    def release(self, classes: Sequence[int]) -> int:
        """Forget the prototypes of some classes; return how many rows that were."""
        before = self.buffer.size(MemoryPart.LONG)
        self.buffer.unpin(is_among(self.buffer.store.columns["label"], classes))
        return before - self.buffer.size(MemoryPart.LONG)

    def join(self, classes: Sequence[int]) -> list[int]:
        """Give new classes candidates, in up to half of the rows that are not long-term; return those without."""
        if self.pool is None or not self.pool.without(classes):
            return []
        capacity = self.capacity
        left = self.pool.join(classes, (capacity - self.size(MemoryPart.LONG)) // 2)
        self._resize_buffer(capacity)
        return left

    def with_rows(self, classes: Sequence[int]) -> list[int]:
        """Return those of these classes of which there is a row to choose from."""
        labels = {*self.buffer.labels().unique().tolist(), *(self.pool.classes() if self.pool else ())}
        return [label for label in classes if label in labels]

    def resize(self, capacity: int, quota: FixedQuota | EqualShare, on_change: OnChange = None) -> None:
        """Give memory and candidates another number of rows in all, and prototypes another quota, which they keep to.

        Where prototypes need their room candidates end, the oldest first. What is refused changes nothing; `on_change`
        is called before the first row moves.
        """
        pinned, allowed = self.rows(MemoryPart.LONG), LARGEST
        room, held = capacity - self.reserved(self.candidate_classes()), len(class_sizes(pinned))
        if isinstance(quota, EqualShare) and held:
            allowed = quota.of(0, classes=held, room=room)
            if not allowed:
                raise quota.refusal(0, count(pinned), classes=held, capacity=capacity, room=room)
        remaining = int((pinned["prototype"] < allowed).sum())
        if remaining > room:
            raise UsageError(
                f"{capacity} rows cannot hold the {remaining} long-term rows. Release classes first, or give a larger "
                "capacity."
            )
        check_room(capacity, self.buffer.store.fields, self.buffer.store.priority.device)
        if on_change:
            on_change()
        self.forget_candidates(self.classes_giving_way(remaining, capacity=capacity))
        self.buffer.unpin(self.buffer.store.columns["prototype"] >= allowed)
        self.quota = quota
        self._resize_buffer(capacity)

    def classes_giving_way(self, rows: int, classes: Sequence[int] = (), *, capacity: int | None = None) -> list[int]:
        """Return the classes whose candidates end: these, and the oldest of others until `rows` rows can be pinned."""
        capacity, leaving = self.capacity if capacity is None else capacity, list(classes)
        others = [label for label in self.candidate_classes() if label not in leaving]
        while others and capacity - self.reserved(leaving) < rows:
            leaving.append(others.pop(0))
        return leaving

    def candidate_classes(self) -> list[int]:
        """Return the classes whose candidates take rows of λ, by arrival."""
        return self.pool.classes() if self.pool and self.reserved() else []

    def reserved(self, leaving: Sequence[int] = ()) -> int:
        """Return how many rows of λ candidates take, or will take when classes have left."""
        return self.pool.reserved(leaving=leaving) if self.pool else 0

    def forget_candidates(self, classes: Sequence[int]) -> None:
        """Drop what was collected of these classes; the short-term part has its room."""
        capacity = self.capacity
        if self.pool:
            self.pool.forget(classes)
        self._resize_buffer(capacity)

    def _resize_buffer(self, capacity: int) -> None:
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
        return len(class_sizes(self.rows(MemoryPart.LONG)))

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


def class_sizes(rows: Rows) -> dict[int, int]:
    """Return how many rows each class has.

    >>> class_sizes({"label": torch.tensor([4, 4, 5])})
    {4: 2, 5: 1}
    """
    labels, counts = rows["label"].unique(return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def _of_classes(rows: Rows, classes: Sequence[int]) -> Rows:
    return take(rows, is_among(rows["label"], classes).nonzero().flatten())
