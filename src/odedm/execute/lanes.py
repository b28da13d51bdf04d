"""Many runs at once, in processes or on streams of a GPU, each with exactly the numbers it has alone."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol

from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.stop import Stopped, Wish, heard
from odedm.core.errors import UsageError
from odedm.execute.attempt import Job, attempt
from odedm.execute.job import Wishes
from odedm.results.result import Result
from odedm.training.observation import Looks

__all__ = ["Job", "Watcher", "choose_lanes", "run_jobs", "throttled"]

GPU_LANES = 8
"""Runs that share one GPU: more of them gain nothing, the card is full."""
TICK = 0.1
"""Seconds between two reports of progress from one run."""
PATIENCE = 120
"""Seconds that a lane has to store its state when it is asked to stop."""

Say = Callable[[str], None]


class Watcher(Protocol):
    """Who is told how the runs get on; every call comes from the calling process."""

    def progress(self, job: int, done: int, total: int) -> None:
        """A run has seen `done` of `total` rows."""
        ...

    def finished(self, job: int, result: Result) -> None:
        """A run is over and its folder is written."""
        ...


def say_on_stderr(line: str) -> None:
    """A line for the user."""
    sys.stderr.write(line + "\n")


def run_jobs(
    jobs: Sequence[Job],
    watcher: Watcher,
    *,
    lanes: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    schedule: Schedule | None = None,
    looks: Looks | None = None,
    say: Say = say_on_stderr,
) -> list[Result]:
    """Run every job, several at once where there is room, and return the results in the order of the jobs.

    Each goes on from its last checkpoint unless it is to be `fresh`, and then looks at what it did before; a new one at
    `looks`. On a CPU lanes are processes; on a GPU threads of
    this one, each with its own stream. A run that fails does not end the others; when all are through, an error names
    the failed ones. At SIGINT or SIGTERM those under way store their state, and `Stopped` is raised.
    """
    if not jobs:
        return []
    from odedm.execute.memory_estimate import fitting_lanes

    wishes = Wishes(schedule or Schedule(), fresh, overwrite, looks)
    on_gpu = any(_uses_gpu(job.experiment.device) for job in jobs)
    wished = min(lanes or choose_lanes(jobs, on_gpu=on_gpu), len(jobs))
    lanes = fitting_lanes([job.experiment for job in jobs], wished, given=lanes is not None)
    if lanes <= 1:
        outcomes = _run_here(jobs, watcher, wishes, say)
    elif on_gpu:
        outcomes = _run_in_threads(jobs, watcher, lanes, wishes, say)
    else:
        outcomes = _run_in_processes(jobs, watcher, lanes, wishes, say)
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
    from odedm.training.resolve import resolve_device  # torch is imported where it is asked for a GPU

    return resolve_device(device).type == "cuda"


def _run_here(jobs: Sequence[Job], watcher: Watcher, wishes: Wishes, say: Say) -> list[Result | UsageError]:
    outcomes: list[Result | UsageError] = []
    with heard() as wish:
        for number, job in enumerate(jobs):
            try:
                if wish():
                    raise Stopped
                report = throttled(partial(watcher.progress, number))
                result = attempt(job, report, wishes, stop=wish, say=say).result
            except UsageError as error:
                outcomes.append(error)
            except Stopped:
                raise Stopped(wish.number) from None
            else:
                outcomes.append(result)
                watcher.finished(number, result)
    return outcomes


def throttled(report: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """The same report, but not more often than every `TICK`; the last one always."""
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TICK or done == total:
            last = now
            report(done, total)

    return tell


class _Abandoned(BaseException):
    """Raised inside a lane that is to stop at once, stored or not."""


def _run_in_threads(
    jobs: Sequence[Job], watcher: Watcher, lanes: int, wishes: Wishes, say: Say = say_on_stderr
) -> list[Result | UsageError]:
    """Lanes that share a GPU: launching recorded steps hardly needs Python, and kernels of several streams overlap."""
    from odedm.training.numerics import own_numerics
    from odedm.training.resolve import load_data

    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop, at_once = threading.Event(), threading.Event()
    shared = {name: load_data(name) for name in {job.experiment.data for job in jobs}}

    def asked() -> bool:
        if at_once.is_set():
            raise _Abandoned
        return stop.is_set()

    def lane(number: int) -> Result:
        job = jobs[number]
        if asked():
            raise Stopped
        tell = throttled(lambda done, total: reports.put((number, done, total)))
        return attempt(job, tell, wishes, data=shared[job.experiment.data], stop=asked, say=reports.put).result

    # what a run computes with is set for the whole process, so runs that differ in it take turns
    alike: dict[tuple[int, bool], list[int]] = {}
    for number, job in enumerate(jobs):
        alike.setdefault((job.experiment.threads, job.experiment.precision == "fp32"), []).append(number)
    outcomes: dict[int, Result | UsageError] = {}
    with heard(at_once=True):
        for (threads, exact), numbers in alike.items():
            with own_numerics(threads, "fp32" if exact else "tf32"):
                pool = ThreadPoolExecutor(lanes, thread_name_prefix="lane")
                try:
                    running = {pool.submit(lane, number): number for number in numbers}
                    _collect(running, reports, watcher, outcomes, say)
                except BaseException:
                    stop.set()
                    try:
                        pool.shutdown(cancel_futures=True)
                    except KeyboardInterrupt:  # a second one: no patience is left
                        at_once.set()
                        pool.shutdown(cancel_futures=True)
                    raise
                pool.shutdown()
    return [outcomes[number] for number in range(len(jobs))]


_reports: Any = None
_wish = Wish()


def _start_worker(reports: Any) -> None:
    global _reports  # noqa: PLW0603 - a worker's one connection to its parent, set once when it starts
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends the workers
    signal.signal(signal.SIGTERM, lambda number, _frame: _wish.set(number))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would hold its run's lock for ever: it ends, too, as if killed itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _run_there(number: int, job: Job, wishes: Wishes) -> Result:
    if _wish():
        raise Stopped(_wish.number)
    report = throttled(lambda done, total: _reports.put((number, done, total)))
    return attempt(job, report, wishes, stop=_wish, say=_reports.put).result


def _run_in_processes(
    jobs: Sequence[Job], watcher: Watcher, lanes: int, wishes: Wishes, say: Say
) -> list[Result | UsageError]:
    context = get_context("spawn")  # a forked copy of a process that has used torch's threads can hang
    reports = context.Queue()
    outcomes: dict[int, Result | UsageError] = {}
    with heard(at_once=True), _pool(lanes, context, reports) as pool:
        running = {pool.submit(_run_there, number, job, wishes): number for number, job in enumerate(jobs)}
        _collect(running, reports, watcher, outcomes, say)
    for line in _drain(reports):  # what the last one said may come after its result
        _pass_on(line, watcher, say)
    return [outcomes[number] for number in range(len(jobs))]


def _collect(
    running: dict[Future[Result], int],
    reports: Any,
    watcher: Watcher,
    outcomes: dict[int, Result | UsageError],
    say: Say,
) -> None:
    """Pass on what the lanes report until all are through."""
    while running:
        done, _ = wait(running, timeout=TICK, return_when=FIRST_COMPLETED)
        for each in _drain(reports):
            _pass_on(each, watcher, say)
        for future in done:
            number = running.pop(future)
            outcome = outcomes[number] = _outcome_of(future)
            if isinstance(outcome, Result):
                watcher.finished(number, outcome)


def _pass_on(report: Any, watcher: Watcher, say: Say) -> None:
    if isinstance(report, str):
        say(report)
    else:
        watcher.progress(*report)


def _outcome_of(future: Future[Result]) -> Result | UsageError:
    try:
        return future.result()
    except UsageError as error:
        return error
    except BrokenProcessPool:
        return UsageError(
            "A worker process died, perhaps for lack of memory. Try fewer runs at once (--lanes 1); the same command "
            "goes on from the last checkpoints."
        )


@contextmanager
def _pool(lanes: int, context: Any, reports: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers store their state and end when the block is left by an error or by a signal."""
    pool = ProcessPoolExecutor(lanes, mp_context=context, initializer=_start_worker, initargs=(reports,))
    try:
        yield pool
    except BaseException:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        until = time.monotonic() + PATIENCE
        with suppress(KeyboardInterrupt):  # a second one: no patience is left
            for worker in workers:
                worker.join(max(0.0, until - time.monotonic()))
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        pool.shutdown(wait=True)  # its own thread must be gone before the interpreter's end, or it complains there
        raise
    pool.shutdown()


def _drain(reports: Any) -> Iterator[Any]:
    while True:
        try:
            yield reports.get_nowait()
        except queue.Empty:
            return
