"""Many runs at once, in processes or on streams of a GPU, each with exactly the numbers it has alone."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odedm.errors import UsageError
from odedm.files import sweep_staging
from odedm.run.experiment import Experiment
from odedm.run.results import Result

if TYPE_CHECKING:
    from odedm.stream.datasets import Dataset

GPU_LANES = 8
"""Runs that share one GPU: more of them gain nothing, the card is full."""
TICK = 0.1
"""Seconds between two reports of progress from one run."""


@dataclass(frozen=True)
class Job:
    """An experiment and the folder its result goes to."""

    experiment: Experiment
    folder: Path


class Watcher(Protocol):
    """Who is told how the runs get on; every call comes from the calling process."""

    def progress(self, job: int, done: int, total: int) -> None:
        """A run has seen `done` of `total` rows."""
        ...

    def finished(self, job: int, result: Result) -> None:
        """A run is over and its folder is written."""
        ...


def run_jobs(
    jobs: Sequence[Job], watcher: Watcher, *, lanes: int | None = None, overwrite: bool = False
) -> list[Result]:
    """Run every job, several at once where there is room, and return the results in the order of the jobs.

    On a CPU lanes are processes; on a GPU threads of this one, each with its own stream. A run that fails does not end
    the others; when all are through, an error names the failed ones.
    """
    on_gpu = any(_uses_gpu(job.experiment.device) for job in jobs)
    lanes = min(lanes or choose_lanes(jobs, on_gpu=on_gpu), len(jobs))
    if lanes <= 1:
        outcomes = _run_here(jobs, watcher, overwrite)
    elif on_gpu:
        outcomes = _run_in_threads(jobs, watcher, lanes, overwrite)
    else:
        outcomes = _run_in_processes(jobs, watcher, lanes, overwrite)
    failed = [(job, each) for job, each in zip(jobs, outcomes, strict=True) if isinstance(each, UsageError)]
    if failed:
        raise UsageError(_failures(failed, len(jobs)))
    return [each for each in outcomes if isinstance(each, Result)]


def _failures(failed: Sequence[tuple[Job, UsageError]], total: int) -> str:
    if total == 1:
        return str(failed[0][1])
    names = ", ".join(f"'{job.folder}'" for job, _ in failed[:5]) + (" and others" if len(failed) > 5 else "")
    return f"{len(failed)} of {total} runs failed, the others are kept: {names}. The first said: {failed[0][1]}"


def choose_lanes(jobs: Sequence[Job], *, on_gpu: bool = False) -> int:
    """As many as there are cores for the threads each run asks for; on a GPU as many as fill it.

    >>> choose_lanes([])
    1
    """
    if not jobs:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if on_gpu:
        return max(1, min(len(jobs), GPU_LANES, cores))
    return max(1, min(len(jobs), cores // max(job.experiment.threads for job in jobs)))


def _uses_gpu(device: str) -> bool:
    if device == "cpu":
        return False
    from odedm.run.resolve import resolve_device  # torch is imported where it is asked for a GPU

    return resolve_device(device).type == "cuda"


def _run_here(jobs: Sequence[Job], watcher: Watcher, overwrite: bool) -> list[Result | UsageError]:
    outcomes: list[Result | UsageError] = []
    for number, job in enumerate(jobs):
        try:
            report = _throttled(partial(watcher.progress, number))
            result = _train(job, report, overwrite)
        except UsageError as error:
            outcomes.append(error)
        else:
            outcomes.append(result)
            watcher.finished(number, result)
    return outcomes


def _train(job: Job, report: Callable[[int, int], None], overwrite: bool, data: Dataset | None = None) -> Result:
    from odedm.run.loop import Run  # torch is imported where runs happen, not where they are planned
    from odedm.run.save import save_run

    outcome = Run(job.experiment, data).finish(lambda _task, done, total: report(done, total))
    save_run(outcome, job.folder, overwrite=overwrite)
    return outcome.result


def _throttled(report: Callable[[int, int], None]) -> Callable[[int, int], None]:
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TICK or done == total:
            last = now
            report(done, total)

    return tell


class _Stopped(BaseException):
    """Raised inside a lane that is to stop."""


def _run_in_threads(jobs: Sequence[Job], watcher: Watcher, lanes: int, overwrite: bool) -> list[Result | UsageError]:
    """Lanes that share a GPU: launching recorded steps hardly needs Python, and kernels of several streams overlap."""
    from odedm.run.loop import load_data
    from odedm.run.numerics import own_numerics

    reports: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
    stop = threading.Event()
    shared = {job.experiment.data: load_data(job.experiment.data) for job in jobs}

    def lane(number: int) -> Result:
        def report(done: int, total: int) -> None:
            if stop.is_set():
                raise _Stopped
            reports.put((number, done, total))

        job = jobs[number]
        return _train(job, _throttled(report), overwrite, shared[job.experiment.data])

    # what a run computes with is set for the whole process, so runs that differ in it take turns
    alike: dict[tuple[int, bool], list[int]] = {}
    for number, job in enumerate(jobs):
        alike.setdefault((job.experiment.threads, job.experiment.precision == "fp32"), []).append(number)
    outcomes: dict[int, Result | UsageError] = {}
    for (threads, exact), numbers in alike.items():
        with own_numerics(threads, "fp32" if exact else "tf32"):
            pool = ThreadPoolExecutor(lanes, thread_name_prefix="lane")
            try:
                _collect({pool.submit(lane, number): number for number in numbers}, reports, watcher, outcomes)
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
                stop.clear()
    return [outcomes[number] for number in range(len(jobs))]


_reports: Any = None


def _start_worker(reports: Any) -> None:
    global _reports  # noqa: PLW0603 - a worker's one connection to its parent, set once when it starts
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends the workers


def _run_there(number: int, job: Job, overwrite: bool) -> Result:
    return _train(job, _throttled(lambda done, total: _reports.put((number, done, total))), overwrite)


def _run_in_processes(jobs: Sequence[Job], watcher: Watcher, lanes: int, overwrite: bool) -> list[Result | UsageError]:
    context = get_context("spawn")  # a forked copy of a process that has used torch's threads can hang
    reports = context.Queue()
    outcomes: dict[int, Result | UsageError] = {}
    with _pool(lanes, context, reports, jobs) as pool:
        running = {pool.submit(_run_there, number, job, overwrite): number for number, job in enumerate(jobs)}
        _collect(running, reports, watcher, outcomes)
    return [outcomes[number] for number in range(len(jobs))]


def _collect(
    running: dict[Future[Result], int], reports: Any, watcher: Watcher, outcomes: dict[int, Result | UsageError]
) -> None:
    """Pass on what the lanes report until all are through."""
    while running:
        done, _ = wait(running, timeout=TICK, return_when=FIRST_COMPLETED)
        for number, seen, total in _drain(reports):
            watcher.progress(number, seen, total)
        for future in done:
            number = running.pop(future)
            outcome = outcomes[number] = _outcome_of(future)
            if isinstance(outcome, Result):
                watcher.finished(number, outcome)


def _outcome_of(future: Future[Result]) -> Result | UsageError:
    try:
        return future.result()
    except UsageError as error:
        return error
    except BrokenProcessPool:
        return UsageError("A worker process died, perhaps for lack of memory. Try fewer runs at once (--lanes 1).")


@contextmanager
def _pool(lanes: int, context: Any, reports: Any, jobs: Sequence[Job]) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers are ended at once, traces and all, when the block is left by an error or by Ctrl-C."""
    pool = ProcessPoolExecutor(lanes, mp_context=context, initializer=_start_worker, initargs=(reports,))
    try:
        yield pool
    except BaseException:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(5)
            for job in jobs:
                sweep_staging(job.folder, worker.pid)
        pool.shutdown(wait=True)  # its own thread must be gone before the interpreter's end, or it complains there
        raise
    pool.shutdown()


def _drain(reports: Any) -> Iterator[tuple[int, int, int]]:
    while True:
        try:
            yield reports.get_nowait()
        except queue.Empty:
            return
