"""Makes the n-th operation on files below a folder fail, once or from then on, as a kill or a broken disk does."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

OPERATIONS = ("open", "mkdir", "fsync", "replace", "rename", "unlink", "rmdir", "scandir", "listdir", "truncate")


class Killed(BaseException):
    """The process is gone: no handler may touch a file after it."""


class Faults:
    """Counts operations on files, and raises at one of them; `forever` also at every later one."""

    def __init__(self, folder: Path, at: int, error: Callable[[], BaseException], *, forever: bool) -> None:
        self.folder, self.at, self.error, self.forever = str(folder), at, error, forever
        self.count = 0

    def watch(self, operation):
        def watched(path, *words, **more):
            place = path
            if isinstance(path, int):
                try:
                    place = os.readlink(f"/proc/self/fd/{path}")
                except OSError:
                    place = ""
            if isinstance(place, str | os.PathLike) and str(os.fspath(place)).startswith(self.folder):
                self.count += 1
                if self.count - 1 == self.at or (self.forever and self.count > self.at >= 0):
                    raise self.error()
            return operation(path, *words, **more)

        return watched

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in OPERATIONS:
            patch.setattr(os, name, self.watch(getattr(os, name)))
        opened = self.watch(io.open)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)


def input_output_error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


FAULTS = {
    "an error": (input_output_error, False),
    "a broken disk": (input_output_error, True),
    "a kill": (Killed, True),
}


def with_fault(folder: Path, at: int, kind: str, action: Callable[[], object]) -> tuple[int, bool]:
    """Do something with a fault at its operation of that number; return how many there were, and if it ended well."""
    error, forever = FAULTS[kind]
    faults, ended_well = Faults(folder, at, error, forever=forever), False
    with pytest.MonkeyPatch.context() as patch:
        faults.install(patch)
        try:
            action()
            ended_well = True
        except (Exception, Killed):
            assert at >= 0, "without a fault it ends well"
    return faults.count, ended_well
