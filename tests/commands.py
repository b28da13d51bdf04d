"""Commands as a user meets them, and one that is interrupted after so many steps."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from odedm.cli.app import app
from odedm.execute import run_job


def odedm(*words: object, code: int = 0) -> str:
    """What a command says, which must end with this code."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output + str(done.exception)
    return done.output


@contextmanager
def interrupted(monkeypatch, steps: int) -> Iterator[None]:
    """Inside the block Ctrl-C comes after so many steps of a run, and the run waits for it."""
    original, looks = run_job.checkpointer_of, []

    def impatient(run, *words, stop, say):
        def look():
            looks.append(run)
            if looks.count(run) == steps + 1:
                os.kill(os.getpid(), signal.SIGINT)
                until = time.monotonic() + 60
                while not stop() and time.monotonic() < until:
                    time.sleep(0.01)
            return stop()

        return original(run, *words, stop=look, say=say)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background ignores it
    try:
        with monkeypatch.context() as patch:
            patch.setattr(run_job, "checkpointer_of", impatient)
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def alive_in_group(number: int) -> list[Path]:
    """Processes of a group that are more than an entry waiting for its parent to look."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(own) == number and state != "Z":
            found.append(stat)
    return found
