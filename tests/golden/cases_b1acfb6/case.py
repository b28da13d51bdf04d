"""What a golden case is, and what is looked at in the outcome of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Parts = dict[str, Any]
"""Numbers, texts, tensors and lists of weights by name."""
FOLLOWING = ("label", "task", "order")
"""Columns of a memory that follow from its others: a row's index says which row it is."""


@dataclass(frozen=True)
class Case:
    """A named computation; `short` where at most 20 steps make it fit for the tests."""

    name: str
    measure: Callable[[Any, Path], Parts]
    short: bool = False


def built(api: Any, made: Any) -> Any:
    """What a pair of a public name and its keywords stands for; anything else as it is."""
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str) and isinstance(made[1], dict):
        name, keywords = made
        return api.make(name, **{word: built(api, value) for word, value in keywords.items()})
    return made


def trained(api: Any, plan: dict[str, Any]) -> tuple[Any, Any]:
    """The outcome of a run, and its data."""
    settings = {word: built(api, value) for word, value in plan.items()}
    data = settings.pop("data")
    return api.make("train", data, **{"device": "cpu", "evidence": True, "progress": False, **settings}), data


def observed(api: Any, outcome: Any, data: Any) -> Parts:
    """All that a run computes: figures, the memory's rows, choices, weights and the scores of test rows."""
    parts: Parts = {
        name: api.read("Outcome", outcome, f"result.{name}")
        for name in ("class_il", "task_il", "anytime", "sample_gradients")
    }
    census = api.read("Outcome", outcome, "result.census")
    parts["census"] = [api.columns("census", counts) for counts in census]
    rows = api.columns("memory", api.call("Outcome", outcome, "memory.rows"))
    parts |= {f"memory {name}": rows[name] for name in sorted(rows) if name not in FOLLOWING}
    evidence = api.columns("evidence", api.read("Outcome", outcome, "evidence") or {})
    parts |= {f"evidence {name}": evidence[name] for name in sorted(evidence)}
    parts["weights"] = list(api.read("Outcome", outcome, "method.net").state_dict().values())
    average = api.read("Outcome", outcome, "method.averaged")
    if average is not None:
        parts["average"] = list(average.state_dict().values())
    parts["scores"] = api.call("Outcome", outcome, "probe.predict", data.test_image)
    return parts
