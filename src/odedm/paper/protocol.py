"""What the paper's runs are, every setting written out, so that its studies stay what they are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from odedm.core.registry import DISTANCES, WITHOUT_CLUSTERS, normalize_name
from odedm.memory.paper_preset import AUXILIARY, REST, paper_preset
from odedm.selection.flat_settings import OF_DAC
from odedm.studies.grid import Grid

_PROTOCOL: dict[str, Any] = tomllib.loads(files(__package__).joinpath("protocol.toml").read_text(encoding="utf-8"))
DATA: dict[str, dict[str, Any]] = _PROTOCOL["data"]
"""Tasks, classes and network by data set."""
POLICIES: dict[str, str] = _PROTOCOL["policies"]
RETRIEVALS: dict[str, str] = _PROTOCOL["retrievals"]
EPOCHS = {1: "online-1-epoch", 50: "offline-50-epochs"}
"""What a table of other methods calls the standard setting."""
STREAM: dict[str, Any] = _PROTOCOL["stream"]
WITHOUT_ODEDM = (("native",), ("none",))
CONSTANTS: dict[str, dict[str, Any]] = _PROTOCOL["constants"]
"""Hyper-parameters by method."""


def constants(method: str, data: str, capacity: int) -> dict[str, Any]:
    """Return every hyper-parameter of a method as the paper's runs have it; none for a method that it does not run.

    >>> [constants("icarl", "cifar10", capacity)["lr"] for capacity in (200, 5120)], constants("er-ace", "cifar10", 200)
    ([0.1, 0.03], {})
    """
    values = dict(CONSTANTS.get(method, {}))
    cell = {"method": method, "data": data, "capacity": capacity}
    for override in _PROTOCOL["override"]:
        if all(override[name] == cell[name] for name in cell.keys() & override.keys()):
            values |= {name: value for name, value in override.items() if name not in cell}
    return values


def with_explicit_settings(grid: Grid) -> tuple[Grid, ...]:
    """Return the same runs with every setting written out, a grid for each λ, if they are on data of the paper's.

    Elsewhere the paper ran nothing, and the library's defaults hold, but for how a method meets the memory.
    """
    (data,) = grid.axes["data"]
    if data not in DATA:
        usual = {name: (value,) for name, value in AUXILIARY.items()}
        usual |= {"dac_sample": ("none",), "short_policy": (REST["short_policy"],)}
        return (replace(grid, axes={**({} if grid.axes["memory"] in WITHOUT_ODEDM else usual), **grid.axes}),)
    return tuple(_whole(grid, data, capacity) for capacity in grid.axes["capacity"])


def _whole(grid: Grid, data: str, capacity: int) -> Grid:
    axes = {**STREAM, "tasks": DATA[data]["tasks"], "net": DATA[data]["net"]}
    if grid.axes["memory"] not in WITHOUT_ODEDM:
        distances = grid.axes.get("distance", ("sinkhorn",))
        preset = {"rho": None, "k": None, **paper_preset(*distances[:1])}
        axes |= {name: "none" if value is None else value for name, value in preset.items()}
    axes |= {f"net_options.{name}": value for name, value in DATA[data]["net_options"].items()}
    for method in grid.axes["method"]:
        axes |= {f"options.{method}.{name}": value for name, value in constants(method, data, capacity).items()}
    return Grid({**{name: (value,) for name, value in axes.items()}, **grid.axes, "capacity": (capacity,)})


def protocol_deviations(settings: Mapping[str, Any]) -> list[str]:
    """Return in which settings a run's flat configuration is not what the paper ran; it reports no learning rates.

    A setting that an older result lacks was not there to be changed.

    >>> dual = {"data": "cifar10", "method": "derpp", "memory.name": "odedm"}
    >>> protocol_deviations({**dual, "batch": 1, "memory.gamma": 0.0, "optimizer_options.nesterov": True})
    ['batch', 'memory.gamma', 'optimizer_options.nesterov']
    """
    expected = _expected(settings)
    others = [name for name, value in expected.items() if name in settings and settings[name] != value]
    optimizer = [name for name in settings if name.startswith("optimizer_options") and settings[name] not in (None, {})]
    return others + optimizer


def _expected(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the paper's run has, of the settings in which ours can depart from it."""
    name = normalize_name(str(settings.get("data")))
    data = next((data for data in DATA if normalize_name(data) == name), "")
    method, capacity = str(settings.get("method")), settings.get("memory.capacity")
    free = {"imbalance", "precision", *(["epochs"] if settings.get("epochs") in EPOCHS else [])}
    expected = {name: None if value == "none" else value for name, value in STREAM.items() if name not in free}
    expected["retrieval"] = RETRIEVALS.get(method, expected["retrieval"])
    network = DATA[data or "cifar10"]
    expected |= {"net": network["net"]}
    expected |= {f"net_options.{name}": value for name, value in network["net_options"].items()}
    idle = {"lr", "fit"}  # the one is not reported, the other has a table of its own
    if method == "puridiver" and not settings.get("options.fit"):
        idle |= {"fit_epochs", "warmup"}
    fixed = constants(method, data, capacity if isinstance(capacity, int) else 0)
    expected |= {f"options.{name}": value for name, value in fixed.items() if name not in idle}
    if settings.get("memory.name") == "odedm":
        distance = str(settings.get("memory.distance", "sinkhorn"))
        # the paper chose no rows without clusters, nor by a distance of a plug-in's: these deviate in the distance
        preset = paper_preset(distance if distance in {*DISTANCES} - {*WITHOUT_CLUSTERS} else "sinkhorn")
        preset.pop("short_policy")  # a result has it by the policy's own name
        if settings.get("memory.dac", ()) is None:
            preset = {name: value for name, value in preset.items() if name not in OF_DAC}
        expected |= {f"memory.{name}": value for name, value in preset.items()}
    return expected
