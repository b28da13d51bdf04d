"""Makes a data set of features: every row once through a network, in shards that outlive a kill, here or by workers."""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.plain_data import json_hash
from odedm.core.processes import cores
from odedm.core.validators import Bool, Choice, Int, Text, validate_params
from odedm.data import cache
from odedm.data.contents import LabelledArrays, OnProgress
from odedm.data.images import Array
from odedm.data.importer import data_folder, import_arrays, no_progress
from odedm.data.opening import load_dataset
from odedm.execute.backend import Backend, ExecutionConfig, ray_backend
from odedm.execute.job import Done, Failed, WorkerLost
from odedm.execute.process_backend import ProcessBackend
from odedm.execute.shard_job import FEATURES, Embedding, ShardJob, write_shard
from odedm.stream.dataset import Dataset, from_arrays
from odedm.training.embedder import Embedder, Source, embed_rows, embedder_of, find_net, source_of
from odedm.training.preparation import resolve_device

SHARD = 1024
"""Rows of one shard: what a kill can lose."""
TICK = 0.2


@validate_params(name=Text(), weights=Text(), size=Int(1), batch=Int(1), overwrite=Bool())
def embed(
    data: Any,
    net: Any,
    *,
    name: str | None = None,
    test: tuple[Any, Any] | None = None,
    weights: str = "",
    size: int | None = None,
    batch: int = 64,
    device: str = "auto",
    overwrite: bool = False,
    execution: ExecutionConfig | None = None,
    on_progress: OnProgress = no_progress,
) -> Dataset:
    """Return a data set of the features that a network makes of another one's rows, each computed once.

    Args:
        data: a data set, a name or a path; or a pair of rows and labels, texts for example, and `test` another one.
        net: "timm:NAME", "torchvision:NAME" or a name in `odedm list nets`: what enters its last layer are the
            features. "sentence-transformers:NAME" for texts. An `nn.Module` or a function gives features itself: a
            module of images scaled to 0..1, a function of rows as they are, a tensor or a list of texts; "file.py:NAME"
            is one of these in a file.
        name: stores the data set under it, whence it is opened and mapped: a call that was killed goes on where it was,
            one that is made again finds it. None keeps it in memory.
        weights: a safetensors file, or "pretrained" for what the library loads, perhaps from the network.
        size: makes images [c, size, size], unless the network says it.
        batch: rows at once.
        device: where to compute: "auto", "cpu" or "cuda".
        overwrite: replaces a stored data set of that name.
        execution: `ExecutionConfig(workers=4)` embeds shards in as many processes, `ExecutionConfig(backend="ray")` as
            tasks of Ray; data and network are then given by name. This process alone unless given.
        on_progress: is called with what is going on, how much of it is done, and how much there is in all.

    Returns:
        The data set, of vectors.

    >>> from odedm import shapes
    >>> embed(shapes(), lambda image: image.float().mean((2, 3))).shape
    (3,)
    """
    execution = execution or ExecutionConfig()
    device = Choice("device", {"cpu": None, "cuda": None}, also=("auto",)).validate("device", device)
    where = execution.device(device) if execution.is_remote else resolve_device(device).type
    source, call = source_of(data, test, on_progress), find_net(net)
    embedder = embedder_of(call, source.shape, weights, size, resolve_device("cpu" if execution.is_remote else where))
    if name is None:
        train, tests = (embed_rows(embedder, rows, batch) for rows in source.parts)
        test_part = (tests, np.array(source.test_label))
        words: dict[str, Any] = {"class_names": source.class_names, "tasks": source.tasks, "name": "features"}
        return from_arrays(train, np.array(source.label), test=test_part, **words)
    origin = {**embedder.origin, "data": source.name, "rows": source.checksum}
    cache.check_name(name)
    if cache.is_cached(name) and not overwrite:
        if cache.load_manifest(name).embedding == origin:
            return load_dataset(name)
        raise UsageError(f"There is a data set '{name}' already, of other rows or another network; give another name, "
                         "or overwrite=True (--overwrite) to replace it.")  # fmt: skip
    folder = data_folder(f".embedding-{json_hash([origin, batch])}")
    threads = max(1, cores() // (execution.workers or 1))
    data_name = "" if source.shape is None else source.name
    plan = Embedding(data_name, source.checksum, str(net), weights, size, batch, where, threads, embedder.origin)
    jobs = _shards(source, plan, folder)
    if execution.is_remote or (execution.workers or 1) > 1:
        _check_portable(net, source)
        _embed_by_workers(jobs, execution, on_progress)
    else:
        _embed_here(jobs, embedder, source, on_progress)
    contents = LabelledArrays(
        "features", source.class_names, *_column(jobs, 0, source.label), *_column(jobs, 1, source.test_label)
    )
    title = f"{source.name} by {embedder.origin['net']}"
    import_arrays(contents, name, source=title, embedding=origin, tasks=source.tasks, on_progress=on_progress)
    shutil.rmtree(folder, ignore_errors=True)
    return load_dataset(name)


def _shards(source: Source, plan: Embedding, folder: Path) -> list[ShardJob]:
    """Return the jobs for all rows, in order."""
    jobs = []
    for part, rows in enumerate(source.parts):
        for start in range(0, len(rows), SHARD):
            stop, key = min(start + SHARD, len(rows)), f"{part}-{start}"
            texts = rows[start:stop] if isinstance(rows, list) else ()
            jobs.append(ShardJob(key, folder / key, plan, part, start, stop, texts))
    return jobs


def _embed_here(jobs: Sequence[ShardJob], embedder: Embedder, source: Source, on_progress: OnProgress) -> None:
    """Compute what is missing, one shard after the other, with all of torch's threads."""
    total = sum(job.stop - job.start for job in jobs)
    done = 0
    for job in jobs:
        on_progress("embedding", done, total)
        if not _is_done(job):
            write_shard(
                job.folder, embed_rows(embedder, source.parts[job.part][job.start : job.stop], job.embedding.batch)
            )
        done += job.stop - job.start
    on_progress("embedding", total, total)


def _embed_by_workers(jobs: Sequence[ShardJob], execution: ExecutionConfig, on_progress: OnProgress) -> None:
    """Have what is missing computed; a shard whose worker dies is computed by another, a few times."""
    waiting = deque(job for job in jobs if not _is_done(job))
    total = sum(job.stop - job.start for job in jobs)
    left = sum(job.stop - job.start for job in waiting)
    on_progress("embedding", total - left, total)
    if not waiting:
        return
    workers = min(execution.workers or len(waiting), len(waiting))
    backend: Backend = ray_backend(execution, len(waiting)) if execution.is_remote else ProcessBackend(workers)
    running: dict[str, ShardJob] = {}
    losses: Counter[str] = Counter()
    try:
        while waiting or running:
            while waiting and backend.has_room():
                running[waiting[0].key] = waiting[0]
                backend.start(waiting.popleft())
            for event in backend.events(TICK):
                if isinstance(event, Failed):
                    raise UsageError(event.error)
                if isinstance(event, Done):
                    job = running.pop(event.key)
                    left -= job.stop - job.start
                    on_progress("embedding", total - left, total)
                elif isinstance(event, WorkerLost):
                    losses[event.key] += 1
                    if losses[event.key] >= backend.tries:
                        raise UsageError(f"In {backend.tries} tries {event.error}. Shards that are done are kept.")
                    waiting.appendleft(running.pop(event.key))
    finally:
        backend.close()


def _check_portable(net: Any, source: Source) -> None:
    """Refuse what other processes cannot find: they open data and networks by their names."""
    if not isinstance(net, str):
        raise UsageError(
            "Workers find a network by its name, or as 'file.py:NAME'; an object was given. Give a name, or leave out "
            "workers and backend."
        )
    if source.shape is not None and load_dataset(source.name).checksum != source.checksum:
        raise UsageError(
            f"Workers open data by their name, and '{source.name}' is not these rows. Import them (odedm data import) "
            "and give that name, or leave out workers and backend."
        )


def _is_done(job: ShardJob) -> bool:
    return (job.folder / FEATURES).is_file()


def _column(jobs: Sequence[ShardJob], part: int, label: Array) -> tuple[Array, Array]:
    """Return the features of a part, in one file that is mapped, with its labels."""
    shards = [job for job in jobs if job.part == part]
    width = np.load(shards[0].folder / FEATURES, mmap_mode="r").shape[1]
    file: Path = shards[0].folder.with_name(f"{part}.npy")
    column = np.lib.format.open_memmap(file, "w+", np.float32, (shards[-1].stop, width))
    for job in shards:
        column[job.start : job.stop] = np.load(job.folder / FEATURES)
    return column, label
