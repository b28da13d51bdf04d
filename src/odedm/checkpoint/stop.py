"""Asking runs to stop, by Ctrl-C or by the system: once politely, then at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STORING = b"\nStopping: the state of what is running is being stored. Once more stops at once.\n"


class Stopped(KeyboardInterrupt):
    """A run was asked to stop and has stored its state; `signal` is the number of the signal that asked."""

    def __init__(self, signal: int = 2) -> None:
        super().__init__(signal)
        self.signal = signal


class StopFlag:
    """A flag that a signal sets; `number` is that signal's."""

    def __init__(self) -> None:
        self.event, self.number = threading.Event(), int(signal.SIGINT)

    def __call__(self) -> bool:
        """Return whether someone wants the run to stop."""
        return self.event.is_set()

    def set(self, number: int) -> None:
        """Ask the run to stop."""
        self.number = number
        self.event.set()


@contextmanager
def stop_on_signal(*, at_once: bool = False) -> Iterator[StopFlag]:
    """Inside the block the first SIGINT or SIGTERM sets the flag, the second interrupts; with `at_once` the first does.

    Only the main thread can do this; elsewhere the flag is never set by itself. Afterwards signals are as before.
    """
    stop_flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield stop_flag
        return

    def hear(number: int, _frame: FrameType | None) -> None:
        if not stop_flag():
            stop_flag.set(number)
            os.write(2, STORING)  # not by Python's stream: whatever was interrupted may hold that
            if not at_once:
                return
        raise Stopped(number)

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield stop_flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
