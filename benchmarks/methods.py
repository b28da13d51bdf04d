"""Every method with its own memory and with ODEDM: accuracy on fashion-mini, and what a step costs against ER.

    python benchmarks/methods.py accuracy [--seeds 5] [--only er,der] [--out docs/methods/README.md]
    python benchmarks/methods.py cost [--device cuda] [--net resnet18] [--steps 200] [--only er,der] [--out FILE.json]

`accuracy` runs λ = 100 rows, ρ = 25 %, batch 10, each method at its default hyper-parameters. `cost` trains on random
CIFAR-10-shaped rows, 5 tasks, batch 32, memory 200, and divides the seconds of training (memory writes included,
evaluation and task ends not) by the number of steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from odedm import ODEDM, Experiment, Native, NoMemory, Run, from_arrays
from odedm.cli.progress_display import ProgressDisplay
from odedm.core.registry import METHODS
from odedm.execute.backend import ExecutionConfig
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.scheduler import run_jobs

CAPACITY, BATCH, TASKS, CLASSES = 200, 32, 5, 10


def accuracy(names: Sequence[str], seeds: int, out: Path | None, runs: Path) -> None:
    """ACC_5, Task-IL and forgetting of every method with its native memory and with ODEDM; of bounds with none."""
    from odedm.report.load import load
    from odedm.report.summary import summarise
    from odedm.report.tables import to_markdown

    plans = [
        Experiment(memory, method=name, data="fashion-mini", batch=10, seed=seed, device="cpu")
        for name in names
        for memory in (
            (NoMemory(),)
            if "no memory" in METHODS[name].load().requires
            else (Native(100), ODEDM(100, rho=0.25, replay="auxiliary"))
        )
        for seed in range(seeds)
    ]
    planned = plan_jobs(plans, run_dir_under(runs))
    todo = [job for job in planned.jobs if not (job.folder / "result.json").is_file()]
    with ProgressDisplay(Console(stderr=True), len(todo)) as board:
        run_jobs(todo, planned.data, ExecutionConfig(), [board])
    table = to_markdown(summarise(load([job.folder for job in planned.jobs])))
    print(table)
    if out:
        out.write_text(table)


def cost(names: Sequence[str], device: str, net: str, steps: int, out: Path | None) -> None:
    """Milliseconds per step of every method, one after the other in one run, relative to ER."""
    rng = np.random.default_rng(0)
    rows = steps * BATCH // CLASSES
    x = rng.integers(0, 256, (rows * CLASSES, 3, 32, 32), dtype=np.uint8)
    y = np.arange(CLASSES).repeat(rows)
    data = from_arrays(x, y, tasks=TASKS, test=(x[:: rows // 2], y[:: rows // 2]), pad=4, flip=True, name="random")
    measured: dict[str, dict[str, float]] = {}
    _seconds("er", "native", data, device, net)  # the first run pays for libraries and caches
    for name in names:
        measured[name] = {}
        for memory in ("native", "odedm"):
            train, total = _seconds(name, memory, data, device, net)
            measured[name] |= {f"{memory}_ms": 1000 * train / steps, f"{memory}_total_s": total}
        print(name, {key: round(value, 2) for key, value in measured[name].items()}, flush=True)
    base = measured.get("er", next(iter(measured.values())))["native_ms"]
    print("| method | native, ms a step | against ER | ODEDM, ms a step | against ER |\n|---|---|---|---|---|")
    for name, row in measured.items():
        a, b = row["native_ms"], row["odedm_ms"]
        print(f"| {name} | {a:.2f} | {a / base:.2f} × | {b:.2f} | {b / base:.2f} × |")
    if out:
        place = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        out.write_text(json.dumps({"device": place, "net": net, "steps": steps, "ms": measured}, indent=1) + "\n")


def _seconds(name: str, memory: str, data: object, device: str, net: str) -> tuple[float, float]:
    plan = Native(CAPACITY) if memory == "native" else ODEDM(CAPACITY, rho=0.25, replay="auxiliary")
    experiment = Experiment(plan, method=name, data="random", net=net, batch=BATCH, device=device)
    start = time.perf_counter()
    result = Run(experiment, data).finish().result  # type: ignore[arg-type]
    return result.seconds["train"], time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "cost"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default=",".join(METHODS), help="methods, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = options.only.split(",")
    if options.what == "accuracy":
        accuracy(names, options.seeds, options.out, options.runs)
    else:
        cost(names, options.device, options.net, options.steps, options.out)


if __name__ == "__main__":
    main()
