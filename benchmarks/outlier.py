"""What one broken row does to a learner: its accuracy on clean rows before and after a row of 1e5.

    python benchmarks/outlier.py --out FILE.json [--seeds 6] [--rows 20000] [--at 1000] [--calls 32]
    python benchmarks/outlier.py --plot BEFORE.json AFTER.json --out FILE.png

Rows are of 4 classes, normal around centres of size 1 in 16 columns; one of them is 1e5 throughout. The learner is
`odedm.Learner(memory=200)`; 1 000 clean rows are asked after every 500. To measure another commit, put its src first
on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

import odedm
from odedm.results.provenance import commit, processor

ASKED_EVERY, CLASSES, COLUMNS, BROKEN = 500, 4, 16, 1e5


def accuracies(seed: int, given: argparse.Namespace) -> list[tuple[int, float]]:
    """Return how many rows had come, and the accuracy on clean rows then."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(CLASSES, COLUMNS))

    def rows(amount: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        y = rng.integers(0, CLASSES, amount)
        return (centers[y] + 0.5 * rng.normal(size=(amount, COLUMNS))).astype(np.float32), y

    (x, y), (test_x, test_y) = rows(given.rows), rows(1000)
    x[given.at] = BROKEN
    learner, found, asked = odedm.Learner(memory=200, seed=seed), [], 0
    for start in range(0, len(x), given.calls):
        learner.partial_fit(x[start : start + given.calls], y[start : start + given.calls])
        done = min(start + given.calls, len(x))
        if done // ASKED_EVERY > asked:
            asked = done // ASKED_EVERY
            found.append((done, float((learner.predict(test_x) == test_y).mean())))
    return found


def plot(files: list[Path], out: Path) -> None:
    """Draw the mean over seeds of each file, with the least and the most."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(6.4, 3.4), layout="constrained")).subplots()
    for path, color in zip(files, ("#d55e00", "#0072b2"), strict=True):
        measured = json.loads(path.read_text())
        curves = [[100 * value for _, value in curve] for curve in measured["curves"]]
        ends = [end for end, _ in measured["curves"][0]]
        columns = list(zip(*curves, strict=True))
        axes.fill_between(ends, list(map(min, columns)), list(map(max, columns)), color=color, alpha=0.2, linewidth=0)
        axes.plot(ends, list(map(statistics.mean, columns)), color=color, label=f"commit {measured['commit'][:7]}")
    axes.axvline(measured["at"], color="#6b7280", linestyle=":", label="a row of 1e5")
    axes.set(xlabel="rows learned", ylabel="accuracy on 1 000 clean rows, %", ylim=(0, 102))
    axes.legend(frameon=False, loc="center right")
    figure.savefig(out, dpi=120)


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plot", type=Path, nargs=2)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--at", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=32)
    given = parser.parse_args()
    if given.plot:
        plot(given.plot, given.out)
        return
    torch.set_num_threads(1)
    curves = [accuracies(seed, given) for seed in range(given.seeds)]
    about = {"commit": commit(), "processor": processor(), "rows": given.rows, "at": given.at, "calls": given.calls}
    given.out.write_text(json.dumps({**about, "curves": curves}) + "\n")


if __name__ == "__main__":
    main()
