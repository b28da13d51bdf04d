"""How a learner does with nothing but defaults, on streams that no setting was made for; River's beside it.

    python benchmarks/learner_defaults.py [--streams digits,clinc,…] [--orders shuffled,by-class] [--calls 32]
                                          [--first 0] [--seeds 3] [--limit ROWS] [--features FOLDER] [--river]
                                          [--learner 'NAME={"batch": 10}' …] [--out FILE.json]

Streams: `digits` of scikit-learn as vectors, `digit-images` the same as images, `clinc` (150 intents, FOLDER/clinc.npz
of make_features.py), `fashion` (fashion-mini), and made here: `rings` (2 classes, one around the other), `clouds` (20
classes of three normal clouds each), `scales` (columns of very unlike size, one constant), `turning` (5 classes whose
centres move on all the time). Each is shuffled, or sorted by class with the classes in random order. Every call of
--calls rows is predicted, then learned; afterwards held-out rows of all classes are asked. Learners are
`odedm.Learner(memory=200)`, and those of --learner with other settings; --river adds its Hoeffding tree and logistic
regression (behind a standard scaler), which learn row by row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import odedm
from odedm.results.provenance import commit, processor

Array = np.ndarray[Any, Any]


class Split(NamedTuple):
    """Rows to learn and rows held out."""

    x: Array
    y: Array
    test_x: Array
    test_y: Array


def digits(rng: np.random.Generator, _: argparse.Namespace) -> Split:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    train, test = order[:1297], order[1297:]
    return Split(x[train].astype(np.float32), y[train], x[test].astype(np.float32), y[test])


def digit_images(rng: np.random.Generator, asked: argparse.Namespace) -> Split:
    split = digits(rng, asked)
    return Split(split.x.reshape(-1, 1, 8, 8), split.y, split.test_x.reshape(-1, 1, 8, 8), split.test_y)


def clinc(_: np.random.Generator, asked: argparse.Namespace) -> Split:
    held = np.load(asked.features / "clinc.npz")
    return Split(held["train"], held["train_label"], held["test"], held["test_label"])


def fashion(_: np.random.Generator, __: argparse.Namespace) -> Split:
    data = odedm.load_dataset("fashion-mini")
    return Split(*(column.numpy() for column in (data.image, data.label, data.test_image, data.test_label)))


def rings(rng: np.random.Generator, _: argparse.Namespace) -> Split:
    y = rng.integers(0, 2, 6000)
    x = rng.normal(size=(6000, 10))
    x[:, :2] *= ((1 + 1.5 * y) / np.linalg.norm(x[:, :2], axis=1))[:, None] * rng.normal(1, 0.15, 6000)[:, None]
    return _held_out(x * 7 + 30, y, 5000)


def clouds(rng: np.random.Generator, _: argparse.Namespace) -> Split:
    y = rng.integers(0, 20, 11_000)
    centre = 1.5 * rng.normal(size=(20, 3, 16))
    return _held_out(centre[y, rng.integers(0, 3, 11_000)] + rng.normal(size=(11_000, 16)), y, 10_000)


def scales(rng: np.random.Generator, _: argparse.Namespace) -> Split:
    y = rng.integers(0, 5, 4000)
    x = 1.5 * rng.normal(size=(5, 8))[y] + rng.normal(size=(4000, 8))
    x = x * 10.0 ** np.arange(-4, 4) + 10.0 ** np.arange(4, -4, -1)
    x[:, 3] = 7.0
    return _held_out(x, y, 3000)


def turning(rng: np.random.Generator, _: argparse.Namespace) -> Split:
    """Return classes whose centres move; the test is on the centres as they are in the end."""
    y = rng.integers(0, 5, 7000)
    start, end = 1.5 * rng.normal(size=(2, 5, 8))
    share = np.minimum(np.arange(7000) / 6000, 1)[:, None]
    return _held_out((1 - share) * start[y] + share * end[y] + rng.normal(size=(7000, 8)), y, 6000)


def _held_out(x: Array, y: Array, train: int) -> Split:
    x = x.astype(np.float32)
    return Split(x[:train], y[:train], x[train:], y[train:])


STREAMS: dict[str, Callable[[np.random.Generator, argparse.Namespace], Split]] = {
    "digits": digits,
    "clinc": clinc,
    "digit-images": digit_images,
    "fashion": fashion,
    "rings": rings,
    "clouds": clouds,
    "scales": scales,
    "turning": turning,
}
IN_TIME = ("turning",)
"""Streams whose rows come in an order of their own."""


def order_of(y: Array, kind: str, rng: np.random.Generator) -> Array:
    """Return the order [n] of the rows."""
    order = rng.permutation(len(y))
    if kind == "shuffled":
        return order
    rank = rng.permutation(int(y.max()) + 1)
    by_class: Array = order[np.argsort(rank[y[order]], kind="stable")]
    return by_class


class River:
    """A model of River as an estimator of many rows."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.model, self.learned = make(), 0

    def partial_fit(self, x: Array, y: Array) -> None:
        """Learn rows one by one."""
        for row, label in zip(x, y, strict=True):
            self.model.learn_one(_named(row), int(label))
        self.learned += len(y)

    def predict(self, x: Array) -> Array:
        """Return the label of each row."""
        return np.array([self.model.predict_one(_named(row)) or 0 for row in x])


def _named(row: Array) -> dict[int, float]:
    return dict(enumerate(row.ravel().tolist()))


def river_models() -> dict[str, Callable[[], Any]]:
    """Return River's, by name."""
    from river import linear_model, multiclass, preprocessing, tree

    def logistic() -> Any:
        return preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())

    return {
        "River: Hoeffding tree": lambda: River(tree.HoeffdingTreeClassifier),
        "River: logistic regression": lambda: River(logistic),
    }


def measure(learner: Any, split: Split, order: Array, rows_per_call: int) -> dict[str, float]:
    """Predict and learn a stream, then ask the rows held out."""
    right, asked, seconds = 0, 0, 0.0
    for start in range(0, len(order), rows_per_call):
        rows = order[start : start + rows_per_call]
        if start:
            right += int((learner.predict(split.x[rows]) == split.y[rows]).sum())
            asked += len(rows)
        began = time.process_time()
        learner.partial_fit(split.x[rows], split.y[rows])
        seconds += time.process_time() - began
    held_out = float((learner.predict(split.test_x) == split.test_y).mean())
    return {
        "test_then_train": right / max(1, asked),
        "held_out": held_out,
        "microseconds": 1e6 * seconds / len(order),
    }


def settings_of(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a learner's settings from JSON, where a table as `memory` is an ODEDM's settings."""
    memory = plain.get("memory")
    return {**plain, "memory": odedm.ODEDM(**memory)} if isinstance(memory, dict) else plain


def runs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the measurements of every stream, order, seed and learner."""
    makers: dict[str, Callable[[int], Any]] = {}
    for text in asked.learner or ["default={}"]:
        name, _, settings = text.partition("=")
        chosen = {"memory": 200, **settings_of(json.loads(settings or "{}"))}
        makers[name] = lambda seed, chosen=chosen: odedm.Learner(seed=seed, **chosen)
    for name, make in (river_models() if asked.river else {}).items():
        makers[name] = lambda _, make=make: make()
    for stream in asked.streams.split(","):
        for kind in asked.orders.split(",") if stream not in IN_TIME else ["in time"]:
            for seed in range(asked.first, asked.first + asked.seeds):
                rng = np.random.default_rng(seed)
                split = STREAMS[stream](rng, asked)
                rows = rng.permutation(len(split.y))[: asked.limit or None]
                split = split._replace(x=split.x[np.sort(rows)], y=split.y[np.sort(rows)])
                order = np.arange(len(split.y)) if kind == "in time" else order_of(split.y, kind, rng)
                for name, make in makers.items():
                    about = {"stream": stream, "order": kind, "seed": seed, "learner": name, "calls": asked.calls}
                    yield about | measure(make(seed), split, order, asked.calls)


def table(measured: list[dict[str, Any]]) -> str:
    """Return means over the seeds, one line for a stream, an order and a learner."""
    lines = ["| stream | order | learner | test, then train | held out | µs a row |", "|---|---|---|---|---|---|"]
    keys = dict.fromkeys((run["stream"], run["order"], run["learner"]) for run in measured)
    for key in keys:
        same = [run for run in measured if (run["stream"], run["order"], run["learner"]) == key]
        tested, held, time_used = (
            statistics.mean(run[name] for run in same) for name in ("test_then_train", "held_out", "microseconds")
        )
        lines.append(f"| {' | '.join(key)} | {100 * tested:.1f} | {100 * held:.1f} | {time_used:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default=",".join(name for name in STREAMS if name != "clinc"))
    parser.add_argument("--orders", default="shuffled,by-class")
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--learner", action="append")
    parser.add_argument("--river", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    measured = list(runs(asked))
    print(table(measured))
    if asked.out:
        about = {"commit": commit(), "processor": processor(), "odedm": odedm.__version__}
        asked.out.write_text(json.dumps({"about": about, "runs": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
