"""The paper in miniature: each of its runs as a small one on embedded pictures, all made in minutes."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any

from odedm.memory.settings import ODEDM
from odedm.training.experiment import Experiment

SCALE: dict[str, Any] = tomllib.loads(files(__package__).joinpath("mini.toml").read_text(encoding="utf-8"))
SEEDS: int = SCALE["seeds"]


def miniature(plan: Experiment) -> Experiment:
    """Return the small run that stands for one of the paper's.

    >>> small = miniature(Experiment(ODEDM.paper(200, rho=0.25), method="derpp", data="cifar10", tasks=5))
    >>> small.data, small.net, small.memory.capacity, small.memory.rho, small.memory.k
    ('fashion-mini', 'mlp', 50, 0.25, None)
    """
    small = SCALE["data"][plan.data]
    changes: dict[str, Any] = {"capacity": small_capacity(plan.memory.capacity)}
    changes |= {"k": None} if isinstance(plan.memory, ODEDM) else {}
    return replace(
        plan,
        memory=replace(plan.memory, **changes),
        data=small["name"],
        tasks=small["tasks"],
        net=small.get("net", SCALE["net"]),
        net_options=small.get("net_options", SCALE["net_options"]),
        epochs=SCALE["epochs"].get(str(plan.epochs), plan.epochs),
        options={**plan.options, **SCALE["options"].get(plan.method, {})},
    )


def small_capacity(capacity: int) -> int:
    """Return λ in miniature."""
    return int(SCALE["capacity"][str(capacity)])


def small_stream(data: str) -> tuple[int, int]:
    """Return the tasks and classes of the pictures that stand for a data set of the paper's."""
    small = SCALE["data"][data]
    return small["tasks"], small["classes"]
