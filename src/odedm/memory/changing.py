"""What is changed in place, row by row: whatever ends a change early leaves it broken, and it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odedm.core.errors import UsageError

INTERRUPTED = "it was interrupted"
OnChange = Callable[[], object] | None
"""Called when all is known that a change needs, before anything is changed."""


class Changeable(Protocol):
    """Something that says why it is of no use any more; nothing where it is sound."""

    _broken: str


class Changing:
    """A block that changes something in place, from its start on or, with `later`, from `begin` on.

    Until the block is over the thing is broken, so that an interrupt at any line leaves it so, also one that comes
    where no handler could. What ends before `begin` has changed nothing.

    >>> class Row: _broken = ""
    >>> with Changing(row := Row()):
    ...     row._broken
    'it was interrupted'
    >>> row._broken
    ''
    """

    def __init__(self, target: Changeable, *, later: bool = False) -> None:
        self._target, self._later, self._begun = target, later, False

    def begin(self) -> None:
        """Say that what comes changes it."""
        self._begun = True
        self._target._broken = INTERRUPTED

    def __enter__(self) -> Changing:
        if not self._later:
            self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        if self._begun:
            self._target._broken = "" if kind is None else str(error) or kind.__name__


def check_sound(target: Changeable, what: str) -> None:
    """Refuse to use something of which a change ended early; `what` it is, for the sentence."""
    if target._broken:
        raise UsageError(
            f"This {what} stopped in the middle of a change and is of no use any more ({target._broken}). Load the "
            "last file that was saved, or begin anew."
        )
