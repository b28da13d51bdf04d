"""What a store on a CPU remembers of its priorities, so that neither an offer nor a draw looks at every slot.

Without it a learner's step beside a memory of 65 536 rows takes 1.5 to 1.7 times as long; `benchmarks/memory.py`
measures offers and draws by the size of the memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import torch
from torch import Tensor

EMPTY, PINNED = -torch.inf, torch.inf

CACHED_SLOTS = 256
"""At least so many slots of the smallest priorities are kept in order; all are looked at again when these are used up.

And at least a 64th of all, so that the mean cost of a row does not grow with the memory."""


class PriorityIndex:
    """The slots with the smallest priorities in order, which slots are pinned, and where the last row is.

    All of it follows from `priority` [λ], and is made anew when someone else has written there: torch counts the
    writes to a tensor. So it is not part of a store's state.

    >>> index = PriorityIndex(torch.tensor([0.5, EMPTY, 0.25, PINNED], dtype=torch.float64))
    >>> index.lowest(3), index.pinned.tolist(), index.end
    ([(-inf, 1), (0.25, 2), (0.5, 0)], [3], 4)
    """

    def __init__(self, priority: Tensor) -> None:
        self.priority = priority
        self._seen = priority._version
        self._low: list[tuple[float, int]] = []
        self._all_low = False  # whether every slot that is not pinned is among them
        self._pinned: Tensor | None = None
        self._end: int | None = None

    def is_current(self, priority: Tensor) -> bool:
        """Return whether this is the index of `priority`, and knows of every write to it."""
        return self.priority is priority and priority._version == self._seen

    def lowest(self, n: int) -> list[tuple[float, int]]:
        """Return the n or more smallest priorities with their slots, ascending; fewer where all others are pinned.

        Of equal priorities the first slot comes first, so empty slots fill in their order.
        """
        if len(self._low) < n and not self._all_low:
            priority = self.priority.numpy()
            amount = min(max(n, CACHED_SLOTS, len(priority) // 64), len(priority))
            slot = np.flatnonzero(priority == EMPTY)[:amount]
            if len(slot) < amount:  # not by topk, which takes ten times as long for so many
                slot = priority.argpartition(amount - 1)[:amount]
            self._low = sorted(zip(priority[slot].tolist(), slot.tolist(), strict=True))
            del self._low[bisect_left(self._low, (PINNED, -1)) :]
            self._all_low = len(self._low) < amount or amount == len(priority)
        return self._low

    def replaced(self, priorities: list[float], slots: list[int]) -> None:
        """Note that slots have just got these priorities, which are neither EMPTY nor PINNED.

        Where they are those of the smallest priorities, in order, the others are still known.
        """
        self._seen = self.priority._version
        if [slot for _, slot in self._low[: len(slots)]] == slots:
            del self._low[: len(priorities)]
        else:
            self._low, self._all_low = [], False
        for entry in zip(priorities, slots, strict=True):
            if self._all_low or (self._low and entry < self._low[-1]):
                insort(self._low, entry)
        if self._end is not None:
            self._end = max(self._end, max(slots) + 1)

    @property
    def pinned(self) -> Tensor:
        """Return the slots of pinned rows, ascending."""
        if self._pinned is None:
            self._pinned = (self.priority > 1).nonzero().view(-1)
        return self._pinned

    @property
    def end(self) -> int:
        """Return one more than the last slot with a row."""
        if self._end is None:
            taken = (self.priority > EMPTY).nonzero().view(-1)
            self._end = int(taken[-1]) + 1 if len(taken) else 0
        return self._end
