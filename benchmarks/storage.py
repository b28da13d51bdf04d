"""Memories on disk beside memories in RAM, a numpy ring buffer and TorchRL's memory-mapped storage.

    python benchmarks/storage.py [--rows 10000000] [--ram-rows 1000000] [--width 128]
                                 [--folder FOLDER] [--out FILE.json]

Each case is filled with rows of --width floats, then given as many again in batches of 1 024 (a reservoir keeps some,
a ring all of them), drawn from in batches of 64, saved and loaded. Each runs in a process of its own, one thread:
seconds, microseconds a row and the peak of resident memory, of which pages of files are told apart where the system
says so. TorchRL is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from odedm.core.processes import safe_environment

BATCH, DRAW, DRAWS = 1_024, 64, 2_000


def main() -> None:
    """Run every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ram-rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes = {"ram": asked.ram_rows, "ring in RAM": asked.ram_rows, "disk": asked.rows, "disk as in RAM": asked.ram_rows}
    sizes |= {"TorchRL memmap": asked.rows}
    results = {}
    for name, rows in sizes.items():
        folder = Path(tempfile.mkdtemp(dir=asked.folder))
        os.environ.update(safe_environment())
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=measure, args=(name, rows, asked.width, folder, queue))
        process.start()
        process.join()
        shutil.rmtree(folder)
        if not queue.empty():
            results[name] = queue.get()
            print(f"{name:16} {results[name]}", flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


def measure(name: str, rows: int, width: int, folder: Path, queue: Any) -> None:
    """Measure one case."""
    torch.set_num_threads(1)
    try:
        add, draw, save = CASES[name](rows, width, folder)
    except ImportError:
        return
    rng = np.random.default_rng(0)
    block = rng.random((BATCH, width), np.float32)
    label = np.arange(BATCH) % 10
    result: dict[str, Any] = {"rows": rows}
    for part in ("fill", "add"):
        begun = time.process_time()
        for _ in range(rows // BATCH + 1):
            add(block, label)
        result[f"{part} us a row"] = round(1e6 * (time.process_time() - begun) / rows, 2)
    begun = time.process_time()
    for _ in range(DRAWS):
        draw()
    result["sample us a row"] = round(1e6 * (time.process_time() - begun) / (DRAW * DRAWS), 2)
    for part, action in zip(("save s", "load s"), save(), strict=False):
        begun = time.perf_counter()
        action()
        result[part] = round(time.perf_counter() - begun, 2)
    result["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon", "RssFile")):
            result[line.split(":")[0] + " MB"] = int(line.split()[1]) // 1024
    queue.put(result)


def of_odedm(on_disk: bool) -> Callable[[int, int, Path], Any]:
    """Return a case of ours: a reservoir, on disk or in RAM."""

    def case(rows: int, width: int, folder: Path) -> Any:
        import odedm

        del width
        storage = folder / "memory" if on_disk else None
        memory = odedm.DualMemory.from_config(odedm.Reservoir(rows), storage=storage)

        def parts() -> Any:
            path = None if on_disk else folder / "memory"
            yield lambda: memory.save(path)
            if on_disk:
                memory.close()
            yield lambda: odedm.DualMemory.load(folder / "memory")

        return memory.add, lambda: memory.sample(DRAW), parts

    return case


def ring(rows: int, width: int, folder: Path) -> Any:
    """Return the plainest buffer there is."""
    image, label, seen = np.zeros((rows, width), np.float32), np.zeros(rows, np.int64), 0
    rng = np.random.default_rng(1)

    def add(x: Any, y: Any) -> None:
        nonlocal seen
        slots = (seen + np.arange(len(x))) % rows
        image[slots], label[slots] = x, y
        seen += len(x)

    def draw() -> Any:
        slots = rng.integers(0, rows, DRAW)
        return image[slots], label[slots]

    def parts() -> Any:
        yield lambda: np.savez(folder / "ring.npz", image=image, label=label)
        yield lambda: {name: array.copy() for name, array in np.load(folder / "ring.npz").items()}

    return add, draw, parts


def torchrl(rows: int, width: int, folder: Path) -> Any:
    """Return TorchRL's replay buffer over a memory-mapped storage."""
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer

    del width
    buffer = TensorDictReplayBuffer(storage=LazyMemmapStorage(rows, scratch_dir=folder / "rl"), batch_size=DRAW)

    def add(x: Any, y: Any) -> None:
        buffer.extend(TensorDict({"x": torch.from_numpy(x), "y": torch.from_numpy(y)}, batch_size=[len(x)]))

    def parts() -> Any:
        yield lambda: buffer.dumps(folder / "saved")
        yield lambda: buffer.loads(folder / "saved")

    return add, buffer.sample, parts


CASES: dict[str, Callable[[int, int, Path], Any]] = {
    "ram": of_odedm(False),
    "ring in RAM": ring,
    "disk": of_odedm(True),
    "disk as in RAM": of_odedm(True),
    "TorchRL memmap": torchrl,
}

if __name__ == "__main__":
    main()
