"""Does the paper's gain survive equal tuning? Its six cheap hosts at λ = 200, three learning rates on either side.

The paper reports no learning rate. Here each host tries the one that the paper's studies have, about a third of it and
about three times it, as often without ODEDM as with it, and with ODEDM the k that the paper prints as its best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odedm.paper.printed import numbers, published
from odedm.paper.protocol import constants
from odedm.paper.studies import READY, printed
from odedm.studies.grid import PLAIN, Grid
from odedm.studies.spec import Study, ValidationSplit

NAME = "equal-tuning"
HOSTS = ("der", "derpp", "refresh", "fdr", "icarl", "puridiver")
"""Those of the paper's first table but VR-MCL and POCL, of which a run takes twenty to fifty times as long."""
DATA = ("cifar10", "cifar100")
CAPACITY = 200
AROUND = {0.03: (0.01, 0.03, 0.1), 0.05: (0.015, 0.05, 0.15), 0.1: (0.03, 0.1, 0.3), 0.3: (0.1, 0.3, 1.0)}
"""The three rates around each of the paper's studies."""
SEEDS = (20, 21, 22, 23, 24)
"""Of the chosen ones' runs: nobody has looked at them."""
SPLIT = ValidationSplit(validation=0.2, first_tasks=5, seeds=(1000, 1001))
"""All of CIFAR-10's stream, and half of CIFAR-100's."""


def rates(method: str, data: str) -> tuple[float, ...]:
    """The learning rates that a host tries.

    >>> rates("derpp", "cifar10"), rates("icarl", "cifar100")
    ((0.01, 0.03, 0.1), (0.1, 0.3, 1.0))
    """
    return AROUND[constants(method, data, CAPACITY)["lr"]]


def printed_k(method: str, data: str, capacity: int = CAPACITY) -> int | None:
    """The k with which the paper prints a host's best accuracy; None where it prints none with ODEDM.

    >>> printed_k("der", "cifar10"), printed_k("derpp", "cifar10"), printed_k("derpp", "cifar100")
    (6, 13, 1)
    """
    variants = {cell[5].removeprefix("odedm-") for cell in numbers()}
    found = {}
    for k in sorted(int(each) for each in variants if each.isdigit()):
        cell = published("acc_last", data=data, method=method, capacity=capacity, memory="odedm", k=k)
        if cell is not None:
            found[k] = cell.mean
    return max(found, key=lambda k: found[k]) if found else None


def equal_tuning() -> Study:
    """The tries as a study: every host on both data sets, three without ODEDM and three with it.

    >>> len(equal_tuning().experiments()) // len(SEEDS)
    72
    """
    about = "Six hosts at three learning rates, without ODEDM and with the k that the paper prints as its best."
    return Study(NAME, tuple(grid for data in DATA for grid in _grids(data)), SEEDS, about, tune=SPLIT)


def _grids(data: str) -> Iterator[Grid]:
    for grid in printed(READY["table1"], data):
        own = grid.axes
        if (own["imbalance"], own["capacity"]) != (("standard",), (CAPACITY,)):
            continue
        plain = own["memory"] == (PLAIN,)
        hosts = [name for name in HOSTS if name in own["method"]]
        chosen = tuple(name for name in hosts if plain or own["k"] == (printed_k(name, data),))
        if chosen:
            options = {name: {**grid.options[name], "lr": rates(name, data)} for name in chosen}
            yield replace(grid, axes={**own, "method": chosen}, options=options)
