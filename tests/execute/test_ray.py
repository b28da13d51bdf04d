"""A Ray of this machine: who can reach it, who may use it, and what its workers import."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import SMALL, job_of

import odedm
from odedm.checkpoint.checkpoint import working_folder
from odedm.core.errors import InfrastructureError, UsageError
from odedm.execute.ray_backend import checkpoint_file, do_remotely, keep_checkpoint, unpack_checkpoint
from odedm.execute.ray_connection import keep_secret, own_token

STUDY = """
import os, subprocess, sys
from pathlib import Path
from jobs import SMALL, job_of, run_all, same
from odedm.execute.backend import ExecutionConfig
from odedm.execute.ray_backend import RayBackend
from odedm.execute.scheduler import Scheduler

def children(parent):
    found = []
    for place in Path("/proc").iterdir():
        try:
            above = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if above == parent:
            found += [int(place.name), *children(int(place.name))]
    return found

def listening(processes):
    own = set()
    for each in processes:
        for handle in Path(f"/proc/{each}/fd").iterdir():
            try:
                own.add(os.readlink(handle))
            except OSError:
                pass
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                yield words[1].partition(":")[0]

if __name__ == "__main__":
    place = Path(sys.argv[1])
    job = job_of(SMALL, place / "ray")
    backend = RayBackend(1)
    try:
        summary = Scheduler(backend).run([job])
        assert summary.failed == {}, summary.failed
        sockets = list(listening([os.getpid(), *children(os.getpid())]))
        print(len(sockets), *sorted(set(sockets)))
        stranger = f"import ray; ray.init({backend._ray.get_runtime_context().gcs_address!r}, logging_level='ERROR')"
        tokens = [{}, {"RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_MODE": "disabled"}]
        peers = []
        for token in tokens:
            env = {**os.environ, **token}
            if token:
                env.pop("RAY_AUTH_TOKEN_PATH")
            peers.append(subprocess.Popen([sys.executable, "-P", "-c", stranger], env=env, stderr=subprocess.DEVNULL))
        friend, *others = peers
        print(friend.wait(60))
        for each in others:  # Ray tries for long: who is not in as soon as a friend is has been refused
            print(each.poll())
            each.kill()
            each.wait()
    finally:
        backend.close()
    (calm,) = run_all([job_of(SMALL, place / "calm")])
    print(same(summary.results[job.key], calm))
"""
KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from jobs import SMALL, Notes, job_of, run_all, same
from odedm.checkpoint.checkpoint import checkpoint_paths, working_folder
from odedm.checkpoint.schedule import Schedule
from odedm.execute.ray_backend import RayBackend
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.scheduler import Scheduler

class Killer(RunCallback):
    kills, going_on, last = 0, 0, []

    def on_progress(self, job, report):
        checkpoints = checkpoint_paths(working_folder(job.folder))
        if self.going_on == self.kills < 3 and checkpoints != self.last:  # one of the running worker's has come back
            self.last = checkpoints
            self.kills += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                if path.read_bytes().startswith(b"ray::do_remotely"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def on_message(self, line):
        self.going_on += "Going on after step" in line

if __name__ == "__main__":
    place = Path(sys.argv[1])
    plan = replace(SMALL, batch=1, epochs=24)
    job = job_of(plan, place / "ray", schedule=Schedule.parse("100 steps"))
    killer, backend = Killer(), RayBackend(1)
    try:
        summary = Scheduler(backend, [killer]).run([job])
    finally:
        backend.close()
    assert summary.failed == {}, summary.failed
    (calm,) = run_all([job_of(plan, place / "calm")])
    print(killer.kills, killer.going_on, same(summary.results[job.key], calm), working_folder(job.folder).exists())
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def lines_of(script: str, place: Path, here: Path) -> list[str]:
    """What a script prints that is given a place and run in a process of its own in the folder `here`."""
    path = place / "script.py"
    path.write_text(script)
    paths = [Path(__file__).parents[1], Path(odedm.__file__).parents[1]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": str(place)}
    words = [sys.executable, "-P", str(path), str(place)]
    done = subprocess.run(words, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux to look at sockets")
def test_a_ray_of_this_machine_listens_to_this_machine_alone_and_imports_nothing_from_here(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("torch", "safetensors", "odedm", "tempfile", "secrets"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'trapped')!r}, 'a').write({name!r})\n")
    sockets, friend, wrong_token, no_token, equal = lines_of(STUDY, tmp_path, here)
    number, *addresses = sockets.split()
    assert int(number) > 3
    assert set(addresses) <= LOOPBACK
    assert friend == "0"
    assert "0" not in (wrong_token, no_token)
    assert equal == "True"
    assert not (tmp_path / "trapped").exists()
    assert not (tmp_path / ".ray").exists(), "no token is left for others to read"


@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_three_times_in_a_row_loses_nothing(tmp_path: Path) -> None:
    """Its checkpoints come back to the head, and the next worker goes on from the last."""
    pytest.importorskip("ray")
    assert lines_of(KILLED, tmp_path, tmp_path)[-1].split() == ["3", "3", "True", "False"]


def test_a_full_disk_of_a_worker_is_no_failure_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(SMALL, tmp_path / "run")

    def full(*_words: object, **_more: object) -> None:
        raise InfrastructureError("Cannot write 'x': No space left on device.")

    monkeypatch.setattr("odedm.execute.ray_backend.run_job", full)
    assert "No space left" in do_remotely(job.to_text(), None)["broken"]
    monkeypatch.setattr("odedm.execute.ray_backend.run_job", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in do_remotely(job.to_text(), None)["error"]


def test_a_checkpoint_that_came_back_is_written_whole_and_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    job = job_of(SMALL, tmp_path / "run")
    first, second = ({f"checkpoints/step-0000000{step}.safetensors": b"{}"} for step in (1, 2))
    assert keep_checkpoint(first, job)
    assert keep_checkpoint(second, job)
    assert checkpoint_file(working_folder(job.folder)) == second
    for name in ("../state", "/etc/x", "checkpoints/a/b", "checkpoints/.."):
        with pytest.raises(UsageError, match="leads out"):
            unpack_checkpoint({name: b"x"}, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_tokens_are_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(own_token())
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert len(own.read_text()) == 64
    token = tmp_path / "auth_token"
    keep_secret(token)
    token.touch(mode=0o644)
    keep_secret(token)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    token.chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(UsageError, match="Others can read the token .* chmod 600"):
        keep_secret(token)
