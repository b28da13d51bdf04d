"""Divides the rows of a class into those to train on and a share that is held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T", int, str)


def hold_out(shuffled: Sequence[T], share: float) -> tuple[list[T], list[T]]:
    """Return which rows of a class stay, and which are held out: the first round(share · size) shuffled ones.

    Both lists are sorted. At least one row is held out and at least one stays; a class of fewer than two rows has none
    to spare, and its second list is empty.

    >>> hold_out([7, 3, 9, 5, 1], 0.4)
    ([1, 5, 9], [3, 7])
    >>> hold_out([7, 3], 0.01), hold_out([7], 0.5)
    (([3], [7]), ([7], []))
    """
    cut = min(max(1, round(share * len(shuffled))), len(shuffled) - 1)
    return sorted(shuffled[cut:]), sorted(shuffled[:cut])
