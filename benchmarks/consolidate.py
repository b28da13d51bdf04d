"""Time of one task's consolidation, ours in turn with the version one would write first, in one process.

    python benchmarks/consolidate.py [--quick] [--k 6 47 160 480] [--threads 2] [--out results.md] [--device cuda]

Two classes × 5000 rows of 512 features of a briefly trained network: on CIFAR-10 where the library finds it, by
ODEDM_DATA, else on fashion-mini (`real_features.py`). The version by hand is plain numpy (`consolidate_by_hand.py`);
where it would take minutes some of its parts are timed and multiplied, marked with a star. Processor seconds of one
thread, or, with --threads, wall seconds of both, for quiet machines alone: ours takes a class to a thread, and numpy
has nothing to share out. Of ours the smaller of two, one before and one after the other, unless it takes longer than
5 s. On a GPU ours alone, in wall seconds, after a first consolidation, as in a run, where several follow each other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from consolidate_by_hand import consolidate as by_hand
from real_features import real_features
from torch import Tensor

from odedm.core.timer import Timer
from odedm.selection.dac import Dac
from odedm.selection.distance import DISTANCES
from odedm.selection.kmeans import _Lloyd, kmeans
from odedm.selection.selector import PrototypeSelector

COUNTS, ROWS = (6, 47, 160, 480), 5000
DAC = (5, 3)
QUICK = ((6, 47), 500)


class Given:
    """A probe whose network is the identity."""

    def embed(self, image: Tensor) -> Tensor:
        """Features as they are."""
        return image

    def annotate(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Nothing is added."""
        del rows
        return {}


def ours(sets: list[Tensor], k: int, distance: str, dac: tuple[int, int] | None) -> tuple[float, dict[str, float]]:
    """Seconds of one task's consolidation, and of its phases."""
    home = sets[0].device
    label = torch.cat([torch.full((len(x),), c, device=home) for c, x in enumerate(sets)])
    rows = {"image": torch.cat(sets), "label": label}
    settle = (lambda: None) if home.type == "cpu" else torch.cuda.synchronize
    clock = clock_of(home.type)
    timer, choose = Timer(settle), PrototypeSelector(k, DISTANCES[distance], Dac(*dac) if dac else None)
    began = clock()
    choose(rows, range(len(sets)), Given(), rng=torch.Generator().manual_seed(0), timer=timer)  # type: ignore[arg-type]
    settle()
    return clock() - began, dict(timer.seconds)


def clock_of(device: str = "cpu") -> Callable[[], float]:
    """Processor seconds where one thread works, as others may be at work beside it; else those on the wall."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def iterations(x: Any, k: int) -> int:
    """How many iterations our k-means takes, for a version by hand that does not do all of its own."""
    with patch.object(_Lloyd, "_step", autospec=True, side_effect=_Lloyd._step) as step:
        kmeans(torch.from_numpy(x), k, rng=torch.Generator().manual_seed(0))
    return int(step.call_count)


def cells(
    counts: Sequence[int] = COUNTS,
    rows: int = ROWS,
    distances: Sequence[str] = ("l2", "sinkhorn"),
    *,
    device: str = "cpu",
    alone: bool = False,
    threads: int = 1,
) -> dict[str, Any]:
    """All cells: distance × k × with and without divide-and-conquer, each with seconds, phases and the ratio."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        data, sets = real_features(rows)
        sets = [x.to(device) for x in sets]
        done: list[dict[str, Any]] = []
        for k in counts:
            for distance in distances:
                for dac in (None, DAC):
                    cell: dict[str, Any] = {"distance": distance, "k": k, "dac": dac}
                    seconds, phases = ours(sets, k, distance, dac)
                    if device == "cpu" and not alone:
                        watches = [by_hand(x.numpy(), k, distance, dac, iterations, clock_of()) for x in sets]
                        cell["by_hand"] = sum(watch.seconds for watch in watches)
                        cell["estimated"] = any(watch.estimated for watch in watches)
                    if device != "cpu" or seconds < 5:
                        seconds, phases = min((seconds, phases), ours(sets, k, distance, dac), key=lambda each: each[0])
                    done.append(cell | {"ours": seconds, "phases": phases})
                    print(line(done[-1]), flush=True)
        where = platform.machine() if device == "cpu" else torch.cuda.get_device_name()
        about = {"data": data, "rows": rows, "device": device, "threads": threads, "where": where}
        return about | {"cores": os.cpu_count(), "cells": done}
    finally:
        torch.set_num_threads(before)


def measure(*, quick: bool = False) -> dict[str, dict[str, float]]:
    """Milliseconds by name, and the ratio to the version by hand."""
    figures = {}
    for cell in cells(*(QUICK if quick else (COUNTS, ROWS)))["cells"]:
        name = f"choice by {cell['distance']}, k={cell['k']}, {'DAC' if cell['dac'] else 'no DAC'}"
        figures[name] = {"ms": 1e3 * cell["ours"], "ratio": cell["by_hand"] / cell["ours"]}
    return figures


def line(cell: dict[str, Any]) -> str:
    """A line of the table."""
    dac = f"({cell['dac'][0]}, {cell['dac'][1]})" if cell["dac"] else "no"
    if "by_hand" in cell:
        star = "\\*" if cell["estimated"] else ""
        other = f"{span(cell['by_hand'])}{star} | {cell['by_hand'] / cell['ours']:.0f} × |"
    else:  # wall seconds, as the phases are
        other = " / ".join(f"{cell['phases'].get(name, 0):.3f}" for name in ("reduce", "centre", "select")) + " |"
    return f"| {cell['distance']} | {cell['k']} | {dac} | {span(cell['ours'])} | {other}"


def span(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def table(found: dict[str, Any]) -> str:
    """The whole table."""
    beside = "by hand | ratio |" if "by_hand" in found["cells"][0] else "reduce / centre / select |"
    return "\n".join(
        [
            f"2 classes × {found['rows']} rows × 512 features of {found['data']}, {found['device']}, "
            f"{'one thread' if found['threads'] == 1 else str(found['threads']) + ' threads, wall seconds'}, "
            f"{found['where']}, {found['cores']} cores.",
            "",
            f"| distance | k | DAC | ours | {beside}",
            "|---|---|---|---|" + "---|" * (beside.count("|")),
            *map(line, found["cells"]),
            "",
            "\\* some of it timed and multiplied.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="500 rows, k = 6 and 47: less than a minute")
    parser.add_argument("--k", type=int, nargs="+", help="prototypes per class (default 6 47 160 480)")
    parser.add_argument("--distance", choices=("l2", "sinkhorn"), help="one distance alone (default both)")
    parser.add_argument("--out", type=Path, help="write the table here and the numbers beside it as .json")
    parser.add_argument("--device", default="cpu", help="where ours runs: cpu, cuda, cuda:1 … (default cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of ours; from 2 on wall seconds (default 1)")
    parser.add_argument("--alone", action="store_true", help="ours only")
    options = parser.parse_args()
    counts, rows = QUICK if options.quick else (COUNTS, ROWS)
    distances = [options.distance] if options.distance else ["l2", "sinkhorn"]
    how = {"device": options.device, "alone": options.alone, "threads": options.threads}
    found = cells(options.k or counts, rows, distances, **how)
    print("\n" + table(found))
    if options.out:
        options.out.write_text(table(found))
        options.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
