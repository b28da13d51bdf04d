"""How a run's cost grows: a step with the memory's size λ and the number of classes and tasks, a task's end with k.

    python benchmarks/scale.py [--parts capacity,classes,tasks,k] [--device cuda] [--net resnet18] [--steps 100]
                               [--out FILE.json] [--plot FILE.png]

DER++ on random CIFAR-10-shaped rows, batch 32, measured as in step.py: wall time between two batches in the second half
of every task but the first. `head` is the time of the arithmetic that more classes cannot do without: the linear layer
forward and backward, the losses and the update of its weights, recorded as a graph by itself. `k` has 5000 rows in each
of a task's two classes and shows the seconds of one task's end by phase.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from step import BATCH, collect, measure, plan, random_data, recorded, timed
from torch import nn
from torch.nn import functional as F

from odedm import ODEDM, Prototypes, Reservoir, Run

PHASES = ("embed", "reduce", "centre", "select")


def capacity(net: str, device: str, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """λ from a handful of rows a class to more than the stream has."""
    data = random_data(steps)
    for rows in (200, 1000, 5120, 20_000, 50_000):
        yield f"λ = {rows}", measure(plan("derpp", Reservoir(rows), net, device), data)
    for rows in (200, 5120, 50_000):
        yield f"λ = {rows}, odedm", measure(plan("derpp", ODEDM(rows, k=6, replay="auxiliary"), net, device), data)


def classes(net: str, device: str, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """10 to 1000 outputs, and what the head's own arithmetic costs."""
    for amount in (10, 100, 1000):
        data = random_data(max(steps, 2 * amount // BATCH), classes=amount)
        result = measure(plan("derpp", Reservoir(200), net, device), data)
        yield f"{amount} classes", result | {"head_ms": head(amount, device, steps)}


def tasks(net: str, device: str, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Many tasks, at the same number of classes."""
    for amount in (5, 20, 50):
        data = random_data(max(100, steps), tasks=amount, classes=100)
        yield f"{amount} tasks", measure(plan("derpp", ODEDM(1000, k=2, replay="auxiliary"), net, device), data)


def consolidation(net: str, device: str, _steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Seconds at a task's end, 2 × 5000 rows, with and without divide and conquer."""
    data = random_data(313)
    for k, dac in ((6, (3, 4)), (160, (3, 4)), (480, (3, 4)), (6, None), (160, None)):
        outcome = Run(
            plan("derpp", ODEDM(5120, k=k, selection=Prototypes(dac=dac), replay="auxiliary"), net, device, batch=64),
            data,
        ).finish()
        seconds = outcome.result.seconds
        ends = len(outcome.result.acc) - 1
        row = {phase: seconds.get(phase, 0.0) / ends for phase in PHASES}
        yield f"k = {k}, {'DAC' if dac else 'no DAC'}", row | {"ms": 1e3 * sum(row.values())}


def head(amount: int, device: str, steps: int) -> float:
    """Milliseconds of a linear layer of 512 features, three losses on 96 rows and its update."""
    layer = nn.Linear(512, amount, device=device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.03, fused=True)
    x = torch.randn(3 * BATCH, 512, device=device, requires_grad=True)
    y, z = torch.randint(amount, (BATCH,), device=device), torch.randn(BATCH, amount, device=device)

    def step() -> None:
        one, two, three = layer(x).split(BATCH)
        loss = F.cross_entropy(one, y) + 0.1 * F.mse_loss(two, z) + 0.5 * F.cross_entropy(three, y)
        optimizer.zero_grad()
        x.grad = None
        loss.backward()
        optimizer.step()

    return timed(recorded(step) if device == "cuda" else step, steps)


def table(part: str, rows: dict[str, dict[str, Any]]) -> str:
    """Markdown: each figure with its ratio to the first."""
    if part == "k":
        lines = [f"| | {' | '.join(PHASES)} | s in all |", "|---" * (len(PHASES) + 2) + "|"]
        for name, row in rows.items():
            lines.append(f"| {name} | {' | '.join(f'{row[phase]:.3f}' for phase in PHASES)} | {row['ms'] / 1e3:.3f} |")
        return "\n".join(lines)
    first = next(iter(rows.values()))["ms"]
    lines = ["| | ms a step | ratio | of it the head | peak MB |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        own = f"{row['head_ms']:.3f}" if "head_ms" in row else ""
        peak = f"{row['peak_mb']:.0f}" if row.get("peak_mb") else ""
        lines.append(f"| {name} | {row['ms']:.2f} | {row['ms'] / first:.2f} | {own} | {peak} |")
    return "\n".join(lines)


def plot(parts: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """One panel a part."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(parts), figsize=(3.6 * len(parts), 3.4), squeeze=False)
    for axis, (part, rows) in zip(axes[0], parts.items(), strict=True):
        bars = axis.bar(list(rows), [row["ms"] for row in rows.values()], color="#0072B2")
        axis.bar_label(bars, fmt="%.3g", fontsize=7)
        axis.set_title(part, loc="left", fontsize=10)
        axis.set_ylabel("ms a task's end" if part == "k" else "ms a step")
        axis.tick_params(axis="x", rotation=45, labelsize=7)
        for label in axis.get_xticklabels():
            label.set_horizontalalignment("right")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


PARTS: dict[str, Callable[[str, str, int], Iterator[tuple[str, dict[str, Any]]]]] = {
    "capacity": capacity,
    "classes": classes,
    "tasks": tasks,
    "k": consolidation,
}


def main() -> None:
    """Measure the parts asked for, print tables, write what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", default=",".join(PARTS))
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--net", default="resnet18")
    options.add_argument("--steps", type=int, default=100, help="batches a task")
    options.add_argument("--out", type=Path)
    options.add_argument("--plot", type=Path)
    given = options.parse_args()
    makers = {part: partial(PARTS[part], given.net, given.device, given.steps) for part in given.parts.split(",")}
    parts = collect(makers, given)
    for part, rows in parts.items():
        print(f"\n{part}\n\n{table(part, rows)}")
    if given.plot:
        plot(parts, given.plot)


if __name__ == "__main__":
    main()
