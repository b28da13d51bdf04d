"""Runs that are stopped in mid-task in this process, several times, and go on from their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .case import Case, Parts, built, observed
from .runs import METHODS, QUICK, dual

STOPS = (3, 4, 3, 5)
"""Steps after which a run is stopped, each time counted from where it went on: in mid-task, and after a task."""


def stopped(plan: dict[str, Any], api: Any, place: Path) -> Parts:
    """Run into a folder with stops, then to the end; what the last process has is compared."""
    settings = {word: built(api, value) for word, value in plan.items()}
    experiment = api.make("Experiment", **settings, device="cpu")
    data = api.make("open_data", plan["data"])
    interrupted = 0
    for steps in STOPS:
        interrupted += api.stop_when(experiment, data, place / "run", _after(steps)) is None
    outcome = api.stop_when(experiment, data, place / "run", lambda: False)
    return {"interrupted": interrupted, **observed(api, outcome, data)}


def _after(steps: int) -> Callable[[], bool]:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= steps

    return stop


def plans() -> dict[str, dict[str, Any]]:
    """Every method, and what else has a state."""
    found: dict[str, dict[str, Any]] = {
        f"{method}, {name}": {"method": method, "memory": memory, "options": QUICK.get(method, {})}
        for method in METHODS
        for name, memory in {"plain": ("Native", {"capacity": 20}), "odedm both": dual(24, k=1, replay="both")}.items()
    }
    found |= {name: {"method": name, "memory": ("NoMemory", {})} for name in ("finetune", "joint")}
    found |= {
        "candidates": {"memory": dual(36, k=1, candidates=4)},
        "stream logits": {"memory": dual(24, k=1, annotate="stream")},
        "mixup": {"memory": dual(24, k=1, mixup=True)},
        "gamma by share": {"memory": dual(24, rho=0.5, gamma_rule="share")},
        "momentum": {"memory": dual(24, k=1), "options": {"momentum": 0.9}},
        "adamw": {"memory": dual(24, k=1), "optimizer": "adamw", "options": {"lr": 0.01}},
        "epochs": {"memory": dual(24, k=1), "epochs": 2},
        "mir": {"memory": dual(24, k=1), "retrieval": "mir"},
        "tricks": {
            "memory": dual(24, k=1),
            "updates": 2,
            "stream_loss": "asymmetric",
            "weight_average": 0.9,
            "predict": "nearest-mean",
        },
        "adjusted": {"memory": dual(24, k=1), "stream_loss": "adjusted"},
        "pictures": {"memory": dual(20, k=1), "data": "shapes", "limit": 25, "views": "rotations", "method": "er"},
        "strong views": {"memory": dual(20, k=1), "data": "shapes", "limit": 25, "views": "strong"},
    }
    short = {"data": "blobs", "limit": 16, "tasks": 2, "method": "derpp", "batch": 8, "seed": 5}
    return {name: {**short, **plan} for name, plan in found.items()}


def cases() -> Iterator[Case]:
    """All of them."""
    for name, plan in plans().items():
        yield Case(f"resumed {name}", partial(stopped, plan), short="plain" not in name)
