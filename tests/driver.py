"""A run that a test can stop after any step and carry over into another one, as a checkpoint does."""

from __future__ import annotations

from odedm import Experiment, Run
from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import state_tree


class _Killed(Exception):
    pass


class Driver:
    """A `Run` with what of it is state, and what lies outside: the stream's rows."""

    def __init__(self, memory, data, state=None, **options):
        self.run = Run(Experiment(memory, data=data.name, device="cpu", **options), data)
        self.roots, self.external_tensors = self.run.roots(), self.run.external_tensors()
        if state is not None:
            load_state_tree(self.roots, state, self.external_tensors)

    def capture(self):
        return state_tree(self.roots, self.external_tensors)

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
