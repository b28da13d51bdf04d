"""Where the time of a run goes: steps, task ends, tests and consolidations, kernel by kernel.

    python benchmarks/profile_methods.py [--device cuda] [--only er,refresh] [--steps 150] [--tasks 3] [--net resnet18]
                                         [--prototypes 6,160] [--top 8]

Rows are random and CIFAR-10-shaped, batch 32, memory 200; `--steps` are those of a task. Each method runs twice with
its native memory: once undisturbed, which gives the seconds of each phase, milliseconds a step and how many steps were
captured; then with torch's profiler over a few steps of task 2, and over what follows it. A line of the profile says
how many kernels there were, how long the device was busy, and what the host asked of the driver; the profiler slows the
host down, so shares are those of the profiled time. Consolidation is of 2 × 5000 synthetic features, DAC (3, 4).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from odedm import Experiment, Native, Run, from_arrays
from odedm.core.accel.streams import own_stream
from odedm.core.timer import Timer
from odedm.selection.selector import PrototypeSelector
from odedm.training.numerics import deterministic_numerics, settle

METHODS = ("er", "fdr", "icarl", "refresh", "puridiver")
CAPACITY, BATCH, ROWS = 200, 32, 5000
LOOKED_AT = 1
"""The task that is profiled: the second, when there is something to replay."""
WINDOW = 20
"""Steps that are profiled."""
CALLS = ("Launch", "Memcpy", "Synchronize", "Memset")


def features(n: int, d: int, seed: int) -> torch.Tensor:
    """Made-up penultimate features [n, d] of one class: twelve modes in 48 latent dimensions, through a ReLU."""
    rng = torch.Generator().manual_seed(seed)
    mix = torch.randn(48, d, generator=rng) / 48**0.5
    mode = 1.5 * torch.randn(12, 48, generator=rng)
    latent = mode[torch.randint(12, (n,), generator=rng)] + torch.randn(n, 48, generator=rng)
    return (latent @ mix + 0.3 * torch.randn(n, d, generator=rng) + 0.5).relu()


class Looking:
    """Profiles blocks of code and prints a line and the largest kernels of each."""

    def __init__(self, device: torch.device, top: int) -> None:
        self.device, self.top, self.settle = device, top, settle(device)
        self.began, self.profile = 0.0, None

    def start(self) -> None:
        """From here on."""
        self.settle()
        on_gpu = self.device.type == "cuda"
        self.profile: Any = profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU])
        self.profile.__enter__()
        self.began = time.perf_counter()

    def stop(self, name: str, per: int = 1) -> None:
        """Up to here; figures are divided by `per`."""
        self.settle()
        wall = time.perf_counter() - self.began
        self.profile.__exit__(None, None, None)
        events, self.profile = self.profile.events(), None
        kind = DeviceType.CUDA if self.device.type == "cuda" else DeviceType.CPU
        kernels = [each for each in events if each.device_type == kind]
        calls = Counter(each.name for each in events if each.device_type != kind and any(c in each.name for c in CALLS))
        busy = covered([(each.time_range.start, each.time_range.end) for each in kernels])
        asked = ", ".join(f"{call} {count / per:.1f}" for call, count in calls.most_common(5))
        print(
            f"  {name}: {len(kernels) / per:.0f} kernels, busy {busy / 1e3 / per:.2f} of {wall * 1e3 / per:.2f} ms "
            f"({busy / wall / 1e4:.0f} %); {asked}"
        )
        spent: Counter[str] = Counter()
        times: Counter[str] = Counter()
        for each in kernels:
            spent[each.name] += each.time_range.end - each.time_range.start
            times[each.name] += 1
        for kernel, took in spent.most_common(self.top):
            print(f"    {took / 1e3 / per:9.3f} ms {times[kernel] / per:8.1f} ×  {kernel[:110]}")

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """The block under its name."""
        self.start()
        try:
            yield
        finally:
            self.stop(name)


def covered(spans: list[tuple[float, float]]) -> float:
    """How much of the time line some spans cover together."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class LookingTimer(Timer):
    """A stopwatch that also profiles its phases, where `wanted` of them are not inside another one."""

    def __init__(self, looking: Looking) -> None:
        super().__init__(looking.settle)
        self.looking, self.wanted = looking, False

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count and profile the block."""
        if not self.wanted or self._running or phase == "train":
            with super().__call__(phase):
                yield
            return
        with super().__call__(phase), self.looking(phase):
            yield


class Marks:
    """A run's callback: notes when steps were launched, and profiles some of them."""

    def __init__(self, looking: Looking | None = None, first: int = 0) -> None:
        self.looking, self.first, self.at = looking, first, {}

    def after_step(self, run: Run) -> None:
        """A step was launched."""
        task = run.progress.task
        marks: list[float] = self.at.setdefault(task, [])
        marks.append(time.perf_counter())
        if self.looking is None or task != LOOKED_AT:
            return
        run.timer.wanted = True  # type: ignore[attr-defined]
        if len(marks) == self.first:
            self.looking.start()
        elif len(marks) == self.first + WINDOW:
            self.looking.stop("a step", WINDOW)

    def after_task(self, run: Run) -> None:
        """A task is over."""
        if self.looking is not None:
            run.timer.wanted = False  # type: ignore[attr-defined]

    def ms(self) -> float:
        """Milliseconds between two batches in the second half of tasks after the first."""
        later = [marks for task, marks in self.at.items() if task]
        return 1e3 * statistics.median(
            (marks[-2] - marks[len(marks) // 2]) / (len(marks) - 2 - len(marks) // 2) for marks in later
        )


def random_data(steps: int, tasks: int) -> Any:
    """Rows for so many batches a task, two classes each, and 2000 test rows a task, as in Split-CIFAR10."""
    rng, classes = np.random.default_rng(0), 2 * tasks
    rows = steps * BATCH // 2
    x = rng.integers(0, 256, (rows * classes, 3, 32, 32), dtype=np.uint8)
    tests = rng.integers(0, 256, (1000 * classes, 3, 32, 32), dtype=np.uint8)
    y, known = np.arange(classes).repeat(rows), np.arange(classes).repeat(1000)
    return from_arrays(x, y, tasks=tasks, test=(tests, known), pad=4, flip=True, name="random")


def look_at_method(name: str, data: Any, device: str, net: str, steps: int, top: int) -> None:
    """One method: its seconds, then its kernels."""
    plan = Experiment(Native(CAPACITY), method=name, data="random", net=net, batch=BATCH, device=device)
    marks = Marks()
    began = time.perf_counter()
    result = Run(plan, data, callbacks=[marks]).finish().result
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items())
    done = result.provenance["steps"]
    print(
        f"\n{name}: {marks.ms():.2f} ms a step; {done['captured']} captured, {done['eager']} eager; "
        f"{time.perf_counter() - began:.2f} s: {phases}",
        flush=True,
    )
    looking = Looking(torch.device(device), top)
    run = Run(plan, data, callbacks=[Marks(looking, first=steps // 2)])
    run.timer = LookingTimer(looking)
    run.finish()


def look_at_consolidation(k: int, device: torch.device, top: int) -> None:
    """One task's consolidation: seconds of its phases, then its kernels."""

    class Given:
        """A probe whose network is the identity."""

        def embed(self, image: torch.Tensor) -> torch.Tensor:
            return image

        def annotate(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            del rows
            return {}

    x = torch.cat([features(ROWS, 512, each) for each in range(2)]).to(device)
    rows = {"image": x, "label": torch.arange(2, device=device).repeat_interleave(ROWS)}

    def work(timer: Timer) -> None:
        PrototypeSelector(k)(rows, range(2), Given(), rng=torch.Generator().manual_seed(0), timer=timer)

    with deterministic_numerics(1, "bf16" if device.type == "cuda" else "fp32"), own_stream(device):
        timers = [Timer(settle(device)) for _ in range(5)]
        for timer in timers:
            work(timer)
        later = timers[2:]
        phases = ", ".join(
            f"{phase} {statistics.median(each.seconds[phase] for each in later):.4f}" for phase in later[0].seconds
        )
        print(f"\nconsolidation, k = {k}, median of three, s: {phases}", flush=True)
        looking = LookingTimer(Looking(device, top))
        looking.wanted = True
        work(looking)


def main() -> None:
    """Look at methods, then at consolidation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=",".join(METHODS), help="methods, separated by commas; '' for none")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--steps", type=int, default=150, help="of a task (default 150)")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--prototypes", default="6,160", help="k of consolidations, separated by commas; '' for none")
    parser.add_argument("--top", type=int, default=8, help="kernels that are named (default 8)")
    given = parser.parse_args()
    device = torch.device(given.device)
    place = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{place}, torch {torch.__version__}, {given.net}, {given.tasks} tasks of {given.steps} steps")
    names = [name for name in given.only.split(",") if name]
    if names:
        data = random_data(given.steps, given.tasks)
        warm = Experiment(Native(CAPACITY), method="er", data="random", net=given.net, batch=BATCH, device=given.device)
        Run(warm, data).finish()  # the first run pays for libraries and caches
    for name in names:
        look_at_method(name, data, given.device, given.net, given.steps, given.top)
    for k in (int(each) for each in given.prototypes.split(",") if each):
        look_at_consolidation(k, device, given.top)


if __name__ == "__main__":
    main()
