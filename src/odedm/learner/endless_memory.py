"""The dual memory of a stream that may never end: prototypes of classes as they rest, in shares that shrink and fit.

Everything is inside λ: short-term rows, prototypes, and candidates where they are bounded. Nothing here is refused in
mid-stream by an error; a class for which there is no room is left out, and the learner is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import POLICIES
from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, distinct, take
from odedm.core.store import Store
from odedm.core.timer import Timer
from odedm.memory.collected import ClassReservoirs, among, fit
from odedm.memory.keyed import BorderMemory, KeyedMemory
from odedm.memory.live_parts import Generators, choosing, filled, long_term_rows, pins, prototypes_each
from odedm.memory.settings import ODEDM, MemorySettings, Native, Reservoir
from odedm.memory.site import build_policy

RAW = ("image", "label", "index")
"""The columns of a row that are not the method's: `index` is its place in the stream."""


@dataclass
class Consolidation:
    """What came of the wish to keep prototypes of some classes."""

    pinned: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """There are prototypes of so many classes already that not one row is left for these."""
    without_rows: list[int] = field(default_factory=list)
    """No row of these is in the memory."""


@dataclass(frozen=True)
class LearnerEvent:
    """Something that happened to a learner's memory.

    Args:
        row: after how many rows.
        what: "pinned": prototypes of these classes were chosen and are long-term now. "refused": there are prototypes
            of so many classes already that not one row is left for these. "without rows": the memory had no row of
            these to choose from. "no room for candidates": these are chosen among short-term rows. "nothing rests": in
            ten times `patience` rows no class was away for so long, and nothing is long-term.
        labels: of the classes; none where nothing rests.
    """

    row: int
    what: str
    labels: tuple[Any, ...]


def settle_memory(given: Any, native: str) -> tuple[MemorySettings, str]:
    """A memory's settings with defaults filled in and its short-term policy, or a sentence on what cannot be kept.

    A number of rows stands for an ODEDM with a twentieth as many candidates of each class: in a long stream few rows of
    a class that joins late are among a uniform sample of everything.

    >>> found, _ = settle_memory(200, native="reservoir")
    >>> found.rho, found.candidates
    (0.25, 10)
    """
    found = given
    if isinstance(given, int) and not isinstance(given, bool):
        found = ODEDM(given, candidates=given // 20 if given >= 20 else "task")
    if not isinstance(found, Reservoir | Native | ODEDM):
        raise UsageError(
            f"memory must be a number of rows, or an ODEDM, Reservoir or Native, e.g. ODEDM(200, rho=0.25); "
            f"{short_repr(given)} was given."
        )
    policy = "reservoir"
    if isinstance(found, ODEDM):
        policy = native if found.short_policy == "native" else found.short_policy
    elif isinstance(found, Native):
        policy = found.policy or native
    if issubclass(POLICIES[policy].load(), BorderMemory):
        raise UsageError(
            f"The memory policy '{policy}' chooses rows when a task ends, and a learner's stream has no tasks. Give "
            f"memory=ODEDM({found.capacity}, short_policy='reservoir'), or Reservoir({found.capacity})."
        )
    found = filled(found, policy)
    if isinstance(found, ODEDM) and pins(found) and isinstance(found.candidates, int):
        share = 0 if found.k is not None else long_term_rows(found)
        most = (found.capacity - share) // 2
        if found.candidates > most:
            raise UsageError(
                f"candidates={found.candidates} of a class are more than {most}, half of the rows that are not "
                "long-term; the other half is to learn from. Lower candidates or rho, or raise the capacity."
            )
    return found, policy


class EndlessMemory:
    """A host, candidates where they are bounded, and prototypes of the classes consolidated so far.

    A class's prototypes are chosen among its old ones and its candidates, or, where it has none, its short-term rows.
    A row that becomes a prototype leaves the short-term part.
    """

    def __init__(
        self, settings: MemorySettings, policy: str, own: Sequence[ColumnSpec], image: ColumnSpec, device: torch.device
    ) -> None:
        self.settings = settings
        self.fields = (image, *(ColumnSpec(name, dtype=torch.int64) for name in RAW[1:]), *own)
        options = {} if isinstance(settings, Reservoir) else settings.policy_options
        self.host: KeyedMemory = build_policy(
            policy, settings.capacity, self.fields, device, classes=None, options=options
        )
        self.candidates: ClassReservoirs | None = None
        self.rngs: Generators = {}

    def begin(self, rngs: Generators) -> None:
        """Draw from these generators."""
        self.rngs, own = rngs, self.settings
        if isinstance(own, ODEDM) and pins(own) and isinstance(own.candidates, int):
            self.candidates = ClassReservoirs(own.candidates, self._pool_fields(), self.device, rng=rngs["candidates"])

    def _pool_fields(self) -> tuple[ColumnSpec, ...]:
        """The columns that candidates need: the method's own are taken anew unless they are to be the stream's."""
        keeps = isinstance(self.settings, ODEDM) and self.settings.keeps_stream_fields
        return self.fields if keeps else self.fields[: len(RAW)]

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.host.store.key.device

    @property
    def reserved(self) -> int:
        """Rows of λ that belong to candidates."""
        return self.candidates.reserved() if self.candidates else 0

    def add(self, rows: Rows, probe: ModelView) -> list[int]:
        """See rows of the stream; the classes that should have candidates and found no room for them."""
        crowded = self._open(rows["label"]) if self.candidates else []
        self.host.add(rows, probe, rng=self.rngs["memory"])
        if self.candidates:
            known = among(rows["label"], self.candidates.classes()).nonzero().flatten()
            self.candidates.see(take({each.name: rows[each.name] for each in self._pool_fields()}, known))
        return crowded

    def _open(self, label: Tensor) -> list[int]:
        """Make room for candidates of classes that have none: up to half of the rows that are not long-term."""
        assert self.candidates is not None
        crowded, room = [], (self.settings.capacity - self.host.size(MemoryPart.LONG)) // 2
        here = set(self.candidates.classes())
        for each in dict.fromkeys(label.tolist()):
            if each in here:
                continue
            if self.candidates.reserved([each]) > room:
                crowded.append(each)
            else:
                self.candidates.open(each)
        fit(self.host, self.settings.capacity, self.candidates)
        return crowded

    def pinned(self) -> dict[int, int]:
        """How many long-term rows each class has."""
        label = self.host.rows(MemoryPart.LONG)["label"]
        classes, amounts = label.unique(return_counts=True)
        return dict(zip(classes.tolist(), amounts.tolist(), strict=True))

    def consolidate(self, classes: Sequence[int], probe: ModelView) -> Consolidation:
        """Choose prototypes of these classes anew and pin them; others are thinned to the new quota, last ones first.

        Candidates of the classes are over, whatever comes of it. Where the network cannot be asked nothing changes.
        """
        own = self.settings
        if not (isinstance(own, ODEDM) and pins(own)):
            return Consolidation()
        pool = self._pool(classes)
        here, before = set(pool["label"].tolist()), self.pinned()
        outcome = Consolidation(without_rows=[each for each in classes if each not in here])
        least, rows = (own.k or 1) * own.rows_per_prototype, own.capacity
        most = (rows if own.k is not None else min(rows, long_term_rows(own))) // least
        amount = len(before)
        for each in [each for each in classes if each in here]:
            amount += each not in before
            if amount <= most or each in before:
                outcome.pinned.append(each)
            else:
                amount -= 1
                outcome.refused.append(each)
        if outcome.pinned:
            self._pin(own, pool, outcome.pinned, amount, probe)
        if self.candidates:
            self.candidates.forget(classes)
        fit(self.host, self.settings.capacity, self.candidates)
        return outcome

    def _pool(self, classes: Sequence[int]) -> Rows:
        """What these classes can be chosen from: prototypes so far, candidates or else short-term rows, each once."""
        names = [each.name for each in self._pool_fields()]
        parts = [self.host.rows(MemoryPart.LONG)]
        bounded = [each for each in classes if self.candidates and each in self.candidates.compartments]
        if self.candidates and bounded:
            rows = self.candidates.rows()
            parts.append(take(rows, among(rows["label"], bounded).nonzero().flatten()))
        rows = self.host.rows(MemoryPart.SHORT)
        parts.append(take(rows, (~among(rows["label"], bounded)).nonzero().flatten()))
        pool = {name: torch.cat([part[name] for part in parts]) for name in names}
        pool = take(pool, among(pool["label"], classes).nonzero().flatten())
        return take(pool, distinct(pool["index"]))

    def _pin(self, own: ODEDM, pool: Rows, classes: list[int], amount: int, probe: ModelView) -> None:
        """Pin prototypes of classes that have rows in the pool; `amount` classes have some after it."""
        wanted = prototypes_each(own, amount, own.capacity) * amount * own.rows_per_prototype
        closing = list(classes)  # prototypes come before candidates where both do not fit
        if self.candidates:
            rest = [each for each in self.candidates.classes() if each not in classes]
            while rest and own.capacity - self.candidates.reserved(leaving=closing) < wanted:
                closing.append(rest.pop(0))
        room = own.capacity - (self.candidates.reserved(leaving=closing) if self.candidates else 0)
        each = prototypes_each(own, amount, room)
        rng = self.rngs["consolidation"]
        with choosing(own, each, rng) as choose:
            chosen = choose(pool, classes, probe, rng=rng, timer=Timer())
        if self.candidates:
            self.candidates.forget(closing)
        store = self.host.store
        pinned, label = store.key > 1, store.columns["label"]
        old = pinned & (among(label, classes) | (store.columns["prototype"] >= each))
        taken = (store.key >= 0) & ~pinned & torch.isin(store.columns["index"], chosen["index"])
        self.host.forget(old | taken)
        fit(self.host, self.settings.capacity, self.candidates)
        self.host.pin(chosen)

    def release(self, classes: Sequence[int]) -> int:
        """Forget the prototypes of some classes; how many rows that were."""
        before = self.host.size(MemoryPart.LONG)
        self.host.unpin(among(self.host.store.columns["label"], classes))
        return before - self.host.size(MemoryPart.LONG)

    def grow(self, own: Sequence[ColumnSpec], annotate: Callable[[Rows], Rows]) -> None:
        """The method's columns have become longer: what stored rows lack is what the network says of them now."""
        stores = [self.host.store]
        if self.candidates and self._pool_fields() is self.fields:
            stores += [each.store for each in self.candidates.compartments.values()]
        longer = {each.name: each for each in own if each not in self.fields}
        for store in stores if longer else ():
            now = annotate({name: column for name, column in store.columns.items() if name in RAW})
            for name, column in now.items():
                if name in longer:
                    old = store.columns[name]
                    store.columns[name] = torch.cat([old, column[:, old.shape[1] :].to(old.dtype)], 1)
        self.fields = (*self.fields[: len(RAW)], *own)
        if self.candidates:
            self.candidates.fields = self._pool_fields()

    def candidate_rows(self) -> Rows:
        """The rows that classes have for themselves until they are consolidated, of which none is a prototype yet."""
        rows = self.candidates.rows() if self.candidates else take(self.host.rows(MemoryPart.SHORT), torch.arange(0))
        return {**rows, "prototype": torch.full_like(rows["label"], -1)}

    def every_row(self) -> Rows:
        """All stored rows, also those that wait for a choice: class means are taken of them."""
        held, waiting = self.host.rows(), self.candidate_rows()
        return {name: torch.cat([held[name], waiting[name]]) for name in ("image", "label", "index")}

    def stores(self) -> list[tuple[int, Store]]:
        """The candidates' stores by class."""
        own = self.candidates.compartments if self.candidates else {}
        return [(label, each.store) for label, each in own.items()]
