"""Imported data sets on disk: one folder each, a memory-mapped tensor file and a manifest that says what it holds."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odedm.core.errors import UsageError, unknown
from odedm.core.plain_data import text_fingerprint
from odedm.core.registry import DATASETS
from odedm.data.published import PUBLISHED
from odedm.data.tensor_file import BYTES, ORDER, Column, checksum, lay_out, total_bytes

if TYPE_CHECKING:
    from odedm.data.image_workers import Watch
    from odedm.stream.dataset import Dataset

SCHEMA = "odedm.data/1"
MANIFEST, TENSORS = "manifest.json", "data.safetensors"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
MOST_MANIFEST = 64 << 20


def root() -> Path:
    """Where imported data sets live: `ODEDM_DATA`, or the platform's folder for caches."""
    given = os.environ.get("ODEDM_DATA")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "odedm" / "data"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "odedm" / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odedm" / "data"


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

    def columns(self) -> tuple[bytes, dict[str, Column]]:
        """The head of the tensor file and where its columns start."""
        train, test = self.rows
        return lay_out(
            {
                "label": ("I64", (train,)),
                "test_label": ("I64", (test,)),
                "image": (self.dtype, (train, *self.shape)),
                "test_image": (self.dtype, (test, *self.shape)),
            }
        )

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
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        made = cls(**values)
        made._check()
        return made

    def _check(self) -> None:
        numbers = len(self.mean) == len(self.deviation) == self.shape[0]
        sane = self.dtype in BYTES and len(self.shape) in (1, 3) and min(self.rows) > 0 and len(self.rows) == 2
        if not numbers or not sane or not all(math.isfinite(each) and each > 0 for each in self.deviation):
            raise ValueError("its shapes or constants are not sound")


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
    folder = root()
    for each in sorted(folder.iterdir()) if folder.is_dir() else []:
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
        manifest = Manifest.from_json((folder / MANIFEST).read_text("utf-8"))
        length = (folder / TENSORS).stat().st_size
    except FileNotFoundError as error:
        raise UsageError(f"The cache of '{name}' is incomplete: '{error.filename}' is missing. {again}") from error
    except OSError as error:
        raise UsageError(f"The cache of '{name}' cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise UsageError(f"The manifest of '{name}' is corrupt: {error}. {again}") from error
    expected = total_bytes(*manifest.columns())
    if length != expected:
        raise UsageError(f"The tensors of '{name}' have {length} bytes instead of {expected}: truncated. {again}")
    return manifest


def disk_bytes(manifest: Manifest) -> int:
    """The bytes of its tensors on disk."""
    return total_bytes(*manifest.columns())


def verify(name: str) -> Manifest:
    """Read every byte of a cache and compare it with its manifest; the manifest, if all is well."""
    manifest = find(name)
    path = root() / name / TENSORS
    head, placed = manifest.columns()
    with path.open("rb") as file:
        same_head = file.read(len(head)) == head
    found = checksum(path, placed)
    if not same_head or found != manifest.checksum:
        raise UsageError(
            f"The tensors of '{name}' changed after they were written: their checksum is {found}, the manifest says "
            f"{manifest.checksum}. Remove '{root() / name}' and import it again."
        )
    return manifest


def find(name: str) -> Manifest:
    """The manifest of an imported data set, or the way to get it."""
    if is_cached(name):
        return load_manifest(name)
    raise missing(name)


def missing(name: str) -> UsageError:
    """The sentence for a data set that is not here."""
    if name in PUBLISHED:
        return UsageError(
            f"The data set '{name}' is not here yet. Get it with `odedm data get {name}`, or import what you have with "
            f"`odedm data import PATH --as {name}`."
        )
    error = unknown("data set", name, dict.fromkeys([*DATASETS, *PUBLISHED, *cached()]))
    return UsageError(f"{error} A folder of pictures or an archive can be given by its path.")


def open_data(
    name_or_path: str | Path,
    tasks: int | None = None,
    size: int | None = None,
    seed: int = 0,
    *,
    watch: Watch | None = None,
) -> Dataset:
    """A data set by the name it was imported under, or straight from a folder, archive or array file.

    A path is imported first, under a name made of its own and its content's; the next time it opens at once. `size`
    makes pictures square, `seed` decides what is held out where there is no test part; `tasks` is the default number of
    tasks.
    """
    return _open(settle(name_or_path, size, seed, watch=watch), tasks)


def settle(name_or_path: str | Path, size: int | None = None, seed: int = 0, *, watch: Watch | None = None) -> Manifest:
    """The manifest of a data set that is then certain to be here: looked up by name, or imported from a path."""
    from odedm.data.importer import import_path

    name = str(name_or_path)
    if is_cached(name):
        manifest = load_manifest(name)
        if size is not None and manifest.shape[1:] != (size, size):
            raise UsageError(
                f"'{name}' was imported with rows of shape {manifest.shape}, not at size {size}: import it once more, "
                f"`odedm data import PATH --as NAME --size {size}`."
            )
        return manifest
    if name not in DATASETS and name not in PUBLISHED and Path(name).expanduser().exists():
        return import_path(Path(name).expanduser(), size=size, seed=seed, watch=watch)
    raise missing(name)


def _open(manifest: Manifest, tasks: int | None) -> Dataset:
    """The cached tensors, mapped into memory: nothing is read before it is used."""
    import torch
    from safetensors import SafetensorError, safe_open

    from odedm.stream.dataset import Dataset, constants

    path = root() / manifest.name / TENSORS
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            parts = {name: file.get_tensor(name) for name in ORDER}
    except (SafetensorError, OSError) as error:
        raise UsageError(f"The tensors of '{manifest.name}' cannot be read ({error}). Import it again.") from error
    kind = {"U8": torch.uint8, "F32": torch.float32}[manifest.dtype]
    for number, (image, label) in enumerate((("image", "label"), ("test_image", "test_label"))):
        same = tuple(parts[image].shape) == (manifest.rows[number], *manifest.shape) and parts[image].dtype == kind
        low, high = (int(edge) for edge in parts[label].aminmax())
        if not same or low < 0 or high >= len(manifest.class_names):
            raise UsageError(
                f"The tensors of '{manifest.name}' are not what its manifest says. Remove '{path.parent}' and retry."
            )
    mean, deviation = (torch.tensor(each, dtype=torch.float64) for each in (manifest.mean, manifest.deviation))
    unit, image_rows = (255.0 if manifest.dtype == "U8" else 1.0), len(manifest.shape) == 3
    return Dataset(
        manifest.name,
        parts["image"],
        parts["label"],
        parts["test_image"],
        parts["test_label"],
        manifest.class_names,
        constants(mean, deviation, unit, pad=manifest.pad, flip=manifest.flip, image=image_rows),
        manifest.tasks if tasks is None else tasks,
        known_checksum=manifest.checksum,
    )
