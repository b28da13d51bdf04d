"""Files and folders written whole or not at all, and read up to a size."""

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

from odedm.core.errors import (
    FULL_DISK,
    InfrastructureError,
    InvalidFileError,
    UsageError,
    error_for,
    is_infrastructure_error,
    require,
)


def expand_user(path: str | Path = "~") -> Path:
    """Return the path with `~` filled in; UsageError where nobody knows whose home is meant."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"There is no home folder for '{path}': neither HOME nor the system's list of users names one. Set HOME, "
            "or ODEDM_DATA for imported data, or give a path without ~."
        ) from error


def as_path(path: str | Path) -> Path:
    """Return what a caller gave as a path; UsageError where it is none."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"A path must be text or a Path; {type(path).__name__} was given.")
    return Path(path)


def check_file(path: Path, limit: int | None = None) -> int:
    """Return the size of a regular file; InvalidFileError where there is none, or where it exceeds `limit` bytes."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InvalidFileError(f"{path.name} is missing") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    require(stat.S_ISREG(status.st_mode), f"{path.name} is not a regular file")
    require(limit is None or status.st_size <= limit, f"{path.name} has more than {limit} bytes")
    return status.st_size


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; InvalidFileError where it is none."""
    check_file(path, limit)
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    if is_infrastructure_error(error):
        return InfrastructureError(
            f"Cannot read '{path}': {error.strerror}. Mend that, then run the same command again."
        )
    return InvalidFileError(f"{path.name} cannot be read ({error.strerror})")


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, on the disk before the call returns.

    Where a process was killed in the middle of the last line, the new one still begins at a line's start.
    """
    with writing(path), path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise InfrastructureError where the disk is full, broken or read-only while the block writes `path`."""
    try:
        yield
    except OSError as error:
        if not is_infrastructure_error(error):
            raise
        advice = "Make room there" if error.errno in FULL_DISK else "Mend that"
        raise InfrastructureError(
            f"Cannot write '{path}': {error.strerror}. {advice}, then run the same command again: it goes on from what "
            "is stored."
        ) from error


def _beside(path: Path) -> Path:
    """Return a name for what will become `path`, which `remove_stale` knows if nobody is left to rename it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which is flushed and takes its place when the block ends well.

    A file that is replaced keeps its permissions, and a link is followed; who may read a new file the umask decides.
    """
    try:
        path = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise UsageError(f"Cannot write '{path}': {error}. Give another path.") from error
    part = _beside(path)
    with writing(path):
        try:
            if path.exists():
                part.touch(0o600)  # for its owner alone until it has the permissions of the other
            yield part
            if path.exists():
                shutil.copymode(path, part)
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


def write_for_user(what: str, path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` for a path that a user gave, and make the folders on its way; `what` it is, for the error.

    What saves of processes that are gone have left beside it is removed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in _left_of(path.resolve()):
            if _is_gone(int(left.name.split(".")[-2])):
                left.unlink(missing_ok=True)
        write(path)
    except OSError as error:
        reason = error.strerror or error
        raise error_for(
            error, f"Cannot write the {what} to '{path}': {reason}. Give a path in a folder you may write to."
        ) from error
    return path


def write_text(path: Path, content: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, content.encode())


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries where the system can, so that a rename in it outlives a power cut."""
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
    """Remove what killed processes left of their work on a folder or file; move one that lies aside back.

    Only for who knows that no other process is at work on it.
    """
    for path in _left_of(folder, r"(\.old)?"):
        if path.name.endswith(".old") and not folder.exists():
            os.replace(path, folder)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _left_of(path: Path, ending: str = "") -> list[Path]:
    """Return what lies beside a file or folder under the names that `_beside` gives, and no other's."""
    mark = re.compile(re.escape(f".{path.name}.") + r"\d+\.[0-9a-f]{8}" + ending)
    return [other for other in path.parent.iterdir() if mark.fullmatch(other.name)]


def _is_gone(process: int) -> bool:
    """Return whether no process of this number is on this machine."""
    if os.name == "nt":  # where `os.kill` would end it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def no_empty_folders(folders: Iterable[Path]) -> Iterator[None]:
    """Remove what the block makes of these folders, and of those above them, and leaves empty.

    >>> with tempfile.TemporaryDirectory() as root:
    ...     with no_empty_folders([Path(root, "runs", "mine")]):
    ...         Path(root, "runs", "mine").mkdir(parents=True)
    ...     os.listdir(root)
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
        raise error_for(error, f"Cannot write into the {name} '{path}': {reason}. {advice}") from error
