"""Workers: workers in processes. One that dies is replaced, and its job goes on from its last checkpoint."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import alive_in_group
from jobs import Notes, again, job_of, open_all, run_all, same
from sampling import thorough

import odedm
from odedm import ODEDM, Experiment, Run
from odedm.checkpoint.schedule import Schedule
from odedm.execute.backend import ExecutionConfig, InProcessBackend, open_backend
from odedm.execute.job import CheckpointSaved, ProgressReport, WorkerLost
from odedm.execute.process_backend import ProcessBackend
from odedm.execute.ray_backend import do_remotely
from odedm.execute.scheduler import Scheduler, run_jobs
from odedm.results.folder import EVIDENCE_FILE, FILE, MODEL_FILE, find_runs
from odedm.results.result import Result
from odedm.training.observation import Observation


def plan(seed, memory=None, **options):
    return Experiment(
        memory or ODEDM(30, k=2), **{"data": "blobs", "batch": 16, "seed": seed, "device": "cpu", **options}
    )


def many(tmp_path, number, **options):
    return [job_of(plan(seed, **options), tmp_path / "many" / f"seed-{seed}") for seed in range(number)]


@thorough
def test_runs_beside_others_give_the_numbers_they_give_alone(tmp_path):
    jobs, notes = many(tmp_path, 3), Notes()
    beside = run_all(jobs, notes, workers=2)
    assert sorted(notes.keys("on_finish")) == sorted(job.key for job in jobs) == sorted({*notes.keys("on_progress")})
    for seed, result in enumerate(beside):
        (alone,) = run_all([job_of(plan(seed), tmp_path / "alone" / str(seed))])
        assert same(result, alone)
        files = [tmp_path / where / "memory.safetensors" for where in (f"many/seed-{seed}", f"alone/{seed}")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert [Result.load(folder / FILE) for folder in find_runs([tmp_path / "many"])] == beside


def digest(trained):
    """The weights of a model or an outcome, added up with an eye on their places."""
    net = trained.net if hasattr(trained, "net") else trained.method.net
    return [(each.double() * torch.arange(1, each.numel() + 1).view_as(each)).sum().item() for each in net.parameters()]


def train_as(job):
    return Run(job.experiment).finish()


def test_one_worker_and_several_and_another_machine_measure_the_same(tmp_path):
    jobs = many(tmp_path, 2)
    validated = job_of(plan(1, validation=0.25, first_tasks=2), tmp_path / "validated")
    found = []
    for name, backend in {"several": ProcessBackend(2), "one": ProcessBackend(1)}.items():
        keep = Observation(keep_model=True)
        own = [again(job, tmp_path / name / job.folder.name, observation=keep) for job in [*jobs, validated]]
        try:
            summary = Scheduler(backend).run(own)
        finally:
            backend.close()
        assert (len(summary.results), summary.failed) == (3, {})
        weights = [digest(odedm.load(job.folder)) for job in own]
        found.append(([summary.results[job.key].class_il for job in own], weights))
    assert found[0] == found[1]
    assert found[0][1] == [digest(train_as(job)) for job in [*jobs, validated]], "the models of other processes"
    looking = again(jobs[0], tmp_path / "looking", observation=Observation(evidence=True, anytime=2, keep_model=True))
    run_all([looking])
    files = do_remotely(looking.to_text(), None)["files"]
    assert files[EVIDENCE_FILE] == (looking.folder / EVIDENCE_FILE).read_bytes()
    sent = looking.folder.with_name("sent.safetensors")
    sent.write_bytes(files[MODEL_FILE])
    assert digest(odedm.load(sent)) == digest(odedm.load(looking.folder))
    assert json.loads(files[FILE])["anytime"] == Result.load(looking.folder / FILE).anytime


def test_one_job_needs_no_worker_and_several_do(tmp_path):
    jobs = many(tmp_path, 2)
    data = open_all(jobs)
    assert isinstance(open_backend(jobs[:1], ExecutionConfig(), data), InProcessBackend)
    for workers in (1, 2):
        backend = open_backend(jobs, ExecutionConfig(workers=workers), data)
        assert isinstance(backend, ProcessBackend)
        assert backend.workers == workers
        backend.close()


class Killer(Notes):
    """Kills workers in the middle of their jobs, as long as there are kills left."""

    def __init__(self, kills, number=signal.SIGKILL):
        super().__init__()
        object.__setattr__(self, "left", kills)
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "backend", None)

    def __getattribute__(self, name):
        if name == "on_progress":
            return self._progress
        return super().__getattribute__(name)

    def _progress(self, job, report):
        done, total = report.done, report.total
        if object.__getattribute__(self, "left") and total * 0.3 < done < total * 0.9:
            object.__setattr__(self, "left", object.__getattribute__(self, "left") - 1)
            worker = next(worker for worker in self.backend._workers if worker.job == job.key)
            os.kill(worker.process.pid, self.number)


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, pytest.param(signal.SIGTERM, marks=thorough)]
)  # SIGKILL: tests/test_kill.py
def test_a_worker_that_dies_is_replaced_and_its_job_goes_on(tmp_path, number, monkeypatch):
    jobs = [
        replace(job, options=replace(job.options, schedule=Schedule.parse("3 steps")))
        for job in many(tmp_path, 3, batch=4)
    ]
    killer, start = Killer(2, number), ProcessBackend.start

    def noted(backend, job):
        object.__setattr__(killer, "backend", backend)
        start(backend, job)

    monkeypatch.setattr(ProcessBackend, "start", noted)
    results = run_all(jobs, killer, workers=2)
    lost = [words for words in killer.lines if words[0] == "on_lost"]
    assert len(lost) == 2
    word = "exit code 143" if number == signal.SIGTERM else number.name
    assert all(word in words[2] for words in lost)
    assert sum("Going on after step" in line for line in killer.said_lines()) == 2
    for seed, result in enumerate(results):
        assert same(result, *run_all([job_of(plan(seed, batch=4), tmp_path / "alone" / str(seed))]))


def test_a_backend_that_is_left_stores_what_is_under_way(tmp_path):
    (job,) = many(tmp_path, 1, batch=1)
    for backend in (InProcessBackend(), ProcessBackend(1)):
        backend.start(job)
        while not any(isinstance(event, ProgressReport) for event in backend.events(1.0)):
            pass
        backend.close()
        assert not job.folder.exists()
        work = job.folder.with_name(f".{job.folder.name}.work")
        assert list(work.glob("checkpoints/step-*"))


def test_events_of_a_worker_that_dies_at_once_are_a_loss(tmp_path, monkeypatch):
    monkeypatch.setattr("odedm.execute.process_backend.start_program", lambda *_: subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.exit(3)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))  # fmt: skip
    jobs = many(tmp_path, 2)
    summary = run_jobs(jobs, open_all(jobs), ExecutionConfig(workers=2))
    assert set(summary.failed) == {job.key for job in jobs}
    assert all("In 3 tries its process ended with the exit code 3" in said for said in summary.failed.values())


def test_a_module_beside_the_data_is_never_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("open('ran', 'w')\nraise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    run_all(many(tmp_path, 2), workers=2)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("workers", [pytest.param("1", marks=thorough), "2"])
def test_ctrl_c_ends_everything_and_keeps_finished_runs_whole(tmp_path, workers):
    out = tmp_path / "runs"
    words = ["run", "--method", "er", "--memory", "reservoir", "--seeds", "50", "--workers", workers, "--out", str(out)]
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
    assert len(left) <= int(workers)
    assert not list(out.rglob("lock"))
    while alive_in_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive_in_group(process.pid)


def test_losses_and_checkpoints_cross_the_pipe():
    from odedm.execute.job import event_from_text, event_to_text

    for event in (WorkerLost("a", "b"), CheckpointSaved("c"), ProgressReport("d", 1, 2)):
        assert event_from_text(event_to_text(event)) == event
