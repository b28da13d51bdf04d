"""Who may touch a learner when: one thread learns, others ask in between, and nobody sees half an update.

A learner's state is touched under one lock, which is held for an update, a consolidation or a question. A child process
that is forked finds every learner between two updates, with locks of its own: the fork waits for the update under way.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from functools import partial
from typing import Protocol

from odedm.core.errors import UsageError

PAUSE = 5e-5
"""Seconds for which a thread leaves the lock to others that wait for it; where none does it goes on at once."""
LONGEST_WAIT = 10.0
"""Seconds that a fork waits for an update under way."""


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> object: ...


class Turns:
    """The lock on a learner's state, and who is the one thread that changes it."""

    def __init__(self) -> None:
        self.lock: _Lock = threading.RLock()
        self.writer: _Lock = threading.RLock()
        self.waiting: set[int] = set()
        self.torn = False
        """Whether this process was forked in the midst of an update."""
        # no lock is needed for it, which an interrupt could leave locked: Python changes a dictionary at once
        _all[id(self)] = weakref.ref(self, partial(_forget, id(self)))

    def locked(self) -> Turn:
        """Return a block in which no other thread touches the state."""
        return Turn(self.lock, self.waiting)

    def writing(self) -> Turn:
        """Return a block in which this thread alone changes the state; it is refused where another one does."""
        return Turn(self.writer, None)


class Turn:
    """A block that holds a lock; the same thread may enter others inside."""

    def __init__(self, lock: _Lock, waiting: set[int] | None) -> None:
        self._lock, self._waiting, self._held = lock, waiting, False

    def __enter__(self) -> None:
        if self._waiting is None:
            self._held = self._lock.acquire(blocking=False)
            if not self._held:
                raise UsageError(
                    "Another thread is changing this learner; one thread at a time may learn, consolidate or release, "
                    "while others predict and save. Wait for it, or give each thread a learner of its own."
                )
            return
        me = threading.get_ident()
        self._waiting.add(me)
        self._held = self._lock.acquire()
        self._waiting.discard(me)

    def __exit__(self, *_error: object) -> None:
        self._release()
        if self._waiting:  # else this thread would take the lock again and again before another one wakes
            time.sleep(PAUSE)

    def _release(self) -> None:
        if self._held:
            # in one line: an interrupt comes before both or after both
            self._held = self._lock.release() is not None

    def __del__(self) -> None:
        self._release()  # where an interrupt has kept `__exit__` from it


_all: dict[int, weakref.ref[Turns]] = {}
_forking = threading.Lock()
_taken: list[Turns] = []


def _forget(key: int, reference: object) -> None:
    if _all.get(key) is reference:
        del _all[key]


def _living() -> list[Turns]:
    return [turns for reference in list(_all.values()) if (turns := reference()) is not None]


def _before_fork() -> None:
    """Wait until no learner is in the midst of an update."""
    _forking.acquire()
    end = time.monotonic() + LONGEST_WAIT
    _taken[:] = [turns for turns in _living() if turns.lock.acquire(timeout=max(0.0, end - time.monotonic()))]


def _after_fork_in_parent() -> None:
    while _taken:
        _taken.pop().lock.release()
    _forking.release()


def _after_fork_in_child() -> None:
    """Begin anew: of the parent's other threads only what they held is left."""
    taken = {id(turns) for turns in _taken}
    for turns in _living():
        if id(turns) in taken:
            turns.lock.release()
        else:
            turns.lock, turns.torn = threading.RLock(), True
        turns.waiting.clear()
        if turns.writer.acquire(blocking=False):
            turns.writer.release()
        else:
            turns.writer = threading.RLock()
    _taken.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
