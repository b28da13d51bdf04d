"""One process per run: a lock on its working folder that names its owner, and falls with it."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder

fcntl: Any = None
with suppress(ImportError):  # not on Windows: there the owner's name alone decides
    fcntl = import_module("fcntl")

FILE = "lock"
MOST = 4096


@dataclass(frozen=True)
class Owner:
    """Who holds a lock. `started` tells a process from a later one of the same number, `boot` a machine from itself."""

    host: str
    pid: int
    started: str
    boot: str
    since: str

    @classmethod
    def this(cls) -> Owner:
        """The running process."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), started(os.getpid()), _boot(), now)

    @classmethod
    def parse(cls, text: bytes) -> Owner | None:
        """The owner a lock names; None where it names none, as after a death before the name was written.

        >>> Owner.parse(b'{"host": 3}') is None
        True
        """
        try:
            owner = cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            return None
        words = (owner.host, owner.started, owner.boot, owner.since)
        sane = all(isinstance(each, str) and each.isprintable() and len(each) < 300 for each in words)
        return owner if sane and type(owner.pid) is int and 0 < owner.pid < 2**31 else None

    def lives(self) -> bool | None:
        """Whether the owner is still there; None where that cannot be known from this machine."""
        if self.host != socket.gethostname():
            return None
        if self.boot and _boot() and self.boot != _boot():
            return False
        return alive(self.pid) and started(self.pid) == self.started  # an unreaped process has no start any more

    def is_this(self) -> bool:
        """Whether it is the running process itself."""
        return replace(Owner.this(), since=self.since) == self

    def __str__(self) -> str:
        return f"process {self.pid} on '{self.host}' since {self.since}"


class RunLock:
    """A lock that is held; `takeover` is a line about the dead owner whose place was taken, or None.

    `check` before each write: a folder that was deleted took the lock with it.
    """

    def __init__(self, path: Path, handle: int, takeover: str | None) -> None:
        self.path, self.handle, self.takeover = path, handle, takeover

    def check(self) -> None:
        """Refuse to go on where the lock is not this process's any more."""
        if not _same_file(self.handle, self.path):
            raise UsageError(
                f"The working folder '{self.path.parent}' was deleted, moved or taken over while the run was going. "
                "It stops here, and has written nothing into the new one."
            )


@contextmanager
def hold(work: Path) -> Iterator[RunLock]:
    """Make the working folder and hold its lock inside the block; an error that names the owner where it is taken.

    The system takes the lock from a process that dies, however it dies. The name that it leaves is then that of a dead
    one, and is replaced.
    """
    path = writable_folder(work) / FILE
    lock = _acquire(path)
    try:
        yield lock
    finally:  # the name first: who waits for the lock then sees a new file or none
        if _same_file(lock.handle, path):
            path.unlink(missing_ok=True)
        os.close(lock.handle)


def _acquire(path: Path) -> RunLock:
    for _ in range(100):
        handle = _open(path)
        try:
            if not _lock(handle):
                raise _taken(path, _owner(handle))
            if not _same_file(handle, path):  # its last owner took it away in between
                os.close(handle)
                continue
            before = Owner.parse(os.pread(handle, MOST, 0))
            if before is not None and not before.is_this() and before.lives() is not False:
                raise _taken(path, before)
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(Owner.this())).encode(), 0)
            os.fsync(handle)
        except BaseException:
            os.close(handle)
            raise
        line = f"Taking over from {before}, which is no more." if before is not None else None
        return RunLock(path, handle, line)
    raise UsageError(f"The lock '{path}' changes hands without end; try again.")


def _owner(handle: int) -> Owner | None:
    """Who has the lock, with a moment's patience: it is taken before it is signed."""
    for _ in range(20):
        owner = Owner.parse(os.pread(handle, MOST, 0))
        if owner is not None:
            return owner
        time.sleep(0.01)
    return None


def _open(path: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except OSError as error:
        what = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise UsageError(f"Cannot lock '{path.parent}': {what}. Remove '{path}', or give another --out.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UsageError(f"Cannot lock '{path.parent}': '{path}' is no plain file. Remove it, or give another --out.")
    return handle


def _lock(handle: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK):
            raise
    return True  # a file system without locks: the owner's name alone decides


def _same_file(handle: int, path: Path) -> bool:
    try:
        there, own = path.lstat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)


def _taken(path: Path, owner: Owner | None) -> UsageError:
    if owner is not None and owner.lives() is None:
        return UsageError(
            f"'{path.parent}' is in use by {owner}, and from here it cannot be seen whether that is still running. "
            f"If it is not, remove '{path}' and run the same command again."
        )
    who = str(owner) if owner else "another process"
    return UsageError(f"'{path.parent}' is in use by {who}. Wait for it, end it, or give another --out.")


def alive(pid: int) -> bool:
    """Whether there is a process of this number.

    >>> alive(os.getpid())
    True
    """
    if sys.platform == "win32":
        return True  # a signal 0 would end it there
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # a process of another user is there
    return True


def started(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty where the system does not say, or it is dead."""
    fields = _kernel_says(f"{pid}/stat").rpartition(")")[2].split()
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _boot() -> str:
    return _kernel_says("sys/kernel/random/boot_id").strip()


def _kernel_says(name: str) -> str:
    try:
        return Path("/proc", name).read_text()
    except OSError:
        return ""
