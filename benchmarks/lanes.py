"""What lanes do in a minute, with and without CUDA's multi-process service: the same runs, in turns.

python benchmarks/lanes.py --data cifar10 --lanes 8 [--rounds 1] [--out docs/results/lanes.json]

Lanes are processes; on a GPU that service lets their kernels run side by side. It is started where it can be.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from odedm import ODEDM, Experiment, Native
from odedm.execute.eta import TimeEstimate
from odedm.execute.local_engine import Workers
from odedm.execute.planning import below, plan_jobs
from odedm.execute.scheduler import Scheduler
from odedm.results.provenance import versions


@contextmanager
def service(*, wanted: bool) -> Iterator[bool]:
    """CUDA's multi-process service while it lasts; False where it does not start."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not wanted or control is None:
        yield False
        return
    with tempfile.TemporaryDirectory() as place:
        own = {"CUDA_MPS_PIPE_DIRECTORY": f"{place}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{place}/log"}
        os.environ.update(own)
        started = subprocess.run([control, "-d"], check=False, capture_output=True).returncode == 0
        try:
            yield started
        finally:
            if started:
                subprocess.run([control], input=b"quit\n", check=False, capture_output=True, timeout=60)
            for name in own:
                os.environ.pop(name)


def seconds(plans: list[Experiment], lanes: int) -> tuple[float, int]:
    """How long runs take in so many lanes; and how many failed."""
    with tempfile.TemporaryDirectory() as place:
        jobs = plan_jobs(plans, below(Path(place))).jobs
        engine, begun = Workers(lanes), time.perf_counter()
        try:
            summary = Scheduler(engine, [], TimeEstimate()).run(jobs)
            return time.perf_counter() - begun, len(summary.failed)
        finally:
            engine.close()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--methods", nargs="+", default=["er", "refresh"])
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() and given.device != "cpu" else "cpu")
    plans = [
        Experiment(memory, method=method, data=given.data, seed=seed, device=given.device)
        for method in given.methods
        for memory in (Native(200), ODEDM(200, rho=0.25))
        for seed in range(given.seeds)
    ]
    rows = []
    for turn in range(given.rounds):
        for name, mps in [("processes", False), ("processes, MPS", True)]:
            with service(wanted=mps) as serving:
                if mps and not serving:
                    print(f"{name}: not measured, it did not start", flush=True)
                    continue
                took, failed = seconds(plans, given.lanes)
            rows.append({"lanes as": name, "round": turn, "runs": len(plans), "seconds": took, "failed": failed})
            print(f"{name}: {len(plans)} runs in {took:.1f} s, {failed} failed", flush=True)
    if given.out:
        own = {"lanes": given.lanes, "data": given.data, "rows": rows, "made by": versions(device)}
        given.out.write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
