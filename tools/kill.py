"""Kill commands again and again, by random signals at random moments, and compare what they leave with calm ones.

python tools/kill.py --kills 300 [--seed 0] [--only run lanes study tune merge import learner memory ray] [--out FOLDER]

Signals are KILL, TERM, INT, HUP and STOP with KILL after it; they go to the command itself or to one of its workers.
What was killed is started again with the same words until it ends by itself. Compared bit for bit are accuracies,
memories, imported tensors, packed results, and what a learner and a live memory are that were saved after each batch
by `tools/saved_stream.py`; a command that fails without being killed, does not end, writes a finished run again, or
leaves noise on its error stream counts as wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from golden.adapter import Today
from golden.cases_b1acfb6.commands import stored
from golden.comparison import exact

STUDY = """
data = "blobs"
method = ["er", "derpp"]
memory = ["native", "odedm"]
capacity = 30
rho = [0.25, 0.5]
dac = "paper"
batch = 1
seeds = {seeds}
"""
SIGNALS = ("KILL", "TERM", "INT", "HUP", "STOP")
RUN = ["run", "--method", "derpp", "--memory", "odedm", "--data", "blobs", "--batch", "1", "--device", "cpu"]
RUN += ["--capacity", "30", "--checkpoint", "60 steps"]
TUNE = ["tune", "--method", "er", "--data", "blobs", "--lr", "0.05,0.1", "--seeds", "1", "--capacity", "30"]
TUNE += ["--batch", "1", "--device", "cpu"]
STREAM = Path(__file__).with_name("saved_stream.py")
NOISE = ("Traceback", "BrokenPipe", "Exception ignored", "Fatal Python error")
LONGEST = 900.0
"""Seconds after which a command hangs."""
PER_ROUND = 6
"""How often one command is killed at most before it may end, so that many of them do."""


@dataclass(frozen=True)
class Scenario:
    """A command that writes into a folder, and what of it must not depend on kills; `words` are Python's."""

    words: Callable[[Path], list[str]]
    left: Callable[[Path], Any]
    share: int = 4
    replaces: bool = True
    """Whether it replaces a lost worker; an import ends with a sentence, for a picture may have been to blame."""


def finished_runs(out: Path) -> Any:
    """Results and memories."""
    return exact(stored(Today(), out))


def tensors(out: Path) -> Any:
    """Imported tensors, and that nothing else is left beside them."""
    names = sorted(path.name for path in out.iterdir() if path.name != ".lock")
    return names, [path.read_bytes() for path in sorted(out.glob("*/*.npy"))]


def odedm(*words: object) -> list[str]:
    """The command `odedm` with these words."""
    return ["-m", "odedm", *map(str, words)]


def saved_answer(out: Path) -> Any:
    """What a learner or a memory is in the end, and that nothing else is left beside its file."""
    return sorted(path.name for path in out.iterdir()), (out / "answer.json").read_text()


def merged(place: Path, out: Path) -> list[str]:
    """The command that brings two files of packed results together in one of them, which is there from the start."""
    first, second = (place / f"{name}.jsonl.gz" for name in ("first", "second"))
    for number, path in enumerate((first, second)):
        if not path.exists():
            runs = place / f"runs-{number}"
            train = odedm(*RUN, "--seeds", 3, "--seed", 3 * number, "--out", runs)
            for words in (train, odedm("runs", "pack", runs, "--out", path)):
                subprocess.run([sys.executable, "-P", *words], check=True, capture_output=True)
    target = out / "both.jsonl.gz"
    if not target.exists():
        out.mkdir(parents=True)
        shutil.copy(first, target)
    return odedm("runs", "merge", second, target, "--out", target)


def packed_bytes(out: Path) -> Any:
    """The bytes of packed results, and that nothing else is left beside them."""
    return {path.name: path.read_bytes() for path in out.iterdir()}


def scenarios(place: Path, seeds: int = 1) -> dict[str, Scenario]:
    """Return all there are, by name."""
    study = place / "study.toml"
    study.write_text(STUDY.format(seeds=seeds), encoding="utf-8")
    known = {
        "run": Scenario(lambda out: odedm(*RUN, "--seeds", 1, "--out", out), finished_runs),
        "lanes": Scenario(lambda out: odedm(*RUN, "--seeds", 4, "--workers", 2, "--out", out), finished_runs),
        "study": Scenario(lambda out: odedm("study", study, "--workers", 2, "--out", out), finished_runs),
        "tune": Scenario(lambda out: odedm(*TUNE, "--workers", 2, "--out", out), finished_runs, 2),
        "merge": Scenario(partial(merged, place), packed_bytes, 2),
        "learner": Scenario(lambda out: [str(STREAM), "learner", str(out)], saved_answer),
        "memory": Scenario(lambda out: [str(STREAM), "memory", str(out)], saved_answer, 2),
        "import": Scenario(
            # once more where it was killed after it was done, which without --overwrite is refused
            lambda _: odedm("data", "import", pictures(place), "--as", "pictures", "--overwrite"),
            tensors,
            replaces=False,
        ),
    }
    if find_spec("ray") is not None:
        words = ["--backend", "ray", "--workers", "2", "--device", "cpu"]
        known["ray"] = Scenario(lambda out: odedm("study", study, *words, "--out", out), finished_runs, 1)
    return known


def pictures(place: Path) -> Path:
    """Return a folder of pictures to import."""
    from PIL import Image

    folder = place / "pictures"
    if not folder.is_dir():
        rng = random.Random(0)
        for number in range(2000):
            path = folder / f"class {number % 4}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.frombytes("RGB", (24, 24), rng.randbytes(24 * 24 * 3)).save(path)
    return folder


def begin(words: list[str], out: Path) -> subprocess.Popen[bytes]:
    """Start a command as a user would; what it says is added to a file."""
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "ODEDM_DATA": str(out)},
            start_new_session=True,
        )


def workers(parent: int) -> list[int]:
    """Return the processes that a command has started itself, but not those of Ray, which are Ray's to replace."""
    processes = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes()
            above = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if above == parent and b"odedm." in words:
            processes.append(int(place.name))
    return sorted(processes)


def strike(child: subprocess.Popen[bytes], rng: random.Random, at_workers: float) -> str:
    """Send a random signal to the command or, so often, to a worker of it; its name, or nothing where it hit nobody."""
    name = rng.choice(SIGNALS)
    below = workers(child.pid) if rng.random() < at_workers else []
    target = rng.choice(below) if below else child.pid
    if target == child.pid and at_workers == 1:
        return ""
    try:
        os.kill(target, getattr(signal, f"SIG{name}"))
        if name == "STOP":
            time.sleep(rng.uniform(0.05, 0.3))
            os.kill(target, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return f"{name} to a worker" if target != child.pid else name


def written(out: Path) -> dict[Path, tuple[int, int]]:
    """Return every finished run's file, and when it was written."""
    stats = {path: path.stat() for path in out.rglob("seed-*/result.json")}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


def disturbed(
    scenario: Scenario, out: Path, kills: int, seconds: float, rng: random.Random, at_workers: float
) -> tuple[Counter[str], list[str]]:
    """Start the command and kill it until it ends by itself; the signals it got, and what was wrong."""
    hits: Counter[str] = Counter()
    finished: dict[Path, tuple[int, int]] = {}
    while True:
        child, struck = begin(scenario.words(out), out), ""
        while child.poll() is None:
            patient = hits.total() >= kills or (struck and "worker" not in struck)
            try:
                child.wait(LONGEST if patient else rng.uniform(0.2, seconds))
            except subprocess.TimeoutExpired:
                if patient:
                    child.kill()
                    child.wait()
                    return hits, [f"it did not end after {struck or 'its last signal'}"]
                if hit := strike(child, rng, at_workers):
                    struck = hit
                    hits[hit] += 1
        now = written(out)
        if any(now.get(path) != stamp for path, stamp in finished.items()):
            return hits, ["a finished run was lost or written again"]
        finished = now
        if child.returncode == 0:
            break
        if not struck or ("worker" in struck and scenario.replaces):
            return hits, [f"it ended with {child.returncode}{f' after {struck}' if struck else ''}"]
    log = (out.parent / f"{out.name}.log").read_text(errors="replace")
    return hits, [f"it said {noise!r}" for noise in NOISE if noise in log]


def main() -> None:
    """Return each command once undisturbed, then by turns with kills; a line about each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="by name, all that are installed unless given")
    parser.add_argument("--workers", type=float, default=1 / 3, help="the share of signals that go to workers")
    parser.add_argument("--per-round", type=int, default=PER_ROUND, help="signals to one command at most")
    parser.add_argument("--study-seeds", type=int, default=1, help="of the study, which has 6 runs for each")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    place = (given.out or Path(tempfile.mkdtemp(prefix="kill-"))).resolve()
    place.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would have its children ignore it
    known = scenarios(place, given.study_seeds)
    names = given.only or list(known)
    calm, seconds = {}, {}
    for name in names:
        out = place / f"{name}-calm"
        words, begun = known[name].words(out), time.monotonic()
        if begin(words, out).wait(LONGEST):
            raise SystemExit(f"undisturbed it failed: see '{out}.log'")
        calm[name], seconds[name] = known[name].left(out), time.monotonic() - begun
        print(f"{name}, undisturbed: {seconds[name]:.1f} s", flush=True)
    rng, wrong, told = random.Random(given.seed), 0, Counter[str]()
    for number in range(1_000_000):
        if told.total() >= given.kills:
            break
        weights = [known[name].share for name in names]
        name = names[number % len(names)] if given.kills < 20 else rng.choices(names, weights)[0]
        out = place / f"{name}-{number}"
        most = min(given.per_round, given.kills - told.total())
        kills = rng.randint(1, most) if given.per_round == PER_ROUND else most
        pause = min(seconds[name], 2 * seconds[name] / kills)
        hits, faults = disturbed(known[name], out, kills, pause, rng, given.workers)
        if not faults and known[name].left(out) != calm[name]:
            faults = ["what it left is not what the calm one left"]
        told += hits
        wrong += bool(faults)
        outcome = "; ".join(faults) + f": see {out}.log" if faults else "equal"
        print(f"{name}: {hits.total()} signals, {outcome}", flush=True)
    by_signal = ", ".join(f"{count} {signal_name}" for signal_name, count in sorted(told.items()))
    print(f"{told.total()} signals in all ({by_signal}): {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
