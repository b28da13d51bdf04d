"""Small experiments whose outcome must stay what it is, and what of an outcome is compared.

Only the package's public names are used, so that the same cases run on any version of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import torch

import odedm

RENAMED = {"short": "short_policy"}
"""Keywords that were called otherwise in earlier versions."""
MMD = "mmd-centroid" if hasattr(odedm.ODEDM, "dac_distance") else "mmd"
"""What was called "mmd" before rows were measured against the points of a cluster."""
FOREIGN = {"fdr": "herded", "icarl": "purity", "puridiver": "task-quota"}
"""A memory policy that is not the method's own; `herded` for the others."""
METHODS = ("er", "der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl")
Case = dict[str, Any]
BEFORE: dict[str, Case] = {"pocl": {"options": {"lr": 0.03}}}
"""Defaults that were others in the version that is compared with."""
READINGS = ("auxiliary", "union", "both")


def odedm_memory(capacity: int, **own: Any) -> Any:
    """The dual memory, its keywords in the words of the version that runs; its reading was the auxiliary one."""
    known = {each.name for each in fields(odedm.ODEDM)}
    own = {"replay": "auxiliary", **own}
    return odedm.ODEDM(capacity, **{name if name in known else RENAMED[name]: value for name, value in own.items()})


def full_cases() -> dict[str, Case]:
    """Every method with its own memory, ODEDM in three readings and a foreign policy, in both settings; variants."""
    cases: dict[str, Case] = {}
    for method in METHODS:
        foreign = FOREIGN.get(method, "herded")
        memories = {
            "plain": odedm.Native(30),
            **{f"odedm {reading}": odedm_memory(30, k=2, replay=reading) for reading in READINGS},
            "foreign": odedm.Native(30, foreign),
            "odedm on foreign": odedm_memory(30, k=2, short=foreign),
        }
        for setting in ("standard", "imbalanced"):
            for name, memory in memories.items():
                own = {"data": "blobs", "method": method, "memory": memory, "setting": setting, "batch": 8}
                own |= BEFORE.get(method, {})
                cases[f"{method}, {name}, {setting}"] = own
        images = {"data": "shapes", "method": method, "batch": 16, "class_order": "seed", "seed": 3}
        images |= BEFORE.get(method, {})
        cases[f"{method}, images, plain"] = {**images, "memory": odedm.Native(20)}
        cases[f"{method}, images, odedm"] = {**images, "memory": odedm_memory(20, rho=0.5)}
    variants: dict[str, Any] = {
        "candidates": {"candidates": 5},
        "pixels": {"space": "pixels"},
        "mixup": {"mixup": True},
        "no DAC": {"dac": None},
        "two rows": {"rows_per_prototype": 2},
        "stream logits": {"annotate": "stream"},
        "gamma": {"gamma": 0.25},
        "l1": {"distance": "l1"},
        "l2": {"distance": "l2"},
        "mmd": {"distance": MMD},
        "point": {"ground": "point"},
        "epsilon": {"pair_epsilon": 0.2},  # the other ε did not reach the clusters of DAC before
        "screen": {"screen": 8},
    }
    for name, own in variants.items():
        dual = odedm_memory(40, k=2, **own)
        cases[f"odedm {name}"] = {"data": "shapes", "method": "derpp", "memory": dual, "batch": 16}
    dual = odedm_memory(30, rho=0.5)
    cases["blur and noise"] = {"data": "blobs", "method": "er", "memory": dual, "blur": 0.2, "noise": 0.2}
    cases["long tail"] = {"data": "blobs", "method": "der", "memory": dual, "setting": "long-tail", "factor": 5.0}
    cases["all columns"] = {"data": "blobs", "method": "icarl", "memory": dual, "columns": "all", "draw": 5}
    cases["a narrow net"] = {"data": "shapes", "memory": dual, "net": "resnet18-slim", "net_options": {"width": 4}}
    cases["options"] = {"data": "blobs", "memory": dual, "options": {"lr": 0.1, "alpha": 0.3, "momentum": 0.5}}
    return {name: {"evidence": True, "anytime": 2, "device": "cpu", **case} for name, case in cases.items()}


def short_cases() -> dict[str, Case]:
    """At most 20 steps each, for a test: every method with its own memory and with ODEDM, and the other readings."""
    cases: dict[str, Case] = {}
    for method in METHODS:
        for name, memory in {"plain": odedm.Native(20), "odedm": odedm_memory(20, k=1)}.items():
            cases[f"{method}-{name}"] = {"method": method, "memory": memory, "batch": 8}
    for method in ("er", "derpp"):
        cases[f"{method}-union"] = {"method": method, "memory": odedm_memory(20, k=1, replay="union"), "batch": 8}
    cases["icarl-share"] = {"method": "icarl", "memory": odedm_memory(20, k=1, gamma_rule="share"), "batch": 8}
    return {name: {"evidence": True, "device": "cpu", "seed": 5, **case} for name, case in cases.items()}


def trained(case: Case) -> Any:
    """The outcome of a case."""
    own = dict(case)
    return odedm.train(own.pop("data"), **own)


def short_data() -> Any:
    """So few rows that a run of them is short: 60 rows for training."""
    return odedm.blobs(per_class=8, classes=10, seed=2)


def digest(*tensors: torch.Tensor) -> str:
    """A checksum of tensors, bit for bit."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return found.hexdigest()


def counts_of(result: Any) -> Any:
    """The rows of each class in memory after each task, by either name of theirs."""
    return vars(result).get("class_counts", vars(result).get("census"))


def exact(outcome: Any) -> dict[str, Any]:
    """All that must be equal bit for bit."""
    result, rows = outcome.result, outcome.memory.rows()
    weights = outcome.method.net.state_dict()
    return {
        "class_il": result.class_il,
        "task_il": result.task_il,
        "anytime": result.anytime,
        "census": counts_of(result),
        **{f"memory {name}": rows[name].tolist() for name in ("index", "label", "prototype")},
        "memory images": digest(rows["image"]),
        "evidence": {name: digest(column) for name, column in sorted((outcome.evidence or {}).items())},
        "weights": digest(*(weights[name] for name in sorted(weights))),
    }


def lasting(outcome: Any) -> dict[str, Any]:
    """What holds on other machines too: rows, choices and counts to the letter, weights to within 1e-4."""
    result, rows, evidence = outcome.result, outcome.memory.rows(), outcome.evidence or {}
    discrete = {
        "census": counts_of(result),
        **{f"memory {name}": rows[name].tolist() for name in ("index", "label", "prototype")},
        **{name: evidence[name].tolist() for name in ("choice.index", "choice.kept") if name in evidence},
    }
    weights = {name: value.double() for name, value in outcome.method.net.state_dict().items()}
    floats = {name: [value.mean().item(), value.norm().item()] for name, value in weights.items()}
    return {"discrete": discrete, "floats": floats}
