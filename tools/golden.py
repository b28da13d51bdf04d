"""Compare what the working tree computes with the numbers of commit b1acfb6.

python tools/golden.py compare [--only PATTERN …]   all cases on this machine, bit for bit, weights included
python tools/golden.py gate                         the choice of prototypes, held to bounds in place of bits
python tools/golden.py record                       write tests/golden/*.json anew from a checkout of b1acfb6

The cases are written in the words of b1acfb6 (tests/golden/cases_b1acfb6) and run by that commit's own code; the
working tree runs them through tests/golden/adapter.py. Numbers of b1acfb6 are kept in the user's cache, for this
processor, this torch and these cases. Differences that were meant stand in tests/golden/intended.toml with their cause.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odedm-golden"
BASE = "b1acfb6"
MOST_NAMED = 12
"""Parts of one case that are printed."""

sys.path.insert(0, str(GOLDEN.parent))

Numbers = dict[str, dict[str, Any]]


@contextmanager
def checkout() -> Iterator[Path]:
    """The code of b1acfb6 in a folder, as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="golden-base-") as place:
        packed = subprocess.run(["git", "archive", BASE, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        yield Path(place)


def begin(tree: Path, out: Path, *words: str) -> subprocess.Popen[bytes]:
    """Measure by the code of a tree, in a process of its own."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "measure", str(tree), str(out), *words]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, cwd=out.parent)


def measure(tree: Path, out: Path, only: list[str], form: str) -> None:
    """Write the numbers of whatever `odedm` is found, which must be the tree's."""
    import torch
    from golden.adapter import Today, Words
    from golden.cases_b1acfb6 import all_cases
    from golden.comparison import exact, lasting, write_numbers
    from golden.measuring import measured

    import odedm

    where = Path(str(odedm.__file__)).resolve().parent
    if where != (tree / "src" / "odedm").resolve():
        raise SystemExit(f"the numbers would come from {where}, not from {tree}")
    torch.set_num_threads(1)
    api = Today() if tree == ROOT else Words()
    if form == "gate":
        from golden.gate import measures

        write_numbers(out, measures(api))
        return
    numbers: Numbers = {}
    for name, case in all_cases().items():
        if not wanted(name, only) or (form == "lasting" and not case.short):
            continue
        begun = time.process_time()
        parts = measured(case, api)
        numbers[name] = exact(parts) if form == "exact" else lasting(parts)
        if os.environ.get("GOLDEN_TIMES"):
            print(f"{time.process_time() - begun:7.2f} s  {name}", flush=True)
    write_numbers(out, numbers)


def wanted(name: str, only: list[str]) -> bool:
    """Return whether a case is among those that were asked for."""
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def kept_file() -> Path:
    """Return where the numbers of b1acfb6 are kept: another machine, torch or case makes them anew."""
    import torch

    mark = hashlib.blake2b(digest_size=8)
    for path in sorted([*(GOLDEN / "cases_b1acfb6").glob("*.py"), GOLDEN / "comparison.py", GOLDEN / "adapter.py"]):
        mark.update(path.read_bytes() if path.name != "adapter.py" else _identity(path))
    cpu = next((line for line in _cpu() if line.startswith(("model name", "flags"))), platform.processor())
    mark.update(f"{torch.__version__} {sys.version} {cpu} {platform.machine()}".encode())
    return KEPT / f"{BASE}-{mark.hexdigest()}.json"


def _identity(path: Path) -> bytes:
    """Return the part of the adapter that runs on b1acfb6 itself."""
    return path.read_text(encoding="utf-8").partition("\nNAMES")[0].encode()


def _cpu() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.is_file() else []


def both(only: list[str]) -> tuple[Numbers, Numbers]:
    """Return the numbers of b1acfb6 and of the working tree, measured side by side."""
    from golden.comparison import read_numbers

    kept = kept_file()
    words = ["--only", *only] if only else []
    with tempfile.TemporaryDirectory(prefix="golden-numbers-") as place, checkout() as tree:
        then, now = Path(place) / "then.json", Path(place) / "now.json"
        if kept.is_file():
            wait(begin(ROOT, now, *words))
            known = read_numbers(kept)
            return {name: parts for name, parts in known.items() if wanted(name, only)}, read_numbers(now)
        wait(begin(ROOT, now, *words), begin(tree, then, *words))
        if not only:
            keep(then, kept)
        return read_numbers(then), read_numbers(now)


def keep(numbers: Path, kept: Path) -> None:
    """Put numbers where later comparisons find them, whole or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(numbers.read_bytes())
    part.replace(kept)


def wait(*children: subprocess.Popen[bytes]) -> None:
    """Wait for processes that must succeed; none outlives this one."""
    try:
        while any(child.poll() is None for child in children):
            time.sleep(0.1)
            if any(child.poll() for child in children):
                break
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    if any(child.returncode for child in children):
        raise SystemExit("measuring failed; see above")


def compare(only: list[str]) -> int:
    """Say what differs between the working tree and b1acfb6; the exit code."""
    from golden.comparison import IntendedList, different

    begun = time.monotonic()
    then, now = both(only)
    intended, differing, meant = IntendedList(GOLDEN / "intended.toml"), 0, 0
    for name in [*then, *(now.keys() - then.keys())]:
        parts = different(then.get(name, {}), now.get(name, {}))
        unexpected = intended.unexpected(name, parts)
        meant += bool(parts) and not unexpected
        if unexpected:
            differing += 1
            print(f"DIFFERENT  {name}: {_named(unexpected, now.get(name, {}))}")
    idle = [] if only else list(intended.idle())
    for entry in idle:
        print(f"IDLE  an intended difference that nothing differs by: {entry.cases}, {entry.part} ({entry.cause})")
    refused = sum("refused" in parts for parts in then.values())
    print(
        f"{len(then)} cases of {BASE}, {sum(map(len, then.values()))} parts compared, {refused} cases are refusals: "
        f"{differing} differ, {meant} as intended; {time.monotonic() - begun:.0f} s"
    )
    return 1 if differing or idle else 0


def _named(differing: list[str], now: dict[str, Any]) -> str:
    """Return the parts that differ, or what a case said that did not come to its end."""
    if "failed" in now or "removed" in now:
        return f"{'failed' if 'failed' in now else 'removed'} [{now.get('failed') or now['removed']}]"
    more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
    return ", ".join(differing[:MOST_NAMED]) + more


def gate() -> int:
    """Say whether the working tree's choice of prototypes is as good as that of b1acfb6; the exit code."""
    from golden.comparison import read_numbers
    from golden.gate import verdict

    with tempfile.TemporaryDirectory(prefix="golden-numbers-") as place:
        now = Path(place) / "now.json"
        wait(begin(ROOT, now, "--form", "gate"))
        lines, holds = verdict(read_numbers(GOLDEN / f"{BASE}_selection.json"), read_numbers(now))
    print("\n".join(lines))
    return 0 if holds else 1


def record() -> None:
    """Write the committed numbers, by the code of b1acfb6."""
    from golden.comparison import read_numbers, write_numbers

    with tempfile.TemporaryDirectory(prefix="golden-numbers-") as place, checkout() as tree:
        short, chosen = Path(place) / "short.json", Path(place) / "chosen.json"
        wait(begin(tree, short, "--form", "lasting"), begin(tree, chosen, "--form", "gate"))
        numbers, selection = read_numbers(short), read_numbers(chosen)
    broken = [f"{name}: {parts['failed']}" for name, parts in numbers.items() if "failed" in parts]
    if broken:
        raise SystemExit("\n".join(broken))
    write_numbers(GOLDEN / f"{BASE}.json", numbers)
    write_numbers(GOLDEN / f"{BASE}_selection.json", selection)
    print(f"tests/golden/{BASE}.json: {len(numbers)} cases; {BASE}_selection.json: {len(selection['rows'])} choices")


def main() -> None:
    """Do as the words say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compare").add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    commands.add_parser("gate")
    commands.add_parser("record")
    inner = commands.add_parser("measure")
    inner.add_argument("tree", type=Path)
    inner.add_argument("out", type=Path)
    inner.add_argument("--only", nargs="+", default=[])
    inner.add_argument("--form", choices=("exact", "lasting", "gate"), default="exact")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    if given.command == "measure":
        measure(given.tree, given.out, given.only, given.form)
    elif given.command == "record":
        record()
    elif given.command == "gate":
        sys.exit(gate())
    else:
        sys.exit(compare(given.only))


if __name__ == "__main__":
    main()
