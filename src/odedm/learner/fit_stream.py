"""Learning from batches that a thread reads ahead: of a file, a queue or a generator, longer than any memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Self

from odedm.core.errors import UsageError, short_repr
from odedm.core.validators import Int

WAIT = 0.1
"""Seconds after which the reading thread looks whether anyone still waits for it."""


class FitsStreams:
    """What learns batches can learn a stream of them."""

    def partial_fit(self, x: Any, y: Any) -> Any:
        """Learn rows with labels."""
        raise NotImplementedError

    def fit_stream(self, batches: Iterable[Any], *, prefetch: int = 2) -> Self:
        """Learn batch after batch, while a thread reads the next ones.

        An error of the iterator, or an interrupt, ends it after whole batches: what was learned stays learned.

        Args:
            batches: gives pairs (x, y), rows with their labels; it may have no end.
            prefetch: how many batches are read ahead at most. A slow learner slows the reading down. 0 reads each in
                the calling thread when its turn comes.

        Returns:
            The learner.

        >>> import numpy as np
        >>> import odedm
        >>> rng = np.random.default_rng(0)
        >>> batches = ((rng.normal(size=(32, 4)), rng.integers(0, 3, 32)) for _ in range(5))
        >>> odedm.Learner("er").fit_stream(batches).classes_.tolist()
        [0, 1, 2]
        """
        if not isinstance(batches, Iterable):
            raise UsageError(f"batches must be an iterable of pairs (x, y); {short_repr(batches)} was given.")
        for batch in read_ahead(batches, Int(0).validate("prefetch", prefetch)):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise UsageError(f"Batches must be pairs (x, y); {short_repr(batch)} was given.")
            self.partial_fit(*batch)
        return self


def read_ahead(items: Iterable[Any], most: int) -> Iterator[Any]:
    """Iterate over items of which a thread holds at most so many ready; its error is raised in their place.

    >>> list(read_ahead(range(5), 2))
    [0, 1, 2, 3, 4]
    """
    if not most:
        yield from items
        return
    queue: Queue[tuple[bool, Any]] = Queue(most)
    nobody_waits = Event()

    def put(more: bool, value: Any) -> None:
        while not nobody_waits.is_set():
            with suppress(Full):
                queue.put((more, value), timeout=WAIT)
                break

    def read() -> None:
        try:
            for item in items:
                put(True, item)
                if nobody_waits.is_set():
                    return
            put(False, None)
        except BaseException as error:  # raised in the thread that waits for it
            put(False, error)

    thread = Thread(target=read, name="odedm reads ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                more, value = queue.get(timeout=WAIT)
            except Empty:  # a signal can only be handled between two waits
                continue
            if not more:
                if value is not None:
                    raise value
                return
            yield value
    finally:
        nobody_waits.set()
        thread.join(timeout=10 * WAIT)
