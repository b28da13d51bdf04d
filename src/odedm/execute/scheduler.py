"""The loop of a study: start what there is room and time for, note what comes back, go on whatever fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from odedm.checkpoint.stop import heard
from odedm.core.errors import UsageError
from odedm.execute.eta import Pace
from odedm.execute.job import Done, Event, Failed, Progressed, Said, Work
from odedm.execute.workers import Engine
from odedm.results.result import FILE, Result

TICK = 0.2
PAUSE = 2.0
"""Seconds between two looks at the time that is left: a study may have thousands of runs."""


class Journal(Protocol):
    """Who keeps what has happened: a study's ledger."""

    def note(self, event: str, work: Work, **more: Any) -> None:
        """Something has happened to a piece of work."""
        ...

    def fail(self, work: Work, error: str) -> None:
        """It failed."""
        ...

    def score(self, work: Work, score: float) -> None:
        """A trial has its score."""
        ...


class Watcher(Protocol):
    """Who is told how a study gets on."""

    def started(self, number: int, work: Work) -> None:
        """A piece of work has begun."""
        ...

    def progress(self, number: int, done: int, total: int) -> None:
        """It has seen `done` of `total` rows."""
        ...

    def finished(self, number: int, work: Work, result: Result | None, score: float | None) -> None:
        """It is over: a run has a result, a trial a score."""
        ...

    def failed(self, number: int, work: Work, error: str) -> None:
        """It failed."""
        ...

    def said(self, line: str) -> None:
        """A line for the user."""
        ...

    def tick(self, left: float | None) -> None:
        """Time has passed; about so many seconds are left, as far as is known."""
        ...


@dataclass
class Outcome:
    """What came of the work: how much is done, what failed and why, what was left for lack of time."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: list[Work] = field(default_factory=list)


class Driver:
    """Brings pieces of work to their end on an engine, and notes each step in the ledger before it goes on.

    `fault` says why a run that came back is not one of this study's, if so.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Journal,
        watcher: Watcher,
        pace: Pace,
        *,
        until: float | None = None,
        fault: Callable[[Result], str | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.ledger, self.watcher, self.pace = engine, ledger, watcher, pace
        self.until, self._fault, self._clock = until, fault, clock
        self._looked = -math.inf
        self._rest: float | None = None
        self._running: dict[int, tuple[Work, float]] = {}
        self._process: dict[int, int] = {}

    def run(self, works: Sequence[Work]) -> Outcome:
        """Do all of it, as far as the time allows; at SIGINT or SIGTERM what is under way is stored."""
        outcome = Outcome()
        waiting = dict(enumerate(works))
        with heard(at_once=True):
            while waiting or self._running:
                self._start(waiting, outcome)
                for event in self.engine.events(TICK):
                    self._take(event, outcome)
                self.watcher.tick(self._left(waiting.values()))
        return outcome

    def _start(self, waiting: dict[int, Work], outcome: Outcome) -> None:
        for number, work in list(waiting.items()):
            if self._late(work):
                outcome.left.append(waiting.pop(number))
            elif self.engine.fits(work):
                del waiting[number]
                self.ledger.note("started", work)
                self._running[number] = (work, self._clock())
                self.watcher.started(number, work)
                self.engine.start(number, work)
            elif len(self._running) >= self.engine.lanes:
                return

    def _late(self, work: Work) -> bool:
        """Whether a piece of work is not expected to be over in time; of what nothing is known the first may start."""
        if self.until is None:
            return False
        rest = self.until - self._clock()
        return rest <= 0 or (self.pace.expect(work) or 0.0) > rest

    def _take(self, event: Event, outcome: Outcome) -> None:
        if isinstance(event, Said):
            self.watcher.said(event.line)
        elif event.number not in self._running:
            return
        elif isinstance(event, Progressed):
            if self._process.get(event.number) != event.process:  # another than before has it since a worker was lost
                self._process[event.number] = event.process
                self.ledger.note("under way", self._running[event.number][0], process=event.process)
            self.watcher.progress(event.number, event.done, event.total)
        else:
            work, _ = self._running.pop(event.number)
            try:
                if isinstance(event, Failed):
                    raise UsageError(event.error)
                self._finish(event, work)
                outcome.done += 1
            except UsageError as error:
                outcome.failed[work.key] = str(error)
                self.ledger.fail(work, str(error))
                self.ledger.note("failed", work)
                self.watcher.failed(event.number, work, str(error))

    def _finish(self, event: Done, work: Work) -> None:
        result = None
        if work.kind == "trial":
            if event.score is None:
                raise UsageError("A trial came back without a score.")
            self.ledger.score(work, event.score)
        else:
            result = Result.load(work.folder / FILE)
            made_on = result.provenance.get("data_checksum")
            if work.checksum is not None and made_on != work.checksum:
                raise UsageError(
                    f"The run in '{work.folder}' was made on other data than here: '{work.experiment.data}' has "
                    f"the checksum {made_on} where it ran, and {work.checksum} here. Import it anew there."
                )
            fault = self._fault(result)
            if fault is not None:
                raise UsageError(fault)
            self.pace.learn(result.experiment, sum(result.seconds.values()))
        self.ledger.note("finished", work)
        self.watcher.finished(event.number, work, result, event.score)

    def _left(self, waiting: Iterable[Work]) -> float | None:
        """Seconds until all is done, if every lane stays busy; None where too little is known."""
        now = self._clock()
        if now - self._looked >= PAUSE:
            self._looked = now
            self._rest = self._expected(waiting, now)
        return self._rest

    def _expected(self, waiting: Iterable[Work], now: float) -> float | None:
        known = [self.pace.expect(work) for work in waiting]
        under_way = [(self.pace.expect(work), now - since) for work, since in self._running.values()]
        rest = [max(0.0, seconds - gone) for seconds, gone in under_way if seconds is not None]
        if None in known or len(rest) < len(under_way):
            return None
        return sum([*(each for each in known if each is not None), *rest]) / max(1, self.engine.lanes)
