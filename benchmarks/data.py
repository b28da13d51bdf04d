"""Importing a folder of pictures against a bare Pillow loop over the same files on as many cores, in turns in one run.

    python benchmarks/data.py FOLDER [--rounds 3] [--out FILE.md]

FOLDER is laid out as train/<class>/* and test/<class>/*. The loop opens every file with Pillow, makes an array of it
and throws it away; the import lists, checks, decodes, measures, writes, flushes and hashes. Without FOLDER 4 000
pictures of noise, 32×32, are made.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from odedm.core.processes import cores, safe_environment

CHUNK = 256


def bare(paths: list[str]) -> int:
    """Decode and forget."""
    total = 0
    for path in paths:
        with Image.open(path) as image:
            total += np.asarray(image).size
    return total


def loop(folder: Path) -> float:
    """Seconds for a bare loop over every picture, by a pool of processes."""
    start = time.perf_counter()
    paths = sorted(str(path) for path in folder.glob("*/*/*.*"))
    chunks = [paths[at : at + CHUNK] for at in range(0, len(paths), CHUNK)]
    os.environ |= safe_environment()  # spawned processes look for modules where they are started
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn")) as pool:
        list(pool.map(bare, chunks))
    return time.perf_counter() - start


def imported(folder: Path) -> tuple[float, int]:
    """Seconds for an import into a fresh data folder, and the bytes of its cache."""
    from odedm.data.importer import import_as

    with tempfile.TemporaryDirectory() as place:
        os.environ["ODEDM_DATA"] = place
        start = time.perf_counter()
        manifest = import_as(folder, "measured")
        return time.perf_counter() - start, sum(manifest.file_bytes)


def opened(folder: Path) -> tuple[float, float]:
    """Seconds to open a cache by its name, and to gather a batch of 32 rows from it."""
    import torch

    from odedm.data.importer import import_as
    from odedm.data.opening import load_dataset

    with tempfile.TemporaryDirectory() as place:
        os.environ["ODEDM_DATA"] = place
        import_as(folder, "measured")
        load_dataset("measured")
        start = time.perf_counter()
        data = load_dataset("measured")
        middle = time.perf_counter()
        rows = [torch.randint(0, len(data.image), (32,)) for _ in range(200)]
        data.image[rows[0]]
        begin = time.perf_counter()
        for each in rows:
            data.image[each]
        return middle - start, (time.perf_counter() - begin) / len(rows)


def noise(folder: Path) -> Path:
    """A folder of made-up pictures."""
    rng = np.random.default_rng(0)
    for part, rows in (("train", 350), ("test", 50)):
        for name in range(10):
            place = folder / part / f"class{name}"
            place.mkdir(parents=True)
            for row in range(rows):
                Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(place / f"{row}.png")
    return folder


def measure(folder: Path, rounds: int) -> str:
    """The table."""
    pictures = sum(1 for _ in folder.glob("*/*/*.*"))
    loops, imports, size = [], [], 0
    for _ in range(rounds):
        loops.append(loop(folder))
        seconds, size = imported(folder)
        imports.append(seconds)
    ratios = [mine / theirs for mine, theirs in zip(imports, loops, strict=True)]
    opening, gather = opened(folder)
    rows = [
        f"{pictures} pictures, {cores()} cores ({platform.machine()}); median of {rounds} rounds in turns",
        "",
        "| | seconds | pictures a second |",
        "|---|---|---|",
        f"| bare Pillow loop | {statistics.median(loops):.2f} | {pictures / statistics.median(loops):.0f} |",
        f"| `odedm data import` | {statistics.median(imports):.2f} | {pictures / statistics.median(imports):.0f} |",
        f"| ratio of a round (median, worst) | {statistics.median(ratios):.2f}, {max(ratios):.2f} | |",
        f"| open by name | {opening:.4f} | |",
        f"| gather a batch of 32 | {gather:.6f} | |",
        "",
        f"Cache: {size / 1e6:.1f} MB.",
    ]  # fmt: skip
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        text = measure(given.folder or noise(Path(place) / "noise"), given.rounds)
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
