"""Kill random workers of a command again and again, and compare its results with those of one that nobody disturbed.

python tools/kill_workers.py --kills 20 -- run --method derpp --memory odedm --data blobs --batch 1 --seeds 8 --lanes 2
python tools/kill_workers.py --kills 20 -- study FILE.toml --lanes 2

The command itself is left alone: it must replace its workers and finish every run. If it ends before so many workers
were killed it is started again in another folder. Compared are accuracies and memories, bit for bit.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "golden"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from golden import stored


def command(words: list[str], out: Path) -> list[str]:
    """The command a user would type."""
    return [sys.executable, "-P", "-m", "odedm", *words, "--out", str(out)]


def workers(parent: int) -> list[int]:
    """The worker processes of a command."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            above = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if above == parent and b"odedm.execute.worker" in words:
            found.append(int(place.name))
    return sorted(found)


def disturbed(words: list[str], out: Path, kills: int, gap: tuple[float, float], rng: random.Random) -> int:
    """Run the command and kill workers of it; how many were killed before it was over."""
    done = 0
    with (out.parent / f"{out.name}.log").open("wb") as said:
        child = subprocess.Popen(command(words, out), stdout=said, stderr=said)
        while True:
            try:
                code = child.wait(rng.uniform(*gap))
                break
            except subprocess.TimeoutExpired:
                able = workers(child.pid) if done < kills else []
                if able:
                    os.kill(rng.choice(able), signal.SIGKILL)
                    done += 1
    if code:
        raise SystemExit(f"the command ended with {code}; see '{said.name}'")
    return done


def differences(calm: dict[str, Any], rough: dict[str, Any]) -> list[str]:
    """Runs that are missing, or not equal."""
    return [name for name in sorted(calm | rough) if calm.get(name) != rough.get(name)]


def main() -> None:
    """Once undisturbed, then with kills; a sentence about each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--gap", type=float, nargs=2, default=(2.0, 6.0), help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("words", nargs="+", help="a command of odedm, after --")
    given = parser.parse_args()
    place = given.out or Path(tempfile.mkdtemp(prefix="kill-workers-"))
    place.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    subprocess.run(command(given.words, place / "calm"), check=True, capture_output=True)
    calm = stored(place / "calm")
    print(f"undisturbed: {len(calm)} runs in {time.monotonic() - begun:.1f} s", flush=True)
    rng, killed, wrong = random.Random(given.seed), 0, 0
    while killed < given.kills:
        out, begun = place / f"after-{killed}-kills", time.monotonic()
        own = disturbed(given.words, out, given.kills - killed, given.gap, rng)
        if not own:
            raise SystemExit("no worker was there to be killed: give a command that takes longer, or a smaller --gap")
        killed += own
        different = differences(calm, stored(out))
        wrong += len(different)
        equal, seconds = len(calm) - len(different), time.monotonic() - begun
        print(f"{own} workers killed: {equal} of {len(calm)} runs equal, {seconds:.1f} s", flush=True)
    print(f"{killed} workers killed in all, {wrong} runs missing or different; in '{place}'")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
