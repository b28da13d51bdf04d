"""Everyone who is told how a study gets on: the board, and whoever follows events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from odedm.execute.job import Work
from odedm.execute.observers import listeners
from odedm.execute.scheduler import Watcher
from odedm.results.result import Result


class Audience:
    """A board first, then listeners; trials are for the board alone."""

    def __init__(self, board: Watcher, works: Sequence[Work], events: Path | None, tensorboard: Path | None) -> None:
        self.board = board
        self._runs = {number for number, work in enumerate(works) if work.kind == "run"}
        names = [f"{work.folder.parent.name}/{work.folder.name}" for work in works]
        self._listeners = listeners(names, events, tensorboard)

    def __enter__(self) -> Audience:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._listeners:
            each.close()

    def started(self, number: int, work: Work) -> None:
        """A piece of work has begun."""
        self.board.started(number, work)

    def progress(self, number: int, done: int, total: int) -> None:
        """It has come so far."""
        self.board.progress(number, done, total)
        for each in self._listeners if number in self._runs else ():
            each.progress(number, done, total)

    def finished(self, number: int, work: Work, result: Result | None, score: float | None) -> None:
        """It is over."""
        self.board.finished(number, work, result, score)
        if result is not None:
            for each in self._listeners:
                each.finished(number, result)

    def failed(self, number: int, work: Work, error: str) -> None:
        """It failed."""
        self.board.failed(number, work, error)

    def said(self, line: str) -> None:
        """A line for the user."""
        self.board.said(line)

    def tick(self, left: float | None) -> None:
        """Time has passed."""
        self.board.tick(left)
