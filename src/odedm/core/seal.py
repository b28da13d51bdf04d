"""What files held when they were written: sizes and fingerprints, and a sentence for each way in which they changed."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from odedm.core.files import write_text

SCHEMA = "odedm.files/1"
FILE = "checksums.json"
MOST_LISTING = 1 << 20
CHUNK = 4 << 20

Listing = dict[str, dict[str, Any]]
"""File names with their `bytes` and `blake2b`."""


def fingerprint(path: Path) -> str:
    """The BLAKE2b digest of a file's content, read a piece at a time."""
    digest = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def listing(folder: Path, names: Iterable[str]) -> Listing:
    """Sizes and fingerprints of files in a folder."""
    return {name: {"bytes": (folder / name).stat().st_size, "blake2b": fingerprint(folder / name)} for name in names}


def seal(folder: Path) -> Path:
    """Write the fingerprints of every file in a folder beside them: the last thing to do before it is renamed."""
    names = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    path = folder / FILE
    write_text(path, json.dumps({"schema": SCHEMA, "files": listing(folder, names)}, indent=1) + "\n")
    return path


def read_seal(folder: Path) -> Listing | str | None:
    """What a folder's files held; a sentence where that cannot be read, None where it was never written."""
    path = folder / FILE
    if not path.exists() and not path.is_symlink():
        return None
    fault = not_a_file(path)
    if fault is None and path.stat().st_size > MOST_LISTING:
        fault = f"{FILE} has {path.stat().st_size} bytes, far more than a list of checksums"
    if fault is not None:
        return fault
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"{FILE} cannot be read: {error}"
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        return f"{FILE} is no list of checksums of the format '{SCHEMA}'"
    files = plain.get("files")
    return files if sound(files) else f"{FILE} does not list files by name, size and checksum"


def sound(files: object) -> bool:
    """Whether this is a listing, with names that cannot lead out of their folder.

    >>> sound({"a.json": {"bytes": 1, "blake2b": "0" * 64}}), sound({"../a": {"bytes": 1, "blake2b": "0" * 64}})
    (True, False)
    """
    return isinstance(files, dict) and all(
        isinstance(name, str)
        and Path(name).name == name
        and name not in (".", "..")
        and "\\" not in name
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and 0 <= entry["bytes"] < 1 << 50
        and isinstance(entry.get("blake2b"), str)
        for name, entry in files.items()
    )


def not_a_file(path: Path) -> str | None:
    """Why a path is not a plain file that can be read without harm; None where it is one."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return f"{path.name} is missing"
    if stat.S_ISLNK(mode):
        return f"{path.name} is a link, not a file of its own"
    return None if stat.S_ISREG(mode) else f"{path.name} is not a plain file"


def damage(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What happened to the listed files since; None where they are as they were."""
    for name, entry in files.items():
        path = folder / name
        fault = not_a_file(path)
        if fault is not None:
            return fault
        size = path.stat().st_size
        if size == 0 < entry["bytes"]:
            return f"{name} is empty"
        if size < entry["bytes"]:
            return f"{name} is truncated: {size} of {entry['bytes']} bytes"
        if size > entry["bytes"]:
            return f"{name} has {size} bytes where {entry['bytes']} were written"
        if fingerprint(path) != entry["blake2b"]:
            return f"{name} has changed since it was written: its checksum is another"
    return None
