"""Memory operations against a per-row Python loop, in turns in one run: add, sample, pin.

    python benchmarks/memory.py [--quick] [--out FILE.md]

The loop is the reservoir as it is usually written: preallocated tensors, one draw and one assignment per row. Rows are
CIFAR-like: uint8 images [3, 32, 32], a label, ten logits. Memories are full and pins are a task's (2 classes × k).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from odedm import Field, Rows
from odedm.memory.reservoir import ReservoirMemory

FIELDS = [Field("image", (3, 32, 32), torch.uint8), Field("label", dtype=torch.int64), Field("logits", (10,))]
BATCH, PINS = 32, 12


def rows(n: int) -> Rows:
    """A batch like those of a stream."""
    return {
        "image": torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8),
        "label": torch.randint(0, 10, (n,)),
        "logits": torch.randn(n, 10),
    }


class Loop:
    """The reservoir row by row, with pins taking the place of random short-term rows."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.seen, self.filled = capacity, 0, 0
        self.columns = {f.name: torch.zeros((capacity, *f.shape), dtype=f.dtype) for f in FIELDS}
        self.pinned: set[int] = set()
        self.short = list(range(capacity))

    def add(self, batch: Rows) -> None:
        """Classic reservoir sampling."""
        for i in range(len(batch["label"])):
            if self.filled < self.capacity:
                slot = self.filled
                self.filled += 1
            else:
                draw = random.randint(0, self.seen)
                slot = self.short[draw] if draw < len(self.short) else -1
            self.seen += 1
            if slot >= 0:
                for name, column in self.columns.items():
                    column[slot] = batch[name][i]

    def sample(self, n: int) -> Rows:
        """Rows one by one, stacked."""
        chosen = random.sample(range(self.filled), n)
        return {name: torch.stack([column[i] for i in chosen]) for name, column in self.columns.items()}

    def pin(self, batch: Rows) -> None:
        """Overwrite random short-term rows for good."""
        for i in range(len(batch["label"])):
            slot = self.short.pop(random.randrange(len(self.short)))
            self.pinned.add(slot)
            for name, column in self.columns.items():
                column[slot] = batch[name][i]


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median microseconds of both, called alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, spent in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            function()
            spent.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times[0]), statistics.median(times[1])


def filled(capacity: int, rng: torch.Generator) -> tuple[ReservoirMemory, Loop]:
    """Both memories, full."""
    memory, loop, stream = ReservoirMemory(capacity, FIELDS), Loop(capacity), rows(capacity)
    memory.see(stream, rng=rng)
    loop.add(stream)
    return memory, loop


def measure(capacity: int, rounds: int) -> list[str]:
    """The table's lines for one capacity."""
    rng = torch.Generator().manual_seed(0)
    batch, pins = rows(BATCH), {**rows(PINS), "prototype": torch.arange(PINS)}
    young, old = filled(capacity, rng), filled(capacity, rng)
    for _ in range(1000):  # a stream well past the capacity: most newcomers are turned away
        old[0].see(batch, rng=rng)
        old[1].add(batch)
    fresh = [filled(capacity, rng) for _ in range(10)]
    pinning = iter([pair for pair in fresh for _ in range(2)])
    cases: list[tuple[str, Callable[[], object], Callable[[], object], int]] = [
        ("add, early (most rows enter)", lambda: young[0].see(batch, rng=rng), lambda: young[1].add(batch), 10),
        ("add, late (few rows enter)", lambda: old[0].see(batch, rng=rng), lambda: old[1].add(batch), rounds),
        ("sample 32", lambda: old[0].sample(BATCH, rng=rng), lambda: old[1].sample(BATCH), rounds),
        (f"pin {PINS}", lambda: next(pinning)[0].pin(pins), lambda: next(pinning)[1].pin(pins), len(fresh)),
    ]
    lines = []
    for name, ours, theirs, times in cases:
        a, b = in_turns(ours, theirs, times)
        lines.append(f"| {capacity} | {name} | {a:.0f} | {b:.0f} | {b / a:.1f} × |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, help="write the table to this file, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["| λ | operation | odedm, µs | row loop, µs | ratio |", "|---|---|---|---|---|"]
    for capacity in (200, 5120):
        lines += measure(capacity, 20 if options.quick else 500)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
