"""Files and folders written whole or not at all, and read with care where anyone may have made them."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from odedm.core.errors import DiskFull, UsageError

_CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""Neither through a link nor waiting for whoever is at the other end of a pipe."""


def own_folder(path: str | Path = "~") -> Path:
    """A path with `~` filled in; where nobody knows whose home is meant, a sentence."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"There is no home folder for '{path}': neither HOME nor the system's list of users names one. Set HOME, "
            "or ODEDM_DATA for imported data, or give a path without ~."
        ) from error


def as_path(given: str | Path) -> Path:
    """A path as it was given, in Python too; what is none is a sentence."""
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"A path must be text or a Path; {type(given).__name__} was given.")
    return Path(given)


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; a link is not followed."""
    handle = os.open(path, os.O_RDONLY | _CAREFUL)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"'{path}' is not a regular file.")
        if status.st_size > limit:
            raise UsageError(f"'{path}' has more than {limit} bytes.")
        return file.read(status.st_size)


def append_line(path: Path, line: str) -> None:
    """Add a line to a regular file, on the disk before the call returns; a link is not followed.

    Where a process was killed in the middle of the last line, the new one still begins at a line's start.
    """
    refusal = f"'{path}' is a link or no regular file, so nothing is added to it. Move it away, then run it again."
    with writing(path):
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _CAREFUL, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise UsageError(refusal) from None
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise UsageError(refusal)
        with os.fdopen(handle, "ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes `path`: where the disk is full, the error says so and where, and is one of its own kind."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        room = "Make room there, then run the same command again: it goes on from what is stored."
        raise DiskFull(f"Cannot write '{path}': {error.strerror}. {room}") from error


def _beside(path: Path) -> Path:
    """A name for what will become `path`, by which `remove_stale` knows it if nobody is left to rename it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A block that writes a temporary file beside `path`, which is flushed and takes its place when it ends well.

    Made as any new file is, so the user's umask decides who may read it.
    """
    part = _beside(path)
    with writing(path):
        try:
            yield part
            sync_file(part)
            os.replace(part, path)
            sync_folder(path.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic_file(path) as part:
        part.write_bytes(content)


def write_given(what: str, path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` for a path that a user gave, with the folders on its way made; `what` it is, for the error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
    except OSError as error:
        raise UsageError(
            f"Cannot write the {what} to '{path}': {error.strerror or error}. Give a path in a folder you may write to."
        ) from error
    return path


def write_text(path: Path, content: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, content.encode())


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries, so that a rename in it outlives a power cut; where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such thing
            raise
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Flush a file that something else has written."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside `folder` that takes its place when the block ends well, and vanishes otherwise.

    The old one is moved aside first: at every moment one of both is there whole, here or aside, and a process that
    fails between the two moves puts the old one back. After a kill there `remove_stale` does.
    """
    staging = _beside(writable_folder(folder.parent, advice="Give a folder you may write to.") / folder.name)
    old = staging.with_name(staging.name + ".old")
    with writing(folder):
        try:
            staging.mkdir()
            yield staging
            sync_folder(staging)
            if folder.exists():
                os.replace(folder, old)
            os.replace(staging, folder)
            sync_folder(folder.parent)
            if old.exists():
                os.replace(old, staging)  # under a name that is never moved back: it is deleted piece by piece
        except BaseException:
            if old.exists():
                if folder.exists():
                    os.replace(folder, staging)
                os.replace(old, folder)
            raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Clear up what killed processes left of their work on a folder or file; one moved aside is moved back.

    Only for who knows that no other process is at work on it.
    """
    # whole names, as `_beside` and checkpoints on their way out have them: what is left of "a.1" is none of "a"'s
    mark = re.compile(re.escape(f".{folder.name}.") + r"\d+\.(gone|[0-9a-f]{8}(\.old)?)")
    for left in [path for path in folder.parent.iterdir() if mark.fullmatch(path.name)]:
        if left.name.endswith(".old") and not folder.exists():
            os.replace(left, folder)
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


@contextmanager
def no_empty_folders(folders: Iterable[Path]) -> Iterator[None]:
    """A block that makes folders, and those above them: what it made and left empty is gone in the end.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     with no_empty_folders([Path(place, "runs", "mine")]):
    ...         Path(place, "runs", "mine").mkdir(parents=True)
    ...     os.listdir(place)
    []
    """
    paths = {path for folder in folders for path in (folder, *folder.parents)}
    missing = [path for path in paths if not os.path.lexists(path)]
    try:
        yield
    finally:
        for path in sorted(missing, key=lambda path: -len(path.parts)):  # the deepest first
            with suppress(OSError):  # it holds files, or was never made
                path.rmdir()


def writable_folder(path: Path, option: str = "--out runs/mine", *, name: str = "folder", advice: str = "") -> Path:
    """Make the folder and prove that files can be written into it, or say why not and what to do.

    The sentence calls it `name`, and names the `option` by which another one is given, unless there is other `advice`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
        advice = advice or f"Give a folder you may write to, e.g. {option}."
        raise UsageError(f"Cannot write into the {name} '{path}': {reason}. {advice}") from error
