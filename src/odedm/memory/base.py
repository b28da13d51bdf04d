"""The interface of every memory."""

from __future__ import annotations

from typing import Protocol

import torch

from odedm.core.rows import MemoryPart, ModelView, Rows, Task


class Memory(Protocol):
    """At most `capacity` rows, written once per stream batch, read by uniform draws without replacement."""

    @property
    def capacity(self) -> int:
        """Rows in all."""
        ...

    def size(self, part: MemoryPart = MemoryPart.ALL) -> int:
        """How many rows a part holds: a host number, never read from the device."""
        ...

    def begin_task(self, task: Task) -> None:
        """A task starts."""
        ...

    def add(self, rows: Rows, probe: ModelView, *, rng: torch.Generator) -> None:
        """See one stream batch, raw images and the method's fields, after the update it led to."""
        ...

    def graph_key(self, n: int) -> tuple[int, ...]:
        """Host numbers that `add` and draws of up to n rows depend on: a recorded step is good while they last."""
        ...

    def on_graph_replay(self, n: int) -> None:
        """Count n rows that a recorded step has added: the device did its half, this is the host's half of `add`."""
        ...

    def sample(self, n: int, *, part: MemoryPart = MemoryPart.ALL, rng: torch.Generator) -> Rows:
        """min(n, size) distinct rows of a part, uniformly at random."""
        ...

    def rows(self, part: MemoryPart = MemoryPart.ALL) -> Rows:
        """All rows of a part: short-term by arrival, then long-term by the order of pinning."""
        ...

    def class_counts(self, classes: int) -> dict[str, list[int]]:
        """Rows per class in the short-term and in the long-term part."""
        ...

    def end_task(self, task: Task, probe: ModelView, *, rng: torch.Generator) -> None:
        """A task is over; its rows can be read from it one last time. Unlike in `add`, `rng` is on the CPU."""
        ...
