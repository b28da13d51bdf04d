"""Run on a GPU what only a GPU can show, in nine minutes, and write down for which commit it passed.

    python tools/card.py [--parts tests,cells,steps] [--minutes 9] [--commit NAME] [--out docs/results/card.json]
    python tools/card.py --show          # writes the paragraph of docs/performance.md from that file anew

Three parts, one after the other, each in processes of its own:

- tests: every test marked `gpu`, in `SHARDS` processes;
- cells: twelve runs of the paper's Table 1 (CIFAR-10, λ = 200: DER++, iCaRL and DER++refresh, plain and with three ρ),
  compared with those of src/odedm/paper/results/table1.jsonl.gz;
- steps: the wall time of one run and of sixteen, compared with docs/results/all-h200.json.

It needs CIFAR-10 where `odedm` looks for data (ODEDM_DATA), and a checkout without changes, or `--commit` where the
folder is a copy without git. It runs the sources beside it; nothing needs to be installed but what odedm itself needs,
and pytest.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # where nothing is installed

LEDGER = ROOT / "src" / "odedm" / "paper" / "results" / "table1.jsonl.gz"
TIMES = ROOT / "docs" / "results" / "all-h200.json"
RECORD = ROOT / "docs" / "results" / "card.json"
PAGE = ROOT / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- card\.json -->\n).*?(<!-- end of card\.json -->\n)", re.S)

METHODS = ("derpp", "icarl", "refresh")
CELLS = 12
SHARDS = 4
"""Processes for the tests: most of their time is the host's."""
LANES, SHARE = 12, 40
"""Runs side by side, and the percentage of the GPU's multiprocessors of each, as in the ledger."""
OF_ONE, OF_ALL = 0.999, 0.99
"""Levels of the intervals for a cell and for a method's mean: chance makes one of all in 25 commands fail."""
SLOWER = 1.15
"""The ratio of two times from which on a step counts as slower."""
LEAST = 20.0
"""Seconds under which starting a part is no use."""
PASSED, FAILED, SKIPPED, OTHER = "passed", "failed", "not run", "not comparable"


@dataclass
class Outcome:
    """What became of a part: a verdict, a sentence, and figures."""

    verdict: str
    summary: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part, the seconds that it is expected to take at most, and what it does within so many seconds."""

    name: str
    seconds: float
    run: Callable[[float], Outcome]


class OutOfTimeError(Exception):
    """A process took longer than it may."""


def seconds_for(index: int, parts: Sequence[Part], left: float) -> float:
    """Return how many of the seconds that are left a part may take, so that those after it have what they need.

    >>> parts = [Part("a", 100, None), Part("b", 50, None)]
    >>> seconds_for(0, parts, 200), seconds_for(1, parts, 30), seconds_for(0, parts, 40)
    (150, 30, 0)
    """
    return max(0, left - sum(part.seconds for part in parts[index + 1 :]))


def carry_out(parts: Sequence[Part], budget: float, clock: Callable[[], float] = time.monotonic) -> dict[str, Outcome]:
    """Run parts in turn within a number of seconds; one that fails does not keep the others from running."""
    start, outcomes = clock(), dict[str, Outcome]()
    for index, part in enumerate(parts):
        allowed = seconds_for(index, parts, budget - (clock() - start))
        if allowed < LEAST:
            outcomes[part.name] = Outcome(SKIPPED, f"{allowed:.0f} s were left of {budget:.0f}")
        else:
            try:
                outcomes[part.name] = part.run(allowed)
            except OutOfTimeError:
                outcomes[part.name] = Outcome(FAILED, f"it was not done after {allowed:.0f} s")
            except RuntimeError as error:
                outcomes[part.name] = Outcome(FAILED, str(error))
        outcome = outcomes[part.name]
        print(f"{part.name}: {outcome.verdict}, {outcome.summary} ({clock() - start:.0f} s so far)", flush=True)
    return outcomes


def run_all(commands: Sequence[Sequence[str]], allowed: float) -> list[subprocess.CompletedProcess[str]]:
    """Run commands side by side, errors among the output; ends all, with what they started, when the time is over."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    deadline, running = time.monotonic() + allowed, list[subprocess.Popen[bytes]]()
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in commands]
        stack.callback(_end, running)  # before the files are closed
        for command, file in zip(commands, files, strict=True):
            words = {"cwd": ROOT, "env": environment, "stderr": subprocess.STDOUT, "start_new_session": True}
            running.append(subprocess.Popen(command, stdout=file, **words))
        try:
            for process in running:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise OutOfTimeError from error
        for file in files:
            file.seek(0)
        return [
            subprocess.CompletedProcess(process.args, process.returncode, file.read().decode(errors="replace"))
            for process, file in zip(running, files, strict=True)
        ]


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes that still run, and theirs: politely, then for good."""
    for way, grace in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        left = [process for process in running if process.poll() is None]
        for process in left:
            os.killpg(process.pid, way)
        for process in left:
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                continue


def gpu_files() -> list[str]:
    """Return the test files that have a test marked `gpu`."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if "pytest.mark.gpu" in path.read_text(encoding="utf-8")]


def tests(allowed: float) -> Outcome:
    """Return every test marked `gpu`, dealt out to some processes."""
    start = time.monotonic()
    # of the settings in pyproject.toml some belong to plugins that need not be there
    pytest = [sys.executable, "-P", "-m", "pytest", "-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider"]
    (listed,) = run_all([[*pytest, "-m", "gpu", "--collect-only", "-q", *gpu_files()]], allowed)
    names = [line for line in listed.stdout.splitlines() if "::" in line and not line.startswith(" ")]
    if listed.returncode or not names:
        raise RuntimeError(f"no tests were found:\n{listed.stdout[-1500:]}")
    shards = [[*pytest, "-q", "--tb=short", *names[first::SHARDS]] for first in range(SHARDS) if names[first::SHARDS]]
    done = run_all(shards, allowed - (time.monotonic() - start))
    return of_tests([(shard.returncode, shard.stdout) for shard in done], len(names))


def of_tests(shards: Sequence[tuple[int, str]], wanted: int) -> Outcome:
    """Return what pytest says in several processes: all of the wanted tests passed, or else which did not."""
    last = [text.splitlines()[-1] if text else "" for _, text in shards]
    passed = sum(int(number) for line in last for number in re.findall(r"(\d+) passed", line))
    lost = [line for _, text in shards for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if passed == wanted and not lost and not any(code for code, _ in shards):
        return Outcome(PASSED, f"{passed} tests", {"tests": passed})
    tails = "\n".join(text[-1500:] for code, text in shards if code) if not lost else "\n".join(lost)
    return Outcome(FAILED, f"{passed} of {wanted} tests passed\n{tails}", {"tests": passed})


@dataclass(frozen=True)
class Cell:
    """A run beside those of the ledger that differ from it by their seed alone."""

    method: str
    memory: str
    accuracy: float
    mean: float
    spread: float
    runs: int
    identical: bool

    @property
    def change(self) -> float:
        """Points above the ledger's mean."""
        return self.accuracy - self.mean


def _without_seed(result: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in result["experiment"].items() if name != "seed"}, sort_keys=True)


def read_ledger(path: Path = LEDGER) -> list[dict[str, Any]]:
    """Return the results in a file of packed runs."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["result"] for line in lines]


def compare_cells(fresh: Sequence[Mapping[str, Any]], ledger: Sequence[Mapping[str, Any]]) -> Outcome:
    """Hold each run against its cell of the ledger, and each method's mean: within what seeds alone do."""
    groups = defaultdict[str, list[Mapping[str, Any]]](list)
    for result in ledger:
        groups[_without_seed(result)].append(result)
    missing = [result["experiment"]["method"] for result in fresh if len(groups[_without_seed(result)]) < 2]
    if missing:
        return Outcome(FAILED, f"the ledger has no cell with the settings of {len(missing)} runs: {', '.join(missing)}")
    if len(fresh) != CELLS:
        return Outcome(FAILED, f"{len(fresh)} of {CELLS} runs were finished")
    by_method = defaultdict[str, list[Cell]](list)
    for result in fresh:
        by_method[result["experiment"]["method"]].append(_cell(result, groups[_without_seed(result)]))
    every = [cell for group in by_method.values() for cell in group]
    figures = {"cells": [asdict(cell) for cell in every], "identical": sum(cell.identical for cell in every)}
    outside = [sentence for group in by_method.values() for sentence in outside_of_seeds(group)]
    if outside:
        return Outcome(FAILED, "outside of what seeds do:\n" + "\n".join(outside), figures)
    changes = ", ".join(f"{method} {mean(cell.change for cell in group):+.1f}" for method, group in by_method.items())
    return Outcome(PASSED, f"points of difference: {changes}; {figures['identical']} of {CELLS} identical", figures)


def _cell(result: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> Cell:
    known, memory = [run["acc_last"] for run in group], result["experiment"]["memory"]
    same = [run for run in group if run["experiment"]["seed"] == result["experiment"]["seed"]]
    return Cell(
        method=result["experiment"]["method"],
        memory=" ".join(str(memory[name]) for name in ("name", "ratio", "k") if memory.get(name) is not None),
        accuracy=result["acc_last"],
        mean=mean(known),
        spread=stdev(known),
        runs=len(known),
        identical=any(run["class_il"] == result["class_il"] for run in same),
    )


def outside_of_seeds(group: Sequence[Cell]) -> list[str]:
    """Return which of a method's cells, and whether their mean, lie where a further seed would hardly do, in sentences.

    The spread is that of seeds within a cell, pooled over the method's cells: of five seeds alone it is too uncertain.
    """
    from odedm.report.statistics import student_quantile

    freedom = sum(cell.runs - 1 for cell in group)
    deviation = math.sqrt(sum((cell.runs - 1) * cell.spread**2 for cell in group) / freedom)
    outside = []
    for cell in group:
        reach = student_quantile(OF_ONE, freedom) * deviation * math.sqrt(1 + 1 / cell.runs)
        if not abs(cell.change) <= reach:
            name = f"{cell.method} {cell.memory}"
            outside.append(f"{name}: {cell.accuracy:.2f}, where {cell.mean:.2f} ± {reach:.2f} was expected")
    reach = student_quantile(OF_ALL, freedom) * deviation * math.sqrt(sum(1 + 1 / cell.runs for cell in group))
    change = mean(cell.change for cell in group)
    if not abs(change) <= reach / len(group):
        limit = reach / len(group)
        outside.append(f"{group[0].method}: {change:+.2f} in the mean, where 0 ± {limit:.2f} was expected")
    return outside


def cell_command(folder: str, *further: str) -> list[str]:
    """Return the command that makes the twelve runs: a study, as `odedm paper` counts the ledger's own as done."""
    only = ("data=cifar10", "imbalance=standard", "capacity=200", f"method={','.join(METHODS)}")
    words = ["study", "table1", *(word for choice in only for word in ("--only", choice)), "--seeds", "1"]
    lanes = str(min(LANES, os.cpu_count() or 1))
    return [sys.executable, "-P", "-m", "odedm", *words, "--out", folder, "--workers", lanes, *further]


def cells(allowed: float) -> Outcome:
    """Twelve runs of the paper's first table, against the ledger's."""
    with tempfile.TemporaryDirectory() as folder:
        command = cell_command(folder, "--device", "cuda", "--set", f"execution.gpu_share={SHARE}")
        (done,) = run_all([command], allowed)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[2:])}:\n{done.stdout[-1500:]}")
        fresh = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).rglob("result.json"))]
    return compare_cells(fresh, read_ledger())


def compare_times(fresh: Mapping[str, Any], before: Mapping[str, Any]) -> Outcome:
    """Hold the times of commands against those of before, where both are of the same hardware."""
    ratios, lost = {}, []
    for name, figure in before["parts"]["command"].items():
        now = fresh["parts"].get("command", {}).get(name)
        if now is None:
            lost.append(name)
            continue
        ratios |= {f"{name}, {key}": now[key] / figure[key] for key in ("ms", "wall_s") if key in figure}
    figures = {"ratios": {name: round(ratio, 3) for name, ratio in ratios.items()}}
    if lost:
        return Outcome(FAILED, f"not measured: {', '.join(lost)}", figures)
    if fresh["about"]["hardware"] != before["about"]["hardware"]:
        return Outcome(OTHER, f"{fresh['about']['hardware']} here, {before['about']['hardware']} before", figures)
    slower = [f"{name} takes {ratio:.2f} times as long" for name, ratio in ratios.items() if not ratio <= SLOWER]
    if slower:
        return Outcome(FAILED, "; ".join(slower), figures)
    return Outcome(PASSED, f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} times as long as before", figures)


def steps(allowed: float) -> Outcome:
    """Return the time of one run and of sixteen, against those of before."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        words = ["--device", "cuda", "--parts", "command", "--share", str(SHARE), "--out", str(out)]
        (done,) = run_all([[sys.executable, "-P", str(ROOT / "benchmarks" / "all.py"), *words]], allowed)
        if done.returncode or not out.is_file():
            raise RuntimeError(f"benchmarks/all.py {' '.join(words)}:\n{done.stdout[-1500:]}")
        fresh = json.loads(out.read_text(encoding="utf-8"))
    return compare_times(fresh, json.loads(TIMES.read_text(encoding="utf-8")))


PARTS = (Part("tests", 200, tests), Part("cells", 200, cells), Part("steps", 130, steps))
"""In the order of what they tell; together they need less than nine minutes."""
TITLES = {"tests": "the tests on a GPU", "cells": "twelve cells of the ledger", "steps": "step times"}


def obstacle(parts: Sequence[str]) -> str:
    """Return what stands in the way, in a sentence; empty where nothing does."""
    try:
        import torch
    except ImportError:
        return f"A GPU is asked for by torch, which {sys.executable} does not have."
    if not torch.cuda.is_available():
        return f"This needs a CUDA GPU, and torch {torch.__version__} sees none here."
    if "cells" in parts:
        import odedm

        try:
            odedm.load_dataset("cifar10")
        except odedm.UsageError as error:
            return f"The twelve cells are runs on CIFAR-10. {error} ODEDM_DATA names the folder of such data sets."
    return ""


def commit_of(folder: Path = ROOT) -> str | None:
    """Return the commit of a checkout without changes; None where there is no checkout or it has changes."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return None if git("status", "--porcelain", "--untracked-files=no") else git("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def is_green(outcomes: Mapping[str, Outcome]) -> bool:
    """Return whether every part ran, and none failed."""
    return {*outcomes} == {*TITLES} and all(part.verdict in (PASSED, OTHER) for part in outcomes.values())


def record(outcomes: Mapping[str, Outcome], commit: str, seconds: float) -> dict[str, Any]:
    """Return what is written down: the commit, the machine, and what every part said."""
    import torch

    return {
        "commit": commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "hardware": torch.cuda.get_device_name(),
        "torch": str(torch.__version__),
        "seconds": round(seconds),
        "parts": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }


def paragraph(written: Mapping[str, Any]) -> str:
    """Return the record as docs/performance.md shows it."""
    head = f"Commit {written['commit'][:7]}, {written['date']}, {written['hardware']}, torch {written['torch']}:"
    lines = [head, "", "| | | |", "|---|---|---|"]
    for name, title in TITLES.items():
        part = written["parts"].get(name, {"verdict": SKIPPED, "summary": ""})
        lines.append(f"| {title} | {part['verdict']} | {part['summary']} |")
    return "\n".join(lines) + "\n"


def show(path: Path = RECORD, page: Path = PAGE) -> None:
    """Write the page's paragraph anew."""
    text, told = page.read_text(encoding="utf-8"), paragraph(json.loads(path.read_text(encoding="utf-8")))
    page.write_text(BLOCK.sub(lambda match: match[1] + told + match[2], text), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts, say what became of them, write down a commit for which all passed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", default=",".join(TITLES), help="some of tests, cells, steps; only all are recorded")
    options.add_argument("--minutes", type=float, default=9.0)
    options.add_argument("--commit", default=None, help="what the sources are, where git cannot tell")
    options.add_argument("--out", type=Path, default=RECORD)
    options.add_argument("--show", action="store_true", help="only write docs/performance.md anew")
    given = options.parse_args(argv)
    if given.show:
        show(given.out)
        return 0
    names = given.parts.split(",")
    if unknown := [name for name in names if name not in TITLES]:
        options.error(f"--parts takes some of {', '.join(TITLES)}; '{unknown[0]}' was given.")
    if sentence := obstacle(names):
        print(sentence, file=sys.stderr)
        return 1
    commit, start = given.commit or commit_of(), time.monotonic()
    outcomes = carry_out([part for part in PARTS if part.name in names], 60 * given.minutes)
    if any(outcome.verdict in (FAILED, SKIPPED) for outcome in outcomes.values()):
        print(f"Not green for {commit or 'these sources'}.")
        return 1
    if not is_green(outcomes):
        print(f"Green for {commit or 'these sources'} as far as {given.parts} go; only all parts are recorded.")
        return 0
    if commit is None:
        print("Green, but for sources that are no commit: commit them, or name it by --commit. Nothing was written.")
        return 0
    given.out.write_text(json.dumps(record(outcomes, commit, time.monotonic() - start), indent=1) + "\n", "utf-8")
    if given.out == RECORD:
        show()
    print(f"Green for {commit}. Written into '{given.out}'.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
