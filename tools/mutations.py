"""Break the code on purpose, one line at a time, and see which test notices.

python tools/mutations.py [NAME …]     all faults, or those of these names

tools/mutations.toml lists the faults: in which file which text becomes which other one, and the tests that are to fail.
Each is made in a copy of the working tree, whose tests must pass without it. A text that is no longer there, or is
there twice, is reported and counts as an error: follow the renamed code in that table.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 900
"""Seconds after which a test run counts as failed: a fault may keep a loop from ending."""


@dataclass(frozen=True)
class Mutation:
    """A fault: `old`, which is there once in `file`, becomes `new`; `tests` are what pytest is given."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def copy_tree(folder: Path) -> None:
    """Copy all files of the working tree that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def first_failure(folder: Path, tests: list[str]) -> str | None:
    """Run tests in a copy of the tree until one fails; its name, with the error if it is none of its assertions.

    None where all pass.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"}
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LONGEST} s"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - (?:(\S+(?:Error|Exception)): )?.*)?$", done.stdout, re.MULTILINE)
    if found is None:
        return (done.stdout + done.stderr).strip().splitlines()[-1]
    return found[1] if found[2] in (None, "AssertionError") else f"{found[1]} by {found[2]}"


def judge(mutation: Mutation, folder: Path) -> tuple[bool, str]:
    """Whether a fault is noticed, and by which test of each place where it is looked for."""
    path = folder / mutation.file
    missing = [name for name in [mutation.file, *mutation.tests] if not (folder / name.split("::")[0]).exists()]
    if missing:
        return False, f"NO SUCH FILE: {', '.join(missing)}"
    before = path.read_text()
    if before.count(mutation.old) != 1:
        return False, f"TEXT FOUND {before.count(mutation.old)} TIMES in {mutation.file}: {mutation.old}"
    path.write_text(before.replace(mutation.old, mutation.new))
    try:
        failures = [first_failure(folder, [place]) for place in mutation.tests]
    finally:
        path.write_text(before)
    caught = [failure for failure in failures if failure]
    quiet = [place for place, failure in zip(mutation.tests, failures, strict=True) if not failure]
    words = ", ".join(caught) or "NOT CAUGHT"
    return bool(caught), words + (f" (not by {', '.join(quiet)})" if quiet else "")


def main(names: list[str]) -> int:
    """Make each fault in turn and print what caught it; 1 where one got through or cannot be made."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutation"]
    mutations = [Mutation(**entry) for entry in table]
    unknown = set(names) - {mutation.name for mutation in mutations}
    if unknown:
        print(f"No such mutation: {', '.join(sorted(unknown))}.")
        return 2
    chosen = [mutation for mutation in mutations if not names or mutation.name in names]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_tree(folder)
        tests = sorted({place for mutation in chosen for place in mutation.tests if (folder / place).exists()})
        for place in tests:
            failure = first_failure(folder, [place])
            print(f"without a fault: {place}: {failure or 'passes'}", flush=True)
            if failure:
                return 1
        escaped = 0
        for mutation in chosen:
            start = time.perf_counter()
            caught, words = judge(mutation, folder)
            escaped += not caught
            print(f"{mutation.name:<44} {time.perf_counter() - start:4.0f} s  {words}", flush=True)
    print(f"{len(chosen) - escaped} of {len(chosen)} faults were caught.")
    return min(escaped, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
