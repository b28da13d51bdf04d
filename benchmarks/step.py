"""What a training step costs: the library's ways to run it, every method, several runs at once, floor and ceiling.

    python benchmarks/step.py [--parts bare,ways,methods,lanes,hand] [--device cuda] [--net resnet18] [--steps 150]
                              [--only er,derpp] [--out FILE.json] [--plot FILE.png]

Rows are random and CIFAR-10-shaped, 5 tasks, batch 32, memory 200. A figure is the wall time between two batches in the
second half of every task but the first, median over tasks, so recording and first eager steps are not in it; their cost
is in `overhead_s`, the training time beyond steps × ms. `bare` is DER++'s arithmetic alone as one would write it in
PyTorch, no memory, no augmentation: eager (the floor of a hand-written loop), recorded as a graph, and the same images
in batches 16 times as large (the ceiling of the card). `hand` is a whole hand-written DER++ loop on a processor, with
augmentation and a reservoir row by row, against the library's run of the same steps, in turns: the library's overhead.
All in one process.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from by_hand import by_hand
from torch.nn import functional as F

from odedm import ODEDM, Experiment, Native, Reservoir, Run, from_arrays
from odedm.core.registry import METHODS
from odedm.nets import base, grouped_batch_norm
from odedm.nets.build import build
from odedm.results.provenance import commit, processor
from odedm.training.numerics import deterministic_numerics

CAPACITY, BATCH, TASKS, CLASSES = 200, 32, 5, 10


def random_data(steps: int, tasks: int = TASKS, classes: int = CLASSES) -> Any:
    """Rows for `steps` batches a task."""
    rng = np.random.default_rng(0)
    rows = steps * BATCH * tasks // classes
    x = rng.integers(0, 256, (rows * classes, 3, 32, 32), dtype=np.uint8)
    y = np.arange(classes).repeat(rows)
    return from_arrays(x, y, tasks=tasks, test=(x[::rows], y[::rows]), pad=4, flip=True, name="random")


class Watch:
    """When the host had launched how many batches of each task; a GPU is a few steps behind at most."""

    def __init__(self) -> None:
        self.marks: dict[int, list[float]] = {}

    def __call__(self, task: int, _done: int, _total: int) -> None:
        """A batch was launched."""
        self.marks.setdefault(task, []).append(time.perf_counter())

    def ms(self) -> float:
        """Milliseconds between two batches, in the second halves of the tasks after the first."""
        later = [marks for task, marks in self.marks.items() if task or len(self.marks) == 1]
        rates = [(marks[-2] - marks[len(marks) // 2]) / (len(marks) - 2 - len(marks) // 2) for marks in later]
        return 1e3 * statistics.median(rates)


def measure(plan: Experiment, data: Any, prepare: Callable[[Run], None] = lambda _: None) -> dict[str, Any]:
    """One run: its milliseconds a step, and the rest of its training time."""
    fresh_memory()
    watch, run = Watch(), Run(plan, data)
    prepare(run)
    outcome = run.finish(watch)
    steps = sum(map(len, watch.marks.values()))
    ms, train = watch.ms(), outcome.result.seconds["train"]
    return {
        "ms": ms,
        "train_s": train,
        "overhead_s": train - steps * ms / 1e3,
        "steps": run.stepper.eager + run.stepper.captured,
        "captured": run.stepper.captured,
        "peak_mb": torch.cuda.max_memory_allocated() / 2**20 if run.device.type == "cuda" else None,
    }


def fresh_memory() -> None:
    """Let go of what earlier runs held, and count the peak from here."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


@contextmanager
def separate(really: bool) -> Iterator[None]:
    """Three forwards as three calls, not as one."""
    before = base.joins
    base.joins = (lambda _: False) if really else before
    try:
        yield
    finally:
        base.joins = before


def compiled(run: Run) -> None:
    """Let torch compile the backbone; BatchNorm by group then is plain operations, which the compiler fuses."""
    grouped_batch_norm.GroupedBatchNorm._has_kernel = lambda *_: False
    run.method.net.backbone = torch.compile(run.method.net.backbone)  # type: ignore[method-assign]


WAYS = {
    "eager fp32, separate forwards": ({"cuda_graph": False, "precision": "fp32"}, True),
    "eager tf32, separate forwards": ({"cuda_graph": False, "precision": "tf32"}, True),
    "eager bf16, separate forwards": ({"cuda_graph": False, "precision": "bf16"}, True),
    "eager bf16, fused": ({"cuda_graph": False, "precision": "bf16"}, False),
    "captured tf32, separate forwards": ({"precision": "tf32"}, True),
    "captured bf16, separate forwards": ({"precision": "bf16"}, True),
    "captured tf32, fused": ({"precision": "tf32"}, False),
    "captured bf16, fused": ({"precision": "bf16"}, False),
}


def ways(data: Any, net: str, device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """DER++ by every way to run its step; on a CPU there are two."""
    chosen = WAYS if device == "cuda" else {"fp32, separate forwards": ({}, True), "fp32, fused": ({}, False)}
    for name, (words, apart) in chosen.items():
        with separate(apart):
            if device == "cpu" and not apart:
                base.joins = lambda _: True
            yield name, measure(plan("derpp", Reservoir(CAPACITY), net, device, **words), data)
    if device == "cuda":
        kernel = grouped_batch_norm.GroupedBatchNorm._has_kernel
        start = time.perf_counter()
        try:
            result = measure(plan("derpp", Reservoir(CAPACITY), net, device), data, compiled)
        finally:
            grouped_batch_norm.GroupedBatchNorm._has_kernel = kernel
        yield "captured bf16, fused, compiled", result | {"run_s": time.perf_counter() - start}


def methods(data: Any, net: str, device: str, only: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every method with its own memory and with ODEDM, by the default way."""
    for name in only:
        for memory in (Native(CAPACITY), ODEDM(CAPACITY, k=6, replay="auxiliary")):
            yield f"{name}, {memory.name}", measure(plan(name, memory, net, device), data)


def lanes(data: Any, net: str, device: str, amounts: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Several DER++ runs at once, each in a thread with a stream of its own; ms is per run-step."""
    for amount in amounts:
        fresh_memory()
        runs = [Run(plan("derpp", Reservoir(CAPACITY), net, device, seed=seed), data) for seed in range(amount)]
        watches = [Watch() for _ in runs]
        with deterministic_numerics(1, "bf16"):
            threads = [
                threading.Thread(target=run.finish, args=(watch,)) for run, watch in zip(runs, watches, strict=True)
            ]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - start
        # the rate while all of them train: from the middle of the slowest one's second task to the end of the first one
        marks = [sorted(each for task in watch.marks.values() for each in task) for watch in watches]
        low = max(watch.marks[1][len(watch.marks[1]) // 2] for watch in watches)
        high = min(each[-1] for each in marks)
        inside = sum(low < each <= high for lane in marks for each in lane)
        yield (
            f"{amount} lanes",
            {
                "ms": 1e3 * (high - low) / inside if inside else float("nan"),
                "wall_ms": 1e3 * seconds / sum(map(len, marks)),
                "wall_s": seconds,
                "peak_mb": torch.cuda.max_memory_allocated() / 2**20,
            },
        )
        del runs


def bare(net_name: str, device: str, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """DER++'s arithmetic on fixed tensors."""
    x, y = torch.randn(BATCH, 3, 32, 32, device=device), torch.randint(CLASSES, (BATCH,), device=device)

    def loop(factor: int, *, fused: bool, dtype: torch.dtype | None) -> Callable[[], None]:
        net = build(net_name, (3, 32, 32), CLASSES, seed=0).to(device)
        if device == "cuda":
            net = net.to(memory_format=torch.channels_last)
        net.compute = dtype
        optimizer = torch.optim.SGD(net.parameters(), lr=0.03, fused=True)
        many, label = x.repeat(factor, 1, 1, 1), y.repeat(factor)
        logits = torch.randn(len(label), CLASSES, device=device)

        def step() -> None:
            views = net.forward_batches(many, many, many) if fused else [net(many), net(many), net(many)]
            loss = F.cross_entropy(views[0], label) + 0.1 * F.mse_loss(views[1], logits)
            loss = loss + 0.5 * F.cross_entropy(views[2], label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    if device == "cpu":
        yield "bare loop, eager", {"ms": timed(loop(1, fused=False, dtype=None), steps)}
        return
    bf16 = torch.bfloat16
    yield "bare loop, eager tf32", {"ms": timed(loop(1, fused=False, dtype=None), steps)}
    yield "bare loop, eager bf16", {"ms": timed(loop(1, fused=False, dtype=bf16), steps)}
    yield "bare step, recorded, bf16, fused", {"ms": timed(recorded(loop(1, fused=True, dtype=bf16)), steps)}
    yield "16 times the batch, per 96 images", {"ms": timed(loop(16, fused=True, dtype=bf16), steps // 4) / 16}


def hand(data: Any, net_name: str, rounds: int = 5) -> Iterator[tuple[str, dict[str, Any]]]:
    """The library and a loop by hand, a whole stream each in turns; the median of the ratios is the overhead."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measure(plan("derpp", Reservoir(CAPACITY), net_name, "cpu"), data)["train_s"])
        theirs.append(by_hand(data, net_name, tasks=TASKS, capacity=CAPACITY, size=BATCH))
    steps = len(data.image) / BATCH
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    yield "by hand", {"ms": 1e3 * statistics.median(theirs) / steps}
    yield "the library", {"ms": 1e3 * statistics.median(ours) / steps, "median_ratio": ratio}


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """A step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with deterministic_numerics(1, "tf32"), torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with deterministic_numerics(1, "tf32"), torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(step: Callable[[], None], steps: int) -> float:
    """Milliseconds a call."""

    def settle() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    with deterministic_numerics(1, "tf32"):
        for _ in range(5):
            step()
        settle()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        settle()
    return 1e3 * (time.perf_counter() - start) / steps


def plan(method: str, memory: Any, net: str, device: str, **words: Any) -> Experiment:
    """A run on random rows."""
    return Experiment(memory, method=method, data="random", net=net, device=device, **{"batch": BATCH, **words})


def table(rows: dict[str, dict[str, Any]], beside: str) -> str:
    """Markdown: every figure with its ratio to one of them."""
    unit = rows[beside]["ms"] if beside in rows else next(iter(rows.values()))["ms"]
    lines = ["| | ms a step | ratio | recorded steps | peak MB |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        share = f"{row['captured']} of {row['steps']}" if "captured" in row else ""
        peak = f"{row['peak_mb']:.0f}" if row.get("peak_mb") else ""
        lines.append(f"| {name} | {row['ms']:.2f} | {row['ms'] / unit:.2f} | {share} | {peak} |")
    return "\n".join(lines)


def plot(parts: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """One panel a part, bars of milliseconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    sizes = [max(2, len(rows)) for rows in parts.values()]
    figure, axes = pyplot.subplots(
        len(parts), figsize=(9, 0.32 * sum(sizes) + 1.1 * len(parts)), height_ratios=sizes, squeeze=False
    )
    for axis, (part, rows) in zip(axes[:, 0], parts.items(), strict=True):
        names, values = list(rows), [row["ms"] for row in rows.values()]
        bars = axis.barh(names[::-1], values[::-1], color="#0072B2")
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axis.set_title(part, loc="left", fontsize=10)
        axis.set_xlabel("ms a step" + (" and run" if part == "lanes" else ""))
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


Maker = Callable[[], Iterator[tuple[str, dict[str, Any]]]]
"""Measures one part: names and what was found, one after the other."""


def collect(makers: dict[str, Maker], given: argparse.Namespace) -> dict[str, dict[str, dict[str, Any]]]:
    """Measure every part; what is there so far is printed, and written where that was asked for."""
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    hardware = torch.cuda.get_device_name() if given.device == "cuda" else processor()
    about = {"hardware": hardware, "torch": torch.__version__, "commit": commit(), "net": given.net}
    for part, maker in makers.items():
        parts[part] = {}
        for name, row in maker():
            parts[part][name] = row
            print(f"{part}: {name}: {row['ms']:.2f} ms", flush=True)
            if given.out:
                given.out.write_text(json.dumps(about | {"steps": given.steps, "parts": parts}, indent=1) + "\n")
    return parts


def main() -> None:
    """Measure the parts asked for, print tables, write what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", default="bare,ways,methods,lanes")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--net", default="resnet18")
    options.add_argument("--steps", type=int, default=150, help="batches a task")
    options.add_argument("--only", default=",".join(METHODS))
    options.add_argument("--amounts", default="1,2,4,8,16", help="numbers of lanes")
    options.add_argument("--out", type=Path)
    options.add_argument("--plot", type=Path)
    given = options.parse_args()
    data = random_data(given.steps)
    makers: dict[str, Maker] = {
        "hand": lambda: hand(data, given.net),
        "bare": lambda: bare(given.net, given.device, given.steps),
        "ways": lambda: ways(data, given.net, given.device),
        "methods": lambda: methods(data, given.net, given.device, given.only.split(",")),
        "lanes": lambda: lanes(data, given.net, given.device, [int(each) for each in given.amounts.split(",")]),
    }
    wished = given.parts.split(",")
    if given.device == "cpu":  # there lanes are processes: benchmarks/methods.py and the demo show them
        wished = [part for part in wished if part != "lanes"]
    parts = collect({part: makers[part] for part in wished}, given)
    for part, rows in parts.items():
        print(f"\n{part}\n\n{table(rows, 'er, native')}")
    if given.plot:
        plot(parts, given.plot)


if __name__ == "__main__":
    main()
