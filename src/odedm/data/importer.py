"""Imports a path into the cache: through a temporary folder, so that a data set is there whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import sync_folder, writable_folder, write_text
from odedm.core.plain_data import text_fingerprint
from odedm.data import cache, formats
from odedm.data.archives import Folder, when_changed
from odedm.data.cache import MANIFEST, TENSORS, Manifest
from odedm.data.cache_writer import write
from odedm.data.image_workers import Watch
from odedm.data.images import BadPicture

SOURCES = ".sources"
"""Which path was imported under which name: one small file per state of a path."""
LOCKS = ".locks"
STAGED = "~"
"""Between the name and the rest of a temporary folder's name: a mark that no data set's name has."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Watch without a word."""


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
    watch: Watch | None = None,
) -> Manifest:
    """Import a path under a name of your own, or under a published one for the data of that name."""
    cache.check_name(name)
    with _locked(name):
        if (cache.root() / name).exists() and not overwrite:
            raise UsageError(f"There is a data set '{name}' already; give another name, or --overwrite to replace it.")
        found = formats.read(path, name, size=size, seed=seed, test_share=test_share)
        with _staging(name) as staging:
            manifest = write(found, staging / TENSORS, watch or silent, name=name, path=path, size=size, seed=seed)
            manifest = replace(manifest, tasks=tasks or manifest.tasks, flip=manifest.flip if flip is None else flip)
            _finish(staging, manifest)
    return manifest


def import_path(path: Path, *, size: int | None = None, seed: int = 0, watch: Watch | None = None) -> Manifest:
    """Import a path under its own name and its content's, or find it imported already."""
    mark = fingerprint(path, size=size, seed=seed)
    note = cache.root() / SOURCES / mark
    with _locked(mark):
        if note.is_file() and cache.is_cached(name := note.read_text("utf-8").strip()):
            return cache.load_manifest(name)
        found = formats.read(path, size=size, seed=seed)
        with _staging(mark) as staging:
            manifest = write(found, staging / TENSORS, watch or silent, name="", path=path, size=size, seed=seed)
            for mark in (manifest.checksum[:8], text_fingerprint([manifest.checksum, manifest.class_names])):
                manifest = replace(manifest, name=f"{_stem(path)}-{mark}")
                with _locked(manifest.name):
                    if not cache.is_cached(manifest.name):
                        _finish(staging, manifest)
                    there = cache.load_manifest(manifest.name)
                if (there.checksum, there.class_names) == (manifest.checksum, manifest.class_names):
                    break  # else the first name is taken: by rows of other classes, or by a chance in 2³²
            manifest = there
        note.parent.mkdir(exist_ok=True)
        write_text(note, manifest.name + "\n")
    return manifest


def fingerprint(path: Path, *, size: int | None, seed: int) -> str:
    """What tells one state of a path from another without reading its files: names, lengths and times of change."""
    words = [f"{path.resolve()}/{size}/{seed}"]
    if path.is_dir():
        tree = Folder(path)
        words += [f"{name}\0{length}/{tree.changed[name]}" for name, length in tree.sizes.items()]
    else:
        status = path.stat()
        words.append(f"{status.st_size}/{when_changed(status)}")
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _stem(path: Path) -> str:
    """A data set's name from a path's.

    >>> _stem(Path("/data/My Flowers.tar.gz")), _stem(Path("/"))
    ('my-flowers', 'data')
    """
    name = re.sub(r"\.(tar|tgz|gz|zip|npz|npy)\b", "", path.resolve().name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:40] or "data"


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """One import of a name at a time: a second one waits, and then finds what the first one made.

    Whoever comes sweeps up after imports that were killed: those whose lock nobody holds.
    """
    folder = prepared(cache.root())
    locks = prepared(folder / LOCKS)
    with _lock(locks / name) as alone:
        for remains in folder.glob(f".*{STAGED}*"):
            owner = remains.name[1:].partition(STAGED)[0]
            with _lock(locks / owner, wait=False) if owner != name else nullcontext(alone) as dead:
                if dead:
                    shutil.rmtree(remains, ignore_errors=True)
        yield


@contextmanager
def _lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether the lock was had; without locks here it never is, and two imports merely do the work twice."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except OSError as error:
        raise UsageError(f"Cannot open the lock '{path}': {error.strerror}. Remove it, then try again.") from error
    had = False
    try:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            had = True
        yield had
    finally:
        os.close(handle)


def prepared(folder: Path) -> Path:
    """The folder, made if need be, if files can be written into it."""
    return writable_folder(folder, name="data folder", advice="Set ODEDM_DATA to a folder you may write to.")


@contextmanager
def _staging(name: str) -> Iterator[Path]:
    """A temporary folder beside the caches that is gone when the block ends, whatever was not moved out of it."""
    staging = Path(tempfile.mkdtemp(dir=cache.root(), prefix=f".{name}{STAGED}"))
    try:
        (staging / "whole").mkdir()
        yield staging / "whole"
    except BadPicture as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise
        raise UsageError(
            f"Cannot write the cache in '{cache.root()}': {error.strerror}. Free some space, or set ODEDM_DATA to "
            "another disk. Nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _finish(staging: Path, manifest: Manifest) -> None:
    """Write the manifest, flush everything to the disk, and rename the folder into its place."""
    final = cache.root() / manifest.name
    write_text(staging / MANIFEST, manifest.to_json())
    sync_folder(staging)
    for attempt in range(5):
        if final.exists():
            os.replace(final, staging.with_name(f"old-{attempt}"))  # readers keep their map; the name is free
        try:
            os.replace(staging, final)
            break
        except OSError as error:  # another import without locks was faster: its result gives way
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == 4:
                raise
    sync_folder(final.parent)
