"""A run of many small steps, with checkpoints: what memory does its process use, from the first step to the last.

    python benchmarks/soak.py [--rows 2500] [--tasks 52] [--method derpp] [--out FILE.json] [--plot FILE.png]

A stream of blobs, two classes a task, one row a step: 208 000 steps with the defaults, for a fifth of the rows is for
tests. Resident memory is read every thousand steps. It may rise while the store fills and libraries are loaded; from a
tenth of the run on its trend must be flat.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from odedm import ODEDM, Experiment, blobs
from odedm.run.attempt import Job, attempt
from odedm.run.provenance import commit, processor

PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rows", type=int, default=2500, help="rows a class")
    words.add_argument("--tasks", type=int, default=52)
    words.add_argument("--method", default="derpp")
    words.add_argument("--out", type=Path)
    words.add_argument("--plot", type=Path)
    given = words.parse_args()
    data = blobs(classes=2 * given.tasks, tasks=given.tasks, per_class=given.rows)
    memory = ODEDM(300, k=1, candidates=20)
    plan = Experiment(memory, method=given.method, data=data.name, tasks=given.tasks, batch=1, device="cpu")
    samples: list[tuple[int, float, float]] = []
    start = time.monotonic()

    def look(done: int, total: int) -> None:
        if done % 1000 == 0 or done == total:
            samples.append((done, time.monotonic() - start, resident()))

    with tempfile.TemporaryDirectory() as folder:
        outcome = attempt(Job(plan, Path(folder) / "run"), look, data=data)
    steps = sum(outcome.result.provenance["steps"].values())
    settled = np.array([each for each in samples if each[0] >= steps // 10])
    trend = float(np.polyfit(settled[:, 0] / 1e5, settled[:, 2], 1)[0])
    about = {
        "command": " ".join(["python", *sys.argv]),
        "method": given.method,
        "memory": str(memory),
        "steps": steps,
        "seconds": round(samples[-1][1], 1),
        "checkpoints": given.tasks,
        "mib_first": round(samples[0][2], 1),
        "mib_at_a_tenth": round(float(settled[0, 2]), 1),
        "mib_last": round(samples[-1][2], 1),
        "mib_most": round(max(each[2] for each in samples), 1),
        "trend_mib_per_100k_steps": round(trend, 2),
        "processor": processor(),
        "commit": commit(),
    }
    print(json.dumps(about, indent=1))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        rows = [[step, round(seconds, 2), round(mib, 2)] for step, seconds, mib in samples]
        given.out.write_text(json.dumps(about | {"columns": ["step", "seconds", "MiB"], "samples": rows}) + "\n")
    if given.plot:
        draw(samples, about, given.plot)


def resident() -> float:
    """MiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def draw(samples: list[tuple[int, float, float]], about: dict[str, object], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.plot([each[0] for each in samples], [each[2] for each in samples], color="#1f5fa8")
    axes.set(xlabel="steps", ylabel="resident memory (MiB)", ylim=(0, 1.15 * max(each[2] for each in samples)))
    axes.set_title(
        f"{about['steps']:,} steps of {about['method']} with ODEDM, {about['checkpoints']} checkpoints: "
        f"{about['trend_mib_per_100k_steps']:+} MiB per 100 000 steps",
        fontsize=9,
        loc="left",
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
