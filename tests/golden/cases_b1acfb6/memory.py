"""The memory alone, in a loop of one's own: all its parts, draws, files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .case import Case, Parts, built

Kind = tuple[str, dict[str, Any]]


def kinds() -> dict[str, dict[str, Any]]:
    """Settings of a dual memory by name."""
    return {
        "by k": {"capacity": 30, "k": 2},
        "by rho": {"capacity": 30, "rho": 0.4},
        "default": {"capacity": 30},
        "pixels": {"capacity": 30, "k": 2, "space": "pixels"},
        "candidates": {"capacity": 36, "k": 2, "candidates": 4},
        "candidates by rho": {"capacity": 60, "rho": 0.3, "candidates": 6},
        "mixup": {"capacity": 30, "k": 2, "mixup": True},
        "two rows": {"capacity": 40, "k": 1, "rows_per_prototype": 2},
        "no dac": {"capacity": 30, "k": 2, "dac": None},
        "dac": {"capacity": 30, "k": 2, "dac": (2, 1), "dac_distance": "l2"},
        "nothing pinned": {"capacity": 20, "k": 0},
        **{name: {"capacity": 30, "k": 2, "distance": name} for name in ("l1", "l2", "mmd", "random", "herding")},
        "task quota": {"capacity": 32, "k": 2, "short_policy": "task-quota", "space": "pixels"},
        "class quota": {"capacity": 32, "k": 2, "short_policy": "class-quota"},
        "balanced": {"capacity": 32, "k": 2, "short_policy": "balanced-reservoir"},
        "greedy": {"capacity": 32, "k": 2, "short_policy": "greedy-balanced"},
    }


CONFIGURED: dict[str, Kind] = {
    "of odedm": ("ODEDM", {"capacity": 30, "k": 2, "candidates": 4}),
    "of a reservoir": ("Reservoir", {"capacity": 20}),
    "of a quota": ("Native", {"capacity": 20, "policy": "task-quota"}),
}


def step(api: Any, memory: Any, number: int) -> Parts:
    """One of what loops do, the same for the same number, and what can be seen of it."""
    rng = torch.Generator().manual_seed(number)
    task = number // 3
    label = torch.arange(12) % 2 + 2 * (task % 3)
    image = torch.randn(12, 5, generator=rng) + 3 * label[:, None]
    api.call("DualMemory", memory, "add", image, label, logits=torch.rand(12, 3, generator=rng))
    if number % 3 == 2 and task < 3:
        api.call("DualMemory", memory, "end_task", embed=_embed, annotate=_annotate if task == 1 else None)
    return {
        **_columns(api, "draw", api.call("DualMemory", memory, "sample", 5)),
        **_columns(api, "short draw", api.call("DualMemory", memory, "sample", 3, part="short")),
        **_columns(api, "long draw", api.call("DualMemory", memory, "sample", 3, part="long")),
        "sizes": [api.call("DualMemory", memory, "size", part) for part in ("all", "short", "long")],
    }


def seen(api: Any, memory: Any, when: str) -> Parts:
    """All rows."""
    found: Parts = {}
    for part in ("short", "long"):
        found |= _columns(api, f"{when} {part}", api.call("DualMemory", memory, "rows", part))
    return found


def _columns(api: Any, where: str, rows: Any) -> Parts:
    return {f"{where} {name}": column for name, column in api.columns("live rows", rows).items()}


def _embed(image: Any) -> Any:
    return torch.cat([image, image.clamp(min=0)], 1)


def _annotate(image: Any) -> Any:
    return {"logits": image[:, :3] / 2}


def steps(api: Any, memory: Any, first: int, last: int) -> Parts:
    """What is seen at some steps, one after the other."""
    found = [step(api, memory, number) for number in range(first, last)]
    together: Parts = {"sizes": [step.pop("sizes") for step in found]}
    together |= {name: torch.cat([step[name] for step in found]) for name in found[0]}
    return {f"steps from {first} {name}": part for name, part in together.items()}


def life(make: Any, api: Any, place: Path) -> Parts:
    """Filled, consolidated, saved, loaded, gone on with, its room taken away and given back."""
    memory = make(api)
    parts = steps(api, memory, 0, 7)
    parts |= seen(api, memory, "middle")
    memory = api.make("DualMemory.load", api.call("DualMemory", memory, "save", place / "memory.safetensors"))
    parts |= steps(api, memory, 7, 10)
    parts["released"] = api.call("DualMemory", memory, "release", [0, 3])
    api.call("DualMemory", memory, "resize", api.read("DualMemory", memory, "capacity") + 5)
    parts |= steps(api, memory, 10, 11)
    api.call("DualMemory", memory, "resize", api.read("DualMemory", memory, "capacity") - 8)
    state = api.call("DualMemory", memory, "state_dict")
    other = make(api)
    api.call("DualMemory", other, "resize", api.read("DualMemory", memory, "capacity"))
    api.call("DualMemory", other, "load_state_dict", state)
    parts["drawn after a state"] = _columns(api, "draw", api.call("DualMemory", other, "sample", 6))
    return parts | seen(api, other, "last")


def by_settings(settings: dict[str, Any], api: Any) -> Any:
    """A dual memory of its settings."""
    return api.make("DualMemory", **settings, seed=5)


def by_configuration(kind: Kind, api: Any) -> Any:
    """A dual memory of a configuration."""
    return api.make("memory", built(api, kind), seed=5)


def single_classes(api: Any, _place: Path) -> Parts:
    """Classes consolidated one at a time, again when they return, with rows as numpy arrays of whole numbers."""
    memory = api.make("DualMemory", 24, k=2, seed=2, space="pixels", dac=None)
    parts: Parts = {}
    for number in range(6):
        rng = torch.Generator().manual_seed(number)
        label = torch.arange(10) % 3 + number // 3
        image = torch.randint(0, 255, (10, 1, 4, 4), generator=rng, dtype=torch.uint8)
        api.call("DualMemory", memory, "add", image.numpy(), label.numpy())
        api.call("DualMemory", memory, "consolidate", [int(label[number % 3])])
        parts |= seen(api, memory, f"after {number}")
    return parts


def cases() -> Iterator[Case]:
    """All of them: there is nothing to train."""
    for name, settings in kinds().items():
        yield Case(f"memory {name}", partial(life, partial(by_settings, settings)), short=True)
    for name, kind in CONFIGURED.items():
        yield Case(f"memory {name}", partial(life, partial(by_configuration, kind)), short=True)
    yield Case("memory by single classes", single_classes, short=True)
