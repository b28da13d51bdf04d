"""`odedm.select` on features of a trained network: seconds and peak memory of each case, each in a process of its own.

    python benchmarks/selection.py [--only large] [--src OLD/src] [--repeat 2]

A class of 5 000 × 512 with the k of λ = 200, 5 120 and three times that, and 50 000 × 256 with k = 100, by L2 and by
Sinkhorn, with divide-and-conquer (3, 4) and without. The rule by which code that is there for speed stays: one of these
is 1.5 times as fast with it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
SHAPES = {"large": (50_000, 256, (100,)), "class": (5_000, 512, (6, 160, 480))}
"""Rows, features, and numbers of prototypes."""
Figure = dict[str, float]


def cases(only: str = "") -> Iterator[tuple[str, str, int, str, bool]]:
    """Name, shape, k, distance, and whether divide-and-conquer goes before, of each case whose name holds `only`."""
    for shape, (rows, width, numbers) in SHAPES.items():
        for k in numbers:
            for distance in ("l2", "sinkhorn"):
                for dac in (False, True):
                    name = f"{shape}: {rows} × {width}, k={k}, {distance}{', DAC (3, 4)' if dac else ''}"
                    if only in name:
                        yield name, shape, k, distance, dac


def measure(src: Path = HERE, only: str = "", repeat: int = 2) -> Iterator[tuple[str, Figure]]:
    """Measure the cases by the library in a source folder."""
    with tempfile.TemporaryDirectory(prefix="odedm-select-") as folder:
        for name, shape, k, distance, dac in cases(only):
            features = Path(folder) / f"{shape}.pt"
            if not features.exists():
                _write(features, *SHAPES[shape][:2])
            words = [str(features), str(k), distance, str(int(dac)), str(repeat)]
            done = subprocess.run(
                [sys.executable, "-P", str(Path(__file__).resolve()), "--case", *words],
                env={**os.environ, "PYTHONPATH": str(src)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(done.stderr[-1500:])
            yield name, json.loads(done.stdout.splitlines()[-1])


def _write(path: Path, rows: int, width: int) -> None:
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from real_features import real_features

    classes = max(1, rows // 5000)
    features = torch.cat(real_features(rows // classes, max(2, classes))[1])[:rows, :width]
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    torch.save(features[order].contiguous(), path)


def case(features: str, k: str, distance: str, dac: str, repeat: str) -> Figure:
    """Return the least wall and processor seconds of some repetitions, and the MB that the first takes at its peak."""
    import torch

    from odedm import select

    x = torch.load(features, weights_only=True)
    settings = {"k": int(k), "distance": distance, "dac": (3, 4) if dac == "1" else None}
    select(x[:200], **settings)  # imports and first uses
    before, grown, wall, processor = reset_peak(), 0.0, [], []
    for _ in range(int(repeat)):
        began, used = time.perf_counter(), time.process_time()
        select(x, **settings)
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
        grown = grown or peak_mb() - before
    return {"wall_s": min(wall), "processor_s": min(processor), "peak_mb": grown}


def reset_peak() -> float:
    """Let the peak of memory begin anew at what is held now, where the system can (Linux), and return it in MB."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    """Return the largest memory held since `reset_peak`, or since the process began where that is not known."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return (kilobytes or [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0] / 1024


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--src", type=Path, default=HERE, help="the source folder of the version to measure")
    options.add_argument("--repeat", type=int, default=2)
    options.add_argument("--case", nargs=5, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.case:
        print(json.dumps(case(*given.case)))
        return
    measured = 0
    for name, figure in measure(given.src.resolve(), given.only, given.repeat):
        measured += 1
        print(f"{name}: {', '.join(f'{key} {value:.3g}' for key, value in figure.items())}", flush=True)
    if not measured:
        options.error(f"no case is named '{given.only}'; names begin with 'large' or 'class'.")


if __name__ == "__main__":
    main()
