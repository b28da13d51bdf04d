"""Compare what the working tree computes with the numbers of commit b1acfb6.

python tools/golden.py compare [--only PATTERN …]   all cases on this machine, bit for bit, weights included
python tools/golden.py gate                         the choice of prototypes, held to bounds in place of bits
python tools/golden.py record                       write tests/golden/*.json anew from a checkout of b1acfb6

The cases are written in the words of b1acfb6 (tests/golden/cases_b1acfb6) and run by that commit's own code; the
working tree runs them through tests/golden/adapter.py. Numbers of b1acfb6 are kept below build/golden/, for this
machine, this torch and these cases. Differences that were meant stand in tests/golden/intended.toml with their cause.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
KEPT = ROOT / "build" / "golden"
BASE = "b1acfb6"

sys.path.insert(0, str(GOLDEN))

Numbers = dict[str, dict[str, Any]]


@contextmanager
def checkout() -> Iterator[Path]:
    """A checkout of b1acfb6, as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="golden-base-") as place:
        tree = Path(place) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), BASE], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def begin(tree: Path, out: Path, *words: str) -> subprocess.Popen[bytes]:
    """Measure by the code of a tree, in a process of its own."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "here", str(tree), str(out), *words]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, cwd=out.parent)


def here(tree: Path, out: Path, only: list[str], form: str) -> None:
    """Write the numbers of whatever `odedm` is found, which must be the tree's."""
    import torch
    from adapter import Today, Words
    from cases_b1acfb6 import all_cases
    from comparison import exact, lasting, write_numbers
    from measuring import measured

    import odedm

    where = Path(str(odedm.__file__)).resolve().parent
    if where != (tree / "src" / "odedm").resolve():
        raise SystemExit(f"the numbers would come from {where}, not from {tree}")
    torch.set_num_threads(1)
    api = Today() if tree == ROOT else Words()
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
    """Whether a case is among those that were asked for."""
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def kept_file() -> Path:
    """Where the numbers of b1acfb6 are kept: another machine, torch or case makes them anew."""
    import torch

    mark = hashlib.blake2b(digest_size=8)
    for path in sorted([*(GOLDEN / "cases_b1acfb6").glob("*.py"), GOLDEN / "comparison.py", GOLDEN / "adapter.py"]):
        mark.update(path.read_bytes() if path.name != "adapter.py" else _identity(path))
    cpu = next((line for line in _cpu() if line.startswith(("model name", "flags"))), platform.processor())
    mark.update(f"{torch.__version__} {sys.version} {cpu} {platform.machine()}".encode())
    return KEPT / f"{BASE}-{mark.hexdigest()}.json"


def _identity(path: Path) -> bytes:
    """The part of the adapter that runs on b1acfb6 itself."""
    return path.read_text(encoding="utf-8").partition("\nNAMES")[0].encode()


def _cpu() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.is_file() else []


def both(only: list[str]) -> tuple[Numbers, Numbers]:
    """The numbers of b1acfb6 and of the working tree, measured side by side."""
    from comparison import read_numbers

    kept = kept_file()
    words = ["--only", *only] if only else []
    with tempfile.TemporaryDirectory(prefix="golden-numbers-") as place:
        then, now = Path(place) / "then.json", Path(place) / "now.json"
        children = [begin(ROOT, now, *words)]
        if kept.is_file():
            wait(children)
            known = read_numbers(kept)
            return {name: parts for name, parts in known.items() if wanted(name, only)}, read_numbers(now)
        with checkout() as tree:
            children.append(begin(tree, then, *words))
            wait(children)
        if not only:
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.replace(_beside(then, kept), kept)
            return read_numbers(kept), read_numbers(now)
        return read_numbers(then), read_numbers(now)


def _beside(file: Path, kept: Path) -> Path:
    part = kept.with_suffix(".part")
    part.write_bytes(file.read_bytes())
    return part


def wait(children: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that must succeed."""
    for child in children:
        if child.wait():
            for other in children:
                other.kill()
            raise SystemExit("measuring failed; see above")


def compare(only: list[str]) -> int:
    """Say what differs between the working tree and b1acfb6; the exit code."""
    from comparison import IntendedList, different

    begun = time.monotonic()
    then, now = both(only)
    intended, differing, meant = IntendedList(GOLDEN / "intended.toml"), 0, 0
    for name in [*then, *(now.keys() - then.keys())]:
        parts = different(then.get(name, {}), now.get(name, {}))
        unexpected = intended.unexpected(name, parts)
        meant += bool(parts) and not unexpected
        if unexpected:
            differing += 1
            print(f"DIFFERENT  {name}: {', '.join(unexpected)}{_why(now.get(name, {}))}")
    idle = [] if only else list(intended.idle())
    for entry in idle:
        print(f"IDLE  an intended difference that nothing differs by: {entry.cases}, {entry.part} ({entry.cause})")
    refused = sum("refused" in parts for parts in then.values())
    print(
        f"{len(then)} cases of {BASE}, {sum(map(len, then.values()))} parts compared, {refused} cases are refusals: "
        f"{differing} differ, {meant} as intended; {time.monotonic() - begun:.0f} s"
    )
    return 1 if differing or idle else 0


def _why(parts: dict[str, Any]) -> str:
    """What a case said that did not come to its end."""
    return "".join(f" [{parts[word]}]" for word in ("failed", "removed") if word in parts)


def record() -> None:
    """Write the committed numbers, by the code of b1acfb6."""
    from comparison import read_numbers, write_numbers

    with tempfile.TemporaryDirectory(prefix="golden-numbers-") as place, checkout() as tree:
        out = Path(place) / "then.json"
        wait([begin(tree, out, "--form", "lasting")])
        numbers = read_numbers(out)
    broken = [f"{name}: {parts['failed']}" for name, parts in numbers.items() if "failed" in parts]
    if broken:
        raise SystemExit("\n".join(broken))
    write_numbers(GOLDEN / f"{BASE}.json", numbers)
    print(f"tests/golden/{BASE}.json: {len(numbers)} cases")


def main() -> None:
    """Do as the words say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compare").add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    commands.add_parser("record")
    inner = commands.add_parser("here")
    inner.add_argument("tree", type=Path)
    inner.add_argument("out", type=Path)
    inner.add_argument("--only", nargs="+", default=[])
    inner.add_argument("--form", choices=("exact", "lasting"), default="exact")
    given = parser.parse_args()
    if given.command == "here":
        here(given.tree, given.out, given.only, given.form)
    elif given.command == "record":
        record()
    else:
        sys.exit(compare(given.only))


if __name__ == "__main__":
    main()
