"""Lanes: a lane is one run under way. Here they are threads of one process, each with the numbers it has alone.

On a CPU a process has one lane. On a GPU it has several: launching recorded steps hardly needs Python, and kernels of
several streams overlap.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from odedm.checkpoint.stop import Stopped
from odedm.execute.attempt import attempt
from odedm.execute.job import Done, Emit, Failed, Job, Said, sentence

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

GPU_BROKEN = 70
"""The exit code of a process whose GPU has reported an error after which nothing in it can be computed any more."""

Numerics = tuple[int, bool]


def numerics_of(job: Job) -> Numerics:
    """What is set for a whole process while a job runs: lanes that differ in it cannot share one."""
    return job.experiment.threads, job.experiment.precision == "fp32"


class Lanes:
    """Jobs under way in this process, each in a thread; what happens goes to `emit`, from any of them.

    `data` are data sets that are open already, by name.
    """

    def __init__(self, emit: Emit, data: Mapping[str, Dataset] | None = None) -> None:
        self._emit = emit
        self._threads: dict[str, threading.Thread] = {}
        self._data: dict[str, Dataset] = dict(data or {})
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._held = ExitStack()

    def start(self, job: Job) -> None:
        """Begin a job; the others under way must compute alike."""
        from odedm.training.numerics import process_numerics

        with self._lock:
            if not self._threads:
                threads, exact = numerics_of(job)
                self._held.enter_context(process_numerics(threads, "fp32" if exact else "tf32"))
            thread = threading.Thread(target=self._lane, args=(job,), name=f"lane {job.key}", daemon=True)
            self._threads[job.key] = thread
            thread.start()

    def _lane(self, job: Job) -> None:
        try:
            score = attempt(job, self._emit, data=self._open(job.experiment.data), stop=self._stop.is_set)
            outcome: Done | Failed | None = Done(job.key, score)
        except Stopped:  # its state is stored; where nobody asked for it, that is an end like any other
            outcome = None if self._stop.is_set() else Failed(job.key, "It was stopped, and its state is stored.")
        except Exception as error:  # whatever it is, it is this job's alone
            if _breaks_the_gpu(error):
                self._emit(Said(job.key, f"The GPU reported: {sentence(error)[:300]}"))
                os._exit(GPU_BROKEN)
            outcome = Failed.by(job, error)
        with self._lock:
            del self._threads[job.key]
            if not self._threads:
                self._held.close()
        if outcome is not None:
            self._emit(outcome)

    def _open(self, name: str) -> Dataset:
        """The data set, opened once for all lanes."""
        from odedm.data.opening import open_data

        with self._lock:
            if name not in self._data:
                self._data[name] = open_data(name)
            return self._data[name]

    def stop(self) -> None:
        """Ask every lane to store its state."""
        self._stop.set()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the lanes that are under way; whether all are over."""
        with self._lock:  # so that none is listed that has not begun
            under_way = list(self._threads.values())
        for thread in under_way:
            thread.join(seconds)
        return not self._threads


def _breaks_the_gpu(error: Exception) -> bool:
    """Whether an error of CUDA leaves the process without a GPU: all but that of memory do."""
    from torch import OutOfMemoryError

    return isinstance(error, RuntimeError) and not isinstance(error, OutOfMemoryError) and "CUDA error" in str(error)
