import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from odedm import ODEDM, Experiment, Reservoir, Run, UsageError, train
from odedm.core.files import writable_folder, write_text
from odedm.execute.job import Wishes
from odedm.execute.lanes import Job, _run_in_threads, run_jobs
from odedm.results.folder import check_free
from odedm.results.result import Result, find
from odedm.training import numerics, resolve


class Silent:
    def __init__(self):
        self.reported, self.done = set(), []

    def progress(self, job, done, total):
        assert 0 < done <= total
        self.reported.add(job)

    def finished(self, job, result):
        self.done.append(job)


def plan(seed, memory=None, **options):
    return Experiment(memory or ODEDM(30, k=2), data="blobs", batch=16, seed=seed, device="cpu", **options)


def same(first, second):
    """Equal but for times."""
    a, b = first.to_dict(), second.to_dict()
    for each in (a, b):
        each.pop("seconds")
        each["provenance"].pop("finished")
    return a == b


def test_runs_beside_others_give_the_numbers_they_give_alone(tmp_path):
    jobs = [Job(plan(seed), tmp_path / "many" / f"seed-{seed}") for seed in range(3)]
    watcher = Silent()
    beside = run_jobs(jobs, watcher, lanes=2)
    assert sorted(watcher.done) == [0, 1, 2] == sorted(watcher.reported)
    for seed, result in enumerate(beside):
        alone = run_jobs([Job(plan(seed), tmp_path / "alone" / str(seed))], Silent(), lanes=1)[0]
        assert same(result, alone)
        assert (tmp_path / "many" / f"seed-{seed}" / "memory.safetensors").read_bytes() == (
            tmp_path / "alone" / str(seed) / "memory.safetensors"
        ).read_bytes()
    assert [Result.load(folder / "result.json") for folder in find([tmp_path / "many"])] == beside


def test_a_failing_run_says_why_and_ends_the_others(tmp_path):
    jobs = [Job(plan(0), tmp_path / "a"), Job(plan(0, options={"lr": 1e30}), tmp_path / "b")]
    with pytest.raises(UsageError, match="diverged"):
        run_jobs(jobs, Silent(), lanes=2)
    assert not (tmp_path / "b").exists()


def test_a_run_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    outcome = train("blobs", memory=Reservoir(10))
    folder = outcome.save(tmp_path / "run")
    assert sorted(path.name for path in folder.iterdir()) == ["checksums.json", "memory.safetensors", "result.json"]
    with pytest.raises(UsageError, match="holds a run already"):
        outcome.save(folder)
    before = (folder / "result.json").read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Result, "save", fail)
        with pytest.raises(OSError, match="No space"):
            outcome.save(folder, overwrite=True)
    assert (folder / "result.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing half-written stays"
    outcome.save(folder, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_only_runs_are_overwritten(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a run's folder"):
        check_free(precious, overwrite=True)
    check_free(tmp_path / "new", overwrite=False)


def test_files_are_written_whole(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_folders_that_cannot_be_written_are_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="Cannot write into the folder"):
        writable_folder(blocked / "below")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("lanes", ["1", "2"])
def test_ctrl_c_ends_everything_and_keeps_finished_runs_whole(tmp_path, lanes):
    out = tmp_path / "runs"
    words = ["run", "--method", "er", "--memory", "reservoir", "--seeds", "50", "--lanes", lanes, "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "odedm", *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ignored in the background
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(out.glob("*/seed-*/result.json")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted." in errors
    assert "Traceback" not in errors
    finished = list(out.rglob("result.json"))
    assert 1 <= len(finished) < 50
    for path in finished:
        json.loads(path.read_text())
    left = [path.name for path in out.rglob(".*")]
    assert all(re.fullmatch(r"\.seed-\d+\.work", name) for name in left), "states of runs under way, nothing half-made"
    assert len(left) <= int(lanes)
    assert not list(out.rglob("lock"))
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(process.pid)


def _alive(group):
    """Processes of the group that are more than an entry waiting for its parent to look."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(own) == group and state != "Z":
            found.append(stat)
    return found


def test_lanes_that_are_threads_give_the_numbers_runs_give_alone(tmp_path):
    jobs = [Job(plan(seed), tmp_path / str(seed)) for seed in range(4)]
    watcher = Silent()
    beside = _run_in_threads(jobs, watcher, 3, Wishes())
    assert sorted(watcher.done) == [0, 1, 2, 3] == sorted(watcher.reported)
    for seed, result in enumerate(beside):
        assert same(result, run_jobs([Job(plan(seed), tmp_path / "alone" / str(seed))], Silent(), lanes=1)[0])


def test_a_thread_that_fails_does_not_end_the_others(tmp_path):
    jobs = [
        Job(plan(0, options={"lr": 1e30}), tmp_path / "a"),
        Job(plan(0), tmp_path / "b"),
        Job(plan(1), tmp_path / "c"),
    ]
    failed, *others = _run_in_threads(jobs, Silent(), 2, Wishes())
    assert isinstance(failed, UsageError)
    assert [result.experiment["seed"] for result in others] == [0, 1]


def test_ctrl_c_stops_threads_soon(tmp_path):
    class Impatient(Silent):
        def progress(self, job, done, total):
            raise KeyboardInterrupt

    jobs = [Job(plan(seed, method="pocl"), tmp_path / "runs" / str(seed)) for seed in range(6)]
    with pytest.raises(KeyboardInterrupt):
        _run_in_threads(jobs, Impatient(), 2, Wishes())
    left = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert left
    assert set(left) <= {".0.work", ".1.work"}, "those under way stored their state, the others never began"
    said = []
    beside = _run_in_threads(jobs, Silent(), 2, Wishes(), said.append)
    assert sum("Going on after step" in line for line in said) == len(left)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [str(seed) for seed in range(6)]
    for job, result in zip(jobs[:2], beside, strict=False):
        assert same(result, run_jobs([Job(job.experiment, tmp_path / "alone" / job.folder.name)], Silent(), lanes=1)[0])


def test_runs_of_another_arithmetic_take_turns(tmp_path, monkeypatch):
    held = []

    @contextmanager
    def watched(threads, precision):
        held.append((threads, precision))
        yield

    monkeypatch.setattr(numerics, "own_numerics", watched)
    exact = Experiment(Reservoir(20), data="blobs", batch=16, device="cpu", precision="fp32")
    jobs = [Job(plan(0), tmp_path / "a"), Job(exact, tmp_path / "b"), Job(plan(1), tmp_path / "c")]
    assert len(_run_in_threads(jobs, Silent(), 2, Wishes())) == 3
    assert held == [(1, "tf32"), (1, "fp32")]


def test_a_lane_without_memory_says_so_and_the_others_go_on(tmp_path, monkeypatch):
    finish = Run.finish

    def hungry(self, *words):
        if self.experiment.seed == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nAnd much more.")
        return finish(self, *words)

    monkeypatch.setattr(Run, "finish", hungry)
    jobs = [Job(plan(seed), tmp_path / str(seed)) for seed in range(3)]
    one, failed, two = _run_in_threads(jobs, Silent(), 2, Wishes())
    assert "no memory left for this run: CUDA out of memory. Tried to allocate 2 GiB. Run fewer" in str(failed)
    assert [one.experiment["seed"], two.experiment["seed"]] == [0, 2]


def test_lanes_in_threads_share_one_copy_of_the_data(tmp_path, monkeypatch):
    loads = []
    load = resolve.load_data
    monkeypatch.setattr(resolve, "load_data", lambda name: loads.append(name) or load(name))
    _run_in_threads([Job(plan(seed), tmp_path / str(seed)) for seed in range(3)], Silent(), 2, Wishes())
    assert loads == ["blobs"]
