"""Many runs at once, in processes side by side, each with exactly the numbers it has alone."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
    """Run every job, several at once where cores allow, and return the results in the order of the jobs.

    A run that fails does not end the others; when all are through, an error names the failed ones.
    """
    lanes = min(lanes or choose_lanes(jobs), len(jobs))
    outcomes = _run_here(jobs, watcher, overwrite) if lanes <= 1 else _run_in_processes(jobs, watcher, lanes, overwrite)
    failed = [(job, each) for job, each in zip(jobs, outcomes, strict=True) if isinstance(each, UsageError)]
    if failed:
        raise UsageError(_failures(failed, len(jobs)))
    return [each for each in outcomes if isinstance(each, Result)]


def _failures(failed: Sequence[tuple[Job, UsageError]], total: int) -> str:
    if total == 1:
        return str(failed[0][1])
    names = ", ".join(f"'{job.folder}'" for job, _ in failed[:5]) + (" and others" if len(failed) > 5 else "")
    return f"{len(failed)} of {total} runs failed, the others are kept: {names}. The first said: {failed[0][1]}"


def choose_lanes(jobs: Sequence[Job]) -> int:
    """As many processes as there are cores for the threads each run asks for; one where a GPU is used.

    >>> choose_lanes([])
    1
    """
    if not jobs or any(job.experiment.device == "cuda" for job in jobs):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(jobs), cores // max(job.experiment.threads for job in jobs)))


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


def _run_in_processes(jobs: Sequence[Job], watcher: Watcher, lanes: int, overwrite: bool) -> list[Result | UsageError]:
    context = get_context("spawn")  # a forked copy of a process that has used torch's threads can hang
    reports = context.Queue()
    outcomes: dict[int, Result | UsageError] = {}
    with _pool(lanes, context, reports, jobs) as pool:
        running = {pool.submit(_run_there, number, job, overwrite): number for number, job in enumerate(jobs)}
        while running:
            done, _ = wait(running, timeout=TICK, return_when=FIRST_COMPLETED)
            for number, seen, total in _drain(reports):
                watcher.progress(number, seen, total)
            for future in done:
                number = running.pop(future)
                outcome = outcomes[number] = _outcome_of(future)
                if isinstance(outcome, Result):
                    watcher.finished(number, outcome)
    return [outcomes[number] for number in range(len(jobs))]


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
