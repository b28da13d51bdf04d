"""Who is told of a run as it goes: callbacks of users, and reporters of the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odedm.core.errors import UsageError, short_repr
from odedm.core.plugin_modules import source_hash

if TYPE_CHECKING:
    from odedm.training.run import Run

MOMENTS = ("after_step", "after_task", "after_run")
"""When callbacks are called: the first two with the run, the last with its outcome."""


class Reporter:
    """Is told of a run as it goes, and changes nothing of it; override what you need."""

    def after_step(self, run: Run) -> None:
        """A batch is learned."""

    def after_task(self, run: Run) -> None:
        """A task is over and tested: `run.progress` is at the next one."""


class Callbacks:
    """Callbacks of a user: objects with `after_step(run)`, `after_task(run)` or `after_run(outcome)`.

    A plain function is called after each task, with the run. They run in the run's own process and thread, and may
    look at everything; a callback that changes something changes the run.

    >>> Callbacks([3])
    Traceback (most recent call last):
    odedm.UsageError: A callback must be a function of the run, or an object with after_step, after_task or after_run; \
3 was given.
    """

    def __init__(self, given: Sequence[Any] = ()) -> None:
        if not isinstance(given, list | tuple):
            raise UsageError(f"callbacks must be a list; {short_repr(given)} was given.")
        self.given = list(given)
        self._at: dict[str, list[Callable[[Any], object]]] = {moment: [] for moment in MOMENTS}
        for callback in given:
            moments = [moment for moment in MOMENTS if callable(getattr(callback, moment, None))]
            if isinstance(callback, type) or not (moments or callable(callback)):
                legal = "a function of the run, or an object with after_step, after_task or after_run"
                raise UsageError(f"A callback must be {legal}; {short_repr(callback)} was given.")
            for moment in moments:
                self._at[moment].append(getattr(callback, moment))
            if not moments:
                self._at["after_task"].append(callback)

    def origins(self) -> dict[str, dict[str, Any]]:
        """What a result says of them, as of other code from outside: a callback may change the run."""
        origins = {}
        for number, callback in enumerate(self.given, start=1):
            kind = callback if hasattr(callback, "__qualname__") else type(callback)
            origin = f"{kind.__module__}:{kind.__qualname__}"
            code = source_hash(callback)
            origins[f"callback {number}"] = {"title": kind.__name__, "from": origin, "again": False, "code": code}
        return origins

    def after_step(self, run: Any) -> None:
        """A batch is learned; where callbacks change method or memory on the host, steps are recorded anew."""
        if not self._at["after_step"]:
            return
        run.stepper.update_baseline(run.method, run.memory)
        for callback in self._at["after_step"]:
            callback(run)
        run.stepper.begin_task(run.method, run.memory)

    def after_task(self, run: object) -> None:
        """A task is over and tested."""
        for callback in self._at["after_task"]:
            callback(run)

    def after_run(self, outcome: object) -> None:
        """A run is over."""
        for callback in self._at["after_run"]:
            callback(outcome)
