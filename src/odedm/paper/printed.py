"""The numbers that the paper prints, and at which of them the runs of a configuration belong."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from odedm.core.registry import normalize_name
from odedm.memory.paper_preset import DAC_BY_RHO, paper_dac
from odedm.paper.protocol import DATA, EPOCHS, POLICIES
from odedm.report.published_number import Published

OVER_TASKS = ("puridiver", "vrmcl", "pocl")
"""Methods whose mean over tasks, also without ODEDM, is printed with a ± as wide as the fall from task to task, e.g.
56.57 ± 15.94 beside a last accuracy of 39.64 ± 1.60: with ODEDM, and on ImageNet-R, every one is. No spread of runs."""
BORROWED = "other_baselines"
"""The table whose numbers come from other papers, with other batches, optimisers and views of the images."""
FITTING = "puridiver_fitting"
"""The table of PuriDivER with its fit to the memory, which no other table has."""
BEST, NONE = "odedm-best", "none"
"""The variants of a best of three ρ, and of a row without ODEDM."""


class Cell(NamedTuple):
    """Where a printed number stands; data and method are by the names of the registry."""

    table: str
    data: str
    setting: str
    capacity: str
    method: str
    variant: str
    metric: str


class Spot(NamedTuple):
    """Where the runs of one configuration belong in every table and metric; `fit` is that of PuriDivER."""

    data: str
    setting: str
    capacity: str
    method: str
    variant: str
    fit: bool

    @classmethod
    def of(cls, cell: Cell) -> Spot:
        """Return the spot of a printed number."""
        return cls(*cell[1:6], cell.table == FITTING)


@cache
def numbers() -> dict[Cell, Published]:
    """Return every printed number by its cell.

    >>> len(numbers()) > 1700
    True
    """
    printed: dict[Cell, Published] = {}
    text = files(__package__).joinpath("printed.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        if line["mean"]:
            cell = Cell(*(line[name] for name in Cell._fields))
            falls = cell.variant != NONE or cell.method in OVER_TASKS or cell.table == "imagenet_r"
            over_tasks = cell.metric == "acc_mean" and falls
            error = float(line["sd"]) if line["sd"] else None
            spread, borrowed = "tasks" if over_tasks else "runs", cell.table == BORROWED
            printed[cell] = Published(float(line["mean"]), error, spread, cell.table, borrowed)  # type: ignore[arg-type]
    return printed


@cache
def by_spot() -> dict[tuple[Spot, str], Published]:
    """Return the printed numbers by spot and metric; of several tables with the same one the first."""
    first: dict[tuple[Spot, str], Published] = {}
    for cell, number in numbers().items():
        first.setdefault((Spot.of(cell), cell.metric), number)
    return first


def spots(settings: Mapping[str, Any]) -> list[Spot]:
    """Return where runs with a flat configuration belong, the nearest spot first; nowhere if it is not the paper's.

    >>> run = {"data": "cifar10", "method": "derpp", "memory.name": "reservoir", "memory.capacity": 200}
    >>> [spot.setting for spot in spots(run)], by_spot()[spots(run)[0], "acc_last"].mean
    (['standard', 'online-1-epoch'], 29.67)
    >>> sorted({spot.variant for spot in spots({**run, "memory.name": "odedm", "memory.k": 6, "memory.rho": 0.25})})
    ['odedm-6', 'odedm-rho25-sinkhorn']
    """
    data, capacity = dataset_of(settings), str(settings.get("memory.capacity"))
    setting, epochs = str(settings.get("imbalance", "standard")), settings.get("epochs", 1)
    # a table of other methods has its own words for the standard setting
    names = [setting] if epochs == 1 else []
    names += [EPOCHS[epochs]] if setting == "standard" and epochs in EPOCHS else []
    fit = settings.get("options.fit") is True
    method = str(settings["method"])
    return [Spot(data, name, capacity, method, variant, fit) for variant in _variants(settings) for name in names]


def dataset_of(settings: Mapping[str, Any]) -> str:
    """Return the data set of the paper's that a configuration has, "" for another.

    >>> dataset_of({"data": "CIFAR-10"}), dataset_of({"data": "digits"})
    ('cifar10', '')
    """
    name = normalize_name(str(settings.get("data")))
    return next((data for data in DATA if normalize_name(data) == name), "")


def _variants(settings: Mapping[str, Any]) -> list[str]:
    """Return the paper's names for a memory, the nearest first; none for one that it does not have."""
    if settings["memory.name"] != "odedm":
        usual = POLICIES.get(str(settings["method"]), "reservoir")
        policy = settings.get("memory.policy") or (usual if settings["memory.name"] == "native" else "reservoir")
        return [NONE] if policy == usual else []
    k, rho, dac = (
        settings.get(f"memory.{name}", default) for name, default in (("k", None), ("rho", None), ("dac", ()))
    )
    distance, data, capacity = (
        settings.get("memory.distance", "sinkhorn"),
        dataset_of(settings),
        settings["memory.capacity"],
    )
    nearest = share_of(k, capacity, data) if k and data else None
    share = nearest if rho is None else rho
    if share is None or dac is None or settings.get("memory.mixup"):
        return []
    by_k = nearest == share and distance == "sinkhorn"
    usual_dac = not dac or tuple(dac) == paper_dac(capacity, share)
    percent = f"odedm-rho{round(100 * share)}"
    variants = [f"odedm-{k}"] if by_k and usual_dac else []
    variants += [f"{percent}-K{dac[0]}-depth{dac[1]}"] if dac and distance == "sinkhorn" else []
    return variants + ([f"{percent}-{distance}"] if usual_dac else [])


def share_of(k: int, capacity: int, data: str) -> float:
    """Return the ρ that the paper's k stands for: the one of its three whose share k comes nearest to.

    Several may round to the same k: one prototype of each class is 45 % of 200 rows on CIFAR-100, its row of 50 %, and
    90 % on Tiny-ImageNet, its row of 75 %.

    >>> [share_of(k, 200, "cifar10") for k in (6, 13, 19)]
    [0.25, 0.5, 0.75]
    >>> share_of(1, 200, "cifar100"), share_of(1, 200, "tiny-imagenet")
    (0.5, 0.75)
    """
    tasks, classes = DATA[data]["tasks"], DATA[data]["classes"]
    pinned = (tasks - 1) * (classes // tasks)
    return min(DAC_BY_RHO, key=lambda rho: abs(rho * capacity - k * pinned))
