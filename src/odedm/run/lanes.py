"""Many runs at once, in processes side by side, each with exactly the numbers it has alone."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from odedm.errors import UsageError
from odedm.files import sweep_staging
from odedm.run.experiment import Experiment
from odedm.run.results import Result

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
    """Run every job, several at once where cores allow, and return the results in the order of the jobs."""
    lanes = lanes or choose_lanes(jobs)
    if lanes == 1:
        return [_run_here(number, job, watcher, overwrite) for number, job in enumerate(jobs)]
    return _run_in_processes(jobs, watcher, min(lanes, len(jobs)), overwrite)


def choose_lanes(jobs: Sequence[Job]) -> int:
    """As many processes as there are cores for the threads each run asks for; one where a GPU may be used.

    >>> choose_lanes([])
    1
    """
    if not jobs or any(job.experiment.device == "cuda" for job in jobs):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(jobs), cores // max(job.experiment.threads for job in jobs)))


def _run_here(number: int, job: Job, watcher: Watcher, overwrite: bool) -> Result:
    result = _train(job, _throttled(lambda done, total: watcher.progress(number, done, total)), overwrite)
    watcher.finished(number, result)
    return result


def _train(job: Job, report: Callable[[int, int], None], overwrite: bool) -> Result:
    from odedm.run.loop import Run  # torch is imported where runs happen, not where they are planned
    from odedm.run.save import save_run

    outcome = Run(job.experiment).finish(lambda _task, done, total: report(done, total))
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


_reports: Any = None


def _start_worker(reports: Any) -> None:
    global _reports  # noqa: PLW0603 - a worker's one connection to its parent, set once when it starts
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends the workers


def _run_there(number: int, job: Job, overwrite: bool) -> Result:
    return _train(job, _throttled(lambda done, total: _reports.put((number, done, total))), overwrite)


def _run_in_processes(jobs: Sequence[Job], watcher: Watcher, lanes: int, overwrite: bool) -> list[Result]:
    context = get_context("spawn")  # a forked copy of a process that has used torch's threads can hang
    reports = context.Queue()
    results: dict[int, Result] = {}
    with _pool(lanes, context, reports, jobs) as pool:
        running = {pool.submit(_run_there, number, job, overwrite): number for number, job in enumerate(jobs)}
        while running:
            done, _ = wait(running, timeout=TICK, return_when=FIRST_COMPLETED)
            for number, seen, total in _drain(reports):
                watcher.progress(number, seen, total)
            for future in done:
                number = running.pop(future)
                results[number] = _result_of(future, jobs[number])
                watcher.finished(number, results[number])
    return [results[number] for number in range(len(jobs))]


def _result_of(future: Future[Result], job: Job) -> Result:
    from concurrent.futures.process import BrokenProcessPool

    try:
        return future.result()
    except BrokenProcessPool:
        raise UsageError(
            f"A worker process died during the runs (at '{job.folder}' or beside it), perhaps for lack of memory. "
            "Try fewer at once (--lanes 1)."
        ) from None


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
            sweep_staging(job.folder)
        raise
    pool.shutdown()


def _drain(reports: Any) -> Iterator[tuple[int, int, int]]:
    while True:
        try:
            yield reports.get_nowait()
        except queue.Empty:
            return
