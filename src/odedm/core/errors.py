"""The one error users meet, and the sentence that goes with a wrong name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class UsageError(ValueError):
    """Something asked for cannot be done: says what is wrong, what was given, what is legal, what to do."""


UsageError.__module__ = "odedm"  # as users know it


def unknown(kind: str, given: str, legal: Iterable[str]) -> UsageError:
    """The error for a name that is not in the list, with the nearest one that is.

    >>> str(unknown("method", "derp", ["er", "der", "derpp"]))
    "Unknown method 'derp': did you mean 'derpp'? Known: er, der, derpp."
    >>> str(unknown("method", "zzz", ["er"]))
    "Unknown method 'zzz'. Known: er."
    """
    names = list(legal)
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    hint = f": did you mean '{near[0]}'?" if near else "."
    return UsageError(f"Unknown {kind} '{given}'{hint} Known: {', '.join(names)}.")


def choose(kind: str, given: str, table: Mapping[str, T]) -> T:
    """Look a name up in a written table, or say which name was meant.

    >>> choose("colour", "red", {"red": 1})
    1
    """
    if given not in table:
        raise unknown(kind, given, table)
    return table[given]
