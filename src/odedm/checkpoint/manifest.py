"""The manifest of a checkpoint: whose it is, where in the stream, which files; checked before it is believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.plain_data import DEEPEST, json_hash, too_deep
from odedm.core.seal import read_json, sound

T = TypeVar("T")

SCHEMA = "odedm.checkpoint/4"
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

    configuration: dict[str, Any]
    data_checksum: str
    versions: dict[str, str] = field(default_factory=dict)
    observation: dict[str, Any] = field(default_factory=dict)


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


def inspect(work: Path) -> dict[str, Any]:
    """The manifest of the newest checkpoint whose manifest is sound, for whoever knows the folder alone."""
    found, faults = newest_sound(work, read_manifest)
    if found is None:
        raise UsageError(" ".join(faults) or f"There is no checkpoint in '{work}'. Start the run with `odedm run`.")
    return found


def newest_sound(work: Path, read: Callable[[Path], T]) -> tuple[T | None, list[str]]:
    """What `read` makes of the newest checkpoint that it can use, and a line for each that was passed over before."""
    faults: list[str] = []
    for folder in listed(work):
        try:
            return read(folder), faults
        except InvalidFileError as fault:
            faults.append(f"The checkpoint '{folder.name}' cannot be used: {fault}.")
    return None, faults


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, as far as that alone can be checked."""
    require(not folder.is_symlink(), "it is a link, not a folder of its own")
    require(folder.is_dir(), "it is not a folder")
    plain = read_json(folder / MANIFEST, MOST_MANIFEST, "more than any manifest")
    if not isinstance(plain, dict):
        raise InvalidFileError(f"{MANIFEST} is a {type(plain).__name__}, not an object")
    require(not too_deep(plain), f"{MANIFEST} is not sound: more than {DEEPEST} levels of it lie in each other")
    schema, seal = plain.get("schema"), plain.pop("seal", None)
    other = f"its format is {str(schema)[:60]!r}, and this version reads '{SCHEMA}'{_who_can(plain)}"
    require(schema == SCHEMA, other)
    require(seal == json_hash(plain), f"{MANIFEST} was changed after it was written: its seal is broken")
    try:
        _check_entries(plain, folder)
    except InvalidFileError as fault:
        raise InvalidFileError(f"{MANIFEST} is not sound: {fault}") from None
    return plain


def _who_can(plain: Mapping[str, Any]) -> str:
    """Which version of the code wrote a checkpoint of another format, and so can finish its run."""
    versions = plain.get("versions")
    if not isinstance(versions, dict):
        return ""
    wrote = f"odedm {str(versions.get('odedm'))[:20]} at commit {str(versions.get('commit'))[:41]}"
    return f"; {wrote} wrote it and can finish the run"


def _check_entries(plain: Mapping[str, Any], folder: Path) -> None:
    configuration, versions, checksum = plain.get("configuration"), plain.get("versions"), plain.get("data_checksum")
    there = isinstance(configuration, dict) and isinstance(checksum, str)
    require(there, "its configuration or its data's checksum is missing")
    same = plain.get("configuration_hash") == json_hash(configuration)
    require(same, "its configuration is not the one it was written with")
    names = isinstance(versions, dict) and all(isinstance(each, str) for each in versions.values())
    require(names, "its versions are not names")
    require(isinstance(plain.get("observation"), dict), "what it looks at is not said as it should be")
    position: Any = plain.get("position")
    named = isinstance(position, dict) and set(position) == {"task", "step", "rows"}
    require(named, "its position is not a task, a step and rows")
    whole = all(type(each) is int and 0 <= each < LARGEST for each in position.values())
    require(whole, "its position is not made of whole numbers")
    step = position["step"]
    require(folder.name == f"step-{step:08d}", f"it is of step {step} and lies under another name")
    files: Any = plain.get("files")
    require(sound(files) and set(files) == {TENSORS, TREE}, "the files it lists are not those of a checkpoint")
    size = files[TREE]["bytes"]
    require(size <= MOST_TREE, f"{TREE} is said to have {size} bytes, more than any state")
