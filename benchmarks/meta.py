"""Where the time of a step of VR-MCL and POCL goes on a GPU: milliseconds alone, kernels, the longest of them.

    python benchmarks/meta.py [--methods vrmcl,pocl] [--net resnet18] [--steps 40] [--precision auto]
                              [--set query_precision=bf16] [--top 15] [--memory native,odedm] [--out FILE.json]

Rows are random and CIFAR-10-shaped, 5 tasks, batch 32, memory 200, as in `benchmarks/step.py`. A figure is wall time
between two batches in the second half of a task, median over the tasks after the first. The arithmetic of a step is
counted by its formulas in forwards of one row (`benchmarks/arithmetic.py`); `per row` divides by it, in microseconds,
and `against ER` compares that with ER's at the same precision, whose step is the same arithmetic in one plain pass.
Kernels are those of some steps at the end of the last task, by torch's profiler.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from arithmetic import ROW_FORWARDS, Step
from step import BATCH, CAPACITY, TASKS, Watch, fresh_memory, random_data

from odedm import ODEDM, Experiment, Native, Run
from odedm.results.provenance import commit

PROFILED = 3
"""Steps under the profiler, which makes them slower: they are not part of the times."""


class Profiled(Watch):
    """Marks the batches, and profiles some at the end of the last task."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.time, self.calls = steps, Counter[str](), Counter[str]()
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def __call__(self, task: int, done: int, total: int) -> None:
        """A batch was launched."""
        super().__call__(task, done, total)
        batches = len(self.marks[task])
        if task < TASKS - 1:
            return
        if batches == self.steps - PROFILED:
            torch.cuda.synchronize()
            self.profiler.start()
        elif batches == self.steps:
            torch.cuda.synchronize()
            self.profiler.stop()
            self.marks[task] = self.marks[task][: -PROFILED - 1]
            for event in self.profiler.events():
                if event.device_type == torch.autograd.DeviceType.CUDA:
                    self.time[event.name] += event.self_device_time_total / PROFILED
                    self.calls[event.name] += 1


def measure(method: str, memory: Any, given: argparse.Namespace, data: Any) -> dict[str, Any]:
    """One run: its step's time, arithmetic and kernels."""
    fresh_memory()
    options = dict(each.split("=", 1) for each in given.set) if method != "er" else {}
    plan = Experiment(
        memory, method=method, data="random", net=given.net, device="cuda", batch=BATCH, options=options,
        precision=given.precision,
    )  # fmt: skip
    run, watch = Run(plan, data), Profiled(given.steps)
    run.finish(watch)
    plan = run.experiment
    long_term = (plan.draw or plan.batch) if memory.name == "odedm" else 0
    rows = ROW_FORWARDS[method](Step(plan.batch, plan.draw or plan.batch, CAPACITY, TASKS, plan.options, long_term))
    replayed = getattr(getattr(run.method, "verdict", None), "replayed", None)
    return {
        "ms": watch.ms(),
        "row_forwards": rows,
        "us_per_row": 1e3 * watch.ms() / rows,
        "precision": plan.precision,
        "captured": run.stepper.captured,
        "replayed_parts": replayed,
        "peak_mb": torch.cuda.max_memory_allocated() / 2**20,
        "kernels": sum(watch.calls.values()) / PROFILED,
        "kernel_ms": sum(watch.time.values()) / 1e3,
        "top": [
            {"kernel": name[:110], "us": spent, "calls": watch.calls[name] / PROFILED}
            for name, spent in watch.time.most_common(given.top)
        ],
    }


def main() -> None:
    """Measure, print, write."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--methods", default="vrmcl,pocl")
    words.add_argument("--memory", default="native")
    words.add_argument("--net", default="resnet18")
    words.add_argument("--steps", type=int, default=40, help="batches a task")
    words.add_argument("--precision", default="auto")
    words.add_argument("--set", action="append", default=[], help="hyper-parameter of the methods, name=value")
    words.add_argument("--top", type=int, default=15)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    data, found = random_data(given.steps), {}
    memories = {"native": Native(CAPACITY), "odedm": ODEDM(CAPACITY, k=6, replay="auxiliary")}
    for method in given.methods.split(","):
        for memory in given.memory.split(","):
            row = measure(method, memories[memory], given, data)
            same = argparse.Namespace(**{**vars(given), "precision": row["precision"]})
            plain = measure("er", memories[memory], same, data)
            row["against_er"] = row["us_per_row"] / plain["us_per_row"]
            found[f"{method}, {memory}"] = row
            print(
                f"\n{method}, {memory}: {row['ms']:.2f} ms ({row['precision']}), "
                f"{row['row_forwards']:.0f} row-forwards, "
                f"{row['us_per_row']:.2f} µs each, {row['against_er']:.2f} × ER's {plain['us_per_row']:.2f} "
                f"({plain['ms']:.2f} ms); {row['kernels']:.0f} kernels of {row['kernel_ms']:.2f} ms; captured "
                f"{row['captured']}, replayed parts {row['replayed_parts']}; {row['peak_mb']:.0f} MB",
                flush=True,
            )
            for each in row["top"]:
                print(f"  {each['us'] / 1e3:8.3f} ms {each['calls']:7.1f} × {each['kernel']}")
    if given.out:
        about = {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit()}
        given.out.write_text(json.dumps(about | {"net": given.net, "methods": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
