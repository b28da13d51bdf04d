"""Which memory pays where a class has few rows: ODEDM by short-term policy and distance, against both reservoirs.

    python benchmarks/few_rows.py [--features FOLDER] [--streams clinc,cifar,fashion] [--rows 1,2,5,10,20]
                                  [--methods er,er-ace,derpp] [--memories NAME,…] [--first 0] [--seeds 3]
                                  [--limit 500] [--final] --out FILE.csv
    python benchmarks/few_rows.py --table FILE.csv [--plot FILE.svg]

Streams: `clinc` (150 intents in 15 tasks) and `cifar` (10 classes in 5 tasks) are frozen features, FOLDER/clinc.npz
and FOLDER/cifar.npz of make_features.py, with an MLP of two hidden layers; `fashion` is fashion-mini end to end. λ is
--rows a class times the classes; batches are of 10 rows, one pass. A fifth of the training rows is held out and takes
the place of the test rows, unless --final is given. FILE.csv gets a line for each run, and no run is repeated.
--table prints mean differences, paired by seed, with their standard errors; --plot draws them.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import odedm
from odedm import ODEDM, Dataset, Herding, Native, Prototypes, Reservoir
from odedm.results.provenance import commit, processor

NAMES = ("stream", "rows", "method", "memory", "seed", "final")
TASKS = {"clinc": 15, "cifar": 5, "fashion": 5}
RATES = {"er": 0.1, "er-ace": 0.1, "derpp": 0.03}
BALANCED = "balanced-reservoir"
L2, SINKHORN = Prototypes(distance="l2", dac=None), Prototypes(distance="sinkhorn", dac=odedm.DAC())
BASES = ("reservoir", "balanced reservoir")


def memories(capacity: int) -> dict[str, Any]:
    """Return the memories by name."""
    return {
        "reservoir": Reservoir(capacity),
        "balanced reservoir": Native(capacity, policy=BALANCED),
        "ODEDM, reservoir, Sinkhorn with DAC": ODEDM(capacity, short_policy="reservoir", selection=SINKHORN),
        "ODEDM, balanced, L2": ODEDM(capacity, short_policy=BALANCED, selection=L2),
        "ODEDM, balanced, L2, rho .5": ODEDM(capacity, rho=0.5, short_policy=BALANCED, selection=L2),
        "ODEDM, balanced, herding, rho .5": ODEDM(capacity, rho=0.5, short_policy=BALANCED, selection=Herding()),
        "ODEDM, balanced, Sinkhorn with DAC, rho .5": ODEDM(
            capacity, rho=0.5, short_policy=BALANCED, selection=SINKHORN
        ),
    }


@cache
def dataset(stream: str, features: Path, limit: int) -> Dataset:
    """Return a stream's data, at most `limit` training rows a class of features."""
    if stream == "fashion":
        return odedm.load_dataset("fashion-mini")
    held = np.load(features / f"{stream}.npz")
    label = held["train_label"]
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(label == name))[:limit] for name in range(len(held["classes"]))]
    taken = np.sort(np.concatenate(rows))
    mean, deviation = held["train"].mean(0), held["train"].std(0) + 1e-6
    train, test = ((held[part] - mean) / deviation for part in ("train", "test"))
    test_rows = test, held["test_label"]
    return odedm.from_arrays(train[taken], label[taken], test=test_rows, tasks=TASKS[stream])


def runs(asked: argparse.Namespace, done: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """Yield the result of every run that is not done."""
    for seed in range(asked.first, asked.first + asked.seeds):
        for stream in asked.streams.split(","):
            data = dataset(stream, asked.features, asked.limit)
            for rows in map(int, asked.rows.split(",")):
                chosen = memories(rows * data.classes)
                for method in asked.methods.split(","):
                    for name in asked.memories.split(";") if asked.memories else chosen:
                        key = {"stream": stream, "rows": rows, "method": method, "memory": name, "seed": seed}
                        key["final"] = int(asked.final)
                        if tuple(map(str, key.values())) in done:
                            continue
                        if rows == 1 and isinstance(chosen[name], ODEDM) and chosen[name].rho != 0.5:
                            continue  # less than one prototype a class
                        began = time.process_time()
                        outcome = odedm.train(
                            data,
                            method=method,
                            lr=RATES[method] if stream != "fashion" else 0.03,
                            memory=chosen[name],
                            tasks=TASKS[stream],
                            batch=10,
                            seed=seed,
                            class_order="seed",
                            validation=None if asked.final else 0.2,
                            progress=False,
                        )
                        acc = f"{outcome.result.acc_last:.4f}"
                        yield {**key, "acc": acc, "seconds": f"{time.process_time() - began:.2f}"}


def table(measured: list[dict[str, str]]) -> str:
    """Return the mean change against each reservoir, paired by seed, with its standard error."""
    acc = {tuple(run[name] for name in NAMES): float(run["acc"]) for run in measured}
    cells = dict.fromkeys(key[:4] for key in acc)
    seconds = {key: statistics.mean(float(r["seconds"]) for r in measured if _cell(r) == key) for key in cells}
    lines = [
        "| stream | rows a class | method | memory | ACC | against reservoir | against balanced reservoir | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stream, rows, method, memory in cells:
        cell = {key[4:]: value for key, value in acc.items() if key[:4] == (stream, rows, method, memory)}
        changes = []
        for base in BASES:
            pairs = [v - acc[stream, rows, method, base, *k] for k, v in cell.items()
                     if (stream, rows, method, base, *k) in acc]  # fmt: skip
            error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
            changes.append("" if memory == base or not pairs else f"{statistics.mean(pairs):+.1f} ± {error:.1f}")
        key = (stream, rows, method, memory)
        mean = statistics.mean(cell.values())
        lines.append(f"| {' | '.join(key)} | {mean:.1f} | {' | '.join(changes)} | {seconds[key]:.1f} |")
    return "\n".join(lines)


def _cell(run: dict[str, str]) -> tuple[str, ...]:
    return tuple(run[name] for name in NAMES[:4])


def plot(measured: list[dict[str, str]], path: Path) -> None:
    """Draw the change of each memory against each reservoir, by stream, method and rows a class."""
    from matplotlib.figure import Figure

    acc: dict[tuple[str, ...], list[float]] = {}
    for run in sorted(measured, key=lambda run: int(run["seed"])):
        acc.setdefault(_cell(run), []).append(float(run["acc"]))
    names = [name for name in dict.fromkeys(run["memory"] for run in measured) if name not in BASES]
    sides = sorted({run["rows"] for run in measured}, key=int)
    lines = list(dict.fromkeys((run["stream"], run["method"]) for run in measured))
    figure = Figure(figsize=(2.6 * len(names) + 1.5, 1 + 0.7 * len(lines)), layout="constrained")
    grid = figure.subplots(2, len(names), squeeze=False, sharex=True, sharey=True)
    for i, base in enumerate(BASES):
        for j, name in enumerate(names):
            change = [[_mean_change(acc, s, r, m, name, base) for r in sides] for s, m in lines]
            picture = grid[i, j].imshow(change, cmap="RdBu", vmin=-10, vmax=10, aspect="auto")
            for y, row in enumerate(change):
                for x, value in enumerate(row):
                    grid[i, j].text(x, y, f"{value:+.1f}", ha="center", va="center", fontsize=7)
            grid[i, j].set_title(f"{name}\nagainst {base}", fontsize=7)
            grid[i, j].set_xticks(range(len(sides)), sides, fontsize=7)
            grid[i, j].set_yticks(range(len(lines)), [" ".join(line) for line in lines], fontsize=7)
    for axes in grid[1]:
        axes.set_xlabel("rows a class", fontsize=7)
    figure.colorbar(picture, ax=grid, label="points of ACC")
    figure.savefig(path)


def _mean_change(
    acc: dict[tuple[str, ...], list[float]], stream: str, rows: str, method: str, name: str, base: str
) -> float:
    ours, theirs = (acc.get((stream, rows, method, memory), []) for memory in (name, base))
    return statistics.mean(a - b for a, b in zip(ours, theirs, strict=False)) if ours and theirs else float("nan")


def main() -> None:
    """Run what is not done, or print what is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--streams", default="clinc,cifar,fashion")
    parser.add_argument("--rows", default="1,2,5,10,20")
    parser.add_argument("--methods", default="er,er-ace,derpp")
    parser.add_argument("--memories", default="", help="names with ; between")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--final", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    if asked.table:
        measured = list(csv.DictReader(asked.table.open()))
        print(table(measured))
        if asked.plot:
            plot(measured, asked.plot)
        return
    torch.set_num_threads(1)
    old = list(csv.DictReader(asked.out.open())) if asked.out.exists() else []
    done = {tuple(run[name] for name in NAMES) for run in old}
    with asked.out.open("a") as file:
        writer = csv.DictWriter(file, [*NAMES, "acc", "seconds", "commit", "processor"])
        if not old:
            writer.writeheader()
        for run in runs(asked, done):
            writer.writerow({**run, "commit": commit(), "processor": processor()})
            file.flush()


if __name__ == "__main__":
    main()
