"""The reservoir: a uniform sample of the whole stream, in which rows can be pinned for good."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from odedm.errors import UsageError
from odedm.rows import Field, Part, Probe, Rows, Store, Task, count

PROTOTYPE = Field("prototype", dtype=torch.int64)
ORDER = Field("order", dtype=torch.int64)


class Reservoir:
    """Every streamed row is here with equal probability; without pins, plain reservoir sampling.

    `fields` are the columns of a row. Two more are kept: `prototype`, which prototype of its class a pinned row
    stands for (-1 in the short-term part), and `order`, by which `rows` sorts.

    >>> memory = Reservoir(2, [Field("label", dtype=torch.int64)])
    >>> memory.see({"label": torch.tensor([3, 4, 5])}, rng=torch.Generator().manual_seed(0))
    >>> memory.size(), memory.size(Part.LONG)
    (2, 0)
    """

    def __init__(self, capacity: int, fields: Sequence[Field], device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self.store = Store(capacity, [*fields, PROTOTYPE, ORDER], device)
        # a device number, advanced in place: a captured step must not hold on to a host value
        self.arrived = torch.zeros((), dtype=torch.int64, device=device)
        self._short = 0
        self._long = 0

    def size(self, part: Part = Part.ALL) -> int:
        """How many rows a part holds."""
        return {Part.SHORT: self._short, Part.LONG: self._long, Part.ALL: self._short + self._long}[part]

    def begin_task(self, task: Task) -> None:
        """Nothing changes at a border."""

    def add(self, rows: Rows, probe: Probe, *, rng: torch.Generator) -> None:  # noqa: ARG002
        """Offer a stream batch to the reservoir."""
        self.see(rows, rng=rng)

    def see(self, rows: Rows, *, rng: torch.Generator) -> None:
        """Offer rows with fresh uniform keys; the largest keys of the whole stream stay."""
        amount, device = count(rows), self.store.key.device
        key = torch.rand(amount, dtype=torch.float64, generator=rng, device=device)
        order = self.arrived + torch.arange(amount, device=device)
        unpinned = torch.full((amount,), -1, device=device)
        self.store.offer({**rows, "prototype": unpinned, "order": order}, key)
        self.arrived += amount
        self._short = min(self._short + amount, self.capacity - self._long)

    def pin(self, rows: Rows) -> None:
        """Keep rows for good, in the place of empty slots and then of random short-term rows."""
        amount = count(rows)
        if amount > self.capacity - self._long:
            raise UsageError(
                f"{amount} rows cannot be pinned: {self._long} of {self.capacity} rows are pinned already. "
                "Lower k or rho, or raise the capacity."
            )
        order = torch.arange(self._long, self._long + amount, device=self.store.key.device)
        self.store.pin({**rows, "order": order})
        self._long += amount
        self._short = min(self._short, self.capacity - self._long)

    def sample(self, n: int, *, part: Part = Part.ALL, rng: torch.Generator) -> Rows:
        """min(n, size) distinct rows of a part, uniformly at random."""
        key = self.store.key
        noise = torch.rand(self.capacity, generator=rng, device=key.device)
        eligible = {Part.ALL: key >= 0, Part.SHORT: (key >= 0) & (key < 1), Part.LONG: key > 1}[part]
        slot = torch.where(eligible, noise, -1.0).topk(min(n, self.size(part))).indices
        return self.store.read(slot)

    def rows(self, part: Part = Part.ALL) -> Rows:
        """All rows of a part: short-term by arrival, then long-term by the order of pinning."""
        key, order = self.store.key, self.store.columns["order"]
        short = order.where((key >= 0) & (key < 1), LATER)
        long = (order + LATER // 2).where(key > 1, LATER)
        rank = {Part.ALL: torch.minimum(short, long), Part.SHORT: short, Part.LONG: long}[part]
        return self.store.read(rank.argsort()[: self.size(part)])

    def census(self, classes: int) -> dict[str, list[int]]:
        """Rows per class in the short-term and in the long-term part."""
        return {
            part.value: torch.bincount(self.rows(part)["label"], minlength=classes).tolist()
            for part in (Part.SHORT, Part.LONG)
        }

    def end_task(self, task: Task, probe: Probe, *, rng: torch.Generator) -> None:
        """Nothing changes at a border."""


LATER = 2**62
"""Behind every row number: where rows of other parts sort."""
