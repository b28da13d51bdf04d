"""Reads results of older formats as this version would have written them: the one place that knows of the past."""

from __future__ import annotations

from typing import Any

from odedm.core.configuration import introduced
from odedm.core.errors import UsageError
from odedm.memory.settings import KINDS

FIRST, SECOND = "odedm.result/1", "odedm.result/2"

NATIVE = {"fdr": "task-quota", "icarl": "herded", "puridiver": "purity"}
"""What `native` stood for in results of the first format; of every other method the reservoir."""
SINKHORN = {"epsilon": 0.05, "pair_epsilon": 0.1, "ground": "auto"}
"""What None stood for there."""
LATER: dict[str, Any] = {
    "limit": None,
    "task_classes": None,
    "recurring": 1,
    "domain": None,
    "shuffle": True,
    "transform": "data",
    "optimizer": "sgd",
    "retrieval": "uniform",
    "retrieval_options": {},
    "epochs": 1,
    "updates": 1,
    "stream_loss": None,
    "predict": None,
    "views": "crop",
    "weight_average": None,
}
"""Settings of an experiment that were added since the second format, with the value that every run had before."""
LATER_OPTIONS: dict[str, dict[str, Any]] = {name: {"query_precision": "same"} for name in ("vrmcl", "pocl")}
"""The same for hyper-parameters, by method."""


def upgraded(plain: dict[str, Any], where: str) -> dict[str, Any]:
    """A result as plain data in today's format; one of an unknown format comes back as it is."""
    try:
        return _undefined(_with_later_settings(_from_first(plain) if plain.get("schema") == FIRST else plain))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"The result '{where}' of the format '{FIRST}' cannot be read: {error!r}.") from None


def _with_later_settings(plain: dict[str, Any]) -> dict[str, Any]:
    """Settings that were added since, with the value that every run had before; a memory's own know it themselves."""
    plan = plain.get("experiment")
    if not isinstance(plan, dict) or not isinstance(memory := plan.get("memory"), dict):
        return plain
    kind = KINDS.get(str(memory.get("name")))
    later = introduced(kind) if kind else {}
    plan = {**LATER, **plan, "memory": {**later, **memory}}
    if isinstance(options := plan.get("options"), dict):
        plan["options"] = {**LATER_OPTIONS.get(str(plan.get("method")), {}), **options}
    return {**plain, "experiment": plan}


def _undefined(plain: dict[str, Any]) -> dict[str, Any]:
    """Of a single task there is no forgetting; it was written as 0 before."""
    matrix = plain.get("class_il")
    if not isinstance(matrix, list) or len(matrix) != 1:
        return plain
    idle = {name: None for name in ("forgetting", "backward_transfer") if plain.get(name) == 0}
    return {**plain, **idle}


def _from_first(plain: dict[str, Any]) -> dict[str, Any]:
    """Names in, hyper-parameters beside the method; replay and its weight with the memory; class names outside."""
    plan = dict(plain["experiment"])
    method, memory = dict(plan["method"]), dict(plan["memory"])
    name, replay, gamma = method.pop("name"), plan.pop("replay", "auxiliary"), plan.pop("gamma", 1.0)
    own = NATIVE.get(name, "reservoir")
    if memory["name"] == "native":
        memory["policy"] = memory.get("policy") or own
        if memory["policy"] == "reservoir":
            memory = {"name": "reservoir", "capacity": memory["capacity"]}
    elif memory["name"] == "odedm":
        short = memory.pop("short")
        memory |= {"short_policy": own if short == "native" else short, "replay": replay, "gamma": gamma}
        if memory["distance"] == "mmd":
            memory["distance"] = "mmd-centroid"
        elif memory["distance"] == "sinkhorn":
            memory |= {key: value for key, value in SINKHORN.items() if memory.get(key) is None}
    classes = plan.pop("classes")
    experiment = {**plan, "method": name, "options": method, "memory": memory}
    return {**plain, "schema": SECOND, "experiment": experiment, "classes": classes}
