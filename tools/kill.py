"""Kill commands again and again, by random signals at random moments, and compare what they leave with calm ones.

python tools/kill.py --kills 300 [--seed 0] [--only run lanes study import ray] [--out FOLDER]

Signals are KILL, TERM, INT, HUP and STOP with KILL after it; they go to the command itself or to one of its workers.
What was killed is started again with the same words until it ends by itself. Compared bit for bit are accuracies,
memories and imported tensors; a command that fails without being killed, does not end, or leaves
noise on its error stream counts as wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from golden.adapter import Today
from golden.cases_b1acfb6.commands import stored
from golden.comparison import exact
from kill_study import SMALL

SIGNALS = ("KILL", "TERM", "INT", "HUP", "STOP")
RUN = ["run", "--method", "derpp", "--memory", "odedm", "--data", "blobs", "--batch", "1", "--device", "cpu"]
RUN += ["--capacity", "30", "--checkpoint", "60 steps"]
NOISE = ("Traceback", "BrokenPipe", "Exception ignored", "Fatal Python error")
LONGEST = 300.0
"""Seconds after which a command hangs."""
PER_ROUND = 6
"""How often one command is killed at most before it may end, so that many of them do."""


@dataclass(frozen=True)
class Scenario:
    """A command that writes into a folder, and what of it must not depend on kills."""

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


def scenarios(place: Path) -> dict[str, Scenario]:
    """All there are, by name."""
    study = place / "small.toml"
    study.write_text(SMALL, encoding="utf-8")
    known = {
        "run": Scenario(lambda out: [*RUN, "--seeds", "1", "--out", str(out)], finished_runs),
        "lanes": Scenario(lambda out: [*RUN, "--seeds", "4", "--workers", "2", "--out", str(out)], finished_runs),
        "study": Scenario(lambda out: ["study", str(study), "--workers", "2", "--out", str(out)], finished_runs),
        "import": Scenario(
            # once more where it was killed after it was done, which without --overwrite is refused
            lambda _: ["data", "import", str(pictures(place)), "--as", "pictures", "--overwrite"],
            tensors,
            replaces=False,
        ),
    }
    if find_spec("ray") is not None:
        words = ["--backend", "ray", "--workers", "2", "--device", "cpu"]
        known["ray"] = Scenario(lambda out: ["study", str(study), *words, "--out", str(out)], finished_runs, 1)
    return known


def pictures(place: Path) -> Path:
    """A folder of pictures to import."""
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
            [sys.executable, "-P", "-m", "odedm", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "ODEDM_DATA": str(out)},
            start_new_session=True,
        )


def workers(parent: int) -> list[int]:
    """The processes that a command has started itself, but not those of Ray, which are Ray's to replace."""
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


def strike(child: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Send a random signal to the command or, one time in three, to a worker of it; its name."""
    name = rng.choice(SIGNALS)
    below = workers(child.pid) if rng.random() < 1 / 3 else []
    target = rng.choice(below) if below else child.pid
    try:
        os.kill(target, getattr(signal, f"SIG{name}"))
        if name == "STOP":
            time.sleep(rng.uniform(0.05, 0.3))
            os.kill(target, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return f"{name} to a worker" if target != child.pid else name


def disturbed(
    scenario: Scenario, out: Path, kills: int, seconds: float, rng: random.Random, told: Counter[str]
) -> tuple[int, list[str]]:
    """Start the command and kill it until it ends by itself; how many signals it got, and what was wrong."""
    done = 0
    while True:
        child = begin(scenario.words(out), out)
        struck = ""
        try:
            code = child.wait(rng.uniform(0.2, seconds) if done < kills else LONGEST)
        except subprocess.TimeoutExpired:
            if done >= kills:
                child.kill()
                child.wait()
                return done, ["it did not end"]
            struck = strike(child, rng)
            done += bool(struck)
            told[struck] += bool(struck)
            try:
                code = child.wait(LONGEST)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return done, [f"it did not end after {struck}"]
        if code == 0:
            break
        if not struck or ("worker" in struck and scenario.replaces):
            return done, [f"it ended with {code}{f' after {struck}' if struck else ''}"]
    log = (out.parent / f"{out.name}.log").read_text(errors="replace")
    return done, [f"it said {noise!r}" for noise in NOISE if noise in log]


def main() -> None:
    """Each command once undisturbed, then by turns with kills; a line about each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="run, lanes, study, import, ray; all that are installed unless given")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    place = (given.out or Path(tempfile.mkdtemp(prefix="kill-"))).resolve()
    place.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would have its children ignore it
    known = scenarios(place)
    names = given.only or list(known)
    calm, seconds = {}, {}
    for name in names:
        begun = time.monotonic()
        out = place / f"{name}-calm"
        if begin(known[name].words(out), out).wait(LONGEST):
            raise SystemExit(f"undisturbed it failed: see '{out}.log'")
        calm[name], seconds[name] = known[name].left(out), time.monotonic() - begun
        print(f"{name}, undisturbed: {seconds[name]:.1f} s", flush=True)
    rng, killed, wrong, told = random.Random(given.seed), 0, 0, Counter[str]()
    for number in range(1_000_000):
        if killed >= given.kills:
            break
        weights = [known[name].share for name in names]
        name = names[number % len(names)] if given.kills < 20 else rng.choices(names, weights)[0]
        out = place / f"{name}-{number}"
        most = min(PER_ROUND, given.kills - killed)
        signals, faults = disturbed(known[name], out, rng.randint(1, most), seconds[name], rng, told)
        if not faults and known[name].left(out) != calm[name]:
            faults = ["what it left is not what the calm one left"]
        killed, wrong = killed + signals, wrong + bool(faults)
        outcome = "; ".join(faults) + f": see {out}.log" if faults else "equal"
        print(f"{name}: {signals} signals, {outcome}", flush=True)
    by_signal = ", ".join(f"{count} {signal_name}" for signal_name, count in sorted(told.items()))
    print(f"{killed} signals in all ({by_signal}): {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
