"""One process per run: a lock on its working folder that names its owner, and falls with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from odedm.core.errors import LockedError, UsageError
from odedm.core.files import read_regular, writable_folder

fcntl: Any = None
with suppress(ImportError):  # not on Windows: there the owner's name alone decides
    fcntl = import_module("fcntl")

FILE = "lock"
MOST = 4096
TRIES = 100
"""How often a lock is tried for whose owner is just taking it away."""


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

    def lives(self, *, let_go: bool = False) -> bool | None:
        """Whether the owner is still there; None where that cannot be known from this machine.

        `let_go`: the system has given its lock to another. A container has a new host name at every start and process
        numbers of its own, but one boot with all others of its machine: there that means that the owner is dead.
        """
        if self.host != socket.gethostname():
            return False if let_go and self.boot and self.boot == _boot() else None
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

    def clear(self) -> None:
        """Empty the working folder; it goes with the lock, unless another process has begun in it by then.

        The lock stays to the end: a folder that was removed around it would take along what the next owner makes.
        """
        self.check()
        for each in self.path.parent.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            elif each != self.path:
                each.unlink(missing_ok=True)


@contextmanager
def hold(work: Path) -> Iterator[RunLock]:
    """Make the working folder and hold its lock inside the block; an error that names the owner where it is taken.

    The system takes the lock from a process that dies, however it dies. The name that it leaves is then that of a dead
    one, and is replaced. A folder that is empty in the end is removed. One that is a link is refused: what it leads to
    would be filled and emptied as if it were the run's.
    """
    if work.is_symlink():
        raise UsageError(f"Cannot lock '{work}': it is a link, not a folder. Remove it, or give another --out.")
    lock = _acquire(work / FILE)
    try:
        yield lock
    finally:  # the name first: who waits for the lock then sees a new file or none
        if _same_file(lock.handle, lock.path):
            lock.path.unlink(missing_ok=True)
            with suppress(OSError):  # it holds something, or the next owner has begun in it
                work.rmdir()
        os.close(lock.handle)


def check_nobody_at(works: Iterable[Path]) -> None:
    """Refuse working folders at which another process of this machine is; no lock is taken.

    It goes by the names in the locks, which is enough to spare a command that was given twice its start.
    """
    for work in works:
        owner = _holder(work)
        if owner is not None:
            raise _taken(work / FILE, owner, held=True)


def _holder(work: Path) -> Owner | None:
    """The living process of this machine that a working folder's lock names, where it is another than this."""
    try:
        owner = Owner.parse(read_regular(work / FILE, MOST))
    except (OSError, UsageError):
        return None
    return owner if owner is not None and not owner.is_this() and owner.lives() else None


def _acquire(path: Path) -> RunLock:
    refused = UsageError(f"The lock '{path}' changes hands without end; try again.")
    for _ in range(TRIES):
        try:
            writable_folder(path.parent)
            handle = _open(path)
        except UsageError as error:
            if not isinstance(error.__cause__, FileNotFoundError | FileExistsError):
                raise
            refused = error  # unless its last owner took the folder away in between
            continue
        try:
            locked = _lock(handle)
            if not _same_file(handle, path):  # its last owner took it away in between
                os.close(handle)
                continue
            if locked is False:
                raise _taken(path, _owner(handle), held=True)
            before = Owner.parse(os.pread(handle, MOST, 0))
            if before is not None and not before.is_this() and before.lives(let_go=bool(locked)) is not False:
                raise _taken(path, before)
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(Owner.this())).encode(), 0)
            os.fsync(handle)
        except BaseException:
            os.close(handle)
            raise
        line = f"Taking over from {before}, which is no more." if before is not None else None
        return RunLock(path, handle, line)
    raise refused


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


def _lock(handle: int) -> bool | None:
    """Whether the lock is this process's now; None where there are no locks: the owner's name alone decides."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK):
            raise
        return None
    return True


def _same_file(handle: int, path: Path) -> bool:
    try:
        there, own = path.lstat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)


def _taken(path: Path, owner: Owner | None, *, held: bool = False) -> LockedError:
    if owner is not None and not held and owner.lives() is None:
        return LockedError(
            f"'{path.parent}' is in use by {owner}, and from here it cannot be seen whether that is still running. "
            f"If it is not, remove '{path}' and run the same command again."
        )
    who = str(owner) if owner else "another process"
    return LockedError(f"'{path.parent}' is in use by {who}. Wait for it, end it, or give another --out.")


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
