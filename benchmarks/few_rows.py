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
import math
import statistics
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import odedm
from odedm import ODEDM, Dataset, Herding, Native, Prototypes, Random, Reservoir
from odedm.report.statistics import Paired, holm, paired, student_tail
from odedm.results.provenance import commit, processor

NAMES = ("stream", "rows", "method", "memory", "seed", "final")
Cell = tuple[str, ...]
"""Stream, rows a class, method, memory."""
TASKS = {"clinc": 15, "cifar": 5, "fashion": 5}
RATES = {"er": 0.1, "er-ace": 0.1, "mir": 0.1, "agem": 0.1}
"""Learning rates on features, 0.03 unless listed; on pictures it is 0.03."""
BALANCED = "balanced-reservoir"
L2, SINKHORN = Prototypes(distance="l2", dac=None), Prototypes(distance="sinkhorn", dac=odedm.DAC())
BASES = ("reservoir", "balanced reservoir")


def memories(rows: int, classes: int) -> dict[str, Any]:
    """Return the memories by name, of so many rows a class; ρ is .25, or .5 of one row, the least that it can be."""
    capacity, quarter = rows * classes, 0.25 if rows > 1 else 0.5
    return {
        "reservoir": Reservoir(capacity),
        "balanced reservoir": Native(capacity, policy=BALANCED),
        "ODEDM, own policy, Sinkhorn with DAC": ODEDM(capacity, quarter, short_policy="native", selection=SINKHORN),
        "ODEDM, balanced, L2, rho .25": ODEDM(capacity, quarter, short_policy=BALANCED, selection=L2),
        "ODEDM, balanced, L2, rho .5": ODEDM(capacity, 0.5, short_policy=BALANCED, selection=L2),
        "ODEDM, balanced, herding, rho .5": ODEDM(capacity, 0.5, short_policy=BALANCED, selection=Herding()),
        "ODEDM, balanced, Sinkhorn with DAC, rho .5": ODEDM(capacity, 0.5, short_policy=BALANCED, selection=SINKHORN),
        "ODEDM, balanced, random rows, rho .5": ODEDM(capacity, 0.5, short_policy=BALANCED, selection=Random()),
        "ODEDM, balanced, L2, rho .5, union": ODEDM(capacity, 0.5, short_policy=BALANCED, selection=L2, replay="union"),
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
                chosen = memories(rows, data.classes)
                for method in asked.methods.split(","):
                    for name in asked.memories.split(";") if asked.memories else chosen:
                        key = {"stream": stream, "rows": rows, "method": method, "memory": name, "seed": seed}
                        key["final"] = int(asked.final)
                        if tuple(map(str, key.values())) in done:
                            continue
                        began = time.process_time()
                        outcome = odedm.train(
                            data,
                            method=method,
                            lr=RATES.get(method, 0.03) if stream != "fashion" else 0.03,
                            memory=chosen[name],
                            tasks=TASKS[stream],
                            batch=10,
                            seed=seed,
                            class_order="seed",
                            validation=None if asked.final else 0.2,
                            progress=False,
                        )
                        acc = f"{outcome.result.acc_last:.4f}"
                        yield {**key, "limit": asked.limit, "acc": acc, "seconds": f"{time.process_time() - began:.2f}"}


def changes(measured: list[dict[str, str]]) -> dict[Cell, dict[str, Paired]]:
    """Return the change of every cell against each reservoir, paired by seed."""
    acc: dict[Cell, dict[int, float]] = {}
    for run in measured:
        acc.setdefault(_cell(run), {})[int(run["seed"])] = float(run["acc"])
    found: dict[Cell, dict[str, Paired]] = {}
    for cell, values in acc.items():
        pairs = {base: paired(values, acc.get((*cell[:3], base), {})) for base in BASES if base != cell[3]}
        found[cell] = {base: change for base, change in pairs.items() if change}
    return found


def tail(change: Paired) -> float:
    """Return the two-sided p of a mean difference by Student's t; 1 of one seed."""
    mean, error, seeds = change.estimate.mean, change.estimate.error, change.estimate.n
    if not error:
        return 1.0
    return student_tail(abs(mean) / error, seeds - 1)


def table(measured: list[dict[str, str]]) -> str:
    """Return mean changes against each reservoir with 95 % intervals; a star: clear by Holm's correction."""
    known = changes(measured)
    tests = [(cell, base) for cell, pairs in known.items() if cell[3] not in BASES for base in pairs]
    p = dict(zip(tests, holm([tail(known[cell][base]) for cell, base in tests]), strict=True))
    lines = [
        "| stream | rows a class | method | memory | seeds | ACC | against reservoir | against balanced | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell, pairs in known.items():
        runs_of_cell = [run for run in measured if _cell(run) == cell]
        words = [_words(pairs[base], p.get((cell, base), 1.0)) if base in pairs else "" for base in BASES]
        mean = statistics.mean(float(run["acc"]) for run in runs_of_cell)
        seconds = statistics.median(float(run["seconds"]) for run in runs_of_cell)
        columns = [*cell, str(len(runs_of_cell)), f"{mean:.1f}", *words, f"{seconds:.1f}"]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join([*lines, "", *means(known)])


def means(known: dict[Cell, dict[str, Paired]]) -> list[str]:
    """Return the mean change over methods of each stream and number of rows, as lines of a table."""
    lines = [
        f"| stream | rows a class | memory | {' | '.join(f'against {base}' for base in BASES)} |",
        "|---|---|---|---|---|",
    ]
    for stream, rows, name in dict.fromkeys((cell[0], cell[1], cell[3]) for cell in known if cell[3] not in BASES):
        cells = [pairs for cell, pairs in known.items() if (cell[0], cell[1], cell[3]) == (stream, rows, name)]
        words = []
        for base in BASES:
            by_seed: dict[int, list[float]] = {}
            for pairs in cells:
                for seed, value in (pairs[base].by_seed if base in pairs else {}).items():
                    by_seed.setdefault(seed, []).append(value)
            over = paired({seed: statistics.mean(v) for seed, v in by_seed.items()}, dict.fromkeys(by_seed, 0.0))
            words.append(_words(over, 1.0) if over else "")
        lines.append(f"| {stream} | {rows} | {name} | {' | '.join(words)} |")
    return lines


def _words(change: Paired, p: float) -> str:
    """Return a change with its interval; a star where it is clear after Holm's correction over all cells."""
    spread = f" [{change.interval[0]:+.1f}, {change.interval[1]:+.1f}]" if change.interval else ""
    return f"{change.estimate.mean:+.1f}{spread}{'*' if p < 0.05 else ''}"


def _cell(run: dict[str, str]) -> Cell:
    return tuple(run[name] for name in NAMES[:4])


def plot(measured: list[dict[str, str]], path: Path) -> None:
    """Draw the change of each memory against each reservoir, by stream, method and rows a class."""
    from matplotlib.figure import Figure

    known = changes(measured)
    names = [name for name in dict.fromkeys(run["memory"] for run in measured) if name not in BASES]
    sides = sorted({run["rows"] for run in measured}, key=int)
    lines = list(dict.fromkeys((run["stream"], run["method"]) for run in measured))
    figure = Figure(figsize=(2.2 * len(names) + 2.5, 1.6 + 0.6 * len(lines)), layout="constrained")
    grid = figure.subplots(2, len(names), squeeze=False, sharex=True, sharey=True)
    for (i, base), (j, name) in product(enumerate(BASES), enumerate(names)):
        axes = grid[i, j]
        cells = [[known.get((stream, side, method, name), {}).get(base) for side in sides] for stream, method in lines]
        values = [[change.estimate.mean if change else math.nan for change in row] for row in cells]
        picture = axes.imshow(values, cmap="RdBu", vmin=-10, vmax=10, aspect="auto")
        for (y, row), x in product(enumerate(cells), range(len(sides))):
            change = row[x]
            if change:
                bold = "bold" if change.clear else "normal"
                white = "white" if abs(change.estimate.mean) > 6.5 else "black"
                text = f"{change.estimate.mean:+.1f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=8, fontweight=bold, color=white)
        axes.set_title(f"{name}\nagainst {base}", fontsize=8)
        axes.set_xticks(range(len(sides)), sides)
        axes.set_yticks(range(len(lines)), [" ".join(line) for line in lines], fontsize=8)
        axes.set_xlabel("rows a class" if i else "")
    figure.colorbar(picture, ax=grid, label="points of ACC; bold: the 95 % interval over seeds leaves zero out")
    figure.savefig(path, dpi=110)


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
        writer = csv.DictWriter(file, [*NAMES, "limit", "acc", "seconds", "commit", "processor"])
        if not old:
            writer.writeheader()
        for run in runs(asked, done):
            writer.writerow({**run, "commit": commit(), "processor": processor()})
            file.flush()


if __name__ == "__main__":
    main()
