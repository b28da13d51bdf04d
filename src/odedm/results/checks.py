"""What a check of a finished run is, and how one says that something is broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from odedm.results.result import Result


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: sound, broken, or not to be checked here (None)."""

    name: str
    sound: bool | None
    detail: str


class Broken(Exception):
    """What is wrong: the rest of a sentence that starts with the check's name."""


class Skipped(Exception):
    """Why something cannot be checked here."""


def checked(name: str, look: Callable[[Result], str], result: Result) -> Check:
    """What a look at a result found; one that stumbles found something that is not made as it should be."""
    try:
        return Check(name, True, look(result))
    except Broken as fault:
        return Check(name, False, str(fault))
    except Skipped as reason:
        return Check(name, None, str(reason))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        return Check(name, False, f"the result is not made as it should be ({type(error).__name__}: {str(error)[:80]})")


def demand(fine: object, fault: str) -> None:
    """Something is broken unless it is fine."""
    if not fine:
        raise Broken(fault)


def numbers(row: object, length: int) -> bool:
    """Whether this is a list of so many finite numbers."""
    return (
        isinstance(row, list)
        and len(row) == length
        and all(type(each) in (int, float) and math.isfinite(each) for each in row)
    )
