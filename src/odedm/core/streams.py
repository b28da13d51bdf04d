"""Streams of a GPU: one for each run, and one beside it for work that need not wait for what comes after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch

from odedm.core.errors import UsageError

_idle: dict[torch.device, list[torch.cuda.Stream]] = {}
_sides: dict[tuple[torch.device, int], torch.cuda.Stream] = {}
_made: set[int] = set()
_taking = threading.Lock()


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """On a GPU, work inside the block goes to a stream of its own: only such a one can be recorded."""
    if device.type != "cuda":
        yield
        return
    outer, inner = torch.cuda.current_stream(device), _take_stream(device)
    inner.wait_stream(outer)
    try:
        with torch.cuda.stream(inner):
            yield
    finally:
        outer.wait_stream(inner)
        _idle.setdefault(device, []).append(inner)


class Aside:
    """A block whose work a GPU does beside what is asked after it, until `join`; elsewhere nothing changes.

    What is made in the block may be used after `join`, and must not be kept for another step: the next block, which
    waits for all that was asked before it, takes its memory again. It can be recorded.

    >>> with Aside(torch.device("cpu")) as aside:
    ...     past = torch.ones(1)
    >>> now = torch.zeros(1)
    >>> aside.join()
    >>> (past + now).item()
    1.0
    """

    def __init__(self, device: torch.device) -> None:
        self._block: torch.cuda.StreamContext | None = None
        if device.type == "cuda":
            self._outer = torch.cuda.current_stream(device)
            self._inner = _stream_aside(device, self._outer)
            self._block = torch.cuda.stream(self._inner)

    def __enter__(self) -> Aside:
        if self._block is not None:
            self._inner.wait_stream(self._outer)
            self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            self._block.__exit__(kind, error, trace)
            if error is not None:
                self.join()

    def join(self) -> None:
        """Let what is asked from here on wait for the block's work."""
        if self._block is not None:
            self._outer.wait_stream(self._inner)


def _stream_aside(device: torch.device, outer: torch.cuda.Stream) -> torch.cuda.Stream:
    """Always the same one beside the same stream, and no other run's."""
    kind = device, outer.cuda_stream
    if kind not in _sides:
        _sides[kind] = _take_stream(device)
    return _sides[kind]


def _take_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that no other run has: torch hands out 32 in turn, and two runs on one would record each other.

    One that an earlier run has left comes first: torch keeps freed memory by stream, and each new one would add to it.
    """
    with _taking:
        if _idle.get(device):
            return _idle[device].pop()
        for _ in range(64):
            stream = torch.cuda.Stream(device)
            if stream.cuda_stream not in _made:
                _made.add(stream.cuda_stream)
                return stream
    raise UsageError("A GPU has streams for 32 runs at once. Use fewer lanes (--lanes).")
