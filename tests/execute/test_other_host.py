"""A run killed on one host and resumed on another, in a container too: the same command goes on, the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import same
from sampling import thorough

from odedm.checkpoint.lock import read_owner
from odedm.results.folder import FinishedRun, read_columns

APART = ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
WORDS = "run --data blobs --method derpp --memory odedm --capacity 30 --batch 1 --device cpu --seeds 1".split()
WORDS += ["--checkpoint", "100 steps"]


def permitted() -> bool:
    try:
        return subprocess.run([*APART, "hostname", "probe"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def command(out: Path, host: str) -> list[str]:
    run = [sys.executable, "-P", "-m", "odedm", *WORDS, "--out", str(out)]
    return [*APART, "sh", "-c", 'hostname "$0" && exec "$@"', host, *run]


NAMED = """
import socket, sys
name = sys.argv.pop(1)
socket.gethostname = lambda: name
from odedm.cli.app import main
main()
"""


def on_host(out: Path, host: str) -> list[str]:
    """The same command on a machine of this name: a node of a cluster to which a job was given anew."""
    return [sys.executable, "-P", "-c", NAMED, host, *WORDS, "--out", str(out)]


def killed_on_the_way(words: list[str], out: Path) -> None:
    """Begin the command, and kill it when it has stored a checkpoint."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(out.glob("*/.seed-0.work/checkpoints/step-*")):
        assert time.monotonic() < until
        assert child.poll() is None, "it was over before it could be killed"
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(30)


def check_goes_on(rough: list[str], calm: list[str], places: tuple[Path, Path]) -> None:
    """The killed run, given again, ends as one that was never killed."""
    done = subprocess.run(rough, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "on 'first' since" in done.stderr
    assert "Going on after step" in done.stderr
    subprocess.run(calm, capture_output=True, check=True)
    folders = [next(place.glob("*/seed-0")) for place in places]
    assert same(*(FinishedRun.load(folder).result for folder in folders))
    one, other = (read_columns(folder / "memory.safetensors") for folder in folders)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []


def test_a_run_killed_on_one_machine_goes_on_on_another_that_shares_the_folder(tmp_path: Path) -> None:
    rough, calm = tmp_path / "rough", tmp_path / "calm"
    killed_on_the_way(on_host(rough, "first"), rough)
    assert "on 'first' since" in read_owner(next(rough.glob("*/.seed-0.work")))
    check_goes_on(on_host(rough, "second"), on_host(calm, "third"), (rough, calm))


@thorough
@pytest.mark.skipif(not permitted(), reason="namespaces are not permitted here")
def test_a_run_killed_under_one_host_name_goes_on_under_another(tmp_path: Path) -> None:
    rough, calm = tmp_path / "rough", tmp_path / "calm"
    killed_on_the_way(command(rough, "first"), rough)
    check_goes_on(command(rough, "second"), command(calm, "third"), (rough, calm))
