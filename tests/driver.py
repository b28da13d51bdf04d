"""A run that a test can stop after any step and carry over into another one, as a checkpoint does."""

from __future__ import annotations

from odedm import Experiment, Run
from odedm.checkpoint.capture_state import capture_state
from odedm.checkpoint.restore_state import restore_state


class _Killed(Exception):
    pass


class Driver:
    """A `Run` with what of it is state, and what lies outside: the stream's rows."""

    def __init__(self, memory, data, state=None, **options):
        self.run = Run(Experiment(memory, data=data.name, device="cpu", **options), data)
        self.roots, self.outside = self.run.roots(), self.run.outside()
        if state is not None:
            restore_state(self.roots, state, self.outside)

    def capture(self):
        return capture_state(self.roots, self.outside)

    def go(self, steps=None):
        """Train for so many steps more, or to the end; the outcome, or None where it was killed."""
        if steps == 0:
            return None
        done = 0

        def watch(*_):
            nonlocal done
            done += 1
            if done == steps:
                raise _Killed

        try:
            return self.run.finish(watch)
        except _Killed:
            return None
