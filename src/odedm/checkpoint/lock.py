"""One process per run: the kernel's lock on a file in its working folder, and a note that says whose it is."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from odedm.core.errors import InvalidFileError, LockedError, UsageError, error_for, is_infrastructure_error
from odedm.core.files import read_bytes, write_text
from odedm.core.text import printable

FILE, NOTE = "lock", "owner.txt"
MAX_NOTE_BYTES = 400
PATIENCE = 0.2
"""Seconds to wait for a lock that another process is only looking at, or is just taking away."""
TRIES = 100
"""How often a lock is tried whose folder was removed by its last owner meanwhile."""


class RunLock:
    """A lock that is held; `takeover` is a line about the dead owner whose place was taken, or None."""

    def __init__(self, work: Path, takeover: str | None = None) -> None:
        self.work, self.takeover = work, takeover
        self._file = (work / FILE).stat()

    def is_current(self) -> bool:
        """Return whether the file that was locked is still the one in the folder."""
        try:
            return os.path.samestat(self._file, (self.work / FILE).stat())
        except OSError as error:
            if is_infrastructure_error(error):
                raise
            return False

    def check(self) -> None:
        """Refuse to go on where the working folder was deleted or replaced; called before each write."""
        if not self.is_current():
            raise UsageError(
                f"The working folder '{self.work}' was deleted, moved or taken over while the run was going. "
                "It stops here, and has written nothing into the new one."
            )

    def clear(self) -> None:
        """Empty the working folder, but for the lock and its note, which go when the lock is released."""
        self.check()
        for path in self.work.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (FILE, NOTE):
                path.unlink(missing_ok=True)


@contextmanager
def hold(work: Path) -> Iterator[RunLock]:
    """Make the working folder and hold its lock inside the block; `LockedError` where another process has it.

    The kernel takes the lock from a process that dies, however it dies, on whatever host. A folder that is empty in the
    end is removed.
    """
    kernel_lock = _acquire(work)
    try:
        dead = read_owner(work)
        lock = RunLock(work, f"Taking over from {dead}, which is no more." if dead else None)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        write_text(work / NOTE, f"process {os.getpid()} on '{socket.gethostname()}' since {since}")
    except BaseException:
        kernel_lock.release()
        raise
    try:
        yield lock
    finally:
        current = lock.is_current()
        if current:
            (work / NOTE).unlink(missing_ok=True)
        _release(kernel_lock, work, remove=current)


def read_owner(work: Path) -> str:
    """Return who took a lock last, for messages alone: whether it is still held the kernel knows."""
    try:
        return printable(read_bytes(work / NOTE, MAX_NOTE_BYTES).decode(errors="replace"), MAX_NOTE_BYTES)
    except InvalidFileError:
        return ""


def is_held(work: Path) -> bool | None:
    """Return whether a process holds the lock of a working folder; None where that cannot be found out."""
    if not (work / FILE).is_file():
        return False
    kernel_lock = FileLock(work / FILE)
    try:
        kernel_lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return None
    _release(kernel_lock, work, remove=not (work / NOTE).exists())  # without a note it is one that this call has made
    return False


def check_not_held(works: Iterable[Path]) -> None:
    """Refuse working folders at which a process is, which spares a command that was given twice its start."""
    for work in works:
        if is_held(work):
            raise _locked_error(work)


def _acquire(work: Path) -> FileLock:
    lock = FileLock(work / FILE)
    for _ in range(TRIES):
        try:
            lock.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 20)
        except Timeout:
            raise _locked_error(work) from None
        except OSError as error:
            if isinstance(error, FileNotFoundError | FileExistsError) and not work.is_file():
                continue  # the last owner removes the folder; mkdir says "exists" where it is gone before a second look
            raise error_for(
                error,
                f"Cannot lock '{work}': {error.strerror or error}. Remove '{work / FILE}', or give another --out.",
            ) from error
        return lock
    raise UsageError(f"The lock '{work / FILE}' changes hands without end; try again.")


def _release(lock: FileLock, work: Path, *, remove: bool) -> None:
    """Give a lock back; with `remove` its file goes first, so that whoever waits for it gets a new file or none."""
    with suppress(OSError):  # Windows keeps a file that is open, and filelock removes it there
        if remove:
            (work / FILE).unlink()
    lock.release()
    with suppress(OSError):  # it holds something, or the next owner has begun in it
        if remove:
            work.rmdir()


def _locked_error(work: Path) -> LockedError:
    owner = read_owner(work) or "another process"
    return LockedError(f"'{work}' is in use by {owner}. Wait for it, end it, or give another --out.")
