"""Kill a study at random moments until it is complete, and compare it with one that nobody disturbed.

python tools/kill_study.py --kills 10 [--seed 0] [--study mini | --small] [--ray] [--out FOLDER]

Checks that no finished run is ever written or started again, that nothing is lost, and that the tables are equal but
for their times. With --ray the same study is run on a Ray of two workers too, one of which is killed in mid-run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

STUDY = """
data = "blobs"
method = ["er", "derpp"]
memory = ["plain", "odedm"]
capacity = 30
rho = [0.25, 0.5]
dac = "paper"
batch = 1
seeds = 3

"""


SMALL = STUDY.replace('["er", "derpp"]', '"er"').replace("seeds = 3", "seeds = 2").replace("batch = 1", "batch = 2")


def command(study: str, out: Path, engine: str, lanes: int) -> list[str]:
    """The command a user would type."""
    words = [sys.executable, "-P", "-m", "odedm", "study", study, "--out", str(out), "--device", "cpu"]
    return [*words, "--backend", engine, "--workers", str(lanes)]


def fingerprints(out: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every finished run: which file it is, when it was written, and what it holds."""
    results = {}
    for path in out.glob("runs/*/seed-*/result.json"):
        stat = path.stat()
        results[str(path.relative_to(out))] = (stat.st_ino, stat.st_mtime_ns, path.read_bytes())
    return results


def table(out: Path) -> list[dict[str, str]]:
    """The table without its times."""
    with (out / "table.csv").open(encoding="utf-8") as file:
        return [{name: value for name, value in row.items() if "seconds" not in name} for row in csv.DictReader(file)]


def journal(out: Path) -> list[dict[str, str]]:
    """The journal's lines; one that was cut short is passed over."""
    entries = []
    for line in (out / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def check(out: Path, calm: Path, kills: int) -> str:
    """What was promised; a sentence with the counts."""
    if table(out) != table(calm):
        raise SystemExit("the tables differ")
    over: set[str] = set()
    starts: Counter[str] = Counter()
    for line in journal(out):
        if line["event"] == "started":
            if line["key"] in over:
                raise SystemExit(f"{line['key']} was started again after it was finished")
            starts[line["key"]] += 1
        elif line["event"] == "finished":
            over.add(line["key"])
    runs = len(fingerprints(out))
    if runs != len(fingerprints(calm)):
        raise SystemExit("runs were lost")
    again = sum(number - 1 for number in starts.values())
    return f"{runs} runs, killed {kills} times, {again} runs went on after a kill; equal tables"


def disturbed(words: list[str], out: Path, kills: int, rng: random.Random, longest: float) -> int:
    """Start the study, kill it, start it again; the last time to its end. How often it was killed in its work."""
    done = 0
    known: dict[str, tuple[int, int, bytes]] = {}
    while True:
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        try:
            code = child.wait(rng.uniform(0.5, longest) if done < kills else None)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)  # the driver alone: its lanes must notice by themselves
            child.communicate()
            done += 1
            now = fingerprints(out) if out.is_dir() else {}
            if any(now.get(name) != mark for name, mark in known.items()):
                raise SystemExit("a finished run was lost or written again") from None
            known = now
            print(f"kill {done}: {len(now)} runs finished", flush=True)
            continue
        output = child.communicate()[1].decode()
        if code:
            raise SystemExit(f"the study ended with {code}: {output}")
        if any(fingerprints(out).get(name) != mark for name, mark in known.items()):
            raise SystemExit("a finished run was lost or written again")
        return done


def bereft(words: list[str], out: Path) -> str:
    """Run the study and kill the first worker that is seen at a run; a sentence about who took its place."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
        victim = None
        while child.poll() is None:
            lines = journal(out) if (out / "journal.jsonl").is_file() else []
            over = {line["key"] for line in lines if line["event"] == "finished"}
            seen = [line for line in lines if line["event"] == "under way" and line["kind"] == "run"]
            fresh = [line for line in seen if line["key"] not in over]
            if victim is None and fresh:
                victim = fresh[-1]
                os.kill(int(victim["process"]), signal.SIGKILL)
            time.sleep(0.02)
        log.seek(0)
        if child.returncode:
            raise SystemExit(f"the study ended with {child.returncode}: {log.read().decode()}")
    if victim is None:
        raise SystemExit("no worker was seen at a run, so none was killed")
    key = victim["key"]
    who = [line["process"] for line in journal(out) if line["event"] == "under way" and line["key"] == key]
    return f"worker {victim['process']} was killed in mid-run; the run was done by {who[-1]}"


def main() -> None:
    """Run both studies and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--study", help="a study's name or file instead of the one in here")
    parser.add_argument("--longest", type=float, help="seconds until a kill at most")
    parser.add_argument("--small", action="store_true", help="a third of the runs")
    parser.add_argument("--ray", action="store_true", help="also on a Ray of two workers, one of which is killed")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    place = given.out or Path(tempfile.mkdtemp(prefix="kill-study-"))
    place.mkdir(parents=True, exist_ok=True)
    default = place / "small.toml"
    default.write_text(SMALL if given.small else STUDY, encoding="utf-8")
    study = given.study or str(default)
    calm, rough = place / "calm", place / "rough"
    begun = time.monotonic()
    subprocess.run(command(study, calm, "local", given.workers), check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - begun
    print(f"undisturbed: {whole:.1f} s", flush=True)
    rng = random.Random(given.seed)
    longest = given.longest or 0.6 * whole
    kills = disturbed(command(study, rough, "local", given.workers), rough, given.kills, rng, longest)
    print(check(rough, calm, kills), flush=True)
    if given.ray:
        print(bereft(command(study, place / "ray", "ray", 2), place / "ray"), flush=True)
        print(f"on Ray: {check(place / 'ray', calm, 0)}")
    print(f"in '{place}'")


if __name__ == "__main__":
    main()
