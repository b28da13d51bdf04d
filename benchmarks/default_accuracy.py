"""Final accuracy with ODEDM by default on fashion-mini: four methods, thirty seeds; one version against another.

    python benchmarks/default_accuracy.py --src OLD/src --out old.json
    python benchmarks/default_accuracy.py --out new.json
    python benchmarks/default_accuracy.py --compare old.json new.json

The change is the mean over methods and seeds of paired differences in points. Its 90 % interval is Student's over the
seeds, of the mean of a seed's four methods.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
METHODS = ("der", "derpp", "er", "icarl")
SEEDS, CAPACITY, DATA = 30, 200, "fashion-mini"
QUANTILE = 1.699
"""Student's, 95 % on one side, for 29 degrees of freedom."""


def train_all(out: Path) -> None:
    """Write the final class-incremental accuracy in percent by method, in the order of seeds."""
    from odedm import ODEDM, train

    accuracy: dict[str, list[float]] = {}
    for method in METHODS:
        for seed in range(SEEDS):
            result = train(DATA, method=method, memory=ODEDM(CAPACITY), seed=seed).result
            accuracy.setdefault(method, []).append(round(float(result.acc_last), 4))
        out.write_text(json.dumps(accuracy, indent=1) + "\n", encoding="utf-8")


def compare(before: dict[str, list[float]], after: dict[str, list[float]]) -> dict[str, object]:
    """Return the mean change in points with its 90 % interval, and the mean change of each method."""
    changes = {method: [b - a for a, b in zip(before[method], after[method], strict=True)] for method in METHODS}
    by_seed = [statistics.fmean(column) for column in zip(*changes.values(), strict=True)]
    mean, half = statistics.fmean(by_seed), QUANTILE * statistics.stdev(by_seed) / len(by_seed) ** 0.5
    return {
        "change": round(mean, 2),
        "interval_90": [round(mean - half, 2), round(mean + half, 2)],
        "by_method": {method: round(statistics.fmean(change), 2) for method, change in changes.items()},
    }


def main() -> None:
    """Train, or compare two files."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--src", type=Path, default=HERE, help="the source folder of the version to train with")
    options.add_argument("--out", type=Path)
    options.add_argument("--compare", type=Path, nargs=2)
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.compare:
        print(json.dumps(compare(*(json.loads(path.read_text()) for path in given.compare)), indent=1))
    elif given.out is None:
        options.error("give --out FILE to train, or --compare OLD NEW.")
    elif given.inside:
        train_all(given.out)
    else:
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--inside", "--out", str(given.out.resolve())]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(given.src.resolve())}, check=True)


if __name__ == "__main__":
    main()
