"""A run killed in one container and resumed in another: other host name, other process numbers, the same result."""

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


@thorough
@pytest.mark.skipif(not permitted(), reason="namespaces are not permitted here")
def test_a_run_killed_under_one_host_name_goes_on_under_another(tmp_path: Path) -> None:
    rough, calm = tmp_path / "rough", tmp_path / "calm"
    child = subprocess.Popen(command(rough, "first"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(rough.glob("*/.seed-0.work/checkpoints/step-*")):
        assert time.monotonic() < until
        assert child.poll() is None, "it was over before it could be killed"
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(30)
    done = subprocess.run(command(rough, "second"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "on 'first' since" in done.stderr
    assert "Going on after step" in done.stderr
    subprocess.run(command(calm, "third"), capture_output=True, check=True)
    folders = [next(place.glob("*/seed-0")) for place in (rough, calm)]
    assert same(*(FinishedRun.load(folder).result for folder in folders))
    one, other = (read_columns(folder / "memory.safetensors") for folder in folders)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []
