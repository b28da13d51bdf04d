"""A thread does one job after the other; one that fails ends itself alone, one that is stopped is stored."""

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from jobs import SMALL, job_of, run_all, same

from odedm import ODEDM, Experiment, Run
from odedm.data import opening
from odedm.execute.job import Done, Failed, Message, ProgressReport
from odedm.execute.job_thread import JobThread
from odedm.execute.ray_backend import do_remotely
from odedm.results.folder import FILE
from odedm.results.result import Result
from odedm.training import numerics


def plan(seed, memory=None, **options):
    return Experiment(memory or ODEDM(30, k=2), data="blobs", batch=16, seed=seed, device="cpu", **options)


def done(jobs):
    """Every event of jobs, one after the other in this process."""
    events = []
    thread = JobThread(events.append)
    for job in jobs:
        thread.start(job)
        assert thread.join(60)
    return events


def results_of(jobs):
    return [Result.load(job.folder / FILE) for job in jobs]


def test_one_that_fails_does_not_end_the_others(tmp_path):
    wild = job_of(plan(0, options={"lr": 1e30}), tmp_path / "a")
    others = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(2)]
    events = done([wild, *others])
    assert "diverged" in next(event.error for event in events if isinstance(event, Failed))
    assert [result.experiment["seed"] for result in results_of(others)] == [0, 1]


def test_one_that_is_asked_to_stop_stores_its_state(tmp_path):
    job = job_of(plan(0, method="pocl"), tmp_path / "runs" / "0")
    begun, over = threading.Event(), []
    thread = JobThread(lambda event: begun.set() if isinstance(event, ProgressReport) else over.append(event))
    thread.start(job)
    assert begun.wait(60)
    thread.stop()
    assert thread.join(60)
    assert not [event for event in over if isinstance(event, Done | Failed)]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".0.work"]
    said = [event.line for event in done([job]) if isinstance(event, Message)]
    assert any("Going on after step" in line for line in said)
    (result,) = results_of([job])
    assert same(result, *run_all([job_of(job.experiment, tmp_path / "alone")]))


def test_what_a_process_computes_with_is_held_while_a_job_runs(tmp_path, monkeypatch):
    held = []

    @contextmanager
    def watched(threads, precision):
        held.append((threads, precision))
        yield
        held.append("put back")

    monkeypatch.setattr(numerics, "deterministic_numerics", watched)
    done([job_of(SMALL.with_seed(seed), tmp_path / str(seed)) for seed in range(2)])
    ours = [each for each in held if each == (1, "fp32")]
    assert len(ours) >= 1
    assert held[-1] == "put back"


def test_one_without_memory_says_so_and_the_others_go_on(tmp_path, monkeypatch):
    finish = Run.finish

    def hungry(self, *reporters, checkpointer):
        if self.experiment.seed == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nAnd much more.")
        return finish(self, *reporters, checkpointer=checkpointer)

    monkeypatch.setattr(Run, "finish", hungry)
    jobs = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(3)]
    events = done(jobs)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "no memory left: CUDA out of memory. Tried to allocate 2 GiB. Run fewer" in failed.error
    assert sum(isinstance(event, Done) for event in events) == 2


def test_code_that_would_end_its_process_ends_its_job_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "finish", lambda *_words, **_options: sys.exit(3))
    (failed,) = [event for event in done([job_of(plan(0), tmp_path / "0")]) if isinstance(event, Failed)]
    assert failed.error.startswith("SystemExit: 3 (test_job_thread.py, line ")
    assert "SystemExit: 3" in do_remotely(job_of(plan(1), tmp_path / "1").to_text(), None)["error"]


def test_jobs_share_one_copy_of_the_data(tmp_path, monkeypatch):
    jobs = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(3)]
    loads = []
    load = opening.load_dataset
    monkeypatch.setattr(opening, "load_dataset", lambda name: loads.append(name) or load(name))
    done(jobs)
    assert loads == ["blobs"]


@pytest.mark.parametrize("broken", [True, False])
def test_an_error_that_leaves_no_gpu_ends_the_process_whatever_it_says(tmp_path, monkeypatch, broken):
    """Only the card itself can say whether it still answers: words of an error are anyone's."""
    exits, told = [], []

    def fail(*_, **_more):
        raise RuntimeError("an error of the user's own that quotes CUDA error: none")

    def synchronize():
        if broken:
            raise RuntimeError("misaligned address")

    monkeypatch.setattr(Run, "finish", fail)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr("odedm.execute.job_thread.os._exit", exits.append)
    job = job_of(SMALL, tmp_path / "run")
    monkeypatch.setattr("odedm.execute.job_thread.run_job", fail)
    thread = JobThread(told.append)
    thread.start(replace(job, experiment=replace(job.experiment, device="cuda")))
    assert thread.join(60)
    assert exits == ([70] if broken else []), told
