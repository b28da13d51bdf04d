"""Checksums of files: written beside them, and compared with them later."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from odedm.core.errors import require
from odedm.core.files import check_file, write_text
from odedm.core.plain_data import read_json

SCHEMA = "odedm.files/1"
FILE = "checksums.json"
MAX_BYTES = 1 << 20

Checksums = dict[str, dict[str, Any]]
"""File names with their `bytes` and `blake2b`."""


def file_hash(path: Path) -> str:
    """Return the BLAKE2b digest of a file's content, read a piece at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=32)).hexdigest()


def known_hash(path: Path) -> str | None:
    """Return the digest of a file, read once for each state of it; None of one that is not there.

    >>> known_hash(Path("nowhere.safetensors"))
    """
    if not path.is_file():
        return None
    status = path.stat()
    return _hash_of_state(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _hash_of_state(path: Path, _size: int, _changed: int) -> str:
    return file_hash(path)


def write_checksums(folder: Path) -> None:
    """Write the checksums of every file in a folder beside them: the last thing to do before it is renamed."""
    paths = sorted(path for path in folder.iterdir() if path.name != FILE)
    files = {path.name: {"bytes": path.stat().st_size, "blake2b": file_hash(path)} for path in paths}
    write_text(folder / FILE, json.dumps({"schema": SCHEMA, "files": files}, indent=1) + "\n")


def read_checksums(folder: Path) -> Checksums:
    """Return what a folder's files were when they were written."""
    plain = read_json(folder / FILE, MAX_BYTES)
    schema = plain.get("schema") if isinstance(plain, dict) else None
    require(schema == SCHEMA, f"{FILE} is no list of checksums of the format '{SCHEMA}'")
    files: Checksums = plain.get("files")
    require(_are_checksums(files), f"{FILE} does not list files by name, size and checksum")
    return files


def _are_checksums(value: object) -> bool:
    """Return whether these are checksums by names that cannot lead out of their folder."""
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and Path(name).name == name != ".."
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("blake2b"), str)
        for name, entry in value.items()
    )


def check_files(folder: Path, checksums: Checksums) -> None:
    """Raise InvalidFileError where a file is not as its checksum says; a link is read as the file that it leads to."""
    for name, entry in checksums.items():
        size, written = check_file(folder / name), entry["bytes"]
        require(size >= written, f"{name} is truncated: {size} of {written} bytes")
        require(size == written, f"{name} has {size} bytes where {written} were written")
        same = file_hash(folder / name) == entry["blake2b"]
        require(same, f"{name} has changed since it was written: its checksum is another")


def check_one(folder: Path, name: str) -> None:
    """Raise InvalidFileError where a file is not as the folder's checksums say; one without them may pass."""
    if os.path.lexists(folder / FILE):
        checksums = read_checksums(folder)
        require(name in checksums, f"the checksums leave out {name}")
        check_files(folder, {name: checksums[name]})
