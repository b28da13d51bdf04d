"""Do two ways of computing the same runs end in the same accuracy? Paired by seed.

    odedm run --data cifar10 --method derpp --capacity 200 --memory reservoir --seeds 16 --out A
    odedm run … --set training.precision=fp32 --out B          (or --set training.cuda_graph=false: the same numbers)
    python benchmarks/precision.py A B

Prints means, the mean difference A − B with its standard error, and how many runs are equal to the last digit.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

from odedm.results.folder import FILE, find_runs
from odedm.results.result import Result

FIGURES: dict[str, Callable[[Result], float]] = {
    "ACC after the last task": lambda result: result.acc_last,
    "Task-IL": lambda result: result.task_il_last,
    "forgetting": lambda result: result.forgetting,
    "mean ACC": lambda result: result.acc_mean,
}


def by_seed(folder: Path) -> dict[int, Result]:
    """The results below a folder; one experiment, many seeds."""
    found = [Result.load(each / FILE) for each in find_runs([folder])]
    return {int(result.experiment["seed"]): result for result in found}


def row(name: str, pairs: list[tuple[float, float]]) -> str:
    """A line of the table."""
    differences = [a - b for a, b in pairs]
    error = statistics.stdev(differences) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
    left, right = (statistics.mean(side) for side in zip(*pairs, strict=True))
    return f"| {name} | {left:.1f} | {right:.1f} | {statistics.mean(differences):+.1f} ± {error:.1f} |"


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("a", type=Path)
    options.add_argument("b", type=Path)
    given = options.parse_args()
    one, other = by_seed(given.a), by_seed(given.b)
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        raise SystemExit(f"'{given.a}' and '{given.b}' have no seed in common.")
    print(f"| {len(seeds)} seeds | {given.a.name} | {given.b.name} | difference ± standard error |\n|---|---|---|---|")
    for name, figure in FIGURES.items():
        print(row(name, [(figure(one[seed]), figure(other[seed])) for seed in seeds]))
    for task in range(len(one[seeds[0]].acc)):
        print(row(f"ACC after task {task + 1}", [(one[seed].acc[task], other[seed].acc[task]) for seed in seeds]))
    print(f"\nequal: {sum(one[seed].class_il == other[seed].class_il for seed in seeds)} of {len(seeds)}")


if __name__ == "__main__":
    main()
