"""Which settings of a dual memory go together; what contradicts another one is refused in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odedm.core.configuration import settings_of
from odedm.core.errors import UsageError
from odedm.core.registry import WITHOUT_CLUSTERS
from odedm.core.validators import Choice

if TYPE_CHECKING:
    from odedm.memory.settings import ODEDM

OF_DISTANCE = {"screen": "sinkhorn", "pair_epsilon": "sinkhorn", "ground": "sinkhorn", "bandwidth": "mmd"}
"""Settings of one distance of rows to prototypes, which others refuse."""
DAC_DISTANCE, FILLED_IN_EPSILON = "sinkhorn", 0.05
"""What stands in resolved settings without divide-and-conquer too, so it is no contradiction."""
OF_TERM: dict[str, Any] = {"gamma": 1.0, "gamma_rule": "fixed"}
"""Settings of the auxiliary term, with what stands in files of a memory without one."""


@dataclass(frozen=True)
class ClusterDistance(Choice):
    """A distance that clusters have: any but those names that stand for a choice without clusters.

    >>> ClusterDistance("distance", {"l2": 1, "random": 2}).expected
    'one of l2'
    """

    @property
    def names(self) -> list[str]:
        """All legal names."""
        return [name for name in super().names if name not in WITHOUT_CLUSTERS]

    def validate(self, name: str, value: Any) -> str:
        """The name of a distance."""
        found = super().validate(name, value)
        if found in WITHOUT_CLUSTERS:
            raise UsageError(f"{name} compares clusters, and '{found}' makes none; it must be {self.expected}.")
        return found


def check_choice(memory: ODEDM) -> None:
    """Refuse settings of the choice, or of how a method meets it, that contradict each other."""
    _check_weight(memory)
    if memory.annotate == "stream" and memory.mixup:
        raise UsageError("annotate='stream' keeps the logits that rows had in the stream; mixup's means had none.")
    if memory.distance in WITHOUT_CLUSTERS and memory.mixup:
        raise UsageError(
            f"mixup keeps the means of clusters, and distance='{memory.distance}' makes none. Leave mixup out, or take "
            "a distance such as 'l2'."
        )
    for name, owner in OF_DISTANCE.items():
        if getattr(memory, name) is not None and not memory.distance.startswith(owner):
            raise UsageError(f"{name} is for the {owner} distance, not for '{memory.distance}'; leave it out.")
    _check_cluster_distance(memory)


def _check_cluster_distance(memory: ODEDM) -> None:
    """Refuse settings of the distance between clusters where none are compared, or not by Sinkhorn."""
    clusters = memory.dac is not None and memory.distance not in WITHOUT_CLUSTERS
    if not clusters and memory.dac_distance != DAC_DISTANCE:
        raise UsageError(
            f"dac_distance='{memory.dac_distance}' compares the clusters of divide-and-conquer, of which there are "
            "none; leave it out, or give dac=(clusters, depth)."
        )
    used = clusters and memory.dac_distance == "sinkhorn"
    filled_in = memory.distance == "sinkhorn" and memory.epsilon == FILLED_IN_EPSILON
    if memory.epsilon is not None and not used and not filled_in:
        raise UsageError(
            "epsilon is for the sinkhorn distance between clusters of divide-and-conquer, of which there are none; "
            f"{memory.epsilon:g} was given. Leave it out."
        )


def _check_weight(memory: ODEDM) -> None:
    """Refuse a weight of the auxiliary term beside the reading that has none, whatever it is: it would do nothing."""
    for name in OF_TERM:
        given = getattr(memory, name)
        if memory.replay == "union" and given is not None:
            raise UsageError(
                f"{name} is for the auxiliary term, and the reading 'union' has none; {given!r} was given. Leave it "
                "out, or take the reading 'auxiliary' or 'both'."
            )


def stored_weight(plain: dict[str, Any]) -> dict[str, Any]:
    """A memory's settings as files have them: beside `union` stands the weight that it has had there ever since."""
    return {**plain, **OF_TERM} if plain.get("replay") == "union" else plain


def unstored_weight(kind: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """A stored memory's settings; a weight beside `union`, which nobody gave or which did nothing, is left out."""
    if plain.get("replay") != "union":
        return plain
    known = settings_of(kind)
    given = {name: value for name, value in plain.items() if name in OF_TERM and name in known}
    for name, value in given.items():
        if value is not None:
            known[name].validator.validate(name, value)  # what is none at all is refused as ever
    return {**plain, **dict.fromkeys(given)}
