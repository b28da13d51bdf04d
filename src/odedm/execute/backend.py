"""Backends: where jobs are done. Chosen here, for one job this very process, for several its workers, or Ray."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from odedm.core.configuration import check_settings, setting_field
from odedm.core.errors import UsageError
from odedm.core.processes import cores
from odedm.core.validators import Bool, Choice, Float, Int, Text
from odedm.execute.job import TRIES, Event, Job
from odedm.execute.job_thread import JobThread

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset

BACKENDS = {
    "local": "Processes of this machine, which share its GPU.",
    "ray": "Ray: tasks on one machine or many.",
}
GPU_WORKERS = 8
"""Runs that share one GPU: more of them gain nothing, the card is full."""


class Backend(Protocol):
    """Where jobs are done: started, told of by events, closed whatever happens."""

    workers: int
    tries: int
    """How often a job whose worker dies is tried from the same checkpoint."""

    def has_room(self) -> bool:
        """Return whether a job can start now."""
        ...

    def start(self, job: Any) -> None:
        """Begin a job, of which this backend knows the kind."""
        ...

    def events(self, timeout: float) -> Iterator[Event]:
        """Yield what has happened since, or nothing when the time is over."""
        ...

    def close(self) -> None:
        """Stop what is under way, its state being stored where that is possible."""
        ...


@dataclass(frozen=True)
class ExecutionConfig:
    """Where runs happen; what is None is chosen automatically.

    Args:
        mps: whether workers on a GPU use CUDA's multi-process service, where the driver brings it; it is started
            for the command alone, and ended with it.
        gpu_share: percent of a GPU's multiprocessors that the kernels of one run may take, by the same service. Runs of
            one share have the same bits in any number of workers; those of another share differ from them in rounding,
            as cuDNN chooses its kernels by that number.
    """

    workers: int | None = setting_field(Int(1), None, "Runs side by side.", default_words="chosen automatically")
    mps: bool = setting_field(
        Bool(), True, "Kernels of several runs side by side on a GPU, by CUDA's multi-process service."
    )
    gpu_share: int = setting_field(
        Int(1, 100), 100, "Percent of a GPU for each run; 40: eight workers a quarter faster, other last digits."
    )
    backend: str = setting_field(Choice("backend", BACKENDS), "local", "This machine, or Ray.")
    address: str | None = setting_field(
        Text(), None, "A running Ray cluster, e.g. auto.", default_words="start one here"
    )
    cpus: float | None = setting_field(Float(0), None, "CPUs that one run takes (ray).", default_words="1")
    gpus: float = setting_field(Float(0), 0.0, "Part of a GPU that one run takes, e.g. 0.125 (ray).")

    PANEL: ClassVar[str] = "Where"

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.is_remote and (self.address is not None or self.gpus or self.cpus is not None):
            raise UsageError("The settings address, gpus and cpus are for --backend ray; leave them out, or add it.")
        if self.is_remote and self.cpus == 0 and not self.gpus:
            raise UsageError("gpus and cpus are what one run takes; with --backend ray they cannot both be 0.")
        if self.gpu_share < 100 and (self.is_remote or not self.mps):
            wrong = "--backend ray" if self.is_remote else "--set execution.mps=false"
            raise UsageError(
                f"--set execution.gpu_share is kept by the multi-process service of this machine, which {wrong} does "
                "without: leave one of the two out."
            )

    @property
    def is_remote(self) -> bool:
        """Return whether runs may happen on other machines."""
        return self.backend == "ray"

    def device(self, asked: str) -> str:
        """Return what device to plan for: on Ray a run has a GPU exactly where it is given a part of one."""
        if not self.is_remote:
            return asked
        if asked == "cuda" and not self.gpus:
            raise UsageError(
                "--device cuda with --backend ray needs --set execution.gpus, the part of a GPU that one run takes."
            )
        return "cuda" if self.gpus and asked != "cpu" else "cpu"


class InProcessBackend:
    """A backend of one thread in this very process: what a single job needs, without the wait for a worker."""

    workers, tries = 1, TRIES

    def __init__(self, data: Mapping[str, Dataset] | None = None) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._thread = JobThread(self._events.put, data)

    def has_room(self) -> bool:
        return self._thread.join(0)

    def start(self, job: Job) -> None:
        self._thread.start(job)

    def events(self, timeout: float) -> Iterator[Event]:
        with suppress(queue.Empty):
            event = self._events.get(timeout=timeout)
            while True:
                yield event
                event = self._events.get_nowait()

    def close(self) -> None:
        self._thread.stop()
        self._thread.join()


def open_backend(jobs: Sequence[Job], execution: ExecutionConfig, data: Mapping[str, Dataset]) -> Backend:
    """Open the backend that was asked for, with as many workers as are worthwhile and fit."""
    if _only_here(jobs, execution):
        return InProcessBackend(data)
    if execution.is_remote:
        return ray_backend(execution, len(jobs))
    workers = workers_here(jobs, execution)
    on_gpu = any(job.experiment.device == "cuda" for job in jobs)
    share = execution.gpu_share if on_gpu else 100
    if len(jobs) == 1 and share == 100:
        return InProcessBackend(data)
    from odedm.execute.process_backend import ProcessBackend

    return ProcessBackend(workers, shares_gpu=execution.mps and on_gpu, gpu_share=share)


def ray_backend(execution: ExecutionConfig, jobs: int) -> Backend:
    """Ray, with as many workers as were asked for, but no more than there are jobs."""
    from odedm.execute.ray_backend import RayBackend

    workers = None if execution.workers is None else min(execution.workers, jobs)
    cpus = 1.0 if execution.cpus is None else execution.cpus
    return RayBackend(workers, address=execution.address, cpus=cpus, gpus=execution.gpus)


def _only_here(jobs: Sequence[Job], execution: ExecutionConfig) -> bool:
    """Return whether a job is made of code that no other process can find; refuse it where it is to run in one."""
    for job in jobs:
        for setting, (name, entry) in job.experiment.plugins().items():
            if entry.portable:
                continue
            shared = execution.gpu_share < 100 and job.experiment.device == "cuda"
            if execution.is_remote or (execution.workers or 1) > 1 or shared:
                raise UsageError(
                    f"The {setting} '{name}' is known to this process alone, and workers cannot find it. Put its class "
                    "into a module and odedm.register it by 'package.module:Name', or leave out workers, gpu_share and "
                    "backend."
                )
            return True
    return False


def workers_here(jobs: Sequence[Job], execution: ExecutionConfig) -> int:
    """Return how many runs go side by side on this machine: as many as there are cores for, unless it is given."""
    return min(execution.workers or choose_workers(jobs), len(jobs))


def choose_workers(jobs: Sequence[Job]) -> int:
    """Return as many as there are cores for the threads each run asks for; on a GPU as many as fill it.

    >>> choose_workers([])
    1
    """
    if not jobs:
        return 1
    if any(job.experiment.device == "cuda" for job in jobs):
        return max(1, min(len(jobs), GPU_WORKERS, cores()))
    return max(1, min(len(jobs), cores() // max(job.experiment.threads for job in jobs)))
