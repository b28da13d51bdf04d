"""Run the tests and write down how many lines and branches of each room they take.

    python tools/coverage_by_room.py [--processes 2] [--out docs/results/coverage.json] [pytest's words]
    python tools/coverage_by_room.py --from build/coverage/data [--commit NAME] [--note TEXT]   # of before

A room is a folder of src/odedm. Processes that tests start count, but for those that are killed; bodies of Triton
kernels do not, since no Python runs them. Where tests are named, or one fails, the table is printed and nothing is
written; `--from` then writes what was measured, and `--note` beside it what was not as usual.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "odedm"
FOLDER = ROOT / "build" / "coverage"
RECORD = ROOT / "docs" / "results" / "coverage.json"
SETTINGS = f"""\
[run]
branch = true
parallel = true
source = {PACKAGE}
omit = *_triton.py
data_file = {FOLDER / "data"}
patch = subprocess, _exit
disable_warnings = no-data-collected, module-not-measured, module-not-imported
[report]
exclude_also =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
    raise NotImplementedError
"""


@dataclass
class Taken:
    """Lines and branches of a room, and how many of them were taken."""

    lines: int = 0
    lines_taken: int = 0
    branches: int = 0
    branches_taken: int = 0

    def add(self, summary: Mapping[str, int]) -> None:
        """Add those of a file, as coverage.py counts them."""
        self.lines += summary["num_statements"]
        self.lines_taken += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_taken += summary["covered_branches"]

    @property
    def percent(self) -> float:
        """The share of lines and branches together, as coverage.py has it.

        >>> Taken(10, 9, 10, 6).percent
        75.0
        """
        whole = self.lines + self.branches
        return 100.0 if whole == 0 else 100 * (self.lines_taken + self.branches_taken) / whole


def by_room(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Taken]:
    """Return the rooms of a report's files, by name; what lies beside them is under `odedm`."""
    rooms = defaultdict[str, Taken](Taken)
    for name, figures in files.items():
        inside = (ROOT / name).resolve().relative_to(PACKAGE)
        rooms[inside.parts[0] if len(inside.parts) > 1 else "odedm"].add(figures["summary"])
    return dict(sorted(rooms.items()))


def table(rooms: Mapping[str, Taken]) -> str:
    """Return a line for every room, and one for all."""
    whole = Taken(*(sum(values) for values in zip(*(asdict(room).values() for room in rooms.values()), strict=True)))
    lines = [f"{'room':14}{'lines':>8}{'taken':>8}{'branches':>10}{'taken':>8}{'%':>8}"]
    for name, room in (*rooms.items(), ("all", whole)):
        counts = f"{room.lines:8}{room.lines_taken:8}{room.branches:10}{room.branches_taken:8}"
        lines.append(f"{name:14}{counts}{room.percent:8.1f}")
    return "\n".join(lines)


def measure(words: Sequence[str], processes: str) -> int:
    """Run the tests under coverage.py, and in the processes they start; what was measured is in `FOLDER`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("data*"):
        old.unlink()
    settings = FOLDER / "settings"
    settings.write_text(SETTINGS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-P", "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-n", processes]
    # measuring makes tests that have a time limit slower
    done = subprocess.run([*command, "--timeout=900", *words], cwd=ROOT, env=environment, check=False)
    _coverage("combine", "--quiet")
    return done.returncode


def _coverage(*words: str) -> None:
    program = [sys.executable, "-P", "-m", "coverage", words[0], f"--rcfile={FOLDER / 'settings'}", *words[1:]]
    subprocess.run(program, cwd=ROOT, check=True)


def read(data: Path) -> dict[str, Taken]:
    """Return the rooms of what was measured."""
    report = FOLDER / "report.json"
    _coverage("json", "--quiet", f"--data-file={data}", "-o", str(report))
    return by_room(json.loads(report.read_text(encoding="utf-8"))["files"])


def written(rooms: Mapping[str, Taken], commit: str, note: str = "") -> str:
    """Return the record: of which commit, what was not as usual, and rooms with their numbers, a line each."""
    lines = [f"  {json.dumps(name)}: {json.dumps(asdict(room))}" for name, room in rooms.items()]
    head = f' "commit": {json.dumps(commit)},\n' + (f' "note": {json.dumps(note)},\n' if note else "")
    return "{\n" + head + ' "rooms": {\n' + ",\n".join(lines) + "\n }\n}\n"


def commit_of(folder: Path = ROOT) -> str:
    """Return the commit of a checkout, with a mark where it has changes; `unknown` where there is none."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--processes", default="auto", help="of pytest-xdist")
    options.add_argument("--out", type=Path, default=RECORD)
    options.add_argument("--from", dest="data", type=Path, help="what was measured before; runs nothing")
    options.add_argument("--commit", default=None, help="that of what was measured before, unless it is this one")
    options.add_argument("--note", default="", help="what was not as usual, e.g. that tests failed")
    given, words = options.parse_known_args(argv)
    failed = 0 if given.data else measure(words, given.processes)
    rooms = read(given.data or FOLDER / "data")
    print(table(rooms))
    if failed or words:
        print(f"Not written: {'tests failed' if failed else 'not all tests were run'}.")
        return failed
    given.out.write_text(written(rooms, given.commit or commit_of(), given.note), encoding="utf-8")
    print(f"Written into '{given.out}'.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
