"""A disk that is full, broken or read-only fails no run: the command ends with a sentence, and the same one goes on."""

from __future__ import annotations

import errno
import os
import shutil
from functools import partial

import pytest
from file_faults import Faults
from jobs import SMALL, job_of, open_all, run_all

from odedm.checkpoint.lock import hold
from odedm.core.errors import (
    INFRASTRUCTURE_ERRNOS,
    InfrastructureError,
    LockedError,
    UsageError,
    is_infrastructure_error,
)
from odedm.core.files import append_line, atomic_folder, read_bytes, writable_folder, write_bytes, write_for_user
from odedm.execute.backend import ExecutionConfig
from odedm.execute.scheduler import run_jobs


def failing(number: int, *_words, **_more):
    raise OSError(number, os.strerror(number))


def lock(path) -> None:
    with hold(path):
        pass


def replace_folder(path) -> None:
    with atomic_folder(path):
        pass


OPERATIONS = {
    "write_bytes": lambda path: write_bytes(path, b"x"),
    "append_line": lambda path: append_line(path, "x"),
    "writable_folder": writable_folder,
    "write_for_user": lambda path: write_for_user("memory", path, lambda target: target.write_bytes(b"x")),
    "atomic_folder": replace_folder,
    "hold": lock,
    "read_bytes": lambda path: read_bytes(path.parent / "there", 9),
}


@pytest.mark.parametrize("number", sorted(INFRASTRUCTURE_ERRNOS), ids=errno.errorcode.get)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_of_the_disk_is_one_of_infrastructure(tmp_path, monkeypatch, name, number):
    (tmp_path / "there").write_bytes(b"x")
    for call in ("os.mkdir", "os.open", "os.fsync", "io.open", "os.stat"):
        monkeypatch.setattr(call, partial(failing, number))
    with pytest.raises((InfrastructureError, OSError)) as caught:
        OPERATIONS[name](tmp_path / "new")
    monkeypatch.undo()
    assert is_infrastructure_error(caught.value)
    if isinstance(caught.value, UsageError):
        assert os.strerror(number) in str(caught.value)


def test_errors_of_people_are_none(tmp_path):
    (tmp_path / "file").write_text("")
    for action in (
        lambda: writable_folder(tmp_path / "file"),
        lambda: write_for_user("memory", tmp_path / "file" / "below", lambda target: target.write_bytes(b"")),
        lambda: read_bytes(tmp_path / "none", 9),
    ):
        with pytest.raises(UsageError) as caught:
            action()
        assert not is_infrastructure_error(caught.value)
    assert not is_infrastructure_error(LockedError("in use"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_no_operation_on_files_that_fails_marks_a_run_as_failed(tmp_path, number):
    """Each in turn; what ends with an error goes on by the same command."""
    place = tmp_path / "place"
    job = job_of(SMALL, place / "run")
    data = open_all([job])

    def run():
        return run_jobs([job], data, ExecutionConfig(), ())

    def run_with_fault(at: int):
        place.mkdir()
        error: UsageError | None = None
        faults = Faults(place, at, partial(OSError, number, os.strerror(number)), forever=False)
        with pytest.MonkeyPatch.context() as patch:
            faults.install(patch)
            try:
                failed = run().failed
            except UsageError as caught:
                error, failed = caught, {}
        assert failed == {}
        assert error is None or is_infrastructure_error(error), error
        if not (job.folder / "result.json").exists():  # a command takes what is finished as it is
            run_all([job])
        shutil.rmtree(place)
        return faults.count

    count = run_with_fault(-1)
    assert count > 30
    for at in range(number % 3, count, 3):
        run_with_fault(at)


def test_what_caused_an_error_counts():
    error = ValueError("It cannot be had.")
    error.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert is_infrastructure_error(error)
