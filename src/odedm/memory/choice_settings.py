"""Which settings of a dual memory go together; what contradicts another one is refused in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odedm.core.configuration import OneOf, settings_of
from odedm.core.errors import UsageError
from odedm.core.registry import WITHOUT_CLUSTERS

if TYPE_CHECKING:
    from odedm.memory.settings import ODEDM

OF_DISTANCE = {"screen": "sinkhorn", "pair_epsilon": "sinkhorn", "ground": "sinkhorn", "bandwidth": "mmd"}
"""Settings of one distance of rows to prototypes, which others refuse."""
OF_TERM: dict[str, Any] = {"gamma": 1.0, "gamma_rule": "fixed"}
"""Settings of the auxiliary term, with what a memory without one has."""


@dataclass(frozen=True)
class ClusterDistance(OneOf):
    """A distance that clusters have: any but those names that stand for a choice without clusters.

    >>> ClusterDistance("distance", {"l2": 1, "random": 2}).legal
    'one of l2'
    """

    @property
    def names(self) -> list[str]:
        """All legal names."""
        return [name for name in super().names if name not in WITHOUT_CLUSTERS]

    def read(self, name: str, value: Any) -> str:
        """The name of a distance."""
        found = super().read(name, value)
        if found in WITHOUT_CLUSTERS:
            raise UsageError(f"{name} compares clusters, and '{found}' makes none; it must be {self.legal}.")
        return found


def check_choice(memory: ODEDM) -> None:
    """Refuse settings of the choice that contradict each other."""
    if memory.annotate == "stream" and memory.mixup:
        raise UsageError("annotate='stream' keeps the logits that rows had in the stream; mixup's means had none.")
    if memory.choose_again and memory.mixup:
        raise UsageError(
            "choose_again chooses among rows, and mixup keeps means in their place; leave one of them out."
        )
    if memory.distance in WITHOUT_CLUSTERS and memory.mixup:
        raise UsageError(
            f"mixup keeps the means of clusters, and distance='{memory.distance}' makes none. Leave mixup out, or take "
            "a distance such as 'l2'."
        )
    for name, owner in OF_DISTANCE.items():
        if getattr(memory, name) is not None and not memory.distance.startswith(owner):
            raise UsageError(f"{name} is for the {owner} distance, not for '{memory.distance}'; leave it out.")
    clouds = memory.dac and memory.distance not in WITHOUT_CLUSTERS and memory.dac_distance
    if memory.epsilon is not None and "sinkhorn" not in (memory.distance, clouds):
        raise UsageError("epsilon is for the sinkhorn distance between clusters of --dac, of which there are none.")


def check_weight(memory: ODEDM) -> None:
    """Refuse a weight of the auxiliary term beside the reading that has none: it would do nothing."""
    for name, idle in OF_TERM.items():
        given = getattr(memory, name)
        if memory.replay == "union" and given not in (None, idle):
            raise UsageError(
                f"{name} is for the auxiliary term, and replay='union' has none; {given!r} was given. Leave it out, or "
                "take replay='auxiliary' or 'both'."
            )


def without_idle_weight(kind: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """A stored memory's settings; a weight beside `union`, which did nothing when files could have one, is left out."""
    if plain.get("replay") != "union":
        return plain
    known = settings_of(kind)
    given = [name for name in OF_TERM if name in known and plain.get(name) is not None]
    for name in given:
        known[name].kind.read(name, plain[name])  # what is none at all is refused as ever
    return {**plain, **{name: OF_TERM[name] for name in given}}
