"""Time and memory of one task's consolidation, ours in turn with the version one would write first.

    python benchmarks/consolidate.py [--quick] [--threads 2] [--out results.md] [--device cuda] [--alone]

The obvious version: scikit-learn's KMeans, POT's `sinkhorn2` in float64 for each pair of clouds and each pair of row
and centroid. Where that would take hours its pairs are timed on a sample and multiplied, marked with a star.
Each cell runs in a process of its own; memory is the high-water mark above what was there before the work began, on a
GPU that of its own memory. `--alone` leaves the obvious version and the accuracy out, which need POT; a GPU implies it.
On a GPU ours is timed after a first consolidation, as in a run, where several follow each other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

CLASSES, ROWS, BINS = 2, 5000, 512
DAC = (5, 3)
SAMPLE = 60
PAIRS_IN_FULL = 4000


def features(n: int, d: int, seed: int) -> Any:
    """Synthetic penultimate features [n, d] of one class: twelve modes in 48 latent dimensions, through a ReLU."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    mix = torch.randn(48, d, generator=rng) / 48**0.5
    mode = 1.5 * torch.randn(12, 48, generator=rng)
    latent = mode[torch.randint(12, (n,), generator=rng)] + torch.randn(n, 48, generator=rng)
    return (latent @ mix + 0.3 * torch.randn(n, d, generator=rng) + 0.5).relu()


def ours(cell: dict[str, Any]) -> dict[str, Any]:
    import torch

    from odedm.consolidate.consolidator import Consolidator
    from odedm.consolidate.dac import Dac
    from odedm.consolidate.distance import DISTANCES
    from odedm.core.timer import Timer

    class Given:
        """A probe whose network is the identity."""

        def embed(self, image: torch.Tensor) -> torch.Tensor:
            return image

        def annotate(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            del rows
            return {}

    device = torch.device(cell["device"])
    x = [features(cell["rows"], cell["bins"], c) for c in range(CLASSES)]
    rows = {"image": torch.cat(x), "label": torch.arange(CLASSES).repeat_interleave(cell["rows"])}
    rows = {name: column.to(device) for name, column in rows.items()}
    dac = Dac(*cell["dac"]) if cell["dac"] else None
    consolidator = Consolidator(cell["k"], DISTANCES[cell["distance"]], dac)
    warm = torch.rand(64, 64)
    warm @ warm
    settle = (lambda: None) if device.type == "cpu" else torch.cuda.synchronize
    clock = Timer(settle)

    def work() -> None:
        consolidator(rows, range(CLASSES), Given(), rng=torch.Generator().manual_seed(0), clock=clock)

    if device.type == "cpu":
        return measured(work) | {"phases": clock.seconds, "star": False}
    work()
    clock = Timer(settle)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = measured(work) | {"phases": clock.seconds, "star": False}
    return result | {"megabytes": (torch.cuda.max_memory_allocated() - before) / 2**20}


def obvious(cell: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import ot
    from sklearn.cluster import KMeans
    from sklearn.metrics import pairwise_distances

    data = [features(cell["rows"], cell["bins"], c).double().numpy() for c in range(CLASSES)]
    phases = {"reduce": 0.0, "centre": 0.0, "select": 0.0}
    extra = 0.0
    clusters, depth = cell["dac"] or DAC

    def timed(phase: str, began: float) -> None:
        phases[phase] += time.perf_counter() - began

    def reduce(x: Any) -> Any:
        for _ in range(depth):
            label = KMeans(clusters, n_init=1, random_state=0).fit_predict(x)
            parts = [x[label == c] for c in range(clusters)]
            far = {}
            for p, q in combinations(range(clusters), 2):
                cost = ot.dist(parts[p], parts[q])
                a, b = np.full(len(parts[p]), 1 / len(parts[p])), np.full(len(parts[q]), 1 / len(parts[q]))
                far[p, q] = float(ot.sinkhorn2(a, b, cost, 0.05 * cost.mean(), stopThr=1e-4))
            subsets = [s for r in range(2, clusters + 1) for s in combinations(range(clusters), r)]
            subsets = [s for s in subsets if sum(len(parts[c]) for c in s) >= cell["k"]]
            best = min(subsets, key=lambda s: sum(far[pair] for pair in combinations(s, 2)))
            x = np.concatenate([parts[c] for c in best])
        return x

    def work() -> None:
        nonlocal extra
        for whole in data:
            began = time.perf_counter()
            x = reduce(whole) if cell["dac"] else whole
            timed("reduce", began)
            began = time.perf_counter()
            centre = KMeans(cell["k"], n_init=1, random_state=0).fit(x).cluster_centers_
            timed("centre", began)
            began = time.perf_counter()
            if cell["distance"] == "l2":
                pairwise_distances(x, centre).argsort(0)
                timed("select", began)
                continue
            z = (whole - whole.mean(0)) / (whole.std(0) + 1e-12)
            ground = ot.dist(z.T.copy(), z.T.copy()) / len(z)
            s, q = (np.maximum(v, 0) + 1e-9 for v in (x, centre))  # POT divides by the weights
            s, q = s / s.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
            pairs = [(i, j) for i in range(len(s)) for j in range(len(q))]
            timed("select", began)
            if len(pairs) > PAIRS_IN_FULL:
                some = [pairs[i] for i in np.random.default_rng(0).choice(len(pairs), SAMPLE, replace=False)]
            else:
                some = pairs
            began = time.perf_counter()
            for i, j in some:
                ot.sinkhorn2(s[i], q[j], ground, 0.1 * ground.mean(), stopThr=1e-4)
            spent = time.perf_counter() - began
            phases["select"] += spent * len(pairs) / len(some)
            extra += spent * (len(pairs) / len(some) - 1)

    result = measured(work)
    return result | {"seconds": result["seconds"] + extra, "phases": phases, "star": extra > 0}


def accuracy(cell: dict[str, Any]) -> dict[str, Any]:
    """How far our default costs are from POT's, converged to 1e-10, on sampled pairs."""
    import numpy as np
    import ot
    import torch

    from odedm.consolidate.distance import Sinkhorn
    from odedm.consolidate.kmeans import kmeans
    from odedm.consolidate.sinkhorn import solver as sinkhorn

    x = features(cell["rows"], cell["bins"], 0)
    centre = kmeans(x, cell["k"], rng=torch.Generator().manual_seed(0)).centroid
    fitted = Sinkhorn().prepare(x, None)
    s, q = fitted._histograms(x[:: max(1, len(x) // 12)])[:12, 0], fitted._histograms(centre)[:6, 0]
    got = sinkhorn.histograms(s, q, fitted._kernel)
    ground = fitted._kernel.cost.double().numpy()  # type: ignore[attr-defined]
    gaps = []
    for i in range(len(s)):
        for j in range(len(q)):
            full = (s[i] > 0).numpy()
            a, b = s[i].double().numpy()[full], q[j].double().numpy() + 1e-15
            a, b = a / a.sum(), b / b.sum()
            exact = float(ot.sinkhorn2(a, b, ground[full], 0.1 * ground.mean(), stopThr=1e-10, numItermax=5000))
            gaps.append(abs(float(got.cost[i, j]) / exact - 1))
    return {
        "pairs": len(gaps),
        "largest": max(gaps),
        "median": float(np.median(gaps)),
        "marginal_error": float(got.marginal_error.max()),
        "iterations": got.iterations,
        "zeros": float((x == 0).float().mean()),
    }


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ours": ours,
    "obvious": obvious,
    "accuracy": accuracy,
}


def measured(work: Callable[[], None]) -> dict[str, Any]:
    """Wall seconds of `work` and the megabytes it took at most beyond what the process held before."""
    status = Path("/proc/self/status")
    if status.exists():
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _kilobytes("VmRSS")
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "megabytes": max(0.0, (_kilobytes("VmHWM") - before) / 1024)}


def _kilobytes(name: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) for line in lines if line.startswith(name + ":"))


def run(kind: str, cell: dict[str, Any], threads: int) -> dict[str, Any]:
    """One cell in a fresh process with the same number of threads for every library."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # waiting threads sleep instead of spinning, or a busy machine would distort every time with two of them
    environment = os.environ | dict.fromkeys(names, str(threads)) | {"OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-P", "-W", "ignore", __file__, "--cell", json.dumps({"kind": kind} | cell)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def span(seconds: float, star: bool) -> str:
    mark = "\\*" if star else ""
    if seconds < 120:
        return f"{seconds:.2f} s{mark}" if seconds < 10 else f"{seconds:.0f} s{mark}"
    return f"{seconds / 60:.1f} min{mark}" if seconds < 7200 else f"{seconds / 3600:.1f} h{mark}"


def alone(cells: list[dict[str, Any]], device: str, threads: int) -> str:
    """The table of ours without another version beside it."""
    lines = [
        f"{CLASSES} classes × {cells[0]['rows']} rows × {cells[0]['bins']} features, {device}, {threads} thread(s), "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "| distance | k | DAC | ours | embed / reduce / centre / select | memory |",
        "|---|---|---|---|---|---|",
    ]
    for cell in cells:
        we = cell["ours"]
        parts = " / ".join(f"{we['phases'].get(p, 0):.3f}" for p in ("embed", "reduce", "centre", "select"))
        lines.append(
            f"| {cell['distance']} | {cell['k']} | {dac_of(cell)} | {we['seconds']:.3f} s | {parts} "
            f"| {we['megabytes']:.0f} MB |"
        )
    return "\n".join(lines) + "\n"


def dac_of(cell: dict[str, Any]) -> str:
    return f"({cell['dac'][0]}, {cell['dac'][1]})" if cell["dac"] else "no"


def table(cells: list[dict[str, Any]], accurate: dict[str, Any] | None, device: str, threads: int) -> str:
    if accurate is None:
        return alone(cells, device, threads)
    rows, bins = cells[0]["rows"], cells[0]["bins"]
    lines = [
        f"{CLASSES} classes × {rows} rows × {bins} features ({accurate['zeros']:.0%} zeros), {threads} thread(s), "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "| distance | k | DAC | ours | reduce / centre / select | obvious | reduce / centre / select | ratio "
        "| memory ours / obvious |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        we, they = cell["ours"], cell["obvious"]
        parts = [
            " / ".join(f"{side['phases'].get(p, 0):.2f}" for p in ("reduce", "centre", "select")) for side in (we, they)
        ]
        lines.append(
            f"| {cell['distance']} | {cell['k']} | {dac_of(cell)} "
            f"| {span(we['seconds'], False)} | {parts[0]} | {span(they['seconds'], they['star'])} | {parts[1]} "
            f"| {they['seconds'] / we['seconds']:.1f}× | {we['megabytes']:.0f} / {they['megabytes']:.0f} MB |"
        )
    lines += [
        "",
        f"\\* selection multiplied from {SAMPLE} pairs per class.",
        f"Costs against POT converged to 1e-10, {accurate['pairs']} pairs: largest relative difference "
        f"{accurate['largest']:.1e}, median {accurate['median']:.1e}; largest L1 marginal error "
        f"{accurate['marginal_error']:.1e} after at most {accurate['iterations']} iterations.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: checks that everything runs")
    parser.add_argument("--threads", type=int, default=2, help="for every library (default 2)")
    parser.add_argument("--out", type=Path, help="write the table here and the numbers beside it as .json")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help="where ours runs: cpu, cuda, cuda:1 … (default cpu)")
    parser.add_argument("--alone", action="store_true", help="ours only: needs neither POT nor scikit-learn")
    parser.add_argument("--dac", type=int, nargs=2, default=DAC, help="clusters and depth (default 5 3)")
    parser.add_argument("--k", type=int, nargs="+", help="prototypes per class (default 6 160 480)")
    options = parser.parse_args()
    if options.cell:
        cell = json.loads(options.cell)
        print(json.dumps(KINDS[cell["kind"]](cell)))
        return
    rows, bins, counts = (200, 32, (3, 40)) if options.quick else (ROWS, BINS, (6, 160, 480))
    counts = options.k or counts
    size = {"rows": rows, "bins": bins, "device": options.device}
    kinds = ("ours",) if options.alone or options.device != "cpu" else ("ours", "obvious")
    accurate = run("accuracy", size | {"k": counts[0]}, options.threads) if len(kinds) == 2 else None
    cells: list[dict[str, Any]] = []
    for k in counts:
        for distance in ("l2", "sinkhorn"):
            for dac in (options.dac, None):
                cell = {"distance": distance, "k": k, "dac": dac} | size
                cells.append(cell | {kind: run(kind, cell, options.threads) for kind in kinds})
                text = table(cells, accurate, options.device, options.threads)
                print(text.splitlines()[len(cells) + 3], flush=True)
                if options.out:  # after every cell, so that a run cut short leaves what it has
                    options.out.write_text(text)
                    numbers = [*cells, *([accurate] if accurate else [])]
                    options.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
    print("\n" + table(cells, accurate, options.device, options.threads))


if __name__ == "__main__":
    main()
