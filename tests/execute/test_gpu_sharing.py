"""The multi-process service of a GPU: started for a command, ended with it. Its program is made up here."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import odedm
from odedm.core.errors import UsageError
from odedm.core.processes import GPU_SHARE, safe_environment
from odedm.execute.backend import ExecutionConfig
from odedm.execute.gpu_sharing import CONTROL, FOLDERS, MOST_CLIENTS, SharedGPU
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.process_backend import ProcessBackend
from odedm.results.provenance import versions

PROGRAM = """#!/bin/sh
echo "$1" "$(cat)" "$CUDA_MPS_PIPE_DIRECTORY" >> "{log}"
exit {code}
"""


@pytest.fixture
def control(tmp_path, monkeypatch):
    """Puts a program in the driver's place, which writes down what it was told."""

    def put(code=0):
        log, folder = tmp_path / "told", tmp_path / "bin"
        folder.mkdir()
        (folder / CONTROL).write_text(PROGRAM.format(log=log, code=code))
        (folder / CONTROL).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv(FOLDERS[0], raising=False)
        return log

    return put


def test_it_is_started_for_a_command_and_ended_with_it(control, tmp_path):
    log = control()
    shared = SharedGPU(tmp_path)
    assert [*shared.environment] == [*FOLDERS]
    assert shared.environment[FOLDERS[0]].startswith(str(tmp_path))
    assert log.read_text() == f"-d  {shared.environment[FOLDERS[0]]}\n"
    shared.close()
    assert log.read_text().splitlines()[1].split()[:2] == ["quit", "-t"]
    assert not shared.environment
    shared.close()


def test_one_that_does_not_start_is_done_without(control, tmp_path):
    control(code=1)
    assert not SharedGPU(tmp_path).environment


def test_the_users_own_is_left_alone(control, tmp_path, monkeypatch):
    log = control()
    monkeypatch.setenv(FOLDERS[0], "theirs")
    assert not SharedGPU(tmp_path).environment
    assert not log.exists()


def test_it_ends_with_a_parent_that_is_killed(control, tmp_path):
    log = control()
    lines = [
        "import time; from pathlib import Path; from odedm.execute.gpu_sharing import SharedGPU",
        f"shared = SharedGPU(Path({str(tmp_path)!r})); print('up', flush=True); time.sleep(60)",
    ]
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", "\n".join(lines)], stdout=subprocess.PIPE, env=safe_environment()
    )
    assert parent.stdout.readline() == b"up\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    until = time.monotonic() + 20
    while "quit" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert "quit" in log.read_text()


def test_a_share_is_for_all_lanes(control, tmp_path):
    control()
    shared = SharedGPU(tmp_path, 40)
    assert shared.environment[GPU_SHARE] == "40"
    shared.close()


def test_a_share_of_the_users_own_service(control, tmp_path, monkeypatch):
    control()
    monkeypatch.setenv(FOLDERS[0], "theirs")
    assert SharedGPU(tmp_path, 40).environment == {GPU_SHARE: "40"}


def test_a_share_without_the_service_is_refused(control, tmp_path, monkeypatch):
    control(code=1)
    with pytest.raises(
        UsageError, match="--set execution.gpu_share=40 needs CUDA's multi-process service, which did not start"
    ):
        SharedGPU(tmp_path, 40)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="is not found here"):
        SharedGPU(tmp_path, 40)


def test_a_backend_that_cannot_have_a_share_leaves_nothing_behind(control, tmp_path, monkeypatch):
    control(code=1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    with pytest.raises(UsageError, match="did not start here"):
        ProcessBackend(2, shares_gpu=True, gpu_share=40)
    assert list((tmp_path / "here").iterdir()) == []


def test_more_lanes_than_the_service_takes_have_no_share(control):
    log = control()
    with pytest.raises(UsageError, match=rf"takes {MOST_CLIENTS} runs at a time; --workers 49 was given"):
        ProcessBackend(MOST_CLIENTS + 1, shares_gpu=True, gpu_share=40)
    ProcessBackend(MOST_CLIENTS + 1, shares_gpu=True).close()
    assert not log.exists()


@pytest.mark.parametrize("words", [{"mps": False}, {"backend": "ray"}])
def test_a_share_is_kept_by_the_service_of_this_machine(words):
    with pytest.raises(UsageError, match="leave one of the two out"):
        ExecutionConfig(gpu_share=40, **words)


def test_a_share_means_nothing_on_a_cpu(tmp_path):
    plan = odedm.Experiment(odedm.Reservoir(10), method="er", data="blobs", device="cpu")
    with pytest.raises(
        UsageError, match="--set execution.gpu_share is for GPUs, and all of this runs on the CPU; 40 was given"
    ):
        plan_jobs([plan], run_dir_under(tmp_path), ExecutionConfig(gpu_share=40))
    assert len(plan_jobs([plan], run_dir_under(tmp_path), ExecutionConfig(gpu_share=100)).jobs) == 1


def test_results_name_the_part_of_a_gpu_that_they_were_made_on(monkeypatch):
    found = SimpleNamespace(name="NVIDIA H200", multi_processor_count=52)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.delenv(GPU_SHARE, raising=False)
    assert versions(torch.device("cuda"))["device"] == "NVIDIA H200"
    monkeypatch.setenv(GPU_SHARE, "40")
    assert versions(torch.device("cuda"))["device"] == "NVIDIA H200, 52 multiprocessors"
