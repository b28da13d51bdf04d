"""Finds, checks and opens imported data sets: one folder each, with a tensor file and a manifest of what it holds."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, unknown
from odedm.core.files import own_folder
from odedm.core.plain_data import text_fingerprint
from odedm.core.registry import DATASETS
from odedm.data.published import PUBLISHED
from odedm.data.tensor_file import BYTES, TensorFile

SCHEMA = "odedm.data/1"
MANIFEST, TENSORS = "manifest.json", "data.safetensors"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
MOST_MANIFEST = 64 << 20


def root() -> Path:
    """Where imported data sets live: `ODEDM_DATA`, or the platform's folder for caches."""
    if given := os.environ.get("ODEDM_DATA"):
        return own_folder(given)
    if sys.platform == "darwin":
        caches: str | None = "~/Library/Caches"
    elif sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return own_folder(caches) / "odedm" / "data"


@dataclass(frozen=True)
class Manifest:
    """What a cache holds. `mean` and `deviation` are those used; the measured ones are of the training rows."""

    name: str
    kind: str
    source: str
    class_names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    rows: tuple[int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    measured_mean: tuple[float, ...]
    measured_deviation: tuple[float, ...]
    tasks: int
    pad: int
    flip: bool
    size: int | None
    seed: int
    skipped: int
    checksum: str

    @property
    def layout(self) -> TensorFile:
        """Where everything is in the tensor file."""
        return TensorFile(self.dtype, self.shape, self.rows)

    def to_json(self) -> str:
        """The manifest as text, sealed: a change of one letter shows."""
        plain = {"schema": SCHEMA, **asdict(self)}
        return json.dumps({**plain, "seal": text_fingerprint(plain)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest of a text; ValueError where it is not one, or was changed."""
        plain = json.loads(text)
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        if plain.pop("seal", None) != text_fingerprint(plain):
            raise ValueError("it was changed after it was written")
        del plain["schema"]
        if set(plain) != {each.name for each in fields(cls)}:
            raise ValueError("its fields are not the known ones")
        values: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in plain.items()}
        made = cls(**values)
        numbers = len(made.mean) == len(made.deviation) == made.shape[0]
        sane = made.dtype in BYTES and len(made.shape) in (1, 3) and min(made.rows) > 0 and len(made.rows) == 2
        if not numbers or not sane or not all(math.isfinite(each) and each > 0 for each in made.deviation):
            raise ValueError("its shapes or constants are not sound")
        return made


def check_name(name: str) -> str:
    """A name fit for a folder and a command line, and not taken by an embedded data set."""
    if not NAME.fullmatch(name) or name.endswith("."):
        raise UsageError(
            f"'{name}' cannot be a data set's name: small letters, digits, '.', '-', '_', at most 80, as in my-flowers."
        )
    if name in DATASETS:
        raise UsageError(f"'{name}' is the name of a built-in data set; choose another.")
    return name


def cached() -> dict[str, Manifest | str]:
    """Every imported data set by name: its manifest, or what is wrong with it."""
    found: dict[str, Manifest | str] = {}
    for each in sorted(root().glob("*")):
        if each.is_dir() and NAME.fullmatch(each.name):
            try:
                found[each.name] = load_manifest(each.name)
            except UsageError as error:
                found[each.name] = str(error)
    return found


def is_cached(name: str) -> bool:
    """Whether there is a cache of this name, sound or not."""
    return bool(NAME.fullmatch(name)) and (root() / name / MANIFEST).is_file()


def load_manifest(name: str) -> Manifest:
    """The manifest of an imported data set, if its file has the length it should have."""
    folder = root() / name
    again = f"Remove '{folder}' and import it again."
    try:
        if (folder / MANIFEST).stat().st_size > MOST_MANIFEST:
            raise ValueError("it is far too long")
        if not (folder / MANIFEST).is_file():
            raise ValueError("it is no regular file")
        manifest = Manifest.from_json((folder / MANIFEST).read_text("utf-8"))
        length = (folder / TENSORS).stat().st_size
    except FileNotFoundError as error:
        raise UsageError(f"The cache of '{name}' is incomplete: '{error.filename}' is missing. {again}") from error
    except OSError as error:
        raise UsageError(f"The cache of '{name}' cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise UsageError(f"The manifest of '{name}' is corrupt: {error}. {again}") from error
    if length != disk_bytes(manifest):
        expected = disk_bytes(manifest)
        raise UsageError(f"The tensors of '{name}' have {length} bytes instead of {expected}: truncated. {again}")
    return manifest


def disk_bytes(manifest: Manifest) -> int:
    """The bytes of its tensors on disk."""
    return manifest.layout.length


def verify(name: str) -> Manifest:
    """Read every byte of a cache and compare it with its manifest; the manifest, if all is well."""
    manifest = find(name)
    path, layout = root() / name / TENSORS, manifest.layout
    with path.open("rb") as file:
        same_head = file.read(len(layout.head)) == layout.head
    found = layout.checksum(path)
    if not same_head or found != manifest.checksum:
        raise UsageError(
            f"The tensors of '{name}' changed after they were written: their checksum is {found}, the manifest says "
            f"{manifest.checksum}. Remove '{root() / name}' and import it again."
        )
    return manifest


def can_be_had(name: str) -> bool:
    """Whether a data set that is not here may be so elsewhere: a published one, a path, a cache that is not sound.

    >>> can_be_had("cifar10"), can_be_had("rows/mine.npz"), can_be_had("cifar11")
    (True, True, False)
    """
    return name in DATASETS or name in PUBLISHED or is_cached(name) or _meant_path(name)


def _meant_path(name: str) -> bool:
    return "/" in name or "." in name


def find(name: str) -> Manifest:
    """The manifest of an imported data set; where there is none, a sentence on how to get it."""
    if is_cached(name):
        return load_manifest(name)
    if name in PUBLISHED:
        raise UsageError(
            f"The data set '{name}' is not here yet. Get it with `odedm data get {name}`, or import what you have with "
            f"`odedm data import PATH --as {name}`."
        )
    if name in DATASETS:
        raise UsageError(f"The data set '{name}' is built in: nothing was imported that could be looked at.")
    error = unknown("data set", name, dict.fromkeys([*DATASETS, *PUBLISHED, *cached()]))
    missing = _meant_path(name) and not os.path.exists(os.path.expanduser(name))
    gone = f" There is no file or folder '{name}'." if missing else ""
    raise UsageError(f"{error}{gone} A folder of pictures or an archive can be given by its path.")
