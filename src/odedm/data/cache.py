"""Finds, checks and opens imported data sets: one folder each, with an array for each column and a manifest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from odedm.core.errors import InvalidFileError, UsageError, unknown_name_error
from odedm.core.files import check_file, expand_user, read_bytes, remove_stale
from odedm.core.plain_data import json_hash
from odedm.core.registry import DATASETS
from odedm.data.published import PUBLISHED

if TYPE_CHECKING:
    from odedm.data.contents import OnProgress
    from odedm.data.images import Array

SCHEMA = "odedm.data/3"
MANIFEST = "manifest.json"
COLUMNS = ("image", "label", "test_image", "test_label")
"""In the order of `Dataset`, and of its checksum; each is a file `<column>.npy`."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
MAX_MANIFEST_BYTES = 64 << 20
LOCK = ".lock"
"""One process at a time changes what is in the data folder."""


def root() -> Path:
    """Return where imported data sets live: `ODEDM_DATA`, or the platform's folder for caches."""
    if folder := os.environ.get("ODEDM_DATA"):
        return expand_user(folder)
    if sys.platform == "darwin":
        caches: str | None = "~/Library/Caches"
    elif sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_user(caches) / "odedm" / "data"


@dataclass(frozen=True)
class Manifest:
    """What a cache holds. `mean` and `deviation` are the published ones, or those of the training rows.

    `dtype` and `shape` are those of a row, `file_bytes` the length of each column's file.
    """

    name: str
    kind: str
    source: str
    class_names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    rows: tuple[int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    tasks: int
    pad: int
    flip: bool
    size: int | None
    seed: int
    skipped: int
    file_bytes: tuple[int, ...]
    checksum: str
    embedding: dict[str, Any] | None = None
    """What made features of other rows: the network, its weights' hash, the data."""

    def to_json(self) -> str:
        """Return the manifest as text, sealed: a change of one letter shows."""
        plain = {"schema": SCHEMA, **asdict(self)}
        return json.dumps({**plain, "seal": json_hash(plain)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest of a text; ValueError where it is not one, or was changed."""
        plain = json.loads(text)
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}, so another version of odedm wrote it")
        if plain.pop("seal", None) != json_hash(plain):
            raise ValueError("it was changed after it was written")
        del plain["schema"]
        if {*plain} != {field.name for field in fields(cls)}:
            raise ValueError("its fields are not the known ones")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        return cls(**values)


@contextmanager
def locked(on_progress: OnProgress | None = None) -> Iterator[None]:
    """Hold the lock of the data folder; `on_progress` is told where another process has it first."""
    lock = FileLock(root() / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if on_progress is not None:
            on_progress("waiting for another import", 0, 1)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def restore(name: str) -> None:
    """Put a data set back in its place whose replacement was killed after it had been moved aside."""
    if NAME.fullmatch(name) and not is_cached(name) and any(root().glob(f".{name}.*.old")):
        with locked():
            remove_stale(root() / name)


def check_name(name: str) -> str:
    """Return a name fit for a folder and a command line, and not taken by an embedded data set."""
    if not NAME.fullmatch(name) or name.endswith("."):
        raise UsageError(
            f"'{name}' cannot be a data set's name: small letters, digits, '.', '-', '_', at most 80, as in my-flowers."
        )
    if name in DATASETS:
        raise UsageError(f"'{name}' is the name of a built-in data set; choose another.")
    return name


def cached() -> dict[str, Manifest | str]:
    """Return every imported data set by name: its manifest, or what is wrong with it."""
    manifests: dict[str, Manifest | str] = {}
    for path in sorted(root().glob("*")):
        if path.is_dir() and NAME.fullmatch(path.name):
            try:
                manifests[path.name] = load_manifest(path.name)
            except UsageError as error:
                manifests[path.name] = str(error)
    return manifests


def is_cached(name: str) -> bool:
    """Return whether there is a cache of this name, sound or not."""
    return bool(NAME.fullmatch(name)) and (root() / name / MANIFEST).is_file()


def column_files(folder: Path) -> list[Path]:
    """Return the file of every column of a data set."""
    return [folder / f"{column}.npy" for column in COLUMNS]


def load_manifest(name: str) -> Manifest:
    """Return the manifest of an imported data set, if its files have the lengths they should have."""
    folder = root() / name
    again = f"Remove '{folder}' and import it again."
    try:
        manifest = Manifest.from_json(read_bytes(folder / MANIFEST, MAX_MANIFEST_BYTES).decode())
        file_bytes = tuple(map(check_file, column_files(folder)))
    except InvalidFileError as error:
        raise UsageError(f"The cache of '{name}' cannot be used: {error}. {again}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"The manifest of '{name}' cannot be used: {error}. {again}") from error
    if file_bytes != manifest.file_bytes:
        raise UsageError(
            f"The arrays of '{name}' have {file_bytes} bytes instead of {manifest.file_bytes}: truncated. {again}"
        )
    return manifest


def open_columns(folder: Path) -> list[Array]:
    """Map the columns of a data set into memory; what is written to them does not reach the disk.

    Raises:
        ValueError, OSError: a file is no array of numbers, or shorter than it says.
    """
    import numpy as np

    return [np.lib.format.open_memmap(path, mode="c") for path in column_files(folder)]


def checksum(folder: Path) -> str:
    """Return the checksum of every row, equal to `Dataset.checksum` of the same data."""
    digest = hashlib.blake2b(digest_size=16)
    for path, column in zip(column_files(folder), open_columns(folder), strict=True):
        digest.update(f"{column.shape}torch.{column.dtype}".encode())
        with path.open("rb") as file:  # read, not mapped: pages of gigabytes would count as memory of this process
            file.seek(path.stat().st_size - column.nbytes)
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def verify(name: str) -> Manifest:
    """Read every byte of a cache and compare it with its manifest, which is returned if all is well."""
    manifest = find(name)
    try:
        present = checksum(root() / name)
    except (ValueError, OSError) as error:
        present = f"none ({error})"
    if present != manifest.checksum:
        raise UsageError(
            f"The arrays of '{name}' changed after they were written: their checksum is {present}, the manifest says "
            f"{manifest.checksum}. Remove '{root() / name}' and import it again."
        )
    return manifest


def can_be_had(name: str) -> bool:
    """Return whether a data set that is not here may be elsewhere: a published one, a path, a damaged cache.

    >>> can_be_had("cifar10"), can_be_had("rows/mine.npz"), can_be_had("cifar11")
    (True, True, False)
    """
    return name in DATASETS or name in PUBLISHED or is_cached(name) or _is_path_like(name)


def _is_path_like(name: str) -> bool:
    return "/" in name or "." in name


def find(name: str) -> Manifest:
    """Return the manifest of an imported data set; where there is none, UsageError says how to get it."""
    restore(name)
    if is_cached(name):
        return load_manifest(name)
    if name in PUBLISHED:
        raise UsageError(
            f"The data set '{name}' is not here yet. Get it with `odedm data get {name}`, or import what you have with "
            f"`odedm data import PATH --as {name}`."
        )
    if name in DATASETS:
        raise UsageError(f"The data set '{name}' is built in: nothing was imported that could be looked at.")
    error = unknown_name_error("data set", name, dict.fromkeys([*DATASETS, *PUBLISHED, *cached()]))
    is_missing = _is_path_like(name) and not os.path.exists(os.path.expanduser(name))
    missing = f" There is no file or folder '{name}'." if is_missing else ""
    raise UsageError(f"{error}{missing} A folder of pictures or an archive can be given by its path.")
