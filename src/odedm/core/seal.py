"""Checksums of files: written beside them, and checked later with a sentence for each way in which they changed."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from odedm.core.errors import InvalidFileError, require
from odedm.core.files import write_text

SCHEMA = "odedm.files/1"
FILE = "checksums.json"
MOST_LISTING = 1 << 20

Listing = dict[str, dict[str, Any]]
"""File names with their `bytes` and `blake2b`."""


def fingerprint(path: Path) -> str:
    """The BLAKE2b digest of a file's content, read a piece at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=32)).hexdigest()


def listing(folder: Path, names: Iterable[str]) -> Listing:
    """Sizes and fingerprints of files in a folder."""
    return {name: {"bytes": (folder / name).stat().st_size, "blake2b": fingerprint(folder / name)} for name in names}


def write_checksums(folder: Path) -> None:
    """Write the fingerprints of every file in a folder beside them: the last thing to do before it is renamed."""
    names = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    write_text(folder / FILE, json.dumps({"schema": SCHEMA, "files": listing(folder, names)}, indent=1) + "\n")


def read_checksums(folder: Path) -> Listing | None:
    """What a folder's files held; None where that was never written."""
    path = folder / FILE
    if not path.exists() and not path.is_symlink():
        return None
    plain = read_json(Path(os.path.realpath(path)), MOST_LISTING, "far more than a list of checksums")
    ours = isinstance(plain, dict) and plain.get("schema") == SCHEMA
    require(ours, f"{FILE} is no list of checksums of the format '{SCHEMA}'")
    files: Listing = plain.get("files")
    require(sound(files), f"{FILE} does not list files by name, size and checksum")
    return files


def check_one(folder: Path, name: str) -> None:
    """Refuse one file of a folder that is not as the checksums there say; a folder that was never sealed may pass.

    Links are followed: stores of large files, such as git-annex, leave one in a file's place.
    """
    listed = read_checksums(folder)
    if listed is None:
        return
    entry = listed.get(name)
    require(entry is not None, f"the checksums leave out {name}")
    real = Path(os.path.realpath(folder / name))
    same = entry is not None and check_file(real) == entry["bytes"] and fingerprint(real) == entry["blake2b"]
    require(same, f"{name} has changed since it was written: its checksum is another")


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


def check_file(path: Path, most: int | None = None, beyond: str = "") -> int:
    """How many bytes a plain file has that can be read without harm; `beyond` says what more than `most` would be."""
    try:
        status = path.lstat()
    except OSError:
        raise InvalidFileError(f"{path.name} is missing") from None
    require(not stat.S_ISLNK(status.st_mode), f"{path.name} is a link, not a file of its own")
    require(stat.S_ISREG(status.st_mode), f"{path.name} is not a plain file")
    require(most is None or status.st_size <= most, f"{path.name} has {status.st_size} bytes, {beyond}")
    return status.st_size


def read_json(path: Path, most: int, beyond: str) -> Any:
    """What a JSON file of anyone's holds, if it is a plain file of at most `most` bytes."""
    require(check_file(path, most, beyond), f"{path.name} is empty")
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path.name} cannot be read ({type(error).__name__}: {str(error)[:120]})") from error


def no_constant(word: str) -> Any:
    """Refuse NaN and Infinity, which Python would read and others would not."""
    raise ValueError(f"{word} is no JSON")


def check_files(folder: Path, files: Listing) -> None:
    """Refuse a folder where something happened to the listed files since."""
    for name, entry in files.items():
        size, written = check_file(folder / name), entry["bytes"]
        require(size or not written, f"{name} is empty")
        require(size >= written, f"{name} is truncated: {size} of {written} bytes")
        require(size == written, f"{name} has {size} bytes where {written} were written")
        same = fingerprint(folder / name) == entry["blake2b"]
        require(same, f"{name} has changed since it was written: its checksum is another")
