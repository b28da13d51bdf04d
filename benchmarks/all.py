"""Everything that users wait for, in one run: one JSON, one table, and what changed since the last time.

    python benchmarks/all.py [--device cuda] [--parts alone,lanes,command,consolidation,pictures,cpu] [--methods er,…]
                             [--out docs/results/all-h200.json] [--against docs/results/all-h200.json]
                             [--src OLD/src] [--share 40] [--quick]

Every figure of the library comes from its own command line and from the seconds in the results it writes, so an older
version (`--src`, a checkout's source folder) is measured by the same program. Rows are random: 32×32 pictures of ten
classes in five tasks, batch 32, λ = 200, ResNet-18 on a GPU and the slim one's small sister on a CPU. Beside them, in
the same run, stand hand-written PyTorch loops: ER's arithmetic as one would write it, the same as a CUDA graph, and the
card's ceiling (the same network on batches 16 times as large).

What the columns say: `ms` wall time of training by steps, first uses and recording included; `arithmetic` how many
forwards of one row a step needs by its method's formula (a backward counts two); `ratio` ms against that count times
what one row costs in ER's recorded step of the same precision.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BATCH, CAPACITY, TASKS, CLASSES = 32, 200, 5, 10
PARTS = ("alone", "odedm", "lanes", "command", "consolidation", "pictures", "cpu", "select")
DUAL = ("--memory", "odedm", "--replay", "auxiliary")
"""With the term on long-term rows in every step, the dearer reading, and the one of earlier measurements."""
NOISE = 0.15
"""A figure that is worse by more than this share than the last one is shown as slower."""
FIRST = "er,der,derpp,refresh,fdr,icarl,puridiver,vrmcl,pocl"
HERE = Path(__file__).resolve().parents[1] / "src"
Figure = dict[str, Any]
Figures = Iterator[tuple[str, Figure]]


@dataclass
class Bench:
    """One version of the library, and where its runs go."""

    src: Path
    device: str
    folder: Path
    quick: bool
    share: int = 100
    number: int = 0

    def odedm(self, *words: str) -> Figure:
        """Return the wall, user and system seconds of a command, and the largest memory of one of its processes."""
        environment = {**os.environ, "PYTHONPATH": str(self.src), "ODEDM_DATA": str(self.folder / "data")}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "odedm", *words], env=environment, capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"odedm {' '.join(words)}:\n{done.stderr[-1500:]}")
        return {
            "wall_s": wall,
            "user_s": after.ru_utime - before.ru_utime,
            "system_s": after.ru_stime - before.ru_stime,
        }

    def rows(self, name: str, per_class: int, side: int, classes: int = CLASSES, tasks: int = TASKS) -> None:
        """Return a data set of random pictures by a name."""
        rng, file = np.random.default_rng(0), self.folder / f"{name}.npz"
        x = rng.integers(0, 256, (per_class * classes, side, side, 3), dtype=np.uint8)
        y = np.arange(classes).repeat(per_class)
        step = max(1, per_class // 20 if self.quick else 5)
        np.savez(file, x=x, y=y, x_test=x[::step], y_test=y[::step])
        self.odedm("data", "import", str(file), "--as", name, "--tasks", str(tasks), "--flip")
        file.unlink()

    def run(self, data: str, *words: str, seeds: int = 1, lanes: int = 1) -> tuple[Figure, list[Figure]]:
        """Return what a command took, and the results of its runs."""
        self.number += 1
        out = self.folder / f"runs-{self.number}"
        shared = () if self.share == 100 or lanes == 1 else ("--set", f"execution.gpu_share={self.share}")
        took = self.odedm(
            "run", *shared, "--data", data, "--device", self.device, "--seeds", str(seeds), "--workers", str(lanes),
            "--batch", str(BATCH), "--out", str(out), *words,
        )  # fmt: skip
        results = [json.loads(path.read_text()) for path in sorted(out.rglob("result.json"))]
        if len(results) != seeds:
            raise RuntimeError(f"{len(results)} of {seeds} runs were finished")
        return took, results


def of_runs(took: Figure, results: list[Figure], steps: int, lanes: int) -> Figure:
    """Return a command's figures: ms of a run-step, seconds of a run by phase, and what is no run's."""
    phases = {name for item in results for name in item["seconds"]}
    seconds = {name: statistics.mean(item["seconds"].get(name, 0.0) for item in results) for name in sorted(phases)}
    inside = sum(sum(item["seconds"].values()) for item in results) / lanes
    steps_done = [item["provenance"].get("steps", {}) for item in results]
    return {
        **took,
        "ms": 1e3 * seconds["train"] / steps / lanes,
        "seconds": seconds,
        "outside_s": took["wall_s"] - inside,
        "eager": statistics.mean(item.get("eager", steps) for item in steps_done),
    }


def alone_and_lanes(bench: Bench, methods: list[str], lanes: int, memory: tuple[str, ...]) -> Figures:
    """Yield every method, so many at a time; each lane does two runs, and the second, which is warm, counts."""
    for name in methods:
        long = name in ("vrmcl", "pocl")
        data, steps = "two-tasks" if long else "short", bench_steps(bench, long=long)
        words = ("--method", name, "--capacity", str(CAPACITY), *memory, *net(bench))
        took, results = bench.run(data, *words, seeds=2 * lanes, lanes=lanes)
        results.sort(key=lambda item: int(item["experiment"]["seed"]))
        first, second = (of_runs(took, part, steps, lanes) for part in (results[:lanes], results[lanes:]))
        inside = sum(sum(item["seconds"].values()) for item in results) / lanes
        first_use = {"first_use_s": first["seconds"]["train"] - second["seconds"]["train"]}
        yield name, second | first_use | {"outside_s": took["wall_s"] - inside}


def bench_steps(bench: Bench, *, long: bool) -> int:
    """Return how many steps a run on the short data has, or on that with two tasks of full length."""
    rows = CLASSES * rows_per_class(bench, long=long)
    return rows // BATCH


def rows_per_class(bench: Bench, *, long: bool) -> int:
    """Of the short data, 63 steps a task; of the long one, 313 steps of each of two tasks."""
    if bench.quick or bench.device == "cpu":
        return 64
    return 2003 if long else 1008


def net(bench: Bench) -> tuple[str, ...]:
    """Return the network's words."""
    if bench.device == "cpu":
        return ("--net", "cnn")
    return ("--net", "resnet18")


def command(bench: Bench) -> Figures:
    """From command to prompt: one run, sixteen seeds of DER++, and a study's worth of short ones."""
    words = ("--method", "derpp", "--memory", "reservoir", "--capacity", str(CAPACITY), *net(bench))
    seeds, lanes = (2, 2) if bench.quick or bench.device == "cpu" else (16, 8)
    steps = CLASSES * (64 if seeds == 2 else 5000) // BATCH
    took, results = bench.run("full", *words)
    yield "one run", of_runs(took, results, steps, 1)
    took, results = bench.run("full", *words, seeds=seeds, lanes=lanes)
    yield (
        f"{seeds} seeds in {lanes} lanes",
        of_runs(took, results, steps, lanes) | {"runs_an_hour": 3600 * seeds / took["wall_s"]},
    )


def consolidation(bench: Bench) -> Figures:
    """Yield the share of a run's seconds that choosing prototypes takes, alone and in lanes."""
    small = bench.quick or bench.device == "cpu"
    steps = CLASSES * (64 if small else 5000) // BATCH
    for k, capacity in ((6, 200), (160, 5120)):
        if small and k > 6:
            continue
        for lanes in (1, 2 if small else 8):
            words = ("--method", "derpp", *DUAL, "--k", str(k), "--capacity", str(capacity), *net(bench))
            if lanes == 1:
                bench.run("full", *words, "--limit", "200")  # kernels are compiled once on a machine
            took, results = bench.run("full", *words, seeds=lanes, lanes=lanes)
            figure = of_runs(took, results, steps, lanes)
            choosing = sum(figure["seconds"].get(name, 0.0) for name in PHASES_OF_CHOICE)
            figure["share"] = choosing / sum(figure["seconds"].values())
            yield f"k={k}, {lanes} lanes" if lanes > 1 else f"k={k}", figure


PHASES_OF_CHOICE = ("consolidate", "embed", "reduce", "centre", "select", "match")


def pictures(bench: Bench) -> Figures:
    """DER++ on larger pictures, alone and in lanes."""
    kinds = {"64×64, ResNet-18": ("large64", "resnet18"), "224×224, ViT": ("large224", "vit")}
    for title, (data, name) in kinds.items():
        for lanes in (1, 4):
            words = ("--method", "derpp", "--memory", "reservoir", "--capacity", str(CAPACITY), "--net", name)
            took, results = bench.run(data, *words, seeds=lanes, lanes=lanes)
            steps = PICTURES[data][0] * PICTURES[data][2] // BATCH
            yield f"{title}, {lanes} lanes" if lanes > 1 else title, of_runs(took, results, steps, lanes)


PICTURES = {"large64": (640, 64, 10, 2), "large224": (160, 224, 10, 2)}
"""Rows of a class, pixels, classes, tasks."""


def by_hand(device: str) -> dict[str, Figure]:
    """Return what stands beside the library: the same arithmetic written in plain PyTorch, in this very run.

    A child process, for it must not leave its memory on the card.
    """
    program = Path(__file__).with_name("ceiling.py")
    words = [sys.executable, "-P", str(program), "--device", device]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    timings: dict[str, Figure] = json.loads(done.stdout.splitlines()[-1])
    return timings


def cpu(_bench: Bench) -> Figures:
    """Yield the memory on a processor, against a plain version of the same."""
    sys.path.insert(0, str(Path(__file__).parent))
    import memory

    yield from memory.measure(quick=True).items()


def choosing(bench: Bench) -> Figures:
    """`odedm.select` on many rows and on a class, against the same without divide-and-conquer."""
    sys.path.insert(0, str(Path(__file__).parent))
    import selection

    yield from selection.measure(bench.src, "class: 5000 × 512, k=6," if bench.quick else "")


def measure(bench: Bench, parts: list[str], methods: list[str], out: Path | None) -> dict[str, Any]:
    """Return all parts in turn; what is there is printed and written at once."""
    made = {"short": False}

    def data(name: str, *shape: int) -> None:
        if not made.get(name):
            made[name] = True
            bench.rows(name, *shape)

    def steps(lanes: int, memory: tuple[str, ...]) -> Callable[[], Figures]:
        def maker() -> Figures:
            data("short", rows_per_class(bench, long=False), 32)
            data("two-tasks", rows_per_class(bench, long=True), 32, CLASSES, 2)
            return alone_and_lanes(bench, methods, lanes, memory)

        return maker

    def full(maker: Callable[[Bench], Figures]) -> Callable[[], Figures]:
        def made_with_data() -> Figures:
            data("full", 64 if bench.quick or bench.device == "cpu" else 5000, 32)
            return maker(bench)

        return made_with_data

    def large() -> Figures:
        for name, shape in PICTURES.items():
            data(name, *shape)
        return pictures(bench)

    lanes = 2 if bench.device == "cpu" else 8
    makers = {
        "alone": steps(1, ("--memory", "native")),
        "odedm": steps(1, (*DUAL, "--k", "6")),
        "lanes": steps(lanes, ("--memory", "native")),
        "command": full(command),
        "consolidation": full(consolidation),
        "pictures": large,
        "cpu": lambda: cpu(bench),
        "select": lambda: choosing(bench),
    }
    measured: dict[str, Any] = {"about": about(bench), "by hand": by_hand(bench.device), "parts": {}}
    for part in parts:
        measured["parts"][part] = {}
        for name, figure in makers[part]():
            measured["parts"][part][name] = figure
            shown = {key: round(value, 3) for key, value in figure.items() if isinstance(value, float)}
            print(f"{part}: {name}: {shown}", flush=True)
            if out:
                out.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return measured


def about(bench: Bench) -> dict[str, Any]:
    """Return what was measured, and on what."""
    import torch

    from odedm.results.provenance import processor

    name = torch.cuda.get_device_name() if bench.device == "cuda" else processor()
    commit = subprocess.run(
        ["git", "-C", str(bench.src), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    measured = {"hardware": name, "torch": torch.__version__, "commit": commit, "date": time.strftime("%Y-%m-%d")}
    return measured | ({"share": bench.share} if bench.share < 100 else {})


def counted(method: str, measured: dict[str, Any], *, tasks: int = TASKS) -> tuple[float, float] | None:
    """Forwards of one row that a step needs by the method's formula, and what that much arithmetic takes, in ms."""
    from arithmetic import ROW_FORWARDS, Step

    from odedm.core.registry import METHODS

    kind = METHODS[method].load()
    if method not in ROW_FORWARDS:
        return None
    units = ROW_FORWARDS[method](Step(BATCH, BATCH, CAPACITY, tasks))
    hand = (
        measured["by hand"].get("recorded tf32" if "second order" in kind.requires else "recorded bf16")
        or measured["by hand"]["eager"]
    )
    return units, units * hand["ms"] / hand["row_forwards"]


def table(measured: dict[str, Any], beside: dict[str, Any] | None) -> str:
    """Markdown: a row for every figure, with what it was in another measurement."""
    lines = [
        "| | | ms a run-step | against the count | outside of runs, s | share of choosing | before, ms | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part, figures in measured["parts"].items():
        for name, figure in figures.items():
            old = ((beside or {}).get("parts", {}).get(part) or {}).get(name)
            count = counted(name, measured) if part in ("alone", "odedm", "lanes") else None
            ratio = f"{figure['ms'] / count[1]:.2f} ({count[0]:.0f} rows)" if count else ""
            share = f"{100 * figure['share']:.1f} %" if "share" in figure else ""
            cells = [part, name, number(figure.get("ms")), ratio, number(figure.get("outside_s")), share]
            lines.append("| " + " | ".join([*cells, number(old and old.get("ms")), verdict(figure, old)]) + " |")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Return a figure for people.

    >>> number(2.5), number(None)
    ('2.50', '')
    """
    return "" if value is None else f"{value:.2f}"


def verdict(new: Figure, old: Figure | None) -> str:
    """Return what became of a figure beyond noise.

    >>> verdict({"ms": 1.0}, {"ms": 2.0}), verdict({"ms": 2.0}, {"ms": 1.0}), verdict({"ms": 1.0}, {"ms": 1.1})
    ('2.0 × as fast', '**slower, 2.0 ×**', 'the same')
    """
    for key in ("ms", "wall_s"):
        if old and key in new and key in old:
            ratio = new[key] / old[key]
            if ratio > 1 + NOISE:
                return f"**slower, {ratio:.1f} ×**"
            return "the same" if ratio > 1 - NOISE else f"{1 / ratio:.1f} × as fast"
    return ""


def main() -> None:
    """Measure, print, write, compare."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="")
    options.add_argument("--parts", default=",".join(PARTS))
    options.add_argument("--methods", default=FIRST)
    options.add_argument("--src", type=Path, default=HERE, help="the source folder of the version to measure")
    options.add_argument("--share", type=int, default=100, help="percent of the GPU for each of several runs")
    options.add_argument("--quick", action="store_true", help="very little of everything, to try the program")
    options.add_argument("--from", dest="source", type=Path, help="a JSON of before to show, without measuring")
    options.add_argument("--out", type=Path)
    options.add_argument("--against", type=Path)
    given = options.parse_args()
    if unknown := set(given.parts.split(",")) - set(PARTS):
        options.error(f"--parts are {', '.join(PARTS)}; {', '.join(sorted(unknown))} was given")
    if given.source:
        measured = json.loads(given.source.read_text(encoding="utf-8"))
        measured["parts"] = {name: part for name, part in measured["parts"].items() if name in given.parts.split(",")}
    else:
        import torch

        device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
        with tempfile.TemporaryDirectory(prefix="odedm-all-") as folder:
            bench = Bench(given.src.resolve(), device, Path(folder), given.quick, given.share)
            parts = [part for part in given.parts.split(",") if not (part == "pictures" and device == "cpu")]
            measured = measure(bench, parts, given.methods.split(","), given.out)
    beside = json.loads(given.against.read_text(encoding="utf-8")) if given.against else None
    print(f"\n{table(measured, beside)}\n\nby hand: {measured['by hand']}")


if __name__ == "__main__":
    main()
