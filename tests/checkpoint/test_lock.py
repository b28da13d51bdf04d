"""One owner at a time, whoever it is and however it ends; with real processes."""

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from jobs import SMALL, job_of
from rich.console import Console
from typer.testing import CliRunner

from odedm.checkpoint.lock import NOTE, check_not_held, hold, is_held, read_owner
from odedm.cli import run_command
from odedm.cli.app import app
from odedm.cli.progress_display import ProgressDisplay
from odedm.core.errors import LockedError, UsageError
from odedm.execute.scheduler import Summary

HOLDER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background job of a shell ignores it
from odedm.core.errors import UsageError
from odedm.checkpoint.lock import hold
try:
    with hold(Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except UsageError as error:
    print(error, flush=True)
print("over", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Processes that hold the lock of the same folder, ended when the test is over."""
    running = []

    def begin():
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "work")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process, process.stdout.readline().strip()

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def test_a_second_process_is_told_who_is_there(start, tmp_path):
    first, answer = start()
    assert answer == "held"
    _, answer = start()
    assert f"is in use by process {first.pid} on '" in answer
    assert "since 20" in answer
    with pytest.raises(UsageError, match=str(first.pid)), hold(tmp_path / "work"):
        pass
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.stdout.readline().strip() == "over"
    assert not (tmp_path / "work" / "lock").exists(), "it takes its name away"
    assert start()[1] == "held"


def test_a_command_that_is_given_twice_says_so_in_one_line(start, tmp_path, monkeypatch):
    """Before anything is started; another folder's lock, or a dead owner's, keeps nobody away."""
    first, _ = start()
    check_not_held([tmp_path / "other"])
    with pytest.raises(LockedError, match=f"in use by process {first.pid} on ") as caught:
        check_not_held([tmp_path / "other", tmp_path / "work"])
    monkeypatch.setattr(run_command, "working_folder", lambda _: tmp_path / "work")
    done = CliRunner().invoke(app, ["run", "--data", "blobs", "--seeds", "2", "--out", str(tmp_path / "runs")])
    assert done.exit_code == 2
    assert " ".join(done.output.split()) == f"Error: {caught.value}"
    first.kill()
    first.wait(30)
    check_not_held([tmp_path / "work"])
    assert (tmp_path / "work" / NOTE).is_file(), "whose place is taken is said by the run itself"


def test_runs_that_another_process_took_meanwhile_are_one_sentence(tmp_path):
    """Two commands that start in the same second: workers find out, each by itself."""
    jobs = [job_of(replace(SMALL, seed=seed), tmp_path / str(seed)) for seed in range(3)]
    sentence = "'work' is in use by process 5 on 'here' since then. Wait for it, end it, or give another --out."
    screen = Console(file=io.StringIO(), width=200)
    with ProgressDisplay(screen, 3) as display:
        display.on_start(jobs[1])
        display.on_fail(jobs[1], sentence)
        assert display.failures == 1
    assert sentence in screen.file.getvalue()
    failures = run_command._failures(jobs, Summary(failed={jobs[0].key: sentence}))
    assert failures.startswith("1 of 3 runs failed: ")
    assert failures.endswith(f"The first said: {sentence}")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_dead_owner_is_replaced_at_once(start, tmp_path, how):
    first, _ = start()
    first.send_signal(how)
    first.wait(30)
    with hold(tmp_path / "work") as held:
        if how == signal.SIGKILL:
            line = rf"Taking over from process {first.pid} on '.+' since 20.+, which is no more\."
            assert re.fullmatch(line, held.takeover)
        assert read_owner(tmp_path / "work").startswith(f"process {os.getpid()} on ")


def test_an_unreaped_owner_is_dead(start, tmp_path):
    """A killed process whose parent has not asked for it yet still has its number."""
    first, _ = start()
    first.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while is_held(tmp_path / "work") and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(first.pid, 0)
    with hold(tmp_path / "work") as held:
        assert "no more" in held.takeover


def test_of_many_that_start_at_once_one_gets_it(tmp_path):
    command, pipe = [sys.executable, "-c", HOLDER, str(tmp_path / "work")], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    try:
        answers = [process.stdout.readline().strip() for process in processes]
        assert sum(line == "held" for line in answers) == 1
        assert sum("is in use by" in line for line in answers) == 3
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_same_process_cannot_hold_it_twice(tmp_path):
    with hold(tmp_path), pytest.raises(UsageError, match="in use"), hold(tmp_path):
        pass
    with hold(tmp_path):
        pass


def leave_note(work, host="here", pid=5):
    """The note of an owner who has died: the kernel's lock is free."""
    owner = f"process {pid} on '{host}' since 2026-01-01"
    (work / NOTE).write_text(owner)
    return owner


@pytest.mark.parametrize(
    "changes", [{"host": "elsewhere"}, {"pid": os.getppid()}, {"host": "elsewhere", "pid": 1}, {"pid": os.getpid()}]
)
def test_a_note_alone_keeps_nobody_away(tmp_path, changes):
    """From another machine, with the number of a process that lives, or that of this one: its owner is dead."""
    owner = leave_note(tmp_path, **changes)
    check_not_held([tmp_path])
    with hold(tmp_path) as held:
        assert held.takeover == f"Taking over from {owner}, which is no more."
        assert read_owner(tmp_path).startswith(f"process {os.getpid()} on '{socket.gethostname()}' since 20")
    assert not (tmp_path / NOTE).exists()


def test_a_lock_that_is_held_counts_whatever_its_note_says(start, tmp_path):
    start()
    leave_note(tmp_path / "work", host="elsewhere", pid=5)
    with pytest.raises(LockedError, match="process 5 on 'elsewhere' .* Wait for it, end it"), hold(tmp_path / "work"):
        pass
    (tmp_path / "work" / NOTE).unlink()
    with pytest.raises(LockedError, match="in use by another process"), hold(tmp_path / "work"):
        pass


def test_whoever_looks_leaves_no_trace(tmp_path):
    work = tmp_path / "work"
    assert is_held(work) is False
    assert not work.exists()
    with hold(work) as held:
        (work / "checkpoints").mkdir()
        assert is_held(work) is True
        held.check()
    (work / "lock").touch()  # as one has that died before it wrote its note
    assert is_held(work) is False
    assert [path.name for path in work.iterdir()] == ["checkpoints"]


def test_looking_keeps_no_owner_away(tmp_path):
    """Whoever takes the lock while another looks waits for that, and gets it."""
    work, over = tmp_path / "work", threading.Event()

    def look():
        while not over.is_set():
            is_held(work)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            with hold(work) as held:
                held.check()
    finally:
        over.set()
        looking.join()


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError])
def test_a_folder_that_is_removed_while_it_is_locked_is_made_again(tmp_path, monkeypatch, error):
    acquire, errors = FileLock.acquire, [error(17, "gone")]

    def once_gone(lock, **options):
        if errors:
            raise errors.pop()
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", once_gone)
    with hold(tmp_path / "work") as held:
        held.check()


def test_an_owner_who_is_clearing_up_is_waited_for_or_named(tmp_path):
    """Whoever comes while a folder is taken away gets the lock, or is told who has it; nothing else is said."""
    work, faults, over = tmp_path / "work", [], threading.Event()

    def come_and_go():
        while not over.is_set():
            try:
                with hold(work) as held:
                    (work / "checkpoints").mkdir(exist_ok=True)
                    held.check()
                    held.clear()
            except UsageError as error:
                if "is in use by" not in str(error):
                    faults.append(str(error))

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    over.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert not work.exists()


@pytest.mark.parametrize(("text", "takeover"), [(b"", None), (b"x" * 5000, None), (b"a\x1b[31m\xff\n", "a�[31m��")])
def test_a_torn_or_hostile_note_names_nobody_or_commands_no_terminal(tmp_path, text, takeover):
    (tmp_path / NOTE).write_bytes(text)
    with hold(tmp_path) as held:
        assert held.takeover == (takeover and f"Taking over from {takeover}, which is no more.")


def test_a_folder_deleted_or_replaced_under_the_run_is_noticed(tmp_path):
    work = tmp_path / "work"
    with hold(work) as held:
        held.check()
        shutil.rmtree(work)
        with pytest.raises(UsageError, match="deleted, moved or taken over"):
            held.check()
        with hold(work) as other:
            with pytest.raises(UsageError, match="deleted, moved"):
                held.check()
            other.check()
        work.mkdir()
        work.joinpath("lock").write_text("somebody's")
    assert work.joinpath("lock").read_text() == "somebody's", "only the own lock is taken away"


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Cannot lock"), hold(tmp_path / "file" / "work"):
        pass


def test_it_needs_nothing_that_windows_or_macos_lack(tmp_path, monkeypatch):
    for name in ("pread", "pwrite"):
        monkeypatch.delattr(os, name, raising=False)
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *rest: 1 / 0 if "proc" in path.parts else read_text(path, *rest)
    )
    owner = leave_note(tmp_path, pid=os.getppid())
    with hold(tmp_path) as held:
        assert held.takeover == f"Taking over from {owner}, which is no more."
