"""A run of many small steps, with checkpoints: what memory does its process use, from the first step to the last.

    python benchmarks/soak.py [--rows 2500] [--tasks 52] [--method derpp] [--out FILE.json] [--plot FILE.png]

A stream of blobs, two classes a task, one row a step: 208 000 steps with the defaults, for a fifth of the rows is for
tests. Resident memory is read every thousand steps. It may rise while the store fills and libraries are loaded; from a
tenth of the run on it is looked at: what steps add must be nothing. What task borders add is oneDNN's cache of kernels,
one for each shape it has not met; ONEDNN_PRIMITIVE_CACHE_CAPACITY=0 turns it off.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from odedm import ODEDM, Experiment, blobs
from odedm.execute.job import Event, Progress
from odedm.execute.planning import job_of
from odedm.execute.run_job import run_job
from odedm.results.provenance import commit, processor
from odedm.training.preparation import prepare

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
    memory = ODEDM(300, k=1, candidates=20, replay="auxiliary")
    plan = Experiment(memory, method=given.method, data=data.name, tasks=given.tasks, batch=1, device="cpu")
    samples: list[tuple[int, float, float]] = []
    start = time.monotonic()

    def look(event: Event) -> None:
        if isinstance(event, Progress) and (time.monotonic() - start > len(samples) or event.done == event.total):
            samples.append((event.done, time.monotonic() - start, resident()))

    with tempfile.TemporaryDirectory() as folder:
        outcome = run_job(job_of(prepare(plan, data), Path(folder) / "run"), look, data=data)
    steps = sum(outcome.result.provenance["steps"].values())
    about = {
        "command": " ".join(["python", *sys.argv]),
        "method": given.method,
        "memory": str(memory),
        "tasks": given.tasks,
        "steps": steps,
        "seconds": round(samples[-1][1], 1),
        "processor": processor(),
        "commit": commit(),
    }
    about |= summary(samples, given.tasks)
    print(json.dumps(about, indent=1))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        rows = [[step, round(seconds, 2), round(mib, 2)] for step, seconds, mib in samples]
        given.out.write_text(json.dumps(about | {"columns": ["step", "seconds", "MiB"], "samples": rows}) + "\n")
    if given.plot:
        draw(samples, about, given.plot)


def summary(samples: list[tuple[int, float, float]], tasks: int) -> dict[str, float]:
    """What memory does from a tenth of the run on: by trend, and in tasks and at their borders apart."""
    steps = samples[-1][0]
    settled = [each for each in samples if each[0] >= steps // 10]
    trend = float(np.polyfit([each[0] / 1e5 for each in settled], [each[2] for each in settled], 1)[0])
    border = {step for step, *_ in settled if step * tasks % steps == 0}
    at_border = [after[2] - before[2] for before, after in pairwise(settled) if before[0] in border]
    return {
        "mib_first": round(samples[0][2], 1),
        "mib_at_a_tenth": round(settled[0][2], 1),
        "mib_last": round(samples[-1][2], 1),
        "mib_most": round(max(each[2] for each in samples), 1),
        "trend_mib_per_100k_steps": round(trend, 2),
        "growth_within_tasks_mib": round(settled[-1][2] - settled[0][2] - sum(at_border), 2),
        "growth_at_borders_mib": round(sum(at_border), 2),
    }


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
    inside, between = about["growth_within_tasks_mib"], about["growth_at_borders_mib"]
    title = f"{about['steps']:,} steps of {about['method']} with ODEDM in {about['tasks']} tasks; from a tenth on: "
    axes.set_title(title + f"{inside:+} MiB within tasks, {between:+} at borders", fontsize=8, loc="left")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
