"""A draw of some of many combinations in which every value comes, and each about as often as the others."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence


def balanced_draw(combinations: Sequence[Mapping[str, Hashable]], number: int, seed: int) -> list[int]:
    """The places of `number` combinations, in their order: all if there are no more, else drawn by the seed.

    One after another is taken that has the most values which none before it has, of these one whose values came least
    often, of these any. So of every product of lists each value comes where `number` is no less than the longest list.

    >>> both = [{"lr": lr, "rho": rho} for rho in (0.25, 0.5) for lr in (0.03, 0.1)]
    >>> drawn = [both[place] for place in balanced_draw(both, 2, seed=0)]
    >>> sorted(each["lr"] for each in drawn), sorted(each["rho"] for each in drawn)
    ([0.03, 0.1], [0.25, 0.5])
    """
    if number >= len(combinations):
        return list(range(len(combinations)))
    came: Counter[tuple[str, Hashable]] = Counter()

    def behind(place: int) -> tuple[int, int]:
        """What a combination goes by: values that came before, and how often they did; it only ever grows."""
        often = [came[value] for value in combinations[place].items()]
        return sum(map(bool, often)), sum(often)

    chance = random.Random(seed).sample(range(len(combinations)), len(combinations))
    waiting = [((0, 0), turn, place) for turn, place in enumerate(chance)]
    drawn: list[int] = []
    while len(drawn) < number:
        known, turn, place = heapq.heappop(waiting)
        now = behind(place)
        if now != known:
            heapq.heappush(waiting, (now, turn, place))
            continue
        drawn.append(place)
        came.update(combinations[place].items())
    return sorted(drawn)
