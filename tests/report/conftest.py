"""Folders of fabricated runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import Fabricate
from safetensors.numpy import save_file

from odedm.results.folder import FILE, MEMORY_FILE
from odedm.results.result import Result

FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def matrix(tasks: int, last: float) -> list[list[float]]:
    """Every task at `last` after the last one, at 90 before."""
    return [[last if i == tasks - 1 else 90.0] * (i + 1) for i in range(tasks)]


@pytest.fixture
def fabricate(tmp_path: Path) -> Fabricate:
    """Write a run folder: `fabricate("derpp", "odedm", seed=0, acc=50.0)`."""

    def write(
        method: str = "derpp",
        memory: str = "odedm",
        *,
        seed: int = 0,
        acc: float = 50.0,
        task_il: float = 90.0,
        tasks: int = 5,
        classes: list[str] | None = None,
        capacity: int = 20,
        channels: int = 1,
        saved: str | None = "image",
        root: str = "runs",
        name: str | None = None,
        over: dict[str, Any] | None = None,
        knobs: dict[str, Any] | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> Path:
        names = FASHION[: 2 * tasks] if classes is None else classes
        folder = (
            tmp_path
            / root
            / (name or f"{method}-{memory}-{capacity}-{seed}-{len(list(tmp_path.rglob('result.json')))}")
        )
        folder.mkdir(parents=True)
        per_task = len(names) // tasks
        counts = []
        for task in range(tasks):
            seen = per_task * (task + 1)
            long = [
                int(memory == "odedm" and label < min(seen, per_task * max(tasks - 1, 1)))
                for label in range(len(names))
            ]
            short = [2 if label < seen else 0 for label in range(len(names))]
            counts.append({"short": short, "long": long})
        memory_settings: dict[str, Any] = {"name": memory, "capacity": capacity}
        if memory == "odedm":
            memory_settings |= {"k": 3, "rho": 0.25, "distance": "sinkhorn", "dac": [3, 4], "mixup": False}
            memory_settings |= {"replay": "auxiliary", "gamma": 1.0}
        experiment = {
            "data": "fashion-mini",
            "imbalance": "standard",
            "tasks": tasks,
            "method": method,
            "options": {"lr": 0.03, "alpha": 0.1},
            "memory": memory_settings | (knobs or {}),
            "batch": 32,
            "net": "cnn",
            "seed": seed,
            "device": "cpu",
            "threads": 1,
        } | (over or {})
        result = Result.measure(
            experiment=experiment,
            classes=names,
            class_il=matrix(tasks, acc),
            task_il=matrix(tasks, task_il),
            seconds={"train": 3.0, "evaluate": 1.0} | ({"select": 0.5} if memory == "odedm" else {}),
            class_counts=counts,
            provenance=provenance or {"odedm": "0.1.0", "device": "a processor", "finished": "2025-01-01T00:00:00"},
            sample_gradients=3.0,
            bytes={"rows": 84_000, "method": 0},
        )
        (folder / FILE).write_text(json.dumps(result.to_dict()))
        if saved is not None:
            label = np.repeat(np.arange(len(names)), 3)
            prototype = np.tile(np.array([-1, 0, 1]), len(names))
            random = np.random.default_rng(seed)
            if saved == "image":
                image = random.integers(0, 255, (len(label), channels, 8, 8)).astype(np.uint8)
            else:
                image = random.normal(size=(len(label), 16)).astype(np.float32)
            columns = {"image": image, "label": label, "task": label // max(per_task, 1), "prototype": prototype}
            save_file({**columns, "index": np.arange(len(label))}, folder / MEMORY_FILE)
        return folder

    return write
