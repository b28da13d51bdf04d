"""Runs: every method with its memories in both settings, ODEDM's settings, policies, ingredients, streams, options."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .case import Case, Parts, observed, trained

METHODS = (
    *("er", "der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl", "er-ace", "agem", "gem", "gss"),
    *("gdumb", "aser", "cope", "mir", "scr", "onpro"),
)
BOUNDS = ("finetune", "joint")
POLICIES = (
    *("reservoir", "task-quota", "task-quota-released", "class-quota", "herded", "purity", "balanced-reservoir"),
    *("gss", "greedy-balanced", "aser"),
)
DISTANCES = ("sinkhorn", "l2", "l1", "mmd", "mmd-centroid")
READINGS = ("auxiliary", "union", "both")
FOREIGN = {"fdr": "herded", "icarl": "purity", "puridiver": "task-quota", "gss": "balanced-reservoir"}
"""A memory policy that is not the method's own; `herded` for the others."""
QUICK: dict[str, Any] = {"gdumb": {"fit_epochs": 4}}
"""Options with which a method that takes long does the same for less."""
Plan = dict[str, Any]

SHORT_BLOBS = ("blobs", {"classes": 6, "tasks": 3, "per_class": 14, "seed": 2})
SHORT_SHAPES = ("shapes", {"per_class": 15, "seed": 2})
BLOBS = ("blobs", {"per_class": 24})
SHAPES = ("shapes", {"per_class": 30})


def dual(capacity: int = 30, **settings: Any) -> tuple[str, Plan]:
    """The dual memory."""
    return "ODEDM", {"capacity": capacity, **settings}


def measure(plan: Plan, api: Any, _place: Path) -> Parts:
    """Train as planned."""
    outcome, data = trained(api, plan)
    return observed(api, outcome, data)


def case(name: str, plan: Plan, *, short: bool = False) -> Case:
    """A run as a case."""
    return Case(name, partial(measure, plan), short)


def cases() -> Iterator[Case]:
    """All runs, short ones and longer ones."""
    yield from matrix(SHORT_BLOBS, 20, "short", short=True)
    yield from matrix(BLOBS, 30, "long", anytime=2)
    yield from pictures()
    for size, data in (("short", SHORT_SHAPES), ("long", SHAPES)):
        named = {"odedm": choices(), "policy": policies(), "trick": tricks(), "stream": streams(), "option": options()}
        for group, plans in named.items():
            for name, plan in plans.items():
                own = {"data": data, "method": "derpp", "memory": dual(24), "batch": 8, "seed": 5, **plan}
                if size == "short" and len(plan) > 1 and group == "trick" and name.split()[-1] in METHODS:
                    continue
                if size == "short":
                    yield case(f"{group} {name}, short", {"net": "mlp", **own}, short=True)
                else:
                    yield case(f"{group} {name}, long", {**own, "anytime": 2})


def matrix(data: Any, capacity: int, size: str, *, short: bool = False, **more: Any) -> Iterator[Case]:
    """Every method with its own memory, ODEDM in three readings and a foreign policy, in both settings."""
    for method in METHODS:
        foreign = FOREIGN.get(method, "herded")
        memories = {
            "plain": ("Native", {"capacity": capacity}),
            **{f"odedm {reading}": dual(capacity, k=1, replay=reading) for reading in READINGS},
            "odedm auto": dual(capacity, rho=0.5),
            "foreign": ("Native", {"capacity": capacity, "policy": foreign}),
            "odedm on foreign": dual(capacity, k=1, short_policy=foreign),
        }
        for setting in ("standard", "imbalanced"):
            for name, memory in memories.items():
                if short and (setting == "imbalanced" and name not in ("plain", "odedm both")):
                    continue
                if short and name in ("odedm auto", "odedm on foreign"):
                    continue
                own = {"data": data, "method": method, "memory": memory, "setting": setting, "batch": 8, "seed": 5}
                own["options"] = QUICK.get(method, {})
                yield case(f"{method}, {name}, {setting}, {size}", {**own, **more}, short=short)
    for method in (*BOUNDS, "er", "derpp"):
        for setting in ("standard", "imbalanced"):
            own = {"data": data, "method": method, "memory": ("NoMemory", {}), "setting": setting, "batch": 8}
            yield case(f"{method}, no memory, {setting}, {size}", {**own, **more}, short=short)


def pictures() -> Iterator[Case]:
    """Every method on pictures, through convolutions with batch norm, with other orders of classes."""
    for method in METHODS:
        for name, memory in {"plain": ("Native", {"capacity": 20}), "odedm": dual(20, rho=0.5)}.items():
            own = {"data": SHAPES, "method": method, "memory": memory, "batch": 16, "class_order": "seed", "seed": 3}
            yield case(f"{method}, {name}, pictures", {**own, "options": QUICK.get(method, {}), "anytime": 2})


def choices() -> dict[str, Plan]:
    """How prototypes are chosen, kept and replayed."""
    found: dict[str, Plan] = {}
    for distance in DISTANCES:
        found |= {f"{distance} dac": {"distance": distance}, f"{distance} no dac": {"distance": distance, "dac": None}}
        found[f"dac by {distance}"] = {"dac_distance": distance, "dac": (2, 3)}
    found |= {name: {"distance": name} for name in ("herding", "random")}
    found |= {f"pixels {distance}": {"distance": distance, "space": "pixels"} for distance in ("sinkhorn", "l2", "mmd")}
    found |= {f"ground {ground}": {"ground": ground} for ground in ("profile", "point")}
    found |= {
        "grid": {"space": "pixels", "ground": "grid", "dac": None},
        "grid with screen": {"space": "pixels", "screen": 3},
        "epsilon": {"epsilon": 0.3, "pair_epsilon": 0.25},
        "screen": {"screen": 2},
        "bandwidth": {"distance": "mmd", "bandwidth": 0.7},
        "mixup": {"mixup": True},
        "mixup l2": {"mixup": True, "distance": "l2", "k": 2, "rho": None},
        "candidates": {"candidates": 4, "k": 1},
        "candidates with dac": {"candidates": 5, "k": 2, "dac": (2, 1)},
        "candidates and stream logits": {"candidates": 4, "k": 1, "annotate": "stream"},
        "stream logits": {"annotate": "stream"},
        "two rows": {"rows_per_prototype": 2, "k": 1},
        "k": {"k": 3},
        "nothing": {"k": 0},
        "rho 1": {"rho": 1.0},
        "uneven quota": {"rho": 0.4},
        "gamma": {"gamma": 0.25},
        "gamma by share": {"gamma": 2.0, "gamma_rule": "share"},
        "both by share": {"replay": "both", "gamma_rule": "share"},
        "chosen again": {"choose_again": True, "k": 2},
        "deep dac": {"dac": (4, 1)},
    }
    return {name: {"memory": dual(24, **own)} for name, own in found.items()} | {
        "paper": {"memory": ("ODEDM.paper", {"capacity": 24, "rho": 0.5})},
        "paper with k": {"memory": ("ODEDM.paper", {"capacity": 24, "k": 2, "distance": "l2"})},
        "unequal tasks": {"memory": dual(24, rho=0.5), "task_classes": (1, 3, 2)},
    }


def policies() -> dict[str, Plan]:
    """Every policy alone and below ODEDM, and their options."""
    found: dict[str, Plan] = {}
    for policy in POLICIES:
        found[policy] = {"memory": ("Native", {"capacity": 20, "policy": policy}), "method": "er"}
        found[f"odedm over {policy}"] = {"memory": dual(24, k=1, short_policy=policy)}
    for policy, given in {
        "purity": {"alpha": 0.2},
        "gss": {"references": 4, "size": 6},
        "aser": {"k": 2, "per_class": 3},
    }.items():
        memory = {"capacity": 20, "policy": policy, "policy_options": given}
        found[f"{policy} with options"] = {"memory": ("Native", memory), "method": "er"}
    return found | {"reservoir of nothing": {"memory": ("Reservoir", {"capacity": 0})}}


def tricks() -> dict[str, Plan]:
    """What composes with any method."""
    found: dict[str, Plan] = {
        "updates": {"updates": 3},
        "asymmetric": {"stream_loss": "asymmetric"},
        "adjusted": {"stream_loss": "adjusted"},
        "nearest mean": {"predict": "nearest-mean"},
        "average": {"weight_average": 0.8},
        "average over batches": {"weight_average": 3},
        "average over half a task": {"weight_average": "auto"},
        "adamw": {"optimizer": "adamw", "options": {"lr": 0.01}},
        "mir": {"retrieval": "mir", "retrieval_options": {"candidates": 15}},
        "aser": {"retrieval": "aser"},
        "balanced": {"retrieval": "balanced"},
        "epochs": {"epochs": 2},
        "draw": {"draw": 5},
        "all columns": {"columns": "all"},
        "momentum": {"options": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}},
        "no views": {"transform": "none"},
        "narrow resnet": {"net": "resnet18-slim", "net_options": {"width": 4}},
        "plain cnn": {"net": "plain-cnn"},
        "cnn": {"net": "cnn", "net_options": {"width": 8}},
        "vit": {"net": "vit", "net_options": {"patch": 4, "depth": 2, "width": 16, "heads": 2}},
        "many at once": {"updates": 2, "stream_loss": "asymmetric", "predict": "nearest-mean", "weight_average": 0.9},
    }
    for views in ("strong", "rotations", "turned-classes", "strong-turned"):
        found |= {f"{views} {method}": {"views": views, "method": method} for method in ("er", "derpp")}
    for method in ("er-ace", "icarl", "scr", "agem", "gdumb", "vrmcl", "onpro"):
        given = {"method": method, "weight_average": 0.8, "options": QUICK.get(method, {})}
        found |= {f"average {method}": given, f"rotations {method}": {"method": method, "views": "rotations"}}
        found[f"nearest mean {method}"] = {"method": method, "predict": "nearest-mean"}
    return found


def streams() -> dict[str, Plan]:
    """Which rows arrive, with which labels, in which order."""
    return {
        "imbalanced all": {"setting": "imbalanced-all"},
        "long tail": {"setting": "long-tail", "factor": 4.0},
        "limit": {"limit": 6},
        "blur": {"blur": 0.3},
        "noise": {"noise": 0.3},
        "blur and noise": {"blur": 0.2, "noise": 0.2, "method": "puridiver"},
        "another order": {"class_order": "seed"},
        "no shuffle": {"shuffle": False},
        "recurring": {"recurring": 2},
        "other tasks": {"tasks": 2},
        "tasks of any size": {"task_classes": (1, 2, 3)},
        **{f"domain {domain}": {"domain": domain, "tasks": 2} for domain in ("same", "permuted", "rotated")},
        "fdr in domains": {"domain": "permuted", "tasks": 2, "method": "fdr"},
    }


def options() -> dict[str, Plan]:
    """Methods by other hyper-parameters."""
    found = {
        "er": {"lr": 0.03},
        "der": {"alpha": 0.4},
        "derpp": {"alpha": 0.3, "beta": 0.2},
        "refresh": {"fisher_samples": 8, "unlearn_steps": 2, "delta": 1e-3},
        "refresh eval": {"fisher_mode": "eval", "tau": 1e-3},
        "fdr": {"alpha": 0.3},
        "icarl": {"l2": 1e-3, "bce_columns": "seen", "features": "raw", "flip": False},
        "puridiver": {"cutmix": 0.9, "online_lr": 0.01},
        "puridiver fit": {"fit": True, "fit_epochs": 3, "warmup": 1},
        "vrmcl": {"storm": 0.4, "chunk": 4, "meta_updates": 2},
        "vrmcl first order": {"second_order": False, "clamp_rates": True},
        "pocl": {"warmup": 2, "pool": 20},
        "pocl first order": {"second_order": False, "warmup": 1, "cumulative": True},
        "gem": {"margin": 0.1, "most": 5},
        "gdumb": {"fit_epochs": 3, "cutmix": 0.0, "clip": 1.0},
        "gdumb at the end": {"fit_epochs": 3, "every_task": False},
        "cope": {"alpha": 0.9, "width": 16, "iterations": 2},
        "scr": {"temperature": 0.2, "dims": 16},
        "onpro": {"dims": 16, "turns": 4, "mixup": 0.2},
        "joint": {"every_task": False},
    }
    plans: dict[str, Plan] = {name: {"method": name.split()[0], "options": given} for name, given in found.items()}
    plans["joint"]["memory"] = ("NoMemory", {})
    return plans
