"""Which groups of runs compare distances: the same memory, chosen by one distance and by another."""

from __future__ import annotations

from collections.abc import Sequence

from odedm.report.groups import BASELINES, Group
from odedm.report.wording import canonical

FOLLOWS = frozenset({"memory.distance", "memory.epsilon", "memory.pair_epsilon", "memory.ground", "memory.screen"})
"""The distance, and what belongs to one of them alone."""


def distance_of(group: Group) -> str:
    """The name of the distance that a group chose its long-term rows by."""
    return str(group.settings.get("memory.distance", "?"))


def by_distance(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that differ in the distance alone, at least two of them; the first one of each distance."""
    found: dict[str, dict[str, Group]] = {}
    for group in groups:
        if group.memory not in BASELINES and "memory.distance" in group.settings:
            rest = {key: value for key, value in group.settings.items() if key not in FOLLOWS}
            found.setdefault(canonical(rest), {}).setdefault(distance_of(group), group)
    return [list(own.values()) for own in found.values() if len(own) > 1]


def beside_the_plain_one(groups: Sequence[Group]) -> list[Group]:
    """For each family the memory without ODEDM and those that differ in distance; where none do, the first with ODEDM.

    Families that compare distances come first.
    """
    compared = by_distance(groups)
    families: dict[str, list[Group]] = {}
    for group in [*(each for own in compared for each in own), *groups]:
        families.setdefault(group.same_but_memory, []).append(group)
    chosen: list[Group] = []
    for members in families.values():
        plain = [group for group in members if group.memory in BASELINES]
        rivals = [group for own in compared for group in own if group in members]
        others = [group for group in members if group.memory not in BASELINES]
        chosen += [*plain[:1], *(rivals or others[:1])]
    return chosen
