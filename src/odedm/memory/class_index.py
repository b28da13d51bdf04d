"""What a balanced reservoir on a CPU remembers of its rows, so that a new row costs no look at others."""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush, heapreplace

import torch
from torch import Tensor


class ClassIndex:
    """The short-term rows of each class by their priorities, and which classes are full.

    It follows from three columns of a store: `priority` [λ], `label` [λ] and `full` [λ]. Whoever writes to `priority`
    otherwise makes it out of date.

    >>> priority = torch.tensor([0.25, 0.5, 0.75, 0.125], dtype=torch.float64)
    >>> index = ClassIndex(priority, torch.tensor([0, 0, 0, 1]), torch.zeros(4, dtype=torch.bool))
    >>> index.offer(1, 0.625, luck=0.0), index.offer(0, 0.125, luck=0.0), sorted(index.full)
    (0, None, [0, 1])
    """

    def __init__(self, priority: Tensor, label: Tensor, full: Tensor) -> None:
        self.priority, self._version = priority, priority._version
        priorities, labels, marked = priority.tolist(), label.tolist(), full.tolist()
        self.free = [slot for slot in range(len(priorities) - 1, -1, -1) if priorities[slot] == -torch.inf]
        """Empty slots, the first one last."""
        self.rows: dict[int, list[tuple[float, int]]] = {}
        """A heap of (priority, slot) for each class."""
        self.full: set[int] = set()
        for slot, value in enumerate(priorities):
            if 0 <= value < 1:
                self.rows.setdefault(labels[slot], []).append((value, slot))
                if marked[slot]:
                    self.full.add(labels[slot])
        for heap in self.rows.values():
            heapify(heap)
        self._size = max(map(len, self.rows.values()), default=0)  # of the largest classes
        self._largest = self._classes_of_size(self._size)
        self._marked = False  # whether all of them are among those that are full
        self._newly_full: list[int] = []

    def is_current(self, priority: Tensor) -> bool:
        """Return whether this is the index of `priority`, and knows of every write to it."""
        return self.priority is priority and priority._version == self._version

    def is_written(self) -> None:
        """Note that the store has the priorities that were given here."""
        self._version = self.priority._version

    def add(self, label: int, priority: float) -> int:
        """Give a row of this class an empty slot; return the slot."""
        slot = self.free.pop()
        self._push(label, priority, slot)
        return slot

    def offer(self, label: int, priority: float, luck: float) -> int | None:
        """Let a row of this class compete in a filled memory; return the slot that it takes, if any.

        Where its class is full the row of the smallest priority goes, which may be this one; else one of the largest
        class, of which `luck` in [0, 1) decides where several are.
        """
        self._mark_largest()
        if label not in self.full:
            slot = self.evict(luck)
            self._push(label, priority, slot)
            return slot
        heap = self.rows[label]
        return heapreplace(heap, (priority, heap[0][1]))[1] if priority > heap[0][0] else None

    def evict(self, luck: float) -> int:
        """Let the row of the smallest priority of a largest class go; return its slot."""
        self._mark_largest()
        label = self._largest.pop(int(luck * len(self._largest)))
        slot = heappop(self.rows[label])[1]
        if not self.rows[label]:
            del self.rows[label]
            self.full.discard(label)
        if not self._largest:
            self._size -= 1
            self._largest, self._marked = self._classes_of_size(self._size), False
        return slot

    def newly_full(self) -> list[int]:
        """Return the slots of the rows of classes that have become full since the last call."""
        labels, self._newly_full = self._newly_full, []
        return [slot for label in labels if label in self.full for _, slot in self.rows[label]]

    def _classes_of_size(self, size: int) -> list[int]:
        return sorted(label for label, heap in self.rows.items() if len(heap) == size)

    def _mark_largest(self) -> None:
        """Call the largest classes full from now on."""
        if not self._marked:
            self._newly_full += [label for label in self._largest if label not in self.full]
            self.full.update(self._largest)
            self._marked = True

    def _push(self, label: int, priority: float, slot: int) -> None:
        heap = self.rows.setdefault(label, [])
        heappush(heap, (priority, slot))
        if len(heap) > self._size:
            self._size, self._largest, self._marked = len(heap), [label], False
        elif len(heap) == self._size:
            insort(self._largest, label)
            self._marked = False
