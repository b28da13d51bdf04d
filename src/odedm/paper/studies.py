"""The paper's tables and figures as studies by name, and a small one of every kind on the embedded images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from odedm.core.errors import UsageError, choose
from odedm.paper.baselines import CAPACITIES, baseline_grids
from odedm.paper.printed import BORROWED, numbers, share_of
from odedm.paper.protocol import PAPER_DATA, with_explicit_settings
from odedm.studies.grid import PLAIN, Grid, Values
from odedm.studies.spec import Study, parse

CATALOGUE_NAMES = {"derpprefresh": "refresh"}


@dataclass(frozen=True)
class Ready:
    """A study by name: what it shows, and the paper's tables whose cells it runs; without any it is a file in `ready`.

    `tables` are named without the data set behind it, `metric` is what of them is looked at.
    """

    about: str
    tables: tuple[str, ...] = ()
    metric: str = "acc_last"
    data: str = "cifar10"
    options: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)


READY = {
    "table1": Ready(
        "Eight methods with and without ODEDM, every λ, setting and k of the paper.",
        ("table1", "full"),
    ),
    "table4": Ready("Other methods, online and at 50 epochs, and bounds.", (BORROWED,)),
    "dac-sweep": Ready("Clusters and depth of divide-and-conquer for each ρ."),
    "dac-runtime": Ready("Seconds of whole runs, with and without DAC."),
    "ablation": Ready("Over ρ: with DAC, without it, and mixup; and plain."),
    "distances": Ready("Sinkhorn, L2, L1 and MMD."),
    "fitting": Ready(
        "PuriDivER with its fit to the memory.", ("puridiver_fitting",), options={"puridiver": {"fit": (True,)}}
    ),
    "imagenet-r": Ready("ImageNet-R with a vision transformer.", ("imagenet_r",), data="imagenet-r"),
    "forgetting": Ready("Forgetting-rate curves at each λ, with and without ODEDM."),
    "density": Ready("What the memory holds of each class, with and without ODEDM."),
    "task-il": Ready("The Task-IL tables; the same runs as table1, looked at otherwise.", ("task_il",), "task_il_last"),
    "mini": Ready("Every kind of evidence, small, on the embedded images, in minutes."),
}


def ready(name: str, data: str | None = None) -> Study:
    """A ready study, on its own data or on another.

    >>> len(ready("dac-sweep").experiments())
    140
    """
    found = choose("study", name, READY)
    if found.tables:
        return Study(name, printed(found, data or found.data), about=found.about)
    study = parse(files(__package__).joinpath("ready", f"{name}.toml").read_text(encoding="utf-8"), name)
    other = {} if data is None else {"data": (data,)}
    grids = [replace(grid, axes={**grid.axes, **other}) for grid in study.grids]
    whole = tuple(each for grid in grids for each in with_explicit_settings(grid))
    return replace(study, about=found.about, grids=whole)


def printed(ready: Ready, data: str) -> tuple[Grid, ...]:
    """A grid for each setting, λ and variant of the paper's tables, with the methods that have a number there.

    A variant is `none` or `odedm-k`.
    """
    plain = data.replace("-", "")
    cells = [cell for cell in numbers() if cell[0].removesuffix(f"_{cell[1]}") in ready.tables]
    methods: dict[tuple[str, int, str], dict[str, None]] = {}
    for _, own, setting, size, method, variant, metric in cells:
        shown = variant == "none" or variant.removeprefix("odedm-").isdigit()
        if own == plain and metric == ready.metric and shown:
            methods.setdefault((setting, int(size), variant), {})[CATALOGUE_NAMES.get(method, method)] = None
    if not methods:
        known = [name for name in PAPER_DATA if any(cell[1] == name.replace("-", "") for cell in cells)]
        raise UsageError(
            f"The paper has no such table for '{data}'; it has one for {', '.join(known)}. "
            "Any data set can be had in `mini`, `ablation`, `distances`, `dac-sweep`, `forgetting`, or in a TOML file."
        )
    if BORROWED in ready.tables:
        return (*baseline_grids(data), *_with_odedm(data))
    grids: list[Grid] = []
    for (setting, capacity, variant), names in methods.items():
        axes: dict[str, Any] = {
            "data": (data,),
            "imbalance": (setting,),
            "method": tuple(names),
            "capacity": (capacity,),
        }
        if variant == "none":
            axes["memory"] = (PLAIN,)
        else:
            k = int(variant.removeprefix("odedm-"))
            rho = share_of(k, capacity, plain)
            axes |= {"memory": ("odedm",), "rho": (rho,), "k": (k,), "dac": ("paper",)}
        grids += with_explicit_settings(Grid(axes, ready.options))
    return tuple(grids)


def _with_odedm(data: str) -> Iterator[Grid]:
    """DER++ with ODEDM, of which that table repeats the best: runs of table 1."""
    for grid in printed(READY["table1"], data):
        method, own = "derpp", grid.axes
        if own["imbalance"] == ("standard",) and own["capacity"][0] in CAPACITIES and own["memory"] == ("odedm",):
            yield replace(grid, axes={**own, "method": (method,)}, options={method: grid.options[method]})
