"""What a checkpoint costs: seconds and size with a ResNet-18, and what share of a run the default policy takes.

    python benchmarks/checkpoint.py [--device cpu] [--side 32] [--capacities 200,5120] [--methods er,derpp,...]
                                    [--rows 0] [--out FILE.json]

Each method is trained for a few steps, so that all it ever keeps is there; then its state is stored and read back three
times, and the best time of each part counts. With --rows N a whole run follows for each capacity, N rows a class in
five tasks, with a checkpoint after each task and with the default policy: how much of its wall time was checkpoints.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from odedm import ODEDM, Dataset, Experiment, Run
from odedm.checkpoint.checkpoint import checkpoint_folders, clear, load_latest, restore, save
from odedm.checkpoint.lock import hold
from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.state_tree import state_tree
from odedm.core.accel.streams import own_stream
from odedm.core.registry import METHODS
from odedm.execute.job import RunOptions
from odedm.execute.planning import job_of
from odedm.execute.run_job import checkpointer_of, run_job
from odedm.results.provenance import versions
from odedm.stream.dataset import from_arrays
from odedm.training.numerics import deterministic_numerics
from odedm.training.preparation import prepare

MIB = 2**20


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cpu")
    words.add_argument("--side", type=int, default=32)
    words.add_argument("--capacities", default="200,5120")
    words.add_argument("--methods", default="er,derpp,icarl,vrmcl,pocl")
    words.add_argument("--batch", type=int, default=32)
    words.add_argument("--rows", type=int, default=0)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    capacities = [int(each) for each in given.capacities.split(",")]
    about: dict[str, Any] = {"command": " ".join(["python", *sys.argv]), **versions(torch.device(given.device))}
    data = images(given.side, max(10, given.batch // 2))
    rows = []
    print(
        "| method | λ | MiB | tensors | capture s | write s | read s | restore s |\n|---|---|---|---|---|---|---|---|"
    )
    for method in given.methods.split(","):
        for capacity in capacities:
            row = cost(method, capacity, data, given)
            rows.append(row)
            print("| " + " | ".join(str(each) for each in row.values()) + " |", flush=True)
    about["checkpoints"] = rows
    if given.rows:
        data = images(given.side, given.rows)
        about["runs"] = [
            share(capacity, schedule, data, given) for capacity in capacities for schedule in ("task", "auto")
        ]
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(about, indent=1) + "\n")


def images(side: int, per_class: int) -> Dataset:
    """Ten classes of noise in five tasks: what is stored does not depend on what it shows."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (10 * per_class, side, side, 3), dtype=torch.uint8, generator=rng)
    return from_arrays(x.numpy(), torch.arange(10).repeat_interleave(per_class).numpy(), tasks=5, name="noise")


def experiment(method: str, capacity: int, data: Dataset, given: argparse.Namespace) -> Experiment:
    memory = ODEDM(capacity, k=4, replay="auxiliary")
    words = {"net": "resnet18", "batch": given.batch, "device": given.device, "data": data.name}
    return Experiment(memory, method=method, options={"lr": 0.01}, **words)  # type: ignore[arg-type]


class _Enough(Exception):
    pass


def cost(method: str, capacity: int, data: Dataset, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds and bytes of one checkpoint in the midst of the second task."""
    plan = experiment(method, capacity, data, given)
    run = Run(plan, data)

    def until(task: int, *_: int) -> None:
        if task:
            raise _Enough

    with suppress(_Enough):
        run.finish(until)
    with tempfile.TemporaryDirectory(dir=".") as folder, hold(Path(folder)) as lock:
        checkpointer = checkpointer_of(run, Path(folder), lock, RunOptions())
        with deterministic_numerics(1, run.experiment.precision), own_stream(run.device):
            capture, state = best(lambda: state_tree(run.roots(), run.external_tensors()))
            position = checkpointer.position()

            def write() -> Path:
                clear(Path(folder))
                return save(Path(folder), state, checkpointer.meta, position)

            written, path = best(write)
            size = sum(each.stat().st_size for each in path.iterdir())
            read, found = best(lambda: load_latest(Path(folder), checkpointer.meta))
            assert found is not None
            assert checkpoint_folders(Path(folder)) == [path]
            fresh = Run(plan, data)
            loaded, _ = best(lambda: restore(fresh.roots(), found, fresh.external_tensors()), 1)
    assert method in METHODS
    parts = {"capture_s": capture, "write_s": written, "read_s": read, "restore_s": loaded}
    named = {"method": method, "capacity": capacity, "mib": round(size / MIB, 1), "tensors": len(state.tensors)}
    return named | {name: round(seconds, 3) for name, seconds in parts.items()}


def share(capacity: int, schedule: str, data: Dataset, given: argparse.Namespace) -> dict[str, Any]:
    """How much of a run's wall time went into checkpoints."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        start = time.perf_counter()
        run = prepare(experiment("derpp", capacity, data, given), data)
        job = job_of(run, Path(folder) / "run", RunOptions(Schedule.parse(schedule)))
        outcome = run_job(job, data=data)
        wall = time.perf_counter() - start
    spent = outcome.result.seconds.get("checkpoint", 0.0)
    steps = outcome.result.provenance["steps"]
    row = {"capacity": capacity, "policy": schedule, "steps": sum(steps.values()), "seconds": round(wall, 2)}
    row |= {"checkpoint_s": round(spent, 3), "percent": round(100 * spent / wall, 2)}
    print(row, flush=True)
    return row


def best(call: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        value = call()
        found.append(time.perf_counter() - start)
    return min(found), value


if __name__ == "__main__":
    main()
