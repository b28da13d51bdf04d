"""The paper's tables and figures as studies by name, and a small one of every kind on the embedded images."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any

from odedm.core.errors import UsageError, choose
from odedm.paper.printed import numbers, share_of
from odedm.paper.protocol import DATA, with_explicit_settings
from odedm.studies.grid import Grid
from odedm.studies.spec import Study, parse

_FOLDER = files(__package__).joinpath("ready")
_PRINTED: dict[str, dict[str, Any]] = tomllib.loads(_FOLDER.joinpath("printed.toml").read_text(encoding="utf-8"))
_FILES = sorted(path.name.removesuffix(".toml") for path in _FOLDER.iterdir() if path.name != "printed.toml")


def _file(name: str) -> Study:
    return parse(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"), name)


READY: dict[str, str] = {name: table["about"] for name, table in _PRINTED.items()}
READY |= {name: _file(name).about for name in _FILES}
"""What each study by name shows."""


def ready(name: str, data: str | None = None) -> Study:
    """Return a ready study, on its own data or on another.

    >>> len(ready("dac-sweep").experiments())
    140
    """
    choose("study", name, READY)
    if name in _PRINTED:
        return Study(name, printed(name, data or _PRINTED[name].get("data", "cifar10")), about=READY[name])
    study = _file(name)
    grids = [grid if data is None else replace(grid, axes={**grid.axes, "data": (data,)}) for grid in study.grids]
    return replace(study, grids=tuple(whole for grid in grids for whole in with_explicit_settings(grid)))


def printed(name: str, data: str) -> tuple[Grid, ...]:
    """Return a grid for each setting, λ and variant of a study's tables, with the methods that have a number there.

    A variant is `none` or `odedm-k`.
    """
    tables = _PRINTED[name]["tables"]
    cells = [cell for cell in numbers() if cell.table.removesuffix(f"_{cell.data}") in tables]
    methods: dict[tuple[str, int, str], dict[str, None]] = {}
    for cell in cells:
        shown = cell.variant == "none" or cell.variant.removeprefix("odedm-").isdigit()
        if cell.data == data and cell.metric == "acc_last" and shown:
            place = cell.setting, int(cell.capacity), cell.variant
            methods.setdefault(place, {})[cell.method] = None
    if not methods:
        known = [known for known in DATA if any(cell.data == known for cell in cells)]
        raise UsageError(
            f"The paper has no such table for '{data}'; it has one for {', '.join(known)}. "
            "Any data set can be had in `mini`, `ablation`, `distances`, `dac-sweep`, `forgetting`, or in a TOML file."
        )
    grids: list[Grid] = []
    options = {
        f"options.{method}.{option}": (value,)
        for method, values in _PRINTED[name].get("options", {}).items()
        for option, value in values.items()
    }
    for (setting, capacity, variant), names in methods.items():
        axes: dict[str, Any] = {"data": (data,), "imbalance": (setting,), "method": tuple(names)}
        axes |= {"capacity": (capacity,), "memory": ("native",)}
        if variant != "none":
            k = int(variant.removeprefix("odedm-"))
            share = share_of(k, capacity, data)
            axes |= {"memory": ("odedm",), "rho": (share,), "k": (k,), "dac": ("paper",)}
        grids += with_explicit_settings(Grid({**axes, **options}))
    return tuple(grids)
