"""Compare what two versions of the code compute on this machine, bit for bit; or make the tests' golden files again.

python tools/golden.py compare [--base 51b1e5e]     the working tree against a commit
python tools/golden.py remake NAME …                 write tests/golden/NAME.json anew, because numbers were to change

Compared are accuracy matrices, the rows in memory, the choice of prototypes and a checksum of the final weights: of
runs in this process, of one that is killed and goes on, of lanes, and of a study. Never how files are laid out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
BASE = "51b1e5e"
STUDY = """
name = "golden"
data = "blobs"
method = ["er", "fdr"]
memory = ["plain", "odedm"]
capacity = 30
rho = [0.25, 0.5]
dac = "paper"
replay = "auxiliary"
batch = 16
seeds = 2
evidence = true
anytime = 2

[select]
tasks = 2
seeds = [77]
"""

sys.path.insert(0, str(GOLDEN))

Numbers = dict[str, Any]


def in_process() -> Numbers:
    """Every case, trained here by whatever `odedm` is found."""
    from cases import exact, full_cases, trained

    return {name: exact(trained(case)) for name, case in full_cases().items()}


def odedm(*words: str) -> list[str]:
    """The command a user would type."""
    return [sys.executable, "-P", "-m", "odedm", *words]


def command_line(place: Path) -> Numbers:
    """Runs by commands: killed and resumed, in lanes, and as a study."""
    common = [
        "--method",
        "derpp",
        "--memory",
        "odedm",
        "--replay",
        "auxiliary",
        "--evidence",
        "--anytime",
        "2",
        "--device",
        "cpu",
    ]
    killed = odedm("run", *common, "--checkpoint", "7 steps", "--out", str(place / "killed"))
    kill_midway([*killed, "--events", str(place / "events.jsonl")], place / "events.jsonl")
    subprocess.run(killed, check=True, capture_output=True)
    lanes = odedm("run", *common, "--data", "blobs", "--seeds", "3", "--lanes", "2", "--out", str(place / "lanes"))
    subprocess.run(lanes, check=True, capture_output=True)
    (place / "golden.toml").write_text(STUDY)
    study = odedm("study", str(place / "golden.toml"), "--lanes", "2", "--device", "cpu", "--out", str(place / "study"))
    subprocess.run(study, check=True, capture_output=True)
    return {f"{name}: {key}": own for name in ("killed", "lanes", "study") for key, own in stored(place / name).items()}


def kill_midway(words: list[str], events: Path) -> None:
    """Start a command and kill it once it has learned some rows."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and child.poll() is None:
        text = events.read_text() if events.is_file() else ""
        if any('"progress"' in line and json.loads(line)["done"] > 1000 for line in text.splitlines()[:-1]):
            os.kill(child.pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    if child.wait() != -signal.SIGKILL:
        raise SystemExit("the run that was to be killed ended by itself")


def stored(place: Path) -> Numbers:
    """What the results below a folder say, by what was run; wherever the files lie."""
    from cases import digest
    from safetensors.torch import load_file

    found: Numbers = {}
    for path in sorted(place.rglob("result.json")):
        plain = json.loads(path.read_text())
        plan, method = plain["experiment"], plain["experiment"]["method"]
        memory = plan["memory"]
        name = method["name"] if isinstance(method, dict) else method
        dual = f"k={memory['k']} dac={memory['dac']}" if memory["name"] == "odedm" else "plain"
        own = {key: plain.get(key) for key in ("class_il", "task_il", "anytime")}
        own["census"] = plain.get("class_counts", plain.get("census"))
        for file in sorted(path.parent.glob("*.safetensors")):
            columns = load_file(file)
            own |= {f"{file.name} {key}": digest(columns[key]) for key in sorted(columns)}
        found[f"{name} {dual} seed {plan['seed']}"] = own
    return found


def numbers_of(tree: Path) -> Numbers:
    """What a tree computes, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        out = Path(place) / "numbers.json"
        words = [sys.executable, "-P", str(Path(__file__).resolve()), "here", str(out)]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        subprocess.run(words, check=True, env=environment, cwd=place)
        found: Numbers = json.loads(out.read_text())
    if Path(found["package"]) != (tree / "src" / "odedm").resolve():
        raise SystemExit(f"the numbers came from {found['package']}, not from {tree}")
    return found["numbers"]


def here(out: Path) -> None:
    """Write the numbers of whatever `odedm` is found."""
    import odedm as package

    with tempfile.TemporaryDirectory(prefix="golden-runs-") as place:
        numbers = {**in_process(), **command_line(Path(place))}
    where = str(Path(str(package.__file__)).resolve().parent)
    out.write_text(json.dumps({"package": where, "numbers": numbers}))


def compare(base: str) -> int:
    """Say what differs between the working tree and a commit; the exit code."""
    with tempfile.TemporaryDirectory(prefix="golden-base-") as place:
        tree = Path(place) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), base], cwd=ROOT, check=True)
        try:
            then = numbers_of(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    now = numbers_of(ROOT)
    differing = 0
    for name in sorted(then.keys() | now.keys()):
        parts = [part for part in then.get(name, {}) if then[name][part] != now.get(name, {}).get(part)]
        if name not in now or name not in then or parts:
            differing += 1
            print(f"DIFFERENT  {name}: {', '.join(parts) or 'only in one of the two'}")
    print(f"{len(now)} outcomes compared with {base}: {differing} differ")
    return 1 if differing else 0


def remake(names: list[str]) -> None:
    """Write golden files of the tests again."""
    from cases import lasting, short_cases, short_data, trained

    cases = short_cases()
    for name in names or sorted(cases):
        text = json.dumps(lasting(trained({"data": short_data(), **cases[name]})), indent=None, separators=(",", ":"))
        (GOLDEN / f"{name}.json").write_text(text + "\n")
        print(f"tests/golden/{name}.json")


def main() -> None:
    """Do as the words say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compare").add_argument("--base", default=BASE)
    commands.add_parser("remake").add_argument("names", nargs="*")
    commands.add_parser("here").add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "here":
        here(given.out)
    elif given.command == "remake":
        remake(given.names)
    else:
        sys.exit(compare(given.base))


if __name__ == "__main__":
    main()
