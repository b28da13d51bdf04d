"""The paper's tables and figures as studies by name, and a small one of every kind on the embedded images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from odedm.core.errors import UsageError, choose
from odedm.study.dac_timing_plan import Runtime
from odedm.study.grid import PLAIN, Grid
from odedm.study.paper_numbers import EPOCHS, SWEPT, TASKS, Cell, numbers
from odedm.study.study import Study
from odedm.training.hold_out import Selection
from odedm.training.observation import Observation

SHARES = (0.25, 0.5, 0.75)
SETTINGS = ("standard", "imbalanced")
CLASSES = {"cifar10": 10, "cifar100": 100, "tinyimagenet": 200, "imagenetr": 200}
PAPER_DATA = {"cifar10": "cifar10", "cifar100": "cifar100", "tiny-imagenet": "tinyimagenet", "imagenet-r": "imagenetr"}
CATALOGUE_NAMES = {"derpprefresh": "refresh"}
SEEDS = (0, 1, 2, 3, 4)
ABLATED = "refresh"
"""The method of the paper's DAC sweep and of its distances; the ablation takes the same."""
CHOSEN_ON = Selection()


@dataclass(frozen=True)
class Ready:
    """A study by name: what it shows, the data it is for unless another is asked for, and how it is made."""

    about: str
    data: str
    make: Callable[[str], tuple[Grid, ...]]
    seeds: tuple[int, ...] = SEEDS
    select: Selection | None = None
    observation: Observation | None = None
    runtime: Runtime | None = None


def ready(name: str, data: str | None = None) -> Study:
    """A ready study, on its own data or on another.

    >>> len(ready("dac-sweep").experiments())
    140
    """
    found = choose("study", name, READY)
    if data is not None and not found.data:
        raise UsageError(f"The study '{name}' times synthetic features, so it takes no --data; leave it out.")
    return Study(
        name,
        found.make(data or found.data),
        found.seeds,
        found.about,
        select=found.select,
        runtime=found.runtime,
        observation=found.observation or Observation(),
    )


def share_of(k: int, capacity: int, *, tasks: int, classes: int) -> float:
    """The ρ that the paper's k stands for: the first of its three that rounds to k, else the nearest.

    >>> [share_of(k, 200, tasks=5, classes=10) for k in (6, 13, 19)]
    [0.25, 0.5, 0.75]
    >>> share_of(42, 5120, tasks=10, classes=100), share_of(1, 200, tasks=10, classes=200)
    (0.75, 0.5)
    """
    pinned = (tasks - 1) * (classes // tasks)
    exact = [rho for rho in SHARES if math.floor(rho * capacity / pinned + 0.5) == k]
    return exact[0] if exact else min(SHARES, key=lambda rho: abs(rho * capacity - k * pinned))


def printed(tables: Mapping[str, str], data: str, extra: Mapping[str, Any] | None = None) -> tuple[Grid, ...]:
    """A grid for each setting, λ and variant of the paper's tables, with the methods that have a number there.

    `tables` maps a table to the metric that is looked at; a variant is `none` or `odedm-k`.
    """
    plain = data.replace("-", "")
    methods: dict[tuple[str, int, str], dict[str, None]] = {}
    for table, own, setting, size, method, variant, metric in numbers():
        shown = variant == "none" or variant.removeprefix("odedm-").isdigit()
        if own == plain and tables.get(table) == metric and shown and setting not in EPOCHS.values():
            methods.setdefault((setting, int(size), variant), {})[CATALOGUE_NAMES.get(method, method)] = None
    if not methods:
        kinds = {table.removesuffix(f"_{plain}") for table in tables}
        known = [name for name in PAPER_DATA if any(cell[1] == PAPER_DATA[name] for cell in _of(kinds))]
        raise UsageError(
            f"The paper has no such table for '{data}'; it has one for {', '.join(known)}. "
            "Any data set can be had in `mini`, `ablation`, `distances`, `dac-sweep`, `forgetting`, or in a TOML file."
        )
    grids = []
    for (setting, capacity, variant), names in methods.items():
        axes: dict[str, Any] = {"data": (data,), "setting": (setting,), "method": tuple(names), "capacity": (capacity,)}
        if variant == "none":
            axes["memory"] = (PLAIN,)
        else:
            k = int(variant.removeprefix("odedm-"))
            rho = share_of(k, capacity, tasks=TASKS[plain], classes=CLASSES[plain])
            axes |= {"memory": ("odedm",), "rho": (rho,), "k": (k,), "dac": ("paper",)}
        grids.append(Grid(axes, **(extra or {})))
    return tuple(grids)


def _of(kinds: set[str]) -> list[Cell]:
    """The cells of tables of these kinds, whatever their data."""
    return [cell for cell in numbers() if cell[0] in kinds or cell[0].removesuffix(f"_{cell[1]}") in kinds]


def _table1(data: str) -> tuple[Grid, ...]:
    return printed({"table1": "acc_last", f"full_{data.replace('-', '')}": "acc_last"}, data)


def _task_il(data: str) -> tuple[Grid, ...]:
    return printed({f"task_il_{data.replace('-', '')}": "task_il_last"}, data)


def _fitting(data: str) -> tuple[Grid, ...]:
    return printed({"puridiver_fitting": "acc_last"}, data, {"options": {"puridiver": {"fit": (True,)}}})


def _imagenet_r(data: str) -> tuple[Grid, ...]:
    return printed({"imagenet_r": "acc_last"}, data)


def _one(data: str, method: str | tuple[str, ...] = ABLATED, capacity: int = 200, **own: Any) -> Grid:
    """A grid from single values and tuples of them."""
    axes = {"data": data, "method": method, "capacity": capacity, **own}
    return Grid({name: value if isinstance(value, tuple) else (value,) for name, value in axes.items()})


def _dac_sweep(data: str) -> tuple[Grid, ...]:
    return _one(data, memory=PLAIN), _one(data, memory="odedm", rho=SHARES, dac=tuple(sorted(SWEPT)))


def _ablation(data: str) -> tuple[Grid, ...]:
    dual: dict[str, Any] = {"memory": "odedm", "rho": 0.25}
    return (
        _one(data, memory=PLAIN),
        _one(data, **dual, dac=("none", "paper")),
        _one(data, **dual, dac="paper", mixup=True),
        _one(data, memory="odedm", rho=1.0, dac="paper"),
    )


def _distances(data: str) -> tuple[Grid, ...]:
    four = ("sinkhorn", "l2", "l1", "mmd")
    return _one(data, memory=PLAIN), _one(data, memory="odedm", rho=0.75, dac="paper", distance=four)


def _forgetting(data: str) -> tuple[Grid, ...]:
    every = ("der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl")
    return (
        _one(data, every, setting=SETTINGS, memory=PLAIN),
        _one(data, every, setting=SETTINGS, memory="odedm", rho=0.25, dac="paper"),
    )


def _mini(data: str) -> tuple[Grid, ...]:
    """Few methods and short streams, but every kind of evidence; sweeps are made with the cheapest method."""
    options: dict[str, dict[str, tuple[Any, ...]]] = {
        "derpp": {"lr": (0.1,)},
        "er": {"lr": (0.1,)},
        "puridiver": {"fit": (True,), "fit_epochs": (6,), "warmup": (2,)},
    }
    small = {"patch": (7,), "depth": (2,), "width": (48,), "heads": (3,)}
    dual: dict[str, Any] = {"memory": "odedm", "rho": 0.25, "dac": "paper"}

    def part(method: str | tuple[str, ...], **own: Any) -> Grid:
        return replace(_one(data, method, **{"capacity": 100, **own}), options=options)

    both = ("derpp", "icarl")
    transformer = (part("er", memory=PLAIN, net="vit"), part("er", **dual, net="vit"))
    return (
        part((*both, "er"), memory=PLAIN),
        part(both, memory="odedm", rho=SHARES, dac="paper"),
        part("derpp", memory=PLAIN, capacity=50),
        part("derpp", **dual, capacity=50),
        part("derpp", memory=PLAIN, setting="imbalanced"),
        part("derpp", **dual, setting="imbalanced"),
        part("er", **{**dual, "dac": ((3, 4), (3, 2), (5, 2), (5, 4), "none")}),
        part("er", **dual, mixup=True),
        part("er", **{**dual, "rho": 1.0}),
        part("er", **dual, distance=("l2", "l1", "mmd")),
        part("puridiver", memory=PLAIN),
        part("puridiver", **dual),
        *(replace(each, net_options=small) for each in transformer),
    )


def _nothing(_data: str) -> tuple[Grid, ...]:
    return ()


PAPER_RUNTIME = Runtime(
    rows=(625, 1250, 2500, 5000), k=(6, 13, 19, 47, 160), dac=((3, 2), (3, 4), (5, 3)), dimension=(512,), repeats=5
)
"""A class of CIFAR-10, the features of a ResNet-18, k from λ=200 at 25 % to λ=5120 at 25 %, the paper's three DACs."""
MINI_RUNTIME = Runtime(rows=(125, 250, 500, 1000), k=(3, 6, 12, 24), dac=((3, 4), (5, 3)), repeats=5)

READY = {
    "table1": Ready(
        "Eight methods with and without ODEDM, every λ, setting and k of the paper.", "cifar10", _table1,
        select=CHOSEN_ON,
    ),
    "dac-sweep": Ready("Clusters and depth of divide-and-conquer for each ρ.", "cifar10", _dac_sweep),
    "dac-runtime": Ready("Seconds to choose, with and without DAC.", "", _nothing, runtime=PAPER_RUNTIME),
    "ablation": Ready("Plain, mixup, without DAC, with DAC, and ρ = 100 %.", "cifar10", _ablation),
    "distances": Ready("Sinkhorn, L2, L1 and MMD.", "cifar10", _distances),
    "fitting": Ready("PuriDivER with its fit to the memory.", "cifar10", _fitting),
    "imagenet-r": Ready("ImageNet-R with a vision transformer.", "imagenet-r", _imagenet_r, select=CHOSEN_ON),
    "forgetting": Ready("Forgetting-rate curves of eight methods, with and without ODEDM.", "cifar10", _forgetting),
    "task-il": Ready("The Task-IL tables; the same runs as table1, looked at otherwise.", "cifar10", _task_il),
    "mini": Ready(
        "Every kind of evidence, small, on the embedded images, in minutes.", "fashion-mini", _mini,
        seeds=(0, 1, 2), select=Selection(seeds=(1000,)), runtime=MINI_RUNTIME,
        observation=Observation(evidence=True, anytime=5),
    ),
}  # fmt: skip
