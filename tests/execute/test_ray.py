"""A Ray of this machine: who can reach it, who may use it, and what its workers import."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import odedm
from odedm.core.errors import UsageError
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
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux to look at sockets")
def test_a_ray_of_this_machine_listens_to_this_machine_alone_and_imports_nothing_from_here(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("torch", "safetensors", "odedm", "tempfile", "secrets"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'trapped')!r}, 'a').write({name!r})\n")
    script = tmp_path / "script.py"
    script.write_text(STUDY)
    paths = [Path(__file__).parents[1], Path(odedm.__file__).parents[1]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": str(tmp_path)}
    words = [sys.executable, "-P", str(script), str(tmp_path)]
    done = subprocess.run(words, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sockets, friend, wrong_token, no_token, equal = done.stdout.splitlines()
    number, *addresses = sockets.split()
    assert int(number) > 3
    assert set(addresses) <= LOOPBACK
    assert friend == "0"
    assert "0" not in (wrong_token, no_token)
    assert equal == "True"
    assert not (tmp_path / "trapped").exists()
    assert not (tmp_path / ".ray").exists(), "no token is left for others to read"


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
