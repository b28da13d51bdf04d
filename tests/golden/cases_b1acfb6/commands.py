"""What commands leave: runs that are killed and resumed, lanes, a study; and the numbers of a report's table."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .case import Case, Parts, built

COMMON = ("--method", "derpp", "--memory", "odedm", "--replay", "auxiliary", "--evidence", "--anytime", "2")
NAMING = ("method", "memory.name", "memory.capacity", "memory.rho", "memory.k", "memory.dac", "seed")
"""Settings by which one finished run is told from another."""
STUDY = {
    "name": "golden",
    "data": "blobs",
    "method": ["er", "fdr"],
    "memory": ["plain", "odedm"],
    "capacity": 30,
    "rho": [0.25, 0.5],
    "dac": "paper",
    "replay": "auxiliary",
    "batch": 16,
    "seeds": 2,
    "evidence": True,
    "anytime": 2,
}
NUMBERS = ("seeds", "n", "acc_last", "acc_mean", "task_il_last", "forgetting", "backward_transfer", "sample_gradients")
OF_NUMBERS = ("", "_error", "_sd", "_change", "_change_error", "_change_low", "_change_high", "_change_p")
"""Columns of a report's table, and what is appended to their names."""


def odedm(api: Any, *words: str) -> list[str]:
    """A command as a user would type it."""
    return [sys.executable, "-P", "-m", "odedm", *api.command(*words)]


def run(words: list[str]) -> str:
    """What a command that must succeed prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[4:])}: {done.stderr[-500:]}")
    return done.stdout


def stored(api: Any, folder: Path) -> Parts:
    """What the finished runs below a folder say, by what was run; wherever the files lie."""
    from safetensors.torch import load_file

    found: Parts = {}
    for path in sorted(folder.rglob("result.json")):
        result = api.make("Result.load", path)
        settings = api.columns("settings", flat(api.read("Result", result, "experiment")))
        name = " ".join(f"{word.split('.')[-1]}={settings.get(word)}" for word in NAMING)
        for part in ("class_il", "task_il", "anytime", "sample_gradients"):
            found[f"{name}: {part}"] = api.read("Result", result, part)
        census = api.read("Result", result, "census")
        found[f"{name}: census"] = [api.columns("census", counts) for counts in census]
        for file in sorted(path.parent.glob("*.safetensors")):
            if file.stem in ("memory", "evidence"):
                columns = api.columns(file.stem, load_file(file))
                found |= {f"{name}: {file.stem} {key}": columns[key] for key in sorted(columns)}
    if not found:
        raise RuntimeError(f"no run was finished below {folder.name}")
    return found


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def killed(api: Any, place: Path) -> Parts:
    """A run that is killed by a signal in mid-task, and goes on by the same command."""
    words = [*COMMON, "--device", "cpu", "--limit", "120", "--checkpoint", "7 steps", "--out", str(place / "killed")]
    events = place / "events.jsonl"
    child = subprocess.Popen(
        odedm(api, "run", *words, "--events", str(events)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while time.monotonic() < until and child.poll() is None:
        text = events.read_text() if events.is_file() else ""
        lines = [api.columns("event", json.loads(line)) for line in text.splitlines()[:-1]]
        if any(line.get("done", 0) > 400 for line in lines):
            os.kill(child.pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    ended = child.wait()
    run(odedm(api, "run", *words))
    return {"ended by": ended, **stored(api, place / "killed")}


def lanes(api: Any, place: Path) -> Parts:
    """Seeds side by side."""
    where = ["--device", "cpu", "--lanes", "2", "--out", str(place / "lanes")]
    run(odedm(api, "run", *COMMON, "--data", "blobs", "--seeds", "3", *where))
    return stored(api, place / "lanes")


def study(api: Any, place: Path) -> Parts:
    """A study in lanes, and its report as a table."""
    text = toml(api.study(STUDY))
    (place / "golden.toml").write_text(text, encoding="utf-8")
    run(odedm(api, "study", str(place / "golden.toml"), "--lanes", "2", "--device", "cpu", "--out", str(place / "all")))
    printed = run(odedm(api, "report", str(place / "all"), "--csv"))
    return {**stored(api, place / "all"), **table(api, printed)}


def toml(settings: Mapping[str, Any]) -> str:
    """Settings as TOML; nested ones are inline tables."""

    def word(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{name} = {word(part)}" for name, part in value.items()) + "}"
        return json.dumps(value)

    return "".join(f"{name} = {word(value)}\n" for name, value in settings.items())


def table(api: Any, printed: str) -> Parts:
    """The numbers of a report's table, a part for each column; rows by their order."""
    rows = [api.columns("table", row) for row in csv.DictReader(io.StringIO(printed))]
    known = {f"{name}{end}" for name in NUMBERS for end in OF_NUMBERS}
    return {f"table {name}": [row[name] for row in rows] for name in rows[0] if name in known}


def report(api: Any, _place: Path) -> Parts:
    """Runs of three seeds in one table, with changes paired by seed."""
    plan = {"data": ("blobs", {"per_class": 8, "seed": 2}), "method": "er", "batch": 16, "seeds": 3, "device": "cpu"}
    memories = [("Reservoir", {"capacity": 20}), ("ODEDM", {"capacity": 20, "rho": 0.5})]
    runs = []
    for memory in memories:
        settings = {word: built(api, value) for word, value in {**plan, "memory": memory}.items()}
        runs.append(api.make("train", settings.pop("data"), **settings))
    results = api.make("Results", *runs)
    return table(api, api.call("Results", results, "to_csv"))


def cases() -> Iterator[Case]:
    """All of them."""
    yield Case("command: killed and resumed", killed)
    yield Case("command: lanes", lanes)
    yield Case("command: study and report", study)
    yield Case("report", report, short=True)
