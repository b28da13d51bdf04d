"""The backend for many machines, by Ray: each job is a task, its files come back and are written here.

Workers need this package and the data set, no shared disk: checkpoints come back, too, so a job whose worker is lost
goes on elsewhere from its last one, and `odedm resume` goes on here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from odedm.checkpoint.checkpoint import checkpoint_paths, clear, working_folder
from odedm.checkpoint.lock import hold
from odedm.core.errors import InfrastructureError, UsageError, is_infrastructure_error
from odedm.core.files import atomic_folder, write_bytes
from odedm.core.plugin_modules import export_plugins, import_plugins
from odedm.execute.job import (
    CheckpointSaved,
    Done,
    Event,
    Failed,
    Message,
    ProgressReport,
    TaskFinished,
    WorkerLost,
    event_from_text,
    event_to_text,
    sentence,
)
from odedm.execute.ray_connection import HERE_ALONE, LOOPBACK, PATIENCE, import_ray, knock
from odedm.execute.run_job import remove_stale_workdir, run_job
from odedm.execute.shard_job import AnyJob, ShardJob, job_from_text, run_shard

MOST_BYTES = 1 << 30
"""What a run may send back: its result, its memory's rows, its evidence and its model."""
POLL = 0.5
LOCAL_STORE = 128 << 20


class RayBackend:
    """Runs that are Ray tasks, each with `cpus` and a fraction `gpus` of a GPU.

    Without an address a Ray of this machine is started with room for `workers`, and ended with the study.
    """

    tries = 10  # a cluster may take machines away again and again, and that is no fault of a run

    def __init__(
        self, workers: int | None = None, *, address: str | None = None, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        address = address or os.environ.get("RAY_ADDRESS") or None
        self._ray = import_ray(alone=address is None)
        self._begin(workers, address, cpus)
        self.workers = workers or self._room(cpus, gpus)
        remote: Any = self._ray.remote
        self._task = remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(do_remotely)
        self._actor: Any = remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(ProgressActor).remote()
        self._running: dict[Any, AnyJob] = {}
        self._asked = 0.0

    def _begin(self, workers: int | None, address: str | None, cpus: float) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            room = workers or max(1, int((os.cpu_count() or 1) / max(cpus, 0.01)))
            options |= {"num_cpus": max(1, round(room * cpus)), "object_store_memory": LOCAL_STORE}
            options |= {"include_dashboard": False, "_node_ip_address": LOOPBACK}
        where = f"at '{address}'" if address else "on this machine"
        try:
            knock(address)
            with chdir(os.path.dirname(os.__file__)):  # Ray's workers import from the driver's folder before any other
                self._ray.init(address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            token = " Bring its token; if it has none, which is not safe, set RAY_AUTH_MODE=disabled."
            reason = " ".join(str(error).split())[:300].rstrip(".")
            raise UsageError(f"Ray could not be reached {where}: {reason}.{token if address else ''}") from error
        listens = self._ray.util.get_node_ip_address()
        if address is None and listens != LOOPBACK:
            self._ray.shutdown()
            raise UsageError(
                f"This Ray would listen at {listens}, where others could reach it: it was imported before odedm could "
                f"tell it not to. Set {HERE_ALONE}=0 before Python starts, or give the address of a cluster."
            )

    def _room(self, cpus: float, gpus: float) -> int:
        resources: dict[str, float] = self._ray.cluster_resources()
        rooms = [resources.get("CPU", 0.0) / cpus] if cpus else []
        rooms += [resources.get("GPU", 0.0) / gpus] if gpus else []
        room = int(min(rooms, default=1.0))
        if room < 1:
            self.close()
            raise UsageError(
                f"The cluster has {resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs, too few for a "
                f"run with {cpus:g} and {gpus:g}. Give smaller execution.cpus or execution.gpus."
            )
        return room

    def has_room(self) -> bool:
        return len(self._running) < self.workers

    def start(self, job: AnyJob) -> None:
        work = working_folder(job.folder)
        if job.options.restart and work.is_dir():
            clear(work)  # or the job would go on from these when its worker is lost
        words = job.to_text(), self._actor, os.getcwd(), export_plugins(), checkpoint_file(work)
        self._running[self._task.remote(*words)] = job

    def events(self, timeout: float) -> Iterator[Event]:
        try:
            done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout) if self._running else ([], [])
        except self._ray.exceptions.RayError as error:
            raise InfrastructureError(f"The Ray cluster is gone ({sentence(error)[:300]}).") from error
        if done or time.monotonic() - self._asked > POLL:
            yield from self._told()
        for reference in done:
            yield self._outcome(reference, self._running.pop(reference))

    def _told(self) -> Iterator[Event]:
        """Yield what workers have told since the last time, and write their checkpoints."""
        self._asked = time.monotonic()
        try:
            events, checkpoints = self._ray.get(self._actor.take.remote(), timeout=PATIENCE)
        except self._ray.exceptions.RayError:  # the next time it may answer
            return
        jobs = {job.key: job for job in self._running.values()}
        for key, files in checkpoints.items():
            if key in jobs and keep_checkpoint(files, jobs[key]):
                yield CheckpointSaved(key)
        for text in events:
            yield event_from_text(text)

    def _outcome(self, reference: Any, job: AnyJob) -> Event:
        try:
            answer: dict[str, Any] = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return WorkerLost(job.key, f"Ray lost its worker ({sentence(error)[:300]})")
        if "broken" in answer:  # that machine's disk, say: another may do better
            return WorkerLost(job.key, f"its worker's machine failed ({answer['broken'][:300]})")
        if "error" in answer:
            return Failed(job.key, answer["error"])
        try:
            unpack(answer["files"], job.folder)
        except (OSError, UsageError) as error:
            return Failed.by(job, error)
        remove_stale_workdir(job.folder)
        return Done(job.key)

    def close(self) -> None:
        """Take the last checkpoints, cancel what is under way and leave the cluster."""
        with suppress(Exception):
            for _ in self._told() if self._running else ():
                pass
        for reference in getattr(self, "_running", {}):
            with suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()


class ProgressActor:
    """Where workers tell how far they are, and the driver asks: of each job the last progress and checkpoint."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.progress: dict[str, str] = {}
        self.checkpoints: dict[str, dict[str, bytes]] = {}

    def tell(self, key: str, text: str, is_progress: bool) -> None:
        """Note an event of a worker."""
        if is_progress:
            self.progress[key] = text
        else:
            self.events.append(text)

    def keep(self, key: str, files: dict[str, bytes]) -> None:
        """Note a worker's checkpoint: its files by their path in the working folder."""
        self.checkpoints[key] = files

    def take(self) -> tuple[list[str], dict[str, dict[str, bytes]]]:
        """Return what was noted since the last time."""
        noted = [*self.progress.values(), *self.events], self.checkpoints
        self.events, self.progress, self.checkpoints = [], {}, {}
        return noted


def do_remotely(
    text: str,
    actor: Any,
    place: str = "",
    plugins: dict[str, Any] | None = None,
    checkpoint: dict[str, bytes] | None = None,
) -> dict[str, Any]:
    """Do a job in a worker, in a folder of its own; return its files, or why it failed.

    Args:
        text: the job.
        actor: who is told of progress, and given checkpoints.
        place: where the driver is, for data by a relative path; on another machine it may not be there.
        plugins: what code from outside the driver knows.
        checkpoint: where the job goes on from.

    Returns:
        `files`; or the sentence of an `error` of the job, or of what is `broken` on this machine.
    """
    try:
        if plugins is not None:
            import_plugins(plugins)
        job = job_from_text(text)
    except UsageError as error:
        return {"error": f"In a worker: {error}"}
    if place:
        with suppress(OSError):
            os.chdir(place)
    try:
        with tempfile.TemporaryDirectory(prefix="odedm-") as home:
            job = replace(job, folder=Path(home) / "run", options=replace(job.options, overwrite=False))
            work = working_folder(job.folder)
            unpack_checkpoint(checkpoint or {}, work)

            def emit(event: Event) -> None:
                if actor is not None and isinstance(event, ProgressReport | TaskFinished | Message):
                    actor.tell.remote(event.key, event_to_text(event), isinstance(event, ProgressReport))
                if actor is not None and isinstance(event, CheckpointSaved):
                    actor.keep.remote(event.key, checkpoint_file(work))

            if isinstance(job, ShardJob):
                run_shard(job)
            else:
                run_job(job, emit)
            return {"files": contents(job.folder)}
    except (Exception, SystemExit) as error:  # whatever it is, of anyone's code, it is this job's alone
        return {"broken" if is_infrastructure_error(error) else "error": sentence(error)}


def checkpoint_file(work: Path) -> dict[str, bytes]:
    """Return the newest checkpoint of a working folder by its path there; nothing where there is none."""
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in checkpoint_paths(work)[:1]}


def unpack_checkpoint(files: dict[str, bytes], work: Path) -> None:
    """Write a checkpoint into a working folder, whole or not at all; what is there already stays."""
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or len(path.parts) != 2:
            raise UsageError("A checkpoint's name leads out of its folder; nothing was written.")
        if not os.path.lexists(work / path):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(work / path, content)


def keep_checkpoint(files: dict[str, bytes], job: AnyJob) -> bool:
    """Write a checkpoint that came back in the place of the one before; return whether that worked.

    Where another process has the run nothing is written; it is at most this step that is done again.
    """
    work = working_folder(job.folder)
    with suppress(UsageError), hold(work):
        before = checkpoint_paths(work)
        unpack_checkpoint(files, work)
        for path in before:
            if path.relative_to(work).as_posix() not in files:
                path.unlink(missing_ok=True)
        return True
    return False


def contents(folder: Path, most: int = MOST_BYTES) -> dict[str, bytes]:
    """Return a finished run's files, refused where they are more than a driver should hold."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    size = sum(path.stat().st_size for path in files)
    if size > most:
        raise UsageError(
            f"The run's files have {size} bytes, more than the {most} that are sent back. Lower λ, or "
            "keep no evidence and no model."
        )
    return {path.name: path.read_bytes() for path in files}


def unpack(files: dict[str, bytes], folder: Path) -> None:
    """Write a run's files into its folder, all of them or none."""
    if any(Path(name).name != name or name.startswith(".") for name in files):
        raise UsageError("A worker sent a file whose name leads out of its folder; nothing was written.")
    with atomic_folder(folder) as staging:
        for name, content in files.items():
            write_bytes(staging / name, content)
