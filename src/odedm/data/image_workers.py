"""Decodes many pictures on all cores: the parent's side of the workers in `pictures`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from odedm.core.errors import UsageError
from odedm.data.images import BadPicture, Fit, NotGrey, Place, Sums, as_source, decode_rows

CHUNK_PICTURES, CHUNK_BYTES = 256, 32 << 20
FEW = 600
"""So many small pictures are decoded here before workers have even started."""

Watch = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and how much there is in all."""


@dataclass(frozen=True)
class Shot:
    """One picture on its way: the row it goes to, its name, its bytes or path."""

    row: int
    name: str
    payload: bytes | Path


def cores() -> int:
    """How many cores this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_all(shots: Iterable[Shot], number: int, fit: Fit, place: Place, tell: Callable[[int], None]) -> Sums:
    """Decode `number` pictures into their rows of a file, several at once; the sums are over the rows to measure."""
    chunks = _chunks(shots)
    zero = Sums(0, (0,) * fit.channels, (0,) * fit.channels)
    workers = 1 if number <= FEW else min(cores(), -(-number // CHUNK_PICTURES))
    if workers == 1:
        total = zero
        for chunk in chunks:
            total += decode_rows(
                [shot.row for shot in chunk],
                [shot.name for shot in chunk],
                [as_source(shot.payload) for shot in chunk],
                fit,
                place,
            )
            tell(len(chunk))
        return total
    return _Crew(chunks, fit, place, tell, zero).work(workers)


def _chunks(shots: Iterable[Shot]) -> Iterator[list[Shot]]:
    rest = iter(shots)
    while chunk := list(islice(rest, 1)):
        weight = 0
        while len(chunk) < CHUNK_PICTURES and weight < CHUNK_BYTES:
            more = list(islice(rest, 1))
            if not more:
                break
            chunk += more
            weight += len(more[0].payload) if isinstance(more[0].payload, bytes) else 0
        yield chunk


class _Crew:
    """Threads that hand chunks to worker processes; the first error stops all of them."""

    def __init__(
        self, chunks: Iterator[list[Shot]], fit: Fit, place: Place, tell: Callable[[int], None], zero: Sums
    ) -> None:
        self.chunks, self.fit, self.place, self.tell, self.total = chunks, fit, place, tell, zero
        self.lock = threading.Lock()
        self.error: BaseException | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def work(self, number: int) -> Sums:
        try:
            self.workers = [_start() for _ in range(number)]
            threads = [threading.Thread(target=self._drive, args=(worker,), daemon=True) for worker in self.workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            for worker in self.workers:
                worker.kill()  # idle, or no longer wanted: what they wrote is either whole or thrown away
                worker.wait()
                for stream in (worker.stdin, worker.stdout):
                    _close(stream)
        if self.error:
            raise self.error
        return self.total

    def _drive(self, worker: subprocess.Popen[bytes]) -> None:
        try:
            while chunk := self._next():
                found = _ask(worker, chunk, self.fit, self.place)
                with self.lock:
                    self.total += found
                    self.tell(len(chunk))
        except BaseException as error:  # carried over to the thread that waits, and raised there
            with self.lock:
                self.error = self.error or error

    def _next(self) -> list[Shot] | None:
        with self.lock:
            return None if self.error else next(self.chunks, None)


def _start() -> subprocess.Popen[bytes]:
    """A worker of this very installation. Not by `multiprocessing`: that would run a caller's script again."""
    places = os.pathsep.join(place for place in sys.path if place)
    return subprocess.Popen(
        [sys.executable, "-m", "odedm.data.images"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": places},
    )


def _close(stream: IO[bytes] | None) -> None:
    try:
        if stream:
            stream.close()
    except OSError:
        pass  # its reader is gone; nothing of it is needed any more


def _ask(worker: subprocess.Popen[bytes], chunk: Sequence[Shot], fit: Fit, place: Place) -> Sums:
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker without pipes")
    paths = [str(shot.payload) for shot in chunk if isinstance(shot.payload, Path)]
    blobs = [shot.payload for shot in chunk if isinstance(shot.payload, bytes)]
    job = {
        "rows": [shot.row for shot in chunk],
        "names": [shot.name for shot in chunk],
        "paths": paths,
        "sizes": [len(blob) for blob in blobs],
        "fit": asdict(fit),
        "place": asdict(place),
    }
    try:
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.writelines(blobs)
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
    if "bad" in answer:
        raise (BadPicture if answer["grey"] else NotGrey)(answer["bad"])
    if "system" in answer:
        raise OSError(answer["errno"], answer["system"])
    found = answer["sums"]
    return Sums(found["pixels"], tuple(found["total"]), tuple(found["squares"]))
