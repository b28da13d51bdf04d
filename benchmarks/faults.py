"""Runs as real processes, killed with SIGKILL at random steps and started again: do they end as if unharmed.

    python benchmarks/faults.py --kills 216 --out docs/measured/faults

Every method with several memories. A run is started by its command, waited for until its checkpoints have reached a
random step (or, now and then, until it has only just begun), killed a random moment later, and started again by the
same command; after its share of kills it may end. What it wrote is compared with what the same command wrote in one
go: weights, memory and result, bit for bit, but for times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odedm.core.files import write_text
from odedm.core.registry import METHODS

MEMORIES = {
    "reservoir": ["--memory", "reservoir"],
    "native": ["--memory", "native"],
    "odedm": ["--k", "1", "--replay", "auxiliary"],
    "odedm, bounded candidates": ["--k", "1", "--candidates", "6", "--replay", "both"],
    "odedm, logits of the stream": ["--k", "1", "--annotate", "stream", "--replay", "union"],
}
STREAM = ["--data", "blobs", "--capacity", "40", "--batch", "4", "--device", "cpu", "--workers", "1"]
EVERY = 3
"""Steps from checkpoint to checkpoint: about half of the kills then fall into the writing of one."""


@dataclass
class Case:
    """A method with a memory, its kills, and how it ended."""

    method: str
    memory: str
    kills: int
    survived: int = 0
    at: list[int] = field(default_factory=list)
    """The step that the next start went on from; 0 where it began anew, for nothing had been stored."""
    torn: int = 0
    """Kills that fell into the writing of a checkpoint or of the result."""
    rows_lost: int = 0
    wrong: list[str] = field(default_factory=list)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=216)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--beside", type=int, default=2, help="cases at once")
    words.add_argument("--cases", type=int, help="only so many, chosen by the seed")
    words.add_argument("--out", type=Path, help="write NAME.json and NAME.md")
    given = words.parse_args()
    cases = plan(given.kills, given.cases, given.seed)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.beside) as pool:
        jobs = [
            pool.submit(torment, case, Path(folder) / str(number), random.Random(f"{given.seed} {number}"))
            for number, case in enumerate(cases)
        ]
        for job in jobs:
            case = job.result()
            print(
                f"{case.method} · {case.memory}: {case.survived} of {case.kills}, {case.wrong or 'equal'}", flush=True
            )
    summary = summarise(cases) | {"seed": given.seed, "seconds": round(time.monotonic() - start)}
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        plain = {**summary, "cases": [asdict(case) for case in cases]}
        write_text(given.out.with_suffix(".json"), json.dumps(plain, indent=1) + "\n")
        write_text(given.out.with_suffix(".md"), table(cases, summary))
    print(json.dumps(summary))
    sys.exit(0 if summary["survived"] == summary["kills"] and not summary["wrong"] else 1)


def plan(kills: int, amount: int | None, seed: int) -> list[Case]:
    """The cases with their shares of the kills."""
    keeping = [name for name, entry in METHODS.items() if not entry.bound]  # bounds have no memory
    pairs = [(method, memory) for memory in MEMORIES for method in keeping]
    if amount is not None:
        pairs = random.Random(seed).sample(pairs, amount)
    return [Case(*pair, kills // len(pairs) + (number < kills % len(pairs))) for number, pair in enumerate(pairs)]


def torment(case: Case, folder: Path, chance: random.Random) -> Case:
    """One run in one go, one that is killed again and again, and what differs."""
    straight = folder / "straight"
    done = start(case, straight).wait()
    if done:
        case.wrong.append(f"the straight run ended with {done}: {said(straight)}")
        return case
    total, left = steps_of(straight), case.kills
    for number in range(100):  # a run that was through before its last blow is made once more
        if not left or case.wrong:
            return case
        killed = folder / f"killed-{number}"
        before = left
        for target in sorted(chance.sample(range(total), left)):
            if not strike(case, killed, 0 if chance.random() < 0.15 else target, chance):
                break
            left -= 1
        done = start(case, killed).wait()
        if done:
            case.wrong.append(f"the last start ended with {done}: {said(killed)}")
            return case
        case.wrong += compare(straight, killed)
        case.rows_lost += len(stored(straight) - stored(killed))
        case.survived += 0 if case.wrong else before - left
    return case


def strike(case: Case, folder: Path, target: int, chance: random.Random) -> bool:
    """Start the run and kill it after step `target`; whether the blow hit."""
    begun, process, until = newest(folder), start(case, folder), time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if newest(folder) > max(target, begun) if target else list(folder.glob("*/.*.work/lock")):
            time.sleep(chance.random() * (0.02 if target else 0.3))
            break
        time.sleep(0.001)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        return False
    case.torn += bool(list(folder.glob("*/.*.work/checkpoints/.step-*")) or list(folder.glob("*/.seed-0.[0-9]*")))
    case.at.append(newest(folder))
    return True


def start(case: Case, folder: Path) -> subprocess.Popen[bytes]:
    """The run's own command, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["run", "--method", case.method, *MEMORIES[case.memory], *STREAM, "--out", str(folder)]
    words += ["--checkpoint", f"{EVERY} steps", "--json"]
    with (folder / "stderr").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", __file__, "--as-odedm", str(folder / "weights"), *words],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def as_odedm(weights: Path, words: list[str]) -> None:
    """`odedm` with these words, and beside the result a digest of the weights, which no result holds."""
    from odedm.cli.app import main as command
    from odedm.training.run import Outcome

    original = Outcome.save

    def and_weights(outcome: Outcome, *args: Any, **options: Any) -> Path:
        digest = hashlib.sha256()
        for name, value in outcome.method.net.state_dict().items():
            digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        weights.write_text(digest.hexdigest())
        return original(outcome, *args, **options)

    Outcome.save = and_weights  # type: ignore[method-assign]
    sys.argv = ["odedm", *words]
    command()


def newest(folder: Path) -> int:
    """The step of the newest checkpoint; 0 where there is none."""
    return max((int(path.name[5:]) for path in folder.glob("*/.seed-0.work/checkpoints/step-*")), default=0)


def said(folder: Path) -> str:
    return (folder / "stderr").read_text()[-300:]


def result_of(folder: Path) -> dict[str, Any]:
    """The result but for times, and but for the commit: someone may make one meanwhile."""
    (path,) = folder.glob("*/seed-0/result.json")
    plain = dict(json.loads(path.read_text()))
    del plain["seconds"]
    for name in ("finished", "commit", "notes"):
        plain["provenance"].pop(name, None)
    return plain


def steps_of(folder: Path) -> int:
    return int(result_of(folder)["provenance"]["steps"]["eager"])


def stored(folder: Path) -> set[int]:
    """The rows in the final memory, by their place in the data."""
    from safetensors.numpy import load_file

    (path,) = folder.glob("*/seed-0/memory.safetensors")
    return set(load_file(path)["index"].tolist())


def compare(straight: Path, killed: Path) -> list[str]:
    """What differs between two runs."""
    wrong = [name for name in ("weights",) if (straight / name).read_text() != (killed / name).read_text()]
    one, other = (next(each.glob("*/seed-0/memory.safetensors")).read_bytes() for each in (straight, killed))
    if one != other:
        wrong.append("memory")
    a, b = result_of(straight), result_of(killed)
    wrong += [f"result: {name}" for name in a if a[name] != b.get(name)]
    left = [path.name for path in killed.rglob(".*")]
    return wrong + ([f"left behind: {left[0]}"] if left else [])


def summarise(cases: list[Case]) -> dict[str, Any]:
    return {
        "methods": len({case.method for case in cases}),
        "cases": len(cases),
        "kills": sum(case.kills for case in cases),
        "survived": sum(case.survived for case in cases),
        "torn": sum(case.torn for case in cases),
        "before_any_checkpoint": sum(at == 0 for case in cases for at in case.at),
        "rows_lost": sum(case.rows_lost for case in cases),
        "wrong": sum(bool(case.wrong) for case in cases),
    }


def table(cases: list[Case], summary: dict[str, Any]) -> str:
    head = "| method | memory | kills survived / tried | into a write | went on from step | rows lost | differs |\n"
    rows = [
        f"| {case.method} | {case.memory} | {case.survived} / {case.kills} | {case.torn} | "
        f"{', '.join(map(str, case.at))} | {case.rows_lost} | {'; '.join(case.wrong) or 'nothing'} |\n"
        for case in cases
    ]
    total = (
        f"| **all** | | {summary['survived']} / {summary['kills']} | {summary['torn']} | | {summary['rows_lost']} | "
    )
    return head + "|---|---|---|---|---|---|---|\n" + "".join(rows) + total + f"{summary['wrong']} cases |\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-odedm"]:
        as_odedm(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
