"""The backend of this machine: worker processes that take jobs over a pipe; one that dies is replaced."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.plugin_modules import export_plugins
from odedm.core.processes import close_pipes, start_program
from odedm.execute.gpu_sharing import MOST_CLIENTS, SharedGPU
from odedm.execute.job import TRIES, Done, Event, Failed, WorkerLost, event_from_text
from odedm.execute.job_thread import GPU_BROKEN
from odedm.execute.shard_job import AnyJob
from odedm.execute.worker_process import ENDED, STOP

PATIENCE = 120
"""Seconds that workers have to store the state of their jobs when they are asked to stop."""
CHUNK = 1 << 16
KILLED = (-signal.SIGKILL, -signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM, ENDED)
"""Exit codes of a worker that someone ended."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    job: str | None = None
    """The key of what it does."""
    rest: bytes = b""
    """The beginning of a line whose end has not come yet."""

    @property
    def output(self) -> int:
        """Return the file descriptor of its events."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, line: str) -> None:
        with suppress(OSError):  # one that died in the meantime is found dead when it is listened to
            if self.process.stdin is not None:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()

    def close(self) -> None:
        """Let go of it; one that has not ended is killed."""
        if self.process.poll() is None:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):  # one that the kernel cannot end now ends later
                self.process.wait(5)
        close_pipes(self.process)


class ProcessBackend:
    """Jobs in processes of their own, `workers` at a time; a worker that is done takes the next.

    With `shares_gpu` they use CUDA's multi-process service, where it can be had, each with `gpu_share` percent of the
    GPU.
    """

    tries = TRIES

    def __init__(self, workers: int, *, shares_gpu: bool = False, gpu_share: int = 100) -> None:
        if shares_gpu and gpu_share < 100 and workers > MOST_CLIENTS:
            raise UsageError(
                "--set execution.gpu_share is kept by CUDA's multi-process service, which takes "
                f"{MOST_CLIENTS} runs at a time; --workers {workers} was given. Give fewer, or leave it out."
            )
        self.workers = workers
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._folder = tempfile.TemporaryDirectory(prefix="odedm-workers-")
        served = shares_gpu and workers <= MOST_CLIENTS and (workers > 1 or gpu_share < 100)
        try:
            self._gpu = SharedGPU(Path(self._folder.name), gpu_share) if served else None
        except BaseException:  # nobody has a backend to close then
            self._folder.cleanup()
            raise

    def has_room(self) -> bool:
        return sum(worker.job is not None for worker in self._workers) < self.workers

    def start(self, job: AnyJob) -> None:
        worker = next((worker for worker in self._workers if worker.job is None), None) or self._new()
        worker.job = job.key
        worker.send(job.to_text())

    def _new(self) -> _Worker:
        worker = _Worker(start_program("odedm.execute.worker_process"))
        worker.send(json.dumps({**export_plugins(), "environment": self._gpu.environment if self._gpu else {}}))
        self._workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def events(self, timeout: float) -> Iterator[Event]:
        for key, _ in self._selector.select(timeout):
            yield from self._read(key.data)

    def _read(self, worker: _Worker) -> Iterator[Event]:
        chunk = os.read(worker.output, CHUNK)
        if not chunk:
            yield from self._bury(worker)
            return
        *lines, worker.rest = (worker.rest + chunk).split(b"\n")
        for line in lines:
            try:
                event = event_from_text(line)
            except Exception:  # what is no event: there is no talking with this worker any more
                worker.process.kill()
                return
            if isinstance(event, Done | Failed):
                worker.job = None
            yield event

    def _bury(self, worker: _Worker) -> Iterator[Event]:
        self._selector.unregister(worker.output)
        self._workers.remove(worker)
        code = worker.process.wait()
        worker.close()
        if worker.job is not None:
            shared = self._gpu is not None and bool(self._gpu.environment) and code == GPU_BROKEN
            yield WorkerLost(worker.job, cause_of_death(code), shared, was_killed=code in KILLED)

    def close(self) -> None:
        """Ask every worker to store the state of its jobs and to end; those that do not are ended."""
        for worker in self._workers:
            worker.send(f'"{STOP}"')
        until = time.monotonic() + PATIENCE
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # a second interrupt: no patience is left
            for worker in self._workers:
                worker.process.wait(max(0.0, until - time.monotonic()))
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._selector.close()
        if self._gpu is not None:
            self._gpu.close()
        self._folder.cleanup()


def cause_of_death(code: int) -> str:
    """Return how a worker ended, in words.

    >>> cause_of_death(-9), cause_of_death(3)
    ('its process was ended by the signal SIGKILL; if memory ran out, give fewer --workers', \
'its process ended with the exit code 3')
    """
    if code == GPU_BROKEN:
        return "the GPU reported an error after which its process could not go on"
    if code >= 0:
        return f"its process ended with the exit code {code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else str(-code)
    advice = "; if memory ran out, give fewer --workers" if -code == signal.SIGKILL else ""
    return f"its process was ended by the signal {name}{advice}"
