"""What a balanced reservoir on a CPU remembers of its rows, so that a new row costs no look at others."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush, heapreplace

import torch
from torch import Tensor


class ClassIndex:
    """The short-term rows of each class by their keys, which classes are the largest, and which of them are full.

    It follows from three columns of a store: `key` [λ], `label` [λ] and `full` [λ]. Whoever writes to `key` by torch
    makes it out of date.

    >>> key = torch.tensor([0.25, 0.5, 0.75, 0.125], dtype=torch.float64)
    >>> index = ClassIndex(key, torch.tensor([0, 0, 0, 1]), torch.zeros(4, dtype=torch.bool))
    >>> index.offer(1, 0.625, luck=0.0), index.offer(0, 0.125, luck=0.0), sorted(index.full)
    (0, None, [0, 1])
    """

    def __init__(self, key: Tensor, label: Tensor, full: Tensor) -> None:
        self.key, self._version = key, key._version
        keys, labels, marked = key.tolist(), label.tolist(), full.tolist()
        self.free = [slot for slot in range(len(keys) - 1, -1, -1) if keys[slot] == -torch.inf]
        """Empty slots, the first one last."""
        self.rows: dict[int, list[tuple[float, int]]] = {}
        """A heap of (key, slot) for each class."""
        self.full: set[int] = set()
        for slot, value in enumerate(keys):
            if 0 <= value < 1:
                self.rows.setdefault(labels[slot], []).append((value, slot))
                if marked[slot]:
                    self.full.add(labels[slot])
        self._by_size: dict[int, list[int]] = {}  # sorted labels of the classes of a size
        self._growing: dict[int, set[int]] = {}  # those of them that are not full
        self._newly_full: list[int] = []
        self.largest = 0
        for name, heap in sorted(self.rows.items()):
            heapify(heap)
            self._enter(name, len(heap))

    def is_current(self, key: Tensor) -> bool:
        """Return whether this is the index of `key`, and knows of every write to it."""
        return self.key is key and key._version == self._version

    def add(self, label: int, key: float) -> int:
        """Give a row of this class an empty slot; return the slot."""
        slot = self.free.pop()
        self._push(label, key, slot)
        return slot

    def offer(self, label: int, key: float, luck: float) -> int | None:
        """Let a row of this class compete in a filled memory; return the slot that it takes, if any.

        Where its class is full the row of the smallest key goes, which may be this one; else one of the largest class,
        of which `luck` in [0, 1) decides where several are.
        """
        if self.largest in self._growing:
            self._mark_largest()
        if label not in self.full:
            slot = self.evict(luck)
            self._push(label, key, slot)
            return slot
        heap = self.rows[label]
        return heapreplace(heap, (key, heap[0][1]))[1] if key > heap[0][0] else None

    def evict(self, luck: float) -> int:
        """Let the row of the smallest key of a largest class go; return its slot."""
        if self.largest in self._growing:
            self._mark_largest()
        size = self.largest
        alike = self._by_size[size]
        label = alike.pop(int(luck * len(alike)))
        slot = heappop(self.rows[label])[1]
        if size > 1:
            self._enter(label, size - 1)
        else:
            del self.rows[label]
            self.full.discard(label)
        if not alike:
            del self._by_size[size]
            self.largest = size - 1
        return slot

    def newly_full(self) -> list[int]:
        """Return the slots of the rows of classes that have become full since the last call."""
        labels, self._newly_full = self._newly_full, []
        return [slot for label in labels if label in self.full for _, slot in self.rows[label]]

    def _mark_largest(self) -> None:
        """Call the largest classes full from now on."""
        growing = self._growing.pop(self.largest)
        self.full |= growing
        self._newly_full += growing

    def _push(self, label: int, key: float, slot: int) -> None:
        heap = self.rows.get(label)
        if heap is None:
            self.rows[label] = [(key, slot)]
            self._enter(label, 1)
            return
        self._leave(label, len(heap))
        heappush(heap, (key, slot))
        self._enter(label, len(heap))

    def _enter(self, label: int, size: int) -> None:
        alike = self._by_size.get(size)
        if alike is None:
            self._by_size[size] = [label]
            self.largest = max(self.largest, size)
        else:
            insort(alike, label)
        if label not in self.full:
            self._growing.setdefault(size, set()).add(label)

    def _leave(self, label: int, size: int) -> None:
        alike = self._by_size[size]
        del alike[bisect_left(alike, label)]
        if size in self._growing:
            self._growing[size].discard(label)
        if not alike:
            del self._by_size[size]
            if size == self.largest:
                self.largest = size - 1
