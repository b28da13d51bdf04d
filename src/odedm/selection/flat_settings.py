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
    ROW_SELECTORS,
    DistanceName,
    Herding,
    OneDistance,
    Prototypes,
    Selection,
    Sinkhorn,
    name_of,
)

_OF_PROTOTYPES, _OF_SINKHORN, _OF_DAC = settings_of(Prototypes), settings_of(Sinkhorn), settings_of(DAC)
FLAT: dict[str, Setting] = {
    "distance": Setting(Choice("distance", DISTANCES), "Of rows to prototypes.", "ODEDM"),
    "dac": Setting(
        Pair(),
        "Divide and conquer before k-means: clusters, depth.",
        "ODEDM",
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


def flattened(selection: Selection) -> dict[str, Any]:
    """Return the settings of a selection by name; None for what it has none of.

    >>> flat = flattened(Prototypes("l2", dac=None))
    >>> flat["distance"], flat["dac"], flat["dac_distance"]
    ('l2', None, None)
    """
    flat: dict[str, Any] = dict.fromkeys(FLAT) | {"space": "features", "mixup": False}
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


def selection_from(flat: Mapping[str, Any]) -> Selection:
    """Make the selection of as many settings side by side as were given; refuse what would do nothing.

    >>> selection_from({"distance": "l2", "dac": (5, 3)})
    Prototypes(distance=L2(), dac=DAC(clusters=5, depth=3))
    >>> selection_from({"dac": None, "epsilon": 0.2})
    Traceback (most recent call last):
    odedm.UsageError: epsilon is for the clusters of divide-and-conquer, of which there are none; 0.2 was given. Leave \
it out.
    """
    flat = {name: FLAT[name].validator.validate(name, value) for name, value in flat.items() if value is not None} | {
        name: None for name, value in flat.items() if value is None
    }
    given = {name: value for name, value in flat.items() if value is not None}
    distance = given.get("distance", "sinkhorn")
    _check_distance(distance, given)
    if distance in WITHOUT_CLUSTERS:
        space = {"space": given["space"]} if "space" in given and ROW_SELECTORS[distance] is Herding else {}
        return ROW_SELECTORS[distance](**space)
    usual = DAC()
    dac = None if "dac" in flat and flat["dac"] is None else given.get("dac", (usual.clusters, usual.depth))
    for name in () if dac else OF_DAC:
        if name in given:
            raise UsageError(
                f"{name} is for the clusters of divide-and-conquer, of which there are none; {given[name]} was given. "
                "Leave it out."
            )
    kind = OneDistance("distance", DISTANCES).validate("distance", distance)
    if isinstance(kind, Sinkhorn):
        kind = Sinkhorn(given.get("pair_epsilon"), given.get("ground"), given.get("screen"))
    elif isinstance(kind, MMD):
        kind = MMD(given.get("bandwidth"))
    rest = {name: given[name] for name in ("space", "mixup") if name in given}
    return Prototypes(kind, _dac(dac, flat, given) if dac else None, **rest)


def of_clusters_there_are(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those of divide-and-conquer where there is none, as in some points of a grid.

    >>> of_clusters_there_are({"distance": "random", "dac": (3, 4)})
    {'distance': 'random'}
    >>> of_clusters_there_are({"dac": None, "epsilon": 0.1})
    {'dac': None}
    """
    idle: tuple[str, ...] = ()
    if flat.get("distance") in WITHOUT_CLUSTERS:
        idle = ("dac", *OF_DAC)
    elif flat.get("dac", ()) is None:
        idle = OF_DAC
    return {name: value for name, value in flat.items() if name not in idle}


def beside(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds of settings beside changes: not those of another distance, nor of clusters that are gone.

    >>> beside({"distance": "mmd", "bandwidth": 2.0, "dac": (3, 4)}, {"distance": "l2"})
    {'distance': 'mmd', 'dac': (3, 4)}
    """
    distance = changes.get("distance", before.get("distance"))
    gone = {name for name, owner in OF_DISTANCE.items() if distance != owner}
    if "dac" in changes or distance in WITHOUT_CLUSTERS:
        gone |= {"dac", *(OF_DAC if changes.get("dac") in (None, "none") else ())}
    if changes.get("dac_distance", "sinkhorn") != "sinkhorn":
        gone.add("epsilon")
    return {name: value for name, value in before.items() if name not in gone}


def _dac(pair: tuple[int, int], flat: Mapping[str, Any], given: Mapping[str, Any]) -> DAC:
    between = OneDistance("distance", DISTANCES).validate("dac_distance", given.get("dac_distance", "sinkhorn"))
    if "epsilon" in given:
        if not isinstance(between, Sinkhorn):
            raise UsageError(
                f"epsilon is for the sinkhorn distance between clusters, not for '{name_of(between)}'; leave it out."
            )
        between = Sinkhorn(given["epsilon"])
    sample = {"sample": flat["dac_sample"]} if "dac_sample" in flat else {}
    return DAC(*pair, between, **sample)


def _check_distance(distance: str, given: Mapping[str, Any]) -> None:
    """Refuse settings of another distance, or of clusters where a choice makes none."""
    for name, owner in OF_DISTANCE.items():
        if name in given and distance != owner:
            raise UsageError(f"{name} is for the {owner} distance, not for '{distance}'; leave it out.")
    if distance not in WITHOUT_CLUSTERS:
        return
    if given.get("mixup"):
        raise UsageError(
            f"mixup keeps the means of clusters, and distance='{distance}' makes none. Leave mixup out, or take "
            "a distance such as 'l2'."
        )
    for name in ("dac", *OF_DAC):
        if name in given:
            raise UsageError(
                f"{name} goes before clusters, and distance='{distance}' makes none; leave it out, or take a distance "
                "such as 'l2'."
            )
    if distance == "random" and given.get("space", "features") != "features":
        raise UsageError("space says where rows are points, and distance='random' looks at none; leave it out.")
