"""A stopwatch that adds up the seconds of each phase of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from odedm.core.stored_names import stored


def at_once() -> None:
    """Do nothing: the work is done when its call returns."""


@stored("timer")
class Timer:
    """Adds up wall seconds under names; phases may nest, and a second counts for the innermost phase alone.

    `synchronize` is called at each border: on a device that works asynchronously it must wait for the work.

    >>> timer = Timer()
    >>> with timer("outer"):
    ...     with timer("inner"):
    ...         pass
    >>> sorted(timer.seconds)
    ['inner', 'outer']
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_running", "_since"})

    def __init__(self, synchronize: Callable[[], None] = at_once) -> None:
        self.seconds: dict[str, float] = {}
        self._synchronize = synchronize
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the seconds of the block under `phase`."""
        self._switch()
        self._running.append(phase)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def _switch(self) -> None:
        self._synchronize()
        now = time.perf_counter()
        if self._running:
            phase = self._running[-1]
            self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now
