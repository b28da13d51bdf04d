"""Lanes of one process give the numbers that runs give alone, and one that fails ends itself alone."""

import threading
from contextlib import contextmanager

import pytest
import torch
from jobs import SMALL, job_of, run_all, same

from odedm import ODEDM, Experiment, Run
from odedm.data import opening
from odedm.execute.job import Done, Failed, Progressed, Said
from odedm.execute.lanes import Lanes
from odedm.results.folder import FILE
from odedm.results.result import Result
from odedm.training import numerics


def plan(seed, memory=None, **options):
    return Experiment(memory or ODEDM(30, k=2), data="blobs", batch=16, seed=seed, device="cpu", **options)


def done_in_lanes(jobs, at_once=2):
    """Every event of jobs, so many at a time in one process."""
    events, room = [], threading.Semaphore(at_once)

    def emit(event):
        events.append(event)
        if isinstance(event, Done | Failed):
            room.release()

    lanes = Lanes(emit)
    for job in jobs:
        room.acquire()
        lanes.start(job)
    assert lanes.join(60)
    return events


def results_of(jobs):
    return [Result.load(job.folder / FILE) for job in jobs]


def test_lanes_give_the_numbers_runs_give_alone(tmp_path):
    jobs = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(4)]
    events = done_in_lanes(jobs, 3)
    assert {event.key for event in events if isinstance(event, Done)} == {job.key for job in jobs}
    assert {event.key for event in events if isinstance(event, Progressed)} == {job.key for job in jobs}
    for seed, result in enumerate(results_of(jobs)):
        assert same(result, *run_all([job_of(plan(seed), tmp_path / "alone" / str(seed))]))


def test_one_that_fails_does_not_end_the_others(tmp_path):
    wild = job_of(plan(0, options={"lr": 1e30}), tmp_path / "a")
    others = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(2)]
    events = done_in_lanes([wild, *others])
    assert "diverged" in next(event.error for event in events if isinstance(event, Failed))
    assert [result.experiment["seed"] for result in results_of(others)] == [0, 1]


def test_lanes_that_are_asked_to_stop_store_their_state(tmp_path):
    jobs = [job_of(plan(seed, method="pocl"), tmp_path / "runs" / str(seed)) for seed in range(2)]
    begun, over = threading.Event(), []
    lanes = Lanes(lambda event: begun.set() if isinstance(event, Progressed) else over.append(event))
    for job in jobs:
        lanes.start(job)
    assert begun.wait(60)
    lanes.stop()
    assert lanes.join(60)
    assert not [event for event in over if isinstance(event, Done | Failed)]
    left = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert left
    assert set(left) <= {".0.work", ".1.work"}
    said = [event.line for event in done_in_lanes(jobs) if isinstance(event, Said)]
    assert sum("Going on after step" in line for line in said) == len(left)
    for job, result in zip(jobs, results_of(jobs), strict=True):
        assert same(result, *run_all([job_of(job.experiment, tmp_path / "alone" / job.folder.name)]))


def test_what_a_process_computes_with_is_held_while_lanes_run(tmp_path, monkeypatch):
    held = []

    @contextmanager
    def watched(threads, precision):
        held.append((threads, precision))
        yield
        held.append("put back")

    monkeypatch.setattr(numerics, "process_numerics", watched)
    done_in_lanes([job_of(SMALL.with_seed(seed), tmp_path / str(seed)) for seed in range(2)])
    ours = [each for each in held if each == (1, "fp32")]
    assert len(ours) >= 1
    assert held[-1] == "put back"


def test_a_lane_without_memory_says_so_and_the_others_go_on(tmp_path, monkeypatch):
    finish = Run.finish

    def hungry(self, *words):
        if self.experiment.seed == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nAnd much more.")
        return finish(self, *words)

    monkeypatch.setattr(Run, "finish", hungry)
    jobs = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(3)]
    events = done_in_lanes(jobs)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "no memory left for this run: CUDA out of memory. Tried to allocate 2 GiB. Run fewer" in failed.error
    assert sum(isinstance(event, Done) for event in events) == 2


def test_lanes_share_one_copy_of_the_data(tmp_path, monkeypatch):
    jobs = [job_of(plan(seed), tmp_path / str(seed)) for seed in range(3)]
    loads = []
    load = opening.open_data
    monkeypatch.setattr(opening, "open_data", lambda name: loads.append(name) or load(name))
    done_in_lanes(jobs)
    assert loads == ["blobs"]


@pytest.mark.parametrize("error", ["CUDA error: an illegal memory access was encountered", "cuBLAS"])
def test_an_error_that_leaves_no_gpu_ends_the_process(tmp_path, monkeypatch, error):
    exits, told = [], []

    def broken(*_):
        raise RuntimeError(error)

    monkeypatch.setattr(Run, "finish", broken)
    monkeypatch.setattr("odedm.execute.lanes.os._exit", exits.append)
    lanes = Lanes(told.append)
    lanes.start(job_of(SMALL, tmp_path / "run"))
    assert lanes.join(60)
    assert exits == ([70] if "CUDA error" in error else [])
