"""One run under way in a thread, so that its process hears when it is asked to stop."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odedm.checkpoint.stop import Stopped
from odedm.execute.job import Done, Emit, Failed, Job, Message, sentence
from odedm.execute.run_job import run_job
from odedm.execute.shard_job import AnyJob, ShardJob, run_shard

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

GPU_BROKEN = 70
"""The exit code of a process whose GPU has reported an error after which nothing in it can be computed any more."""


class JobThread:
    """Jobs one after the other, each in a thread; what happens goes to `emit`, from that thread.

    `data` are data sets that are open already, by name.
    """

    def __init__(self, emit: Emit, data: Mapping[str, Dataset] | None = None) -> None:
        self._emit = emit
        self._data: dict[str, Dataset] = dict(data or {})
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, job: AnyJob) -> None:
        """Begin a job; the one before it has said that it is over."""
        self.join()
        run = self._embed if isinstance(job, ShardJob) else self._run
        self._thread = threading.Thread(target=run, args=(job,), name=f"job {job.key}", daemon=True)
        self._thread.start()

    def _run(self, job: Job) -> None:
        from odedm.training.numerics import deterministic_numerics

        plan = job.experiment
        outcome: Done | Failed | None = Done(job.key)
        try:
            # torch's own threads and precision belong to the process, so they are set for the whole of a job
            with deterministic_numerics(plan.threads, "fp32" if plan.precision == "fp32" else "tf32"):
                run_job(job, self._emit, data=self._open(plan.data), stop=self._stop.is_set)
        except Stopped:  # its state is stored; where nobody asked for it, that is an end like any other
            outcome = None if self._stop.is_set() else Failed(job.key, "It was stopped, and its state is stored.")
        except (Exception, SystemExit) as error:  # whatever it is, of anyone's code, it is this job's alone
            if plan.device == "cuda" and is_gpu_broken(error):
                self._emit(Message(job.key, f"The GPU reported: {sentence(error)[:300]}"))
                os._exit(GPU_BROKEN)
            if os.environ.get("ODEDM_TRACEBACK"):
                traceback.print_exception(error)
            outcome = Failed.by(job, error)
        if outcome is not None:
            self._emit(outcome)

    def _embed(self, job: ShardJob) -> None:
        try:
            run_shard(job)
        except Exception as error:  # whatever it is, it is this job's alone
            self._emit(Failed.by(job, error))
        else:
            self._emit(Done(job.key))

    def _open(self, name: str) -> Dataset:
        """Return the data set, opened once for all jobs."""
        from odedm.data.opening import load_dataset

        if name not in self._data:
            self._data[name] = load_dataset(name)
        return self._data[name]

    def stop(self) -> None:
        """Ask the job to store its state."""
        self._stop.set()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the job that is under way, if any; return whether it is over."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()


def is_gpu_broken(error: BaseException) -> bool:
    """Return whether the process has lost its GPU to an error, after which nothing can be asked of the card."""
    import torch

    if not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError):
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
