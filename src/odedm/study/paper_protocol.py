"""What the paper's runs are, every setting written out, so that its studies stay what they are when defaults change.

A constant is what the paper prints, unless REPRODUCTION.md shows that something else ran; else what the method's
release has for that data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odedm.memory.paper_preset import MEETING, paper_preset
from odedm.selection.flat_settings import OF_DAC
from odedm.study.grid import PLAIN, Grid, Values
from odedm.study.paper_numbers import EPOCHS, TASKS, plain
from odedm.study.tuned_rates import tuned_rate

PAPER_DATA = ("cifar10", "cifar100", "tiny-imagenet", "imagenet-r")
WITHOUT_ODEDM = ((PLAIN,), ("none",))
STREAM = {
    "task_classes": "none",
    "recurring": 1,
    "domain": "none",
    "shuffle": True,
    "imbalance": "standard",
    "factor": "none",
    "limit": "none",
    "blur": 0.0,
    "noise": 0.0,
    "class_order": "natural",
    "transform": "data",
    "optimizer": "sgd",
    "batch": 32,
    "replay_batch": 32,
    "epochs": 1,
    "eval_classes": "seen",
    "precision": "auto",
    "retrieval": "uniform",
    "updates": 1,
    "weight_average": "none",
    "stream_loss": "none",
    "predict": "none",
    "views": "crop",
}
RESNET: tuple[str, dict[str, Any]] = ("resnet18", {"width": 64})
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys(("cifar10", "cifar100", "tiny-imagenet"), RESNET),
    "imagenet-r": ("vit", {"patch": 16, "depth": 12, "width": 192, "heads": 3, "weights": ""}),
}
SGD = {"lr": 0.03, "momentum": 0.0, "weight_decay": 0.0}
CONSTANTS: dict[str, dict[str, Any]] = {
    "der": {**SGD, "alpha": 0.1},
    "derpp": {**SGD, "alpha": 0.1, "beta": 0.5},
    "refresh": {
        **SGD,
        "weight_decay": 1e-4,
        "alpha": 0.1,
        "beta": 0.5,
        "delta": 1e-5,
        "kappa": 1e-3,
        "sigma": 1e-3,
        "tau": 1e-5,
        "epsilon": 1e-20,
        "unlearn_steps": 1,
        "fisher_samples": 0,
        "fisher_mode": "train",
    },
    "fdr": {**SGD, "alpha": 1.0},
    "icarl": {**SGD, "lr": 0.1, "l2": 1e-5, "bce_columns": "all", "features": "normalised", "flip": True},
    "puridiver": {
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "online_lr": 0.0,
        "cutmix": 0.5,
        "fit": False,
        "fit_epochs": 255,
        "warmup": 10,
        "split_roles": "released",
        "posterior": "clean",
    },
    "vrmcl": {
        **SGD,
        "lr": 0.35,
        "inner_rate": 0.1,
        "rate_lr": 0.25,
        "storm": 0.15,
        "clip": 1.0,
        "chunk": 8,
        "second_order": True,
        "meta_updates": 1,
        "bn_refreshes": 2,
        "clamp_rates": False,
        "split": "position",
        "query_precision": "same",
    },
    "pocl": {
        **SGD,
        "inner_rate": 0.03,
        "inner_clamp": 2.0,
        "slot_clamp": 10.0,
        "pool": 300,
        "warmup": 6,
        "warmup_update": False,
        "second_order": True,
        "cumulative": True,
        "slice": "released",
        "groups": "released",
        "pos_split": True,
        "query_precision": "same",
    },
    "er": {**SGD, "lr": 0.1},
    "agem": SGD,
    "gem": {**SGD, "margin": 0.5, "ridge": 1e-3, "most": 0},
    "gss": SGD,
    "mir": {**SGD, "lr": 0.1},
    "aser": {**SGD, "lr": 0.1},
    "gdumb": {
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 1e-6,
        "fit_epochs": 256,
        "fit_batch": 16,
        "cutmix": 0.5,
        "clip": 10.0,
        "every_task": False,  # the table has the last accuracy alone
    },
    "cope": {
        **SGD,
        "lr": 0.0016,  # .005 at a batch of 10: the loss grows with the batch
        "temperature": 0.1,
        "alpha": 0.99,
        "width": 256,
        "iterations": 1,
        "repellor_gradient": False,
    },
    "finetune": {**SGD, "lr": 0.1},
    "joint": {**SGD, "lr": 0.1, "every_task": True},
}
"""By method. FDR's α is 1 and not the printed .1, for the releases never use it (D2)."""
OF_DATA: dict[tuple[str, str], dict[str, Any]] = {
    ("icarl", "cifar100"): {"lr": 0.3},
    ("icarl", "tiny-imagenet"): {"lr": 0.03},
    ("refresh", "cifar100"): {"weight_decay": 0.0},  # lost in the release, but so it ran (D11)
    ("puridiver", "cifar100"): {"warmup": 30},
}
"""Where the release has another value for a data set."""
OWN_RETRIEVALS = {"mir": "mir", "aser": "aser", "cope": "balanced"}
"""Methods that choose the rows they replay by themselves."""
OF_CAPACITY: dict[tuple[str, str, int], dict[str, Any]] = {("icarl", "cifar10", 5120): {"lr": 0.03}}


def constants(method: str, data: str, capacity: int) -> dict[str, Any]:
    """Every hyper-parameter of a method as the paper's runs have it; none for a method that it does not run.

    >>> [constants("icarl", "cifar10", capacity)["lr"] for capacity in (200, 5120)], constants("er-ace", "cifar10", 200)
    ([0.1, 0.03], {})
    """
    own = CONSTANTS.get(method, {})
    return {**own, **OF_DATA.get((method, data), {}), **OF_CAPACITY.get((method, data, capacity), {})}


def spelled_out(grid: Grid) -> tuple[Grid, ...]:
    """The same runs with every setting written out, a grid for each λ, if they are on data of the paper's.

    Elsewhere the paper ran nothing, and the library's defaults hold, but for how a method meets the memory.
    """
    (data,) = grid.axes["data"]
    if data not in PAPER_DATA:
        usual = {name: (value,) for name, value in MEETING.items()} | {"dac_sample": ("none",)}
        return (replace(grid, axes={**({} if grid.axes["memory"] in WITHOUT_ODEDM else usual), **grid.axes}),)
    return tuple(_whole(grid, data, capacity) for capacity in grid.axes["capacity"])


def _whole(grid: Grid, data: str, capacity: int) -> Grid:
    net, net_options = NETS[data]
    axes = {**STREAM, "tasks": TASKS[plain(data)], "net": net}
    if grid.axes["memory"] not in WITHOUT_ODEDM:
        distances = grid.axes.get("distance", ("sinkhorn",))
        preset = {"rho": None, "k": None, **paper_preset(*distances[:1])}
        axes |= {name: "none" if value is None else value for name, value in preset.items()}
    options = {method: _options(method, data, capacity, grid.options) for method in grid.axes["method"]}
    return replace(
        grid,
        axes={**{name: (value,) for name, value in axes.items()}, **grid.axes, "capacity": (capacity,)},
        options=options,
        net_options={name: (value,) for name, value in net_options.items()} | dict(grid.net_options),
    )


def _options(method: str, data: str, capacity: int, given: Mapping[str, Mapping[str, Values]]) -> dict[str, Values]:
    """The constants, the learning rate beside the one that was tuned where there is such, and what the grid gives."""
    found: dict[str, Values] = {name: (value,) for name, value in constants(method, data, capacity).items()}
    tuned = tuned_rate(data, capacity, method)
    if tuned is not None and (tuned,) != found.get("lr"):
        found["lr"] = (*found["lr"], tuned)
    return {**found, **given.get(method, {})}


def departures(settings: Mapping[str, Any]) -> list[str]:
    """In which settings a run's flat configuration is not what the paper ran; learning rates are not reported there.

    A setting that an older result lacks was not there to be changed.

    >>> departures({"data": "cifar10", "method": "derpp", "memory.name": "odedm", "batch": 1, "memory.gamma": 0.0})
    ['batch', 'memory.gamma']
    """
    return [name for name, value in _expected(settings).items() if name in settings and settings[name] != value]


def _expected(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the paper's run has, of the settings in which ours can depart from it."""
    data = next((name for name in PAPER_DATA if plain(name) == plain(str(settings.get("data")))), "")
    method, capacity = str(settings.get("method")), settings.get("memory.capacity")
    net, net_options = NETS.get(data, RESNET)
    free = ("imbalance", "precision")
    found = {name: None if value == "none" else value for name, value in STREAM.items() if name not in free}
    found["retrieval"] = OWN_RETRIEVALS.get(method, found["retrieval"])
    if settings.get("epochs") in EPOCHS:
        del found["epochs"]
    found |= {"net": net, **{f"net_options.{name}": value for name, value in net_options.items()}}
    own = constants(method, data, capacity if isinstance(capacity, int) else 0)
    idle = {"lr", "fit"}  # the one is not reported, the other has a table of its own
    if method == "puridiver" and not settings.get("options.fit"):
        idle |= {"fit_epochs", "warmup"}
    found |= {f"options.{name}": value for name, value in own.items() if name not in idle}
    if settings.get("memory.name") == "odedm":
        preset = paper_preset(str(settings.get("memory.distance", "sinkhorn")))
        preset.pop("short_policy")  # a result has it by the policy's own name
        if settings.get("memory.dac", ()) is None:
            preset = {name: value for name, value in preset.items() if name not in OF_DAC}
        found |= {f"memory.{name}": value for name, value in preset.items()}
    return found
