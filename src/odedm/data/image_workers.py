"""Decodes many pictures on all cores: hands them to worker processes, each of which runs `odedm.data.images`."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from subprocess import Popen
from threading import Lock

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.processes import cores, start_program
from odedm.data.images import Array, BadPicture, EncodedImage, Fit, NotGrey, Place, decode_rows

CHUNK_PICTURES, CHUNK_BYTES = 256, 32 << 20
FEW = 600
"""So many small pictures are decoded here before workers have even started."""

Watch = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and how much there is in all."""
Worker = Popen[bytes]
ERRORS: dict[str, type[Exception]] = {"BadPicture": BadPicture, "NotGrey": NotGrey, "OSError": OSError}
"""What a worker may answer with."""


def decode_all(
    images: Iterable[EncodedImage], number: int, fit: Fit, place: Place, tell: Callable[[int], None]
) -> Array:
    """Decode `number` pictures into their rows of a file, several at once; the `sums` are over the rows to measure."""
    total = np.zeros((2, fit.channels), np.int64)
    chunks, lock = _chunks(images), Lock()

    def take() -> list[EncodedImage] | None:
        with lock:
            return next(chunks, None)

    def work(decode: Callable[[list[EncodedImage]], Array]) -> None:
        nonlocal total
        try:
            while chunk := take():
                found = decode(chunk)
                with lock:
                    total += found
                    tell(len(chunk))
        except BaseException:
            with lock:
                chunks.close()  # the other threads find nothing more to do
            raise

    workers = 1 if number <= FEW else min(cores(), -(-number // CHUNK_PICTURES))
    if workers == 1:
        work(partial(decode_rows, fit=fit, place=place))
    else:
        _in_workers(workers, lambda worker: work(partial(_ask, worker, fit=fit, place=place)))
    return total


def _chunks(images: Iterable[EncodedImage]) -> Generator[list[EncodedImage]]:
    chunk: list[EncodedImage] = []
    weight = 0
    for image in images:
        chunk.append(image)
        weight += len(image.content) if isinstance(image.content, bytes) else 0
        if len(chunk) >= CHUNK_PICTURES or weight >= CHUNK_BYTES:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def _in_workers(number: int, work: Callable[[Worker], None]) -> None:
    """Run `work` with so many worker processes at once, each in a thread of its own."""
    workers: list[Worker] = []
    with ThreadPoolExecutor(number) as threads:
        try:
            for _ in range(number):
                workers.append(start_program("odedm.data.images"))
            list(threads.map(work, workers))
        finally:
            for worker in workers:
                worker.kill()  # idle, or no longer wanted: what they wrote is either whole or thrown away
                with suppress(OSError):  # its reader is gone; nothing of it is needed any more
                    worker.communicate()


def _ask(worker: Worker, chunk: list[EncodedImage], fit: Fit, place: Place) -> Array:
    """The sums of a chunk that a worker has decoded and written."""
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker without pipes")
    contents = [image.content for image in chunk if isinstance(image.content, bytes)]
    images = [
        (image.row, image.name, len(image.content) if isinstance(image.content, bytes) else str(image.content))
        for image in chunk
    ]
    try:
        job = {"images": images, "fit": asdict(fit), "place": asdict(place)}
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.writelines(contents)
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        line = b""
    if not line:
        raise UsageError(
            f"A worker died while it decoded one of {len(chunk)} pictures from '{chunk[0].name}' to "
            f"'{chunk[-1].name}': a broken picture, or too little memory."
        )
    answer = json.loads(line)
    if "error" in answer:
        raise ERRORS[answer["error"]](*answer["details"])
    return np.array(answer["sums"])
