"""What a checkpoint says of itself: whose it is, where in the stream, which files; checked before it is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.plain_data import text_fingerprint
from odedm.core.seal import not_a_file, sound

SCHEMA = "odedm.checkpoint/2"
FOLDER = "checkpoints"
MANIFEST, TENSORS, TREE = "manifest.json", "state.safetensors", "state.json"
NAME = re.compile(r"step-(\d{8,15})")
MOST_MANIFEST = 1 << 20
MOST_TREE = 1 << 28
LARGEST = 1 << 53


@dataclass(frozen=True)
class Position:
    """Where in the stream a run is: the task's index, and the steps and rows it has done in all."""

    task: int
    step: int
    rows: int


@dataclass(frozen=True)
class Meta:
    """Whose checkpoint it is: the resolved configuration, the data's checksum, what computed it, what it looks at."""

    configuration: Mapping[str, Any]
    data_checksum: str
    versions: Mapping[str, str] = field(default_factory=dict)
    observation: Mapping[str, Any] = field(default_factory=dict)


class Unfit(Exception):
    """Why a checkpoint cannot be used: half a sentence, to stand behind its name."""


def working_folder(run: Path) -> Path:
    """Where a run that is not over keeps its lock and its checkpoints: beside the folder that its result will be.

    >>> working_folder(Path("runs/demo/seed-0")).as_posix()
    'runs/demo/.seed-0.work'
    """
    return run.with_name(f".{run.name}.work")


def listed(work: Path) -> list[Path]:
    """The checkpoints in a working folder, newest first, sound or not."""
    folder = work / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, as far as that alone can be checked."""
    if folder.is_symlink() or not folder.is_dir():
        raise Unfit("it is a link, not a folder of its own" if folder.is_symlink() else "it is not a folder")
    path = folder / MANIFEST
    fault = not_a_file(path)
    if fault:
        raise Unfit(fault)
    size = path.stat().st_size
    if size == 0 or size > MOST_MANIFEST:
        raise Unfit(f"{MANIFEST} " + (f"has {size} bytes, more than any manifest" if size else "is empty"))
    try:
        plain = json.loads(path.read_text("utf-8"), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"{MANIFEST} cannot be read ({type(error).__name__}: {str(error)[:120]})") from error
    if not isinstance(plain, dict):
        raise Unfit(f"{MANIFEST} is a {type(plain).__name__}, not an object")
    schema = plain.get("schema")
    if schema != SCHEMA:
        raise Unfit(f"its format is {str(schema)[:60]!r}, and this version reads '{SCHEMA}'{_who_can(plain)}")
    seal = plain.pop("seal", None)
    if seal != text_fingerprint(plain):
        raise Unfit(f"{MANIFEST} was changed after it was written: its seal is broken")
    fault = _ill_formed(plain, folder)
    if fault:
        raise Unfit(f"{MANIFEST} is not sound: {fault}")
    return plain


def _who_can(plain: Mapping[str, Any]) -> str:
    """Which version of the code wrote a checkpoint of another format, and so can finish its run."""
    versions = plain.get("versions")
    if not isinstance(versions, dict):
        return ""
    wrote = f"odedm {str(versions.get('odedm'))[:20]} at commit {str(versions.get('commit'))[:41]}"
    return f"; {wrote} wrote it and can finish the run"


def inspect(work: Path) -> dict[str, Any]:
    """The manifest of the newest checkpoint whose manifest is sound, for whoever knows the folder alone."""
    reasons = []
    for folder in listed(work):
        try:
            return read_manifest(folder)
        except Unfit as reason:
            reasons.append(f"The checkpoint '{folder.name}' cannot be used: {reason}.")
    raise UsageError(" ".join(reasons) or f"There is no checkpoint in '{work}'. Start the run with `odedm run`.")


def _ill_formed(plain: Mapping[str, Any], folder: Path) -> str | None:  # noqa: PLR0911 - one line for each fault
    position, files = plain.get("position"), plain.get("files")
    if not isinstance(plain.get("configuration"), dict) or not isinstance(plain.get("data_checksum"), str):
        return "its configuration or its data's checksum is missing"
    if plain.get("configuration_hash") != text_fingerprint(plain["configuration"]):
        return "its configuration is not the one it was written with"
    versions = plain.get("versions")
    if not isinstance(versions, dict) or not all(isinstance(each, str) for each in versions.values()):
        return "its versions are not names"
    if not isinstance(plain.get("observation"), dict):
        return "what it looks at is not said as it should be"
    if not isinstance(position, dict) or set(position) != {"task", "step", "rows"}:
        return "its position is not a task, a step and rows"
    if not all(type(each) is int and 0 <= each < LARGEST for each in position.values()):
        return "its position is not made of whole numbers"
    if folder.name != f"step-{position['step']:08d}":
        return f"it is of step {position['step']} and lies under another name"
    if not sound(files) or set(files or ()) != {TENSORS, TREE}:
        return "the files it lists are not those of a checkpoint"
    if files is not None and files[TREE]["bytes"] > MOST_TREE:
        return f"{TREE} is said to have {files[TREE]['bytes']} bytes, more than any state"
    return None


def no_constant(word: str) -> Any:
    """Refuse NaN and Infinity, which Python would read and others would not."""
    raise ValueError(f"{word} is no JSON")
