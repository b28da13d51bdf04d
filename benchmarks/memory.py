"""Memory operations against a per-row Python loop, in turns in one process, and how they grow with the memory.

    python benchmarks/memory.py [--quick] [--out FILE.md]

The loop is the reservoir as it is usually written: preallocated tensors, one draw and one assignment per row. Rows are
CIFAR-like: uint8 images [3, 32, 32], a label, ten logits. Memories are full and pins are a task's (2 classes × k).
Late means a stream of many times the capacity. A time is that of the processor, of one thread: the best of several
rounds of calls, by their mean in a round. For growth rows are small (64 bytes, a label, ten logits), up to a million
of them; a round includes whatever is done once in many calls.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from odedm import ColumnSpec, Rows
from odedm.memory.reservoir import ReservoirBuffer

LABEL, LOGITS = ColumnSpec("label", dtype=torch.int64), ColumnSpec("logits", (10,))
FIELDS = [ColumnSpec("image", (3, 32, 32), torch.uint8), LABEL, LOGITS]
SMALL = [ColumnSpec("image", (64,), torch.uint8), LABEL, LOGITS]
BATCH, PINS = 32, 12
CAPACITIES, GROWTH = (200, 5120), (200, 5120, 65_536, 100_000, 1_000_000)
CALLS = 50


def rows(n: int, fields: Sequence[ColumnSpec] = FIELDS) -> Rows:
    """Return a batch like those of a stream."""
    shape = fields[0].shape
    return {
        "image": torch.randint(0, 256, (n, *shape), dtype=torch.uint8),
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
        """Return rows one by one, stacked."""
        chosen = random.sample(range(self.filled), n)
        return {name: torch.stack([column[i] for i in chosen]) for name, column in self.columns.items()}

    def pin(self, batch: Rows) -> None:
        """Overwrite random short-term rows for good."""
        for i in range(len(batch["label"])):
            slot = self.short.pop(random.randrange(len(self.short)))
            self.pinned.add(slot)
            for name, column in self.columns.items():
                column[slot] = batch[name][i]


def in_turns(item: Sequence[Callable[[], object]], rounds: int, calls: int = CALLS) -> list[float]:
    """Return microseconds of a call: the best round of each, taken alternately."""
    best = [float("inf")] * len(item)
    for _ in range(rounds):
        for place, function in enumerate(item):
            start = time.process_time()
            for _ in range(calls):
                function()
            best[place] = min(best[place], 1e6 * (time.process_time() - start) / calls)
    return best


def filled(capacity: int, rng: torch.Generator) -> tuple[ReservoirBuffer, Loop]:
    """Both memories, full."""
    memory, loop, stream = ReservoirBuffer(capacity, FIELDS), Loop(capacity), rows(capacity)
    memory.add(stream, None, rng=rng)
    loop.add(stream)
    return memory, loop


def against_a_loop(capacity: int, rounds: int) -> list[dict[str, Any]]:
    """Return each operation of one capacity by us and by the loop."""
    rng = torch.Generator().manual_seed(0)
    batch, pins = rows(BATCH), {**rows(PINS), "prototype": torch.arange(PINS)}
    old = filled(capacity, rng)
    for _ in range(capacity * 6 // BATCH + 600):  # a stream well past the capacity: most newcomers are turned away
        old[0].add(batch, None, rng=rng)
        old[1].add(batch)
    young = [filled(capacity, rng) for _ in range(rounds)]
    first, other, ours, theirs = (iter(young) for _ in range(4))
    cases: list[tuple[str, Callable[[], object], Callable[[], object], int]] = [
        (
            "add, early (most rows enter)",
            lambda: next(first)[0].add(batch, None, rng=rng),
            lambda: next(other)[1].add(batch),
            1,
        ),
        ("add, late (few rows enter)", lambda: old[0].add(batch, None, rng=rng), lambda: old[1].add(batch), CALLS),
        (f"sample {BATCH}", lambda: old[0].sample(BATCH, rng=rng), lambda: old[1].sample(BATCH), CALLS),
        (f"pin {PINS}", lambda: next(ours)[0].pin(pins), lambda: next(theirs)[1].pin(pins), 1),
    ]
    figures = []
    for name, we, they, calls in cases:
        a, b = in_turns([we, they], rounds, calls)
        figures.append({"capacity": capacity, "operation": name, "ours": a, "loop": b, "ratio": b / a})
    return figures


def growth(capacities: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Return microseconds of `add` and `sample` in full memories of these sizes, in turns."""
    rng, batch, memories = torch.Generator().manual_seed(0), rows(BATCH, SMALL), []
    for capacity in capacities:
        memory = ReservoirBuffer(capacity, SMALL)
        memory.add(rows(capacity, SMALL), None, rng=rng)
        memory.num_seen.fill_(capacity)
        memory.store.priority.pow_(0.1)  # as after a stream of ten times the rows, so that a tenth of them enters
        memories.append(memory)
    add = in_turns([lambda m=m: m.add(batch, None, rng=rng) for m in memories], rounds)  # type: ignore[misc]
    sample = in_turns([lambda m=m: m.sample(BATCH, rng=rng) for m in memories], rounds)  # type: ignore[misc]
    return [
        {"capacity": capacity, "add": a, "sample": s} for capacity, a, s in zip(capacities, add, sample, strict=True)
    ]


def tables(*, quick: bool = False) -> dict[str, Any]:
    """Both tables as data, of one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds = 4 if quick else 20
        return {
            "loop": [item for capacity in CAPACITIES for item in against_a_loop(capacity, rounds)],
            "growth": growth(GROWTH, rounds),
        }
    finally:
        torch.set_num_threads(threads)


def measure(*, quick: bool = False) -> dict[str, dict[str, float]]:
    """Milliseconds by name, and where there is one the ratio to the loop."""
    measured, figures = tables(quick=quick), {}
    for item in measured["loop"]:
        name = f"{item['operation']}, λ={item['capacity']}"
        figures[name] = {"ms": item["ours"] / 1e3, "ratio": item["ratio"]}
    for item in measured["growth"]:
        for name in ("add", "sample"):
            figures[f"{name} of small rows, λ={item['capacity']}"] = {"ms": item[name] / 1e3}
    return figures


def table(measured: dict[str, Any]) -> str:
    """Both tables."""
    lines = ["| λ | operation | odedm, µs | row loop, µs | ratio |", "|---|---|---|---|---|"]
    for item in measured["loop"]:
        times = f"{item['ours']:.0f} | {item['loop']:.0f} | {item['ratio']:.1f} ×"
        lines.append(f"| {item['capacity']} | {item['operation']} | {times} |")
    lines += ["", "| λ | add, late, µs | sample 32, µs |", "|---|---|---|"]
    lines += [f"| {item['capacity']} | {item['add']:.0f} | {item['sample']:.0f} |" for item in measured["growth"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a few seconds")
    parser.add_argument("--out", type=Path, help="write the tables to this file, and the numbers beside it as .json")
    options = parser.parse_args()
    measured = tables(quick=options.quick)
    print(table(measured))
    if options.out:
        options.out.write_text(table(measured))
        options.out.with_suffix(".json").write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
