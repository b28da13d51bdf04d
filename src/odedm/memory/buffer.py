"""What all our memories share: a store of rows by priority, its two parts, draws from them, and pins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, Task, count
from odedm.core.store import EMPTY, Store

PROTOTYPE = ColumnSpec("prototype", dtype=torch.int64)
ORDER = ColumnSpec("order", dtype=torch.int64)
LATER = 2**62
"""Behind every row number: where rows of other parts sort."""


class Buffer(ABC):
    """A store whose short-term rows a policy chooses and whose long-term rows are pinned.

    `fields` are the columns of a row. Two more are kept: `prototype`, which prototype of its class a pinned row
    stands for (-1 in the short-term part), and `order`, by which `rows` sorts. A policy says with `priority`, a
    number in [0, 1), which short-term rows make room first when others are pinned: the smallest. The store's priority
    tells the parts apart: [0, 1) is short-term, infinity pinned, and `EMPTY` a free slot.
    """

    capturable: ClassVar[bool] = True
    """Whether a step with it can be recorded on a GPU: `add` reads no value back."""
    only_at_borders: ClassVar[bool] = False
    """Whether nothing is stored while a task lasts."""
    looks_at_all_rows: ClassVar[bool] = False
    """Whether `add` looks at every stored row, so that a recorded step is good for one number of them alone."""
    needs_method: ClassVar[bool] = False
    """Whether it asks a method's scores or gradients of the host, which a training loop of one's own does not have."""

    def __init__(self, capacity: int, fields: Sequence[ColumnSpec], device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self.store = Store(capacity, [*fields, PROTOTYPE, ORDER], device)
        # a device number, advanced in place: a captured step must not hold on to a host value
        self.num_seen = torch.zeros((), dtype=torch.int64, device=device)
        self._short = 0
        self._long = 0

    @abstractmethod
    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """See one stream batch, raw images and the method's fields, after the update it led to."""

    def begin_task(self, task: Task) -> None:
        """Do nothing: a task starts."""

    def end_task(self, task: Task, view: ModelView, *, rng: torch.Generator) -> None:
        """Do nothing: a task is over, whose rows can be read from it one last time. Here `rng` is on the CPU."""

    @property
    def short_capacity(self) -> int:
        """Return how many short-term rows there is room for."""
        return self.capacity - self._long

    def size(self, part: MemoryPart = MemoryPart.ALL) -> int:
        """Return how many rows a part holds."""
        if part is MemoryPart.ALL:
            return self._short + self._long
        return self._short if part is MemoryPart.SHORT else self._long

    def insert(self, rows: Rows, priority: Tensor) -> None:
        """Let rows [n] with priorities [n] compete for the short-term part: the largest priorities stay.

        Args:
            rows: every column that `add` was given, by name.
            priority: numbers in [0, 1), best in float64, where few are equal: of equal ones those that are here stay.
        """
        if not isinstance(rows, dict) or priority.shape[0] != count(rows):
            raise _not_rows(rows, priority)
        if not type(self).__module__.startswith("odedm."):  # ours have tests
            check_priorities(type(self).__name__, priority)
        amount, won = count(rows), self.store.accepted(priority)
        if won is None:
            device = self.store.priority.device
            numbers = self.num_seen + torch.arange(amount, device=device)
            self.store.insert({**rows, "prototype": torch.full_like(numbers, -1), "order": numbers}, priority)
            self.num_seen += amount
        else:
            seen = int(self.num_seen)
            order = [seen + row for row in won.row]
            self.store.put(won, rows, priority, prototype=[-1] * len(order), order=order)
            self.num_seen.fill_(seen + amount)
        self._short = min(self._short + amount, self.short_capacity)

    def graph_key(self, n: int) -> tuple[int, ...]:
        """Return the sizes baked into a recorded step that draws up to n rows: record anew when they change."""
        sizes = tuple(min(n, self.size(part)) for part in MemoryPart)
        return (*sizes, self._short, self._long) if self.looks_at_all_rows else sizes

    def on_graph_replay(self, n: int) -> None:
        """Count n rows that a recorded step has added: the device did its half, this is the host's half of `add`."""
        self._short = min(self._short + n, self.short_capacity)

    def reset_short_term(self, rows: Rows, priority: Tensor) -> None:
        """Make `rows` [n] with priorities [n] in [0, 1) the whole short-term part, in this order."""
        if count(rows) > self.short_capacity:
            raise ValueError(f"{count(rows)} rows do not fit into a short-term part of {self.short_capacity}.")
        self.store.priority.copy_(self.store.priority.where(self.store.priority > 1, EMPTY))
        self._short = 0
        self.insert(rows, priority)

    def pin(self, rows: Rows) -> None:
        """Keep rows until `unpin`, in empty slots first, then in those of the smallest short-term priorities."""
        amount = count(rows)
        if amount > self.short_capacity:
            raise UsageError(
                f"{amount} rows cannot be pinned: {self._long} of {self.capacity} rows are pinned already. "
                "Lower k or rho, or raise the capacity."
            )
        order = torch.arange(self._long, self._long + amount, device=self.store.priority.device)
        self.store.pin({**rows, "order": order})
        self._long += amount
        self._short = min(self._short, self.short_capacity)

    def resize(self, capacity: int) -> None:
        """Change the number of rows in all: pinned rows stay, of the others those of the largest priorities that fit.

        What a smaller reservoir keeps is a uniform sample still. A larger one fills up with the rows that come next,
        and is uniform again when it has seen so many that a reservoir of this size would have dropped the lost ones.
        """
        if capacity < self._long:
            raise UsageError(
                f"A memory with {self._long} pinned rows cannot shrink to {capacity}. Release classes first, or give "
                f"a capacity of {self._long} or more."
            )
        self._rebuild(capacity, self._belongs(MemoryPart.ALL))

    def unpin(self, gone: Tensor, *, in_place: bool = False) -> None:
        """Forget the pinned rows whose slots [capacity] are marked; their room goes back to the short-term part."""
        self.forget(gone & self._belongs(MemoryPart.LONG), in_place=in_place)

    def forget(self, gone: Tensor, *, in_place: bool = False) -> None:
        """Forget all rows, short-term and pinned, whose slots [capacity] are marked.

        The rest moves together in a new store, or stays `in_place`, for a recorded step goes on with this very store.
        """
        if not bool(gone.any()):
            return
        if not in_place and self.store.folder is None:  # on a disk nothing moves that need not
            self._rebuild(self.capacity, self._belongs(MemoryPart.ALL) & ~gone)
            return
        self._long -= int((gone & self._belongs(MemoryPart.LONG)).sum())
        self._short -= int((gone & self._belongs(MemoryPart.SHORT)).sum())
        self.store.priority.masked_fill_(gone, EMPTY)
        self._rank_pins()

    def _rank_pins(self) -> None:
        """Number the pinned rows anew: `order` is their rank, and the next one's is how many there are."""
        order, pinned = self.store.columns["order"], self._belongs(MemoryPart.LONG)
        order.copy_(order.where(pinned, LATER).argsort().argsort().where(pinned, order))

    def _rebuild(self, capacity: int, keep: Tensor) -> None:
        """Make a new store with the marked rows [old capacity], those of the largest priorities where not all fit."""
        amount = min(capacity, int(keep.sum()))
        slot = self.store.priority.where(keep, EMPTY).topk(amount).indices.sort().values
        self.capacity, self.store = capacity, self.store.resized(capacity, slot)
        self.recount()
        self._rank_pins()

    def recount(self) -> None:
        """Count the rows of both parts anew, by their priorities."""
        self._long = int(self._belongs(MemoryPart.LONG).sum())
        self._short = int(self._belongs(MemoryPart.SHORT).sum())

    def sample(self, n: int, *, part: MemoryPart = MemoryPart.ALL, rng: torch.Generator) -> Rows:
        """Draw min(n, size) distinct rows of a part, uniformly at random.

        By a random number for each slot, of which the largest win. On a CPU, of a memory with many slots
        (`Store.large`), by random slots one after the other instead, so that a draw of few takes no longer the larger
        the memory is.
        """
        if self.store.large and 2 * n <= self.size(part):
            return self.store.read(self._few_slots(n, part, rng))
        noise = torch.rand(self.capacity, generator=rng, device=self.store.priority.device)
        if noise.is_cuda or self.size(part) < self.capacity:  # a recorded draw must not depend on whether it is full
            noise.masked_fill_(~self._belongs(part), -1.0)
        return self.store.read(noise.topk(min(n, self.size(part))).indices)

    def _few_slots(self, n: int, part: MemoryPart, rng: torch.Generator) -> Tensor:
        """Return distinct slots [n] of a part that has far more, without a look at all slots."""
        index = self.store.index()
        if part is MemoryPart.LONG:
            return index.pinned[distinct(n, len(index.pinned), rng)]
        if self.size(part) < index.end // 8:  # most slots would be drawn in vain
            slots = self._belongs(part).nonzero().view(-1)
            return slots[distinct(n, len(slots), rng)]
        return distinct(n, index.end, rng, lambda slot: belonging(self.store.priority[slot], part))

    def rows(self, part: MemoryPart = MemoryPart.ALL) -> Rows:
        """Return all rows of a part: short-term by arrival, then long-term by the order of pinning."""
        return self.store.read(self.ordered_slots(part))

    def labels(self, part: MemoryPart = MemoryPart.ALL) -> Tensor:
        """Return the labels [n] of a part's rows, in the order of `rows`."""
        return self.store.columns["label"][self.ordered_slots(part)]

    def ordered_slots(self, part: MemoryPart = MemoryPart.ALL) -> Tensor:
        """Return in which slot [n] each row of a part is, in the order of `rows`."""
        order = self.store.columns["order"]
        order = order + self._belongs(MemoryPart.LONG) * (LATER // 2)
        rank = order.where(self._belongs(part), LATER)
        return rank.argsort()[: self.size(part)]

    def class_counts(self, classes: int) -> dict[str, list[int]]:
        """Return rows per class in the short-term and in the long-term part."""
        return {
            part.value: torch.bincount(self.labels(part), minlength=classes).tolist()
            for part in (MemoryPart.SHORT, MemoryPart.LONG)
        }

    def _belongs(self, part: MemoryPart) -> Tensor:
        return belonging(self.store.priority, part)


def _not_rows(rows: object, priority: Tensor) -> UsageError:
    if not isinstance(rows, dict):
        return UsageError(
            f"Rows are offered as a dictionary of columns, as `add` gets them; a {type(rows).__name__} was given."
        )
    return UsageError(
        f"{count(rows)} rows were offered with {len(priority)} priorities; give one priority for each row."
    )


def check_priorities(policy: str, priority: Tensor) -> None:
    """Refuse priorities [n] that would mark prototypes or empty places; a recording is not looked at.

    >>> check_priorities("Mine", torch.tensor([0.5, 1.5]))
    Traceback (most recent call last):
    odedm.UsageError: Priorities are numbers in [0, 1); the policy Mine offered some from 0.5 to 1.5. Bring them into \
it by a function that keeps their order, such as priority.sigmoid(), and clamp below 1.
    """
    if not len(priority) or (priority.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    low, high = (float(bound) for bound in priority.aminmax())
    if not (low >= 0 and high < 1):
        raise UsageError(
            f"Priorities are numbers in [0, 1); the policy {policy} offered some from {low:g} to {high:g}. Bring them "
            "into it by a function that keeps their order, such as priority.sigmoid(), and clamp below 1."
        )


def belonging(priority: Tensor, part: MemoryPart) -> Tensor:
    """Return which rows are of a part [n], going by their priorities [n].

    >>> belonging(torch.tensor([EMPTY, 0.5, torch.inf]), MemoryPart.ALL).tolist()
    [False, True, True]
    """
    if part is MemoryPart.LONG:
        return priority > 1
    return priority >= 0 if part is MemoryPart.ALL else (priority >= 0) & (priority < 1)


def distinct(n: int, end: int, rng: torch.Generator, legal: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return different numbers [n] below `end`, uniformly at random among those that are `legal`.

    Numbers are drawn one after the other, and those that came before, or are not legal, count for nothing.

    >>> sorted(distinct(3, 4, torch.Generator().manual_seed(0), lambda number: number > 0).tolist())
    [1, 2, 3]
    """
    chosen: dict[int, None] = {}
    while len(chosen) < n:
        # in float64 all have the same chance to ten digits; torch.randint prefers small ones in the fourth
        drawn = (torch.rand(2 * n, dtype=torch.float64, generator=rng) * end).long()
        chosen |= dict.fromkeys((drawn if legal is None else drawn[legal(drawn)]).tolist())
    return torch.tensor([*chosen][:n], dtype=torch.int64)


def weighted_draw(n: int, end: int, weight: Tensor | None, rng: torch.Generator) -> Tensor:
    """Return different numbers [min(n, end)] below `end`, drawn one after the other in proportion to `weight` [end].

    Of weight 0 none is drawn. By Efraimidis and Spirakis: the largest of log(u) / w, u uniform in (0, 1).

    >>> weighted_draw(3, 3, torch.tensor([0, 2, 1]), torch.Generator().manual_seed(0)).sort().values.tolist()
    [1, 2]
    """
    device = rng.device if weight is None else weight.device
    uniform = torch.rand(end, dtype=torch.float64, generator=rng, device=device)
    if weight is None:
        return uniform.topk(min(n, end)).indices
    amount = min(n, int((weight > 0).sum()))
    return (uniform.log() / weight.double()).where(weight > 0, -torch.inf).topk(amount).indices


class TaskEndBuffer(Buffer):
    """A memory that stores nothing while a task lasts and chooses from all of its rows when it ends."""

    only_at_borders = True

    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """Do nothing: rows are chosen when the task ends."""

    def on_graph_replay(self, n: int) -> None:
        """Do nothing: nothing was added."""
