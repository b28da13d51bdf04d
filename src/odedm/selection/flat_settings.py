"""The settings of a selection side by side, as commands, studies and files have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odedm.core.configuration import Setting, settings_of
from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES, WITHOUT_CLUSTERS
from odedm.core.validators import Choice, Float, Pair
from odedm.selection.prototype_settings import (
    DAC,
    MMD,
    DistanceName,
    Herding,
    OneDistance,
    Prototypes,
    Random,
    Selection,
    Sinkhorn,
    name_of,
)

_OF_PROTOTYPES, _OF_SINKHORN, _OF_DAC = settings_of(Prototypes), settings_of(Sinkhorn), settings_of(DAC)
FLAT: dict[str, Setting] = {
    "distance": Setting(
        Choice("distance", DISTANCES),
        "Of rows to prototypes.",
        "ODEDM",
        "sinkhorn; l2 where classes have few rows",
        optional=True,
    ),
    "dac": Setting(
        Pair(),
        "Divide and conquer before k-means: clusters, depth.",
        "ODEDM",
        "3,4; none where classes have few rows",
        metavar="K,DEPTH|none",
        optional=True,
    ),
    "space": _OF_PROTOTYPES["space"],
    "mixup": _OF_PROTOTYPES["mixup"],
    "screen": _OF_SINKHORN["screen"],
    "dac_distance": replace(_OF_DAC["distance"], validator=DistanceName("distance", DISTANCES), optional=True),
    "dac_sample": _OF_DAC["sample"],
    "epsilon": Setting(Float(0), "Sinkhorn's ε between clusters.", "ODEDM", "0.05", optional=True),
    "pair_epsilon": _OF_SINKHORN["epsilon"],
    "ground": _OF_SINKHORN["ground"],
    "bandwidth": settings_of(MMD)["bandwidth"],
}
"""By name: what Python writes as `Prototypes(distance=…, dac=DAC(…))`, `Herding(…)` or `Random()`."""
OF_DAC = ("dac_distance", "dac_sample", "epsilon")
OF_DISTANCE = {"screen": "sinkhorn", "pair_epsilon": "sinkhorn", "ground": "sinkhorn", "bandwidth": "mmd"}
"""Whose setting it is."""


def flattened(selection: Selection | None) -> dict[str, Any]:
    """Return the settings of a selection by name; None for what it has none of, and for all of one that is not given.

    >>> flat = flattened(Prototypes("l2", dac=None))
    >>> flat["distance"], flat["dac"], flat["dac_distance"]
    ('l2', None, None)
    """
    flat: dict[str, Any] = dict.fromkeys(FLAT)
    if selection is None:
        return flat
    flat |= {"space": "features", "mixup": False}
    if not isinstance(selection, Prototypes):
        return flat | {"distance": selection.name, "space": getattr(selection, "space", "features")}
    distance, dac = selection.distance, selection.dac
    flat |= {"distance": name_of(distance), "space": selection.space, "mixup": selection.mixup}
    if isinstance(distance, Sinkhorn):
        flat |= {"pair_epsilon": distance.epsilon, "ground": distance.ground, "screen": distance.screen}
    elif isinstance(distance, MMD):
        flat["bandwidth"] = distance.bandwidth
    if dac:
        flat |= {"dac": (dac.clusters, dac.depth), "dac_distance": name_of(dac.distance), "dac_sample": dac.sample}
        flat["epsilon"] = dac.distance.epsilon if isinstance(dac.distance, Sinkhorn) else None
    return flat


def selection_from(flat: Mapping[str, Any]) -> Selection | None:
    """Make the selection of as many settings side by side as were given, or None; refuse what would do nothing.

    >>> selection_from({"distance": "l2", "dac": (5, 3)})
    Prototypes(distance=L2(), dac=DAC(clusters=5, depth=3))
    >>> selection_from({"dac": None, "epsilon": 0.2})
    Traceback (most recent call last):
    odedm.UsageError: epsilon does nothing beside dac=none; 0.2 was given. Leave it out.
    """
    if not flat or ("distance" in flat and not any(value is not None for value in flat.values())):
        return None  # a None of divide-and-conquer alone is a choice
    given = {name: FLAT[name].validator.validate(name, value) for name, value in flat.items() if value is not None}
    distance, dac = given.get("distance", "sinkhorn"), given.get("dac")
    if "dac" not in flat and distance not in WITHOUT_CLUSTERS:
        dac = (DAC().clusters, DAC().depth)
    for name, cause in _idle(distance, dac, given.get("dac_distance", "sinkhorn")).items():
        if given.get(name) not in (None, False, "features"):
            raise UsageError(f"{name} does nothing beside {cause}; {given[name]} was given. Leave it out.")
    if distance in WITHOUT_CLUSTERS:
        return Herding(given.get("space", "features")) if distance == Herding.name else Random()
    kind = OneDistance("distance", DISTANCES).validate("distance", distance)
    if isinstance(kind, Sinkhorn):
        kind = Sinkhorn(given.get("pair_epsilon"), given.get("ground"), given.get("screen"))
    elif isinstance(kind, MMD):
        kind = MMD(given.get("bandwidth"))
    rest = {name: given[name] for name in ("space", "mixup") if name in given}
    return Prototypes(kind, _dac(dac, flat, given) if dac else None, **rest)


def _dac(pair: tuple[int, int], flat: Mapping[str, Any], given: Mapping[str, Any]) -> DAC:
    distance = given.get("dac_distance", "sinkhorn")
    sample: dict[str, Any] = {"sample": given.get("dac_sample")} if "dac_sample" in flat else {}
    return DAC(*pair, Sinkhorn(given["epsilon"]) if "epsilon" in given else distance, **sample)


def _idle(distance: str, dac: Any, dac_distance: str) -> dict[str, str]:
    """Return the settings that would do nothing, and beside what."""
    by_distance = f"distance='{distance}'"
    idle = {name: by_distance for name, owner in OF_DISTANCE.items() if distance != owner}
    if distance in WITHOUT_CLUSTERS:  # it makes none
        idle |= dict.fromkeys(("dac", "mixup", *OF_DAC), by_distance)
        idle |= {} if distance == Herding.name else {"space": by_distance}
    elif dac is None:
        idle |= dict.fromkeys(OF_DAC, "dac=none")
    elif dac_distance != "sinkhorn":
        idle["epsilon"] = f"dac_distance='{dac_distance}'"
    return idle


def of_clusters_there_are(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those of divide-and-conquer where there is none, as in some points of a grid.

    >>> of_clusters_there_are({"distance": "random", "dac": (3, 4)})
    {'distance': 'random'}
    >>> of_clusters_there_are({"dac": None, "epsilon": 0.1})
    {'dac': None}
    """
    idle = _idle(flat.get("distance", "sinkhorn"), flat.get("dac", ()), "sinkhorn")
    return {name: value for name, value in flat.items() if name not in {"dac", *OF_DAC} & {*idle}}


def beside(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds of settings beside changes: not those of another distance, nor of clusters that are gone.

    >>> beside({"distance": "mmd", "bandwidth": 2.0, "dac": (3, 4)}, {"distance": "l2"})
    {'distance': 'mmd', 'dac': (3, 4)}
    """
    distance = changes.get("distance", before.get("distance"))
    dac = changes.get("dac") if "dac" in changes else ()
    idle = {*_idle(str(distance), None if dac == "none" else dac, changes.get("dac_distance", "sinkhorn"))}
    idle |= {"dac"} & {*changes}
    return {name: value for name, value in before.items() if name not in idle - {"mixup", "space"}}
