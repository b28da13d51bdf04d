"""How many runs a GPU does at a time: milliseconds of a run-step by the number of lanes and each lane's share of it.

    python benchmarks/shares.py [--methods derpp] [--lanes 1,8] [--shares 100,40] [--steps 250] [--pixels 32]
                                [--net resnet18] [--memory reservoir] [--out docs/results/shares.json]

Lanes are processes under CUDA's multi-process service, as in `odedm run --workers`; a share is the part of the GPU's
multiprocessors that the kernels of one lane may take. Rows are random; all lanes begin the second task together, and
what counts is the time from there until the first of them has finished it. `digest` tells whether a lane's weights
depend on its share. Batch 32, λ = 200.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from arithmetic import ROW_FORWARDS, Step
from step import BATCH, CAPACITY

from odedm import ODEDM, Experiment, Native, Reservoir, Run, from_arrays
from odedm.core.errors import UsageError, choose
from odedm.core.files import writable_folder
from odedm.core.registry import METHODS, NETS
from odedm.core.validators import Int
from odedm.execute.gpu_sharing import SharedGPU
from odedm.results.provenance import commit

SETTLED = 5
"""Steps of the second task before all lanes wait for each other: a recording has been made by then."""


def lane(given: argparse.Namespace, place: Path, number: int, lanes: int) -> None:
    """One run of two tasks; prints when it began and ended the second, and how many steps that were."""
    rng, rows = np.random.default_rng(0), given.steps * BATCH // 2
    x = rng.integers(0, 256, (4 * rows, 3, given.pixels, given.pixels), dtype=np.uint8)
    y = np.arange(4).repeat(rows)
    data = from_arrays(x, y, tasks=2, test=(x[::rows], y[::rows]), pad=4, flip=True, name="random")
    memory = {
        "reservoir": Reservoir(CAPACITY),
        "native": Native(CAPACITY),
        "odedm": ODEDM(CAPACITY, k=6, replay="auxiliary"),
    }[given.memory]
    own = {"lr": 0.001}  # random pictures teach nothing, and a transformer that tries hard diverges
    plan = Experiment(memory, given.methods, own, data="random", net=given.net, device="cuda", batch=BATCH)
    run, marks, count = Run(plan, data), [0.0, 0.0], 0

    def watch(task: int, _done: int, _total: int) -> None:
        nonlocal count
        if task == 1:
            count += 1
            if count == SETTLED:
                torch.cuda.synchronize()
                (place / f"{number}.ready").touch()
                while len(list(place.glob("*.ready"))) < lanes:
                    time.sleep(0.002)
                marks[0] = time.time()
            marks[1] = time.time()

    run.finish(watch)
    digest = hashlib.sha256(b"".join(each.cpu().numpy().tobytes() for each in run.method.net.state_dict().values()))
    free, total = torch.cuda.mem_get_info()
    long_term = BATCH if given.memory == "odedm" else 0
    step = Step(BATCH, plan.draw or BATCH, CAPACITY, 2, run.experiment.options, long_term)
    counted = ROW_FORWARDS[given.methods](step)
    said = {"span": marks, "steps": count - SETTLED, "digest": digest.hexdigest()[:12], "used": total - free}
    print(json.dumps(said | {"row_forwards": counted, "precision": run.experiment.precision}))


def measure(words: list[str], lanes: int, share: int) -> dict[str, Any]:
    """So many lanes at a time, each with a share."""
    with tempfile.TemporaryDirectory() as folder:
        service = SharedGPU(Path(folder), share)
        begun, running = time.perf_counter(), []
        try:
            for number in range(lanes):
                own = [sys.executable, "-P", __file__, *words, "--lane", f"{folder},{number},{lanes}"]
                environment = {**os.environ, **service.environment}
                running.append(subprocess.Popen(own, env=environment, stdout=subprocess.PIPE, text=True))
            found = [json.loads(each.communicate(timeout=300)[0].splitlines()[-1]) for each in running]
        finally:
            for each in running:  # where one has failed, the others would wait for it for ever
                each.kill()
                each.wait()
            service.close()
    span = min(each["span"][1] for each in found) - max(each["span"][0] for each in found)
    return {
        "ms": 1e3 * span / found[0]["steps"] / lanes,
        "used_gib": max(each["used"] for each in found) / 2**30,
        "row_forwards": found[0]["row_forwards"],
        "precision": found[0]["precision"],
        "digest": sorted({each["digest"] for each in found}),
        "wall_s": time.perf_counter() - begun,
    }


def counts(flag: str, text: str, most: int) -> list[int]:
    """Whole numbers separated by commas."""
    return [Int(1, most).validate(flag, int(each) if each.strip().isdecimal() else each) for each in text.split(",")]


def main() -> None:
    """Measure, print, write."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--methods", default="derpp")
    words.add_argument("--memory", default="reservoir", choices=("reservoir", "native", "odedm"))
    words.add_argument("--lanes", default="1,8")
    words.add_argument("--shares", default="100,40", help="percent")
    words.add_argument("--steps", type=int, default=250, help="batches a task")
    words.add_argument("--pixels", type=int, default=32)
    words.add_argument("--net", default="resnet18")
    words.add_argument("--lane", help=argparse.SUPPRESS)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    if given.lane:
        place, number, lanes = given.lane.rsplit(",", 2)
        lane(given, Path(place), int(number), int(lanes))
        return
    try:
        every_lanes, every_share = counts("--lanes", given.lanes, 64), counts("--shares", given.shares, 100)
        Int(SETTLED + 1).validate("--steps", given.steps)
        Int(1).validate("--pixels", given.pixels)
        for method in given.methods.split(","):
            choose("method", method, METHODS)
        choose("net", given.net, NETS)
        if given.out:
            writable_folder(given.out.parent)
    except UsageError as error:
        sys.exit(str(error))
    if not torch.cuda.is_available():
        sys.exit("Lanes share a GPU, and torch sees none here. Run this on a machine with one.")
    found: dict[str, Any] = {}
    for method in given.methods.split(","):
        same = [
            "--methods", method, "--memory", given.memory, "--steps", str(given.steps), "--pixels", str(given.pixels),
            "--net", given.net,
        ]  # fmt: skip
        for lanes in every_lanes:
            for share in every_share:
                name = f"{method}, {given.memory}, {given.net}, {given.pixels} pixels, {lanes} lanes, {share} %"
                found[name] = figure = measure(same, lanes, share)
                shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in figure.items()}
                print(f"{name}: {shown}", flush=True)
    if given.out:
        about = {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit()}
        given.out.write_text(json.dumps(about | {"figures": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
