"""Imports a path into the cache: through a temporary folder, so that a data set is there whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, error_for
from odedm.core.files import atomic_folder, remove_stale, writable_folder, write_text
from odedm.core.plain_data import json_hash
from odedm.data import cache, formats
from odedm.data.cache import MANIFEST, Manifest, column_files
from odedm.data.cache_writer import write
from odedm.data.contents import DataFolder, LabelledArrays, OnProgress
from odedm.data.images import BadPicture

SCRATCH = ".importing-"
"""How the scratch folder of an import begins: there is one at a time, and any other is left over."""
STAGED = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}(\.old)?")
"""A data set that was being put in its place when its process was killed."""


def no_progress(_activity: str, _done: int, _total: int) -> None:
    """Report to nobody."""


def import_as(
    path: Path,
    name: str,
    *,
    size: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    tasks: int | None = None,
    flip: bool | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = no_progress,
) -> Manifest:
    """Import a path under a name of your own, or under a published one for the data of that name."""
    cache.check_name(name)
    with _importing(on_progress) as scratch:
        if (cache.root() / name).exists() and not overwrite:
            raise UsageError(f"There is a data set '{name}' already; give another name, or --overwrite to replace it.")
        contents = formats.read(path, scratch, name, size=size, seed=seed, test_share=test_share)
        manifest = write(contents, scratch, on_progress, name=name, path=path, size=size, seed=seed)
        manifest = replace(manifest, tasks=tasks or manifest.tasks, flip=manifest.flip if flip is None else flip)
        _put_in_place(scratch, manifest)
    return manifest


def import_arrays(
    contents: LabelledArrays,
    name: str,
    *,
    source: str,
    embedding: dict[str, Any],
    tasks: int,
    on_progress: OnProgress = no_progress,
) -> Manifest:
    """Import features under a name of your own, in the place of any of that name."""
    with _importing(on_progress) as scratch:
        manifest = write(contents, scratch, on_progress, name=name, path=Path(source), size=None, seed=0)
        manifest = replace(manifest, source=source, tasks=tasks, embedding=embedding)
        _put_in_place(scratch, manifest)
    return manifest


def import_path(
    path: Path, *, size: int | None = None, seed: int = 0, on_progress: OnProgress = no_progress
) -> Manifest:
    """Import a path under its own name and its content's, or find it imported already."""
    note, state = source_note(path, size=size, seed=seed)
    if manifest := _imported_from(note, state):
        return manifest
    with _importing(on_progress) as scratch:
        if manifest := _imported_from(note, state):  # by another process, while this one waited for its turn
            return manifest
        contents = formats.read(path, scratch, size=size, seed=seed)
        manifest = write(contents, scratch, on_progress, name="", path=path, size=size, seed=seed)
        mark = json_hash([manifest.checksum, manifest.class_names], 4)
        manifest = replace(manifest, name=f"{_stem(path)}-{mark}")
        if _usable(manifest.name) is None:
            _put_in_place(scratch, manifest)
        write_text(cache.root() / manifest.name / note, state)
    return cache.load_manifest(manifest.name)


def data_folder(*names: str) -> Path:
    """Return the folder of imported data sets, or one in it, made and proved to be writable."""
    advice = "Set ODEDM_DATA to a folder you may write to."
    return writable_folder(cache.root().joinpath(*names), name="data folder", advice=advice)


def source_note(path: Path, *, size: int | None, seed: int) -> tuple[str, str]:
    """Return the name of the note on how a path was imported, and what tells one state of the path from another.

    The state is of names, lengths and times of change; nothing is read.
    """
    files = [path / name for name in DataFolder(path, path).files] if path.is_dir() else [path]
    state = [
        (os.fsencode(file).hex(), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        for file, status in ((file, file.stat()) for file in files)
    ]
    return f"source-{json_hash([os.fsencode(path.resolve()).hex(), size, seed])}", json_hash(state)


def _imported_from(note: str, state: str) -> Manifest | None:
    """Return the manifest of the data set that was imported from a path in its present state."""
    for path in cache.root().glob(f"*/{note}"):
        with suppress(OSError, UnicodeDecodeError):
            if path.read_text("utf-8") == state and (manifest := _usable(path.parent.name)):
                return manifest
    return None


def _usable(name: str) -> Manifest | None:
    """Return the manifest of a data set; None where there is none, or one of another version, or a damaged one."""
    with suppress(UsageError):
        return cache.load_manifest(name)
    return None


def _stem(path: Path) -> str:
    """Return a data set's name from a path's.

    >>> _stem(Path("/data/My Flowers.tar.gz")), _stem(Path("/"))
    ('my-flowers', 'data')
    """
    name = re.sub(r"\.(tar|tgz|gz|bz2|xz|zip|npz|npy)\b", "", path.resolve().name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:40] or "data"


@contextmanager
def _importing(on_progress: OnProgress) -> Iterator[Path]:
    """Take the lock of the data folder and yield a scratch folder in it, which is gone when the block ends.

    Whoever holds the lock clears up after imports that were killed. Errors of pictures and of the disk become
    UsageErrors here.
    """
    root = data_folder()
    try:
        with cache.locked(on_progress):
            for path in list(root.iterdir()):
                if path.name.startswith(SCRATCH):
                    shutil.rmtree(path, ignore_errors=True)
                elif match := STAGED.fullmatch(path.name):
                    remove_stale(root / match[1])
            with tempfile.TemporaryDirectory(dir=root, prefix=SCRATCH, ignore_cleanup_errors=True) as scratch:
                yield Path(scratch)
    except BadPicture as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise error_for(
            error,
            f"The import into '{root}' failed: {error}. Free some space, or set ODEDM_DATA to another disk. Nothing "
            "was changed.",
        ) from error


def _put_in_place(scratch: Path, manifest: Manifest) -> None:
    """Move the columns into the data set's folder, with the manifest, whole or not at all."""
    with atomic_folder(cache.root() / manifest.name) as folder:
        for source, target in zip(column_files(scratch), column_files(folder), strict=True):
            os.replace(source, target)
        write_text(folder / MANIFEST, manifest.to_json())
