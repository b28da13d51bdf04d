"""Learners: methods on streams of batches, classes that join, files, and going on from a trained run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case, Parts, built, trained

METHODS = ("er", "der", "derpp", "er-ace", "agem", "gss", "aser", "cope", "mir", "scr")
CENTRES = np.random.default_rng(9).normal(size=(6, 6)) * 3
Kind = dict[str, Any]


def dual(capacity: int = 30, **settings: Any) -> tuple[str, Kind]:
    """The dual memory."""
    return "ODEDM", {"capacity": capacity, "short_policy": "reservoir", **settings}


def batch(number: int, classes: tuple[int, ...], rows: int = 8) -> tuple[Any, Any]:
    """Vectors of some classes with words as labels, the same for the same number."""
    rng = np.random.default_rng(number)
    label = np.array(classes)[rng.integers(0, len(classes), rows)]
    return (CENTRES[label] + rng.normal(size=(rows, 6))).astype(np.float32), np.array([f"c{each}" for each in label])


def pictures(number: int, classes: tuple[int, ...], rows: int = 8) -> tuple[Any, Any]:
    """Squares that are bright in a place of their class."""
    rng = np.random.default_rng(number)
    label = np.array(classes)[rng.integers(0, len(classes), rows)]
    image = rng.integers(0, 60, (rows, 1, 8, 8), dtype=np.uint8)
    for row, kind in zip(image, label, strict=True):
        row[0, kind : kind + 2] += 180
    return image, label


STREAM = ((0, 1), (0, 1), (0, 1), (2,), (2, 3), (2, 3), (0, 3), (4,), (4,), (1, 4), (0, 5), (5,))
"""The classes of each batch: they join, rest and return."""


def kinds() -> dict[str, Kind]:
    """Learners by name."""
    found: dict[str, Kind] = {method: {"method": method, "memory": dual(rho=0.5), "patience": 16} for method in METHODS}
    found |= {
        "pinned by k": {"memory": dual(k=2), "patience": 16},
        "candidates": {"memory": dual(40, k=2, candidates=4), "every": 24},
        "candidates by rho": {"memory": dual(40, rho=0.3, candidates=4), "every": 40},
        "stream logits": {"memory": dual(40, k=2, candidates=4, annotate="stream"), "patience": 16},
        "union": {"memory": dual(rho=0.5, replay="union"), "patience": 16},
        "both": {"memory": dual(rho=0.5, replay="both", gamma=0.5), "patience": 16},
        "reservoir": {"memory": ("Reservoir", {"capacity": 20}), "scaling": None},
        "balanced": {"memory": ("Native", {"capacity": 20, "policy": "balanced-reservoir"}), "method": "er"},
        "a number": {"memory": 40, "patience": 16},
        "large steps": {"memory": dual(rho=0.5), "batch": 5, "draw": 3, "patience": 16},
        "adamw": {"memory": dual(rho=0.5), "optimizer": "adamw", "lr": 0.01, "patience": 16},
        "mir retrieval": {"memory": dual(rho=0.5), "retrieval": "mir", "retrieval_options": {"candidates": 10}},
        "momentum": {"memory": dual(rho=0.5), "options": {"momentum": 0.9}, "patience": 16},
        "many tricks": {
            "memory": dual(rho=0.5),
            "updates": 2,
            "stream_loss": "asymmetric",
            "predict_by": "nearest-mean",
            "weight_average": 0.9,
            "patience": 16,
        },
        "adjusted": {"memory": dual(rho=0.5), "stream_loss": "adjusted", "patience": 16},
    }
    return {name: {"method": "derpp", "net": "mlp", "batch": 8, "seed": 3, **kind} for name, kind in found.items()}


def make(api: Any, kind: Kind) -> Any:
    """A learner."""
    return api.make("Learner", **{name: built(api, value) for name, value in kind.items()})


def feed(api: Any, learner: Any, first: int, last: int, source: Callable[..., Any] = batch, offset: int = 0) -> None:
    """Some batches of the stream."""
    for number in range(first, last):
        api.call("Learner", learner, "partial_fit", *source(100 + offset + number, STREAM[number]))


def looked_at(api: Any, learner: Any, x: Any) -> Parts:
    """All that can be seen of a learner."""
    parts: Parts = {
        "scores": api.call("Learner", learner, "predict_proba", x),
        "predicted": api.call("Learner", learner, "predict", x),
        "classes": api.read("Learner", learner, "classes_"),
        "seen": api.read("Learner", learner, "rows_seen_"),
        "loss": api.read("Learner", learner, "loss_"),
    }
    for part in ("short", "long", "candidates"):
        rows = api.columns("learner rows", api.call("Learner", learner, "rows", part))
        parts |= {f"{part} {name}": column for name, column in rows.items()}
    events = api.read("Learner", learner, "events")
    parts["events"] = [
        [api.read("LearnerEvent", event, name) for name in ("row", "what", "labels")] for event in events
    ]
    return parts


def in_one_go(kind: Kind, api: Any, place: Path) -> Parts:
    """A learner that learns, is saved, loaded, and goes on."""
    learner = make(api, kind)
    feed(api, learner, 0, 7)
    x, _ = batch(7, (0, 1, 2, 3, 4, 5), 40)
    middle = looked_at(api, learner, x)
    path = api.call("Learner", learner, "save", place / "learner.safetensors")
    again = api.make("Learner.load", path)
    feed(api, again, 7, 12)
    last = looked_at(api, again, x)
    return {f"middle {name}": part for name, part in middle.items()} | last


def by_hand(api: Any, _place: Path) -> Parts:
    """Consolidated when asked, with announced classes, a trigger and released prototypes."""
    learner = make(api, {**kinds()["pinned by k"], "patience": None, "trigger": _after_a_while})
    x, y = batch(100, STREAM[0])
    api.call("Learner", learner, "partial_fit", x, y, classes=["c0", "c1", "c2", "c3", "c4"])
    feed(api, learner, 1, 6)
    pinned = api.call("Learner", learner, "consolidate", ["c2"])
    released = api.call("Learner", learner, "release", ["c0"])
    feed(api, learner, 6, 10)
    everything = api.call("Learner", learner, "consolidate")
    parts = looked_at(api, learner, batch(7, (0, 1, 2, 3, 4), 30)[0])
    return {"pinned": sorted(pinned), "released": released, "everything": sorted(everything), **parts}


def _after_a_while(learner: Any) -> Any:
    return ["c1"] if learner.rows_seen_ == 40 else None


def on_pictures(api: Any, place: Path, views: str = "crop") -> Parts:
    """A convolutional network with classes that join, views of replayed rows, and a file."""
    kind = {"method": "er", "memory": dual(24, rho=0.5), "batch": 8, "patience": 16, "views": views, "seed": 1}
    learner = make(api, kind)
    feed(api, learner, 0, 6, pictures)
    again = api.make("Learner.load", api.call("Learner", learner, "save", place / "learner.safetensors"))
    feed(api, again, 6, 9, pictures)
    return looked_at(api, again, pictures(7, (0, 1, 2, 3, 4), 20)[0])


def after_a_run(plan: dict[str, Any], api: Any, place: Path) -> Parts:
    """A run's model, saved and loaded, which predicts and goes on as a learner with a class that joins."""
    outcome, data = trained(api, plan)
    model = api.make("load", api.call("Outcome", outcome, "save", place / "model.safetensors"))
    x = data.test_image.numpy()
    before = api.call("TrainedModel", model, "predict_proba", x)
    features = api.call("TrainedModel", model, "features", x)
    learner = api.call("TrainedModel", model, "learner", patience=16)
    known = api.read("TrainedModel", model, "classes_")
    for number in range(4):
        part = data.image[8 * number : 8 * number + 8].numpy()
        label = known[0] if number % 2 else known.max() + 1
        api.call("Learner", learner, "partial_fit", part, np.full(len(part), label))
    return {"before": before, "features": features, **looked_at(api, learner, x)}


def tested_then_learned(api: Any, _place: Path) -> Parts:
    """Predicted first, then learned, with labels that come late."""
    learner = make(api, kinds()["derpp"])
    found = api.make("prequential", learner, [batch(100 + n, STREAM[n]) for n in range(12)], window=16, delay=8)
    return {"accuracy": api.read("Prequential", found, "accuracy"), **looked_at(api, learner, batch(7, (0, 1), 9)[0])}


def cases() -> Iterator[Case]:
    """All of them; twelve batches are twelve steps."""
    for name, kind in kinds().items():
        yield Case(f"learner {name}", partial(in_one_go, kind), short=True)
    yield Case("learner by hand", by_hand, short=True)
    yield Case("learner test then train", tested_then_learned, short=True)
    for views in ("crop", "strong", "rotations"):
        yield Case(f"learner on pictures, {views}", partial(on_pictures, views=views), short=True)
    memories = {"odedm": ("ODEDM", {"capacity": 20, "k": 1}), "plain": ("Reservoir", {"capacity": 16})}
    for method in ("derpp", "er-ace", "scr", "cope"):
        for name, memory in memories.items():
            plan = {"data": ("blobs", {"per_class": 12, "classes": 4, "tasks": 2}), "method": method, "memory": memory}
            yield Case(f"learner after {method}, {name}", partial(after_a_run, {**plan, "batch": 8}), short=True)
    plan = {"data": ("shapes", {"per_class": 15}), "method": "er", "memory": memories["odedm"], "batch": 8}
    tricks = {"weight_average": 0.8, "predict": "nearest-mean", "views": "rotations"}
    yield Case("learner after er with tricks", partial(after_a_run, {**plan, **tricks}), short=True)
