"""A run that a test can look at after each step, or stop and carry over into another one, as a checkpoint does."""

from __future__ import annotations

from odedm import Experiment, Run
from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import state_tree
from odedm.training.callbacks import Reporter


class EachStep(Reporter):
    """Calls a function with the run after each step."""

    def __init__(self, function):
        self.after_step = function


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

        def count(_run):
            nonlocal done
            done += 1
            if done == steps:
                raise _Killed

        try:
            return self.run.finish(EachStep(count))
        except _Killed:
            return None
