"""Files are there whole or not at all, whenever the power goes; and nobody may read them whom the umask keeps out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import odedm
from jobs import SMALL, job_of, run_all

from odedm.checkpoint.checkpoint import Meta, Position, load_latest, restore, save
from odedm.checkpoint.state_tree import state_tree
from odedm.core import files
from odedm.core.errors import InfrastructureError, InvalidFileError, UsageError
from odedm.core.files import (
    append_line,
    atomic_file,
    atomic_folder,
    read_bytes,
    remove_stale,
    writable_folder,
    write_bytes,
    write_for_user,
    writing,
)

OPERATIONS = ("open", "mkdir", "fsync", "replace", "unlink", "rmdir")


class Recorder:
    """Keeps the folder as it is before and after each operation on files, and with what a power cut takes from it."""

    def __init__(self, place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.kept, self.number = place, kept, 0
        self.flushed: dict[int, tuple[int, int]] = {}
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))

    def watched(self, operation):
        def watch(*words, **more):
            if self.busy:
                return operation(*words, **more)
            self.keep()
            if operation.__name__ == "fsync":
                self.note(os.fstat(words[0]))
            try:
                return operation(*words, **more)
            finally:
                self.keep()

        return watch

    busy = False

    def note(self, status: os.stat_result) -> None:
        self.flushed[status.st_ino] = (status.st_size, status.st_mtime_ns)

    def begin(self) -> None:
        """What is there by now is on the disk."""
        for path in self.place.rglob("*"):
            self.note(path.stat())

    def keep(self) -> None:
        """The folder as a killed process leaves it, and as a power cut does: what was not flushed has no content."""
        self.busy = True
        killed, cut = (self.kept / f"{self.number:03d}-{how}" for how in ("killed", "cut"))
        for copy in (killed, cut):
            shutil.copytree(self.place, copy)
        for path in self.place.rglob("*"):
            status = path.stat()
            if path.is_file() and self.flushed.get(status.st_ino) != (status.st_size, status.st_mtime_ns):
                (cut / path.relative_to(self.place)).write_bytes(b"")
        self.number += 1
        self.busy = False


@pytest.fixture
def recorded(tmp_path):
    """Does something, and gives the folder as it was after each prefix of the operations that this took."""
    place, kept = tmp_path / "place", tmp_path / "kept"
    place.mkdir()
    kept.mkdir()

    def record(action):
        with pytest.MonkeyPatch.context() as patch:
            recorder = Recorder(place, kept, patch)
            recorder.begin()
            action(place)
            recorder.keep()
        copies = sorted(kept.iterdir())
        assert len(copies) > 10
        return copies

    return place, record


def test_a_file_is_the_old_one_or_the_new_one_after_every_operation(recorded):
    place, record = recorded
    old, new = b"old" * 1000, b"new" * 5000
    write_bytes(place / "file", old)
    seen = [(copy / "file").read_bytes() for copy in record(lambda folder: write_bytes(folder / "file", new))]
    assert set(seen) == {old, new}


def test_a_folder_is_the_old_one_or_the_new_one_after_every_operation(recorded):
    place, record = recorded

    def write(folder, content):
        with atomic_folder(folder / "run") as staging:
            for name in ("a", "b"):
                write_bytes(staging / name, content)

    write(place, b"old")
    seen = set()
    for copy in record(lambda folder: write(folder, b"new")):
        remove_stale(copy / "run")  # what whoever holds the lock does first
        seen.add(tuple((path.name, path.read_bytes()) for path in sorted((copy / "run").iterdir())))
        assert [path.name for path in copy.iterdir()] == ["run"]
    assert seen == {(("a", content), ("b", content)) for content in (b"old", b"new")}


def test_what_is_left_of_a_name_with_a_dot_is_not_taken_for_that_of_its_beginning(tmp_path):
    left = tmp_path / ".data.1.4242.0123abcd.old"
    left.mkdir()
    remove_stale(tmp_path / "data")
    assert left.is_dir()
    assert not (tmp_path / "data").exists()
    remove_stale(tmp_path / "data.1")
    assert [path.name for path in tmp_path.iterdir()] == ["data.1"]


def test_an_interrupt_while_a_folder_takes_another_s_place_leaves_one_of_both(tmp_path, monkeypatch):
    def write(content):
        with atomic_folder(tmp_path / "run") as staging:
            write_bytes(staging / "a", content)

    write(b"old")
    replace, moves = os.replace, []

    def interrupted(source, target):
        moves.append(target)
        if target == tmp_path / "run" and len(moves) == 3:  # after that of the file, and of the old folder
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "a").read_bytes() == b"old"


def test_a_checkpoint_is_there_after_every_operation(recorded):
    place, record = recorded
    meta = Meta({}, "data")

    def store(folder, step):
        state = state_tree({"x": torch.full((64,), float(step)), "number": step})
        save(folder, state, meta, Position(0, step, step))

    for step in (1, 2):
        store(place, step)
    seen = set()
    for copy in record(lambda folder: store(folder, 3)):
        holder = {"x": torch.zeros(64), "number": 0}
        restore(holder, load_latest(copy, meta))
        assert (holder["x"] == holder["number"]).all()
        seen.add(holder["number"])
    assert seen == {2, 3}


def test_the_users_umask_decides_who_may_read_a_run(tmp_path):
    before = os.umask(0o077)
    try:
        run_all([job_of(SMALL, tmp_path / "runs" / "seed-0", overwrite=False)])
        odedm("report", tmp_path / "runs", "--out", tmp_path / "report.html")
    finally:
        os.umask(before)
    made = [*(tmp_path / "runs").rglob("*"), tmp_path / "report.html"]
    assert "memory.safetensors" in {path.name for path in made}
    assert [path for path in made if path.stat().st_mode & 0o077] == []
    write_bytes(tmp_path / "open", b"")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o666 & ~before


def test_a_full_disk_is_said_with_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda _: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
    with pytest.raises(
        InfrastructureError, match=f"Cannot write '{tmp_path}/file': No space left on device. Make room there"
    ):
        write_bytes(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), writing(tmp_path / "file"):
        (tmp_path / "none" / "file").touch()


def test_a_file_in_the_place_of_a_folder_is_called_one(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(UsageError, match=r"Cannot write into the folder '.*mine': it is a file\. Give a folder"):
        writable_folder(tmp_path / "mine")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.timeout(20)
def test_what_is_no_regular_file_of_bounded_size_is_not_read(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"12345678901")
    (tmp_path / "link").symlink_to(tmp_path / "long")
    for name, limit, fault in (
        ("pipe", 10, "pipe is not a regular file"),
        ("none", 10, "none is missing"),
        ("long", 10, "long has more than 10 bytes"),
        (".", 10, "is not a regular file"),
    ):
        with pytest.raises(InvalidFileError, match=fault):
            read_bytes(tmp_path / name, limit)
    assert read_bytes(tmp_path / "link", 11) == b"12345678901"


def test_a_line_begins_at_a_line_s_start(tmp_path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    path.write_bytes(path.read_bytes() + b"cut sho")
    append_line(path, "two")
    assert path.read_text() == "one\ncut sho\ntwo\n"


def test_folders_on_the_way_to_a_file_of_a_user_are_made(tmp_path) -> None:
    path = write_for_user("thing", tmp_path / "new" / "folder" / "file", lambda path: write_bytes(path, b"content"))
    assert path.read_bytes() == b"content"
    with pytest.raises(UsageError, match=r"Cannot write the thing to '.*': .*\. Give a path in a folder you may write"):
        write_for_user("thing", path / "below", lambda path: write_bytes(path, b""))


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    modes = []
    for mode in (0o600, 0o640, 0o400):
        path.chmod(mode)
        with atomic_file(path) as part:
            modes.append(part.stat().st_mode & 0o777)
            part.write_bytes(b"new")
        modes.append(path.stat().st_mode & 0o777)
    assert modes == [0o600, 0o600, 0o600, 0o640, 0o600, 0o400]


def test_a_link_is_written_through_and_stays_one(tmp_path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    for content in (b"one", b"two"):  # the file that the link leads to is not there at first
        write_bytes(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert read_bytes(tmp_path / "link", 9) == content
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["file"]
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(UsageError, match="Cannot write '.*circle'"):
        write_bytes(tmp_path / "circle", b"")


@pytest.mark.skipif(os.name == "nt", reason="asks the system for processes as POSIX has it")
def test_a_save_sweeps_what_a_killed_one_left_and_nothing_else(tmp_path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, working = (tmp_path / f".file.{number}.0123abcd" for number in (gone.pid, os.getpid()))
    others = [tmp_path / f".file.1.{gone.pid}.0123abcd", tmp_path / f".file.{gone.pid}.0123abcd.old", working]
    for path in (left, *others):
        path.write_text("part")
    files.write_for_user("learner", tmp_path / "file", lambda path: files.write_text(path, "whole"))
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "file", *others])
