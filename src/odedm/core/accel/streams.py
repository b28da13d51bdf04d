"""Streams of a GPU: one for each run, and others beside it for work that need not wait for what comes after it.

VR-MCL's step takes 1.5 to 1.7 times as long without `SideStream` (ResNet-18 on an H200, commit b1acfb6).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored

_idle: dict[torch.device, list[torch.cuda.Stream]] = {}
_made: set[int] = set()
_taking = threading.Lock()


@contextmanager
def run_stream(device: torch.device) -> Iterator[None]:
    """Send the block's work on a GPU to a stream of its own: only such a one can be recorded."""
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


def _take_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream that no other run has: torch hands out 32 in turn, and two runs on one would record each other.

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
    raise UsageError("A GPU has streams for 32 runs at once. Use fewer lanes (--workers).")


@stored("side-stream")
class SideStream:
    """A stream for work that the current one does not wait for until `join`; on other devices work is done in turn.

    Inside the block work goes to the side. It begins when all is done that the current stream was given before, so what
    is made there may be used here after `join`, and may be let go of here: the next block waits for that. Recordings
    hold such forks too. Whatever layers keep between launches must exist once for each stream.

    >>> side = SideStream(torch.device("cpu"))
    >>> with side():
    ...     x = torch.ones(2)
    >>> side.join()
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.active = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Work inside the block is done beside what follows it."""
        self.active = True
        try:
            if self.stream is None:
                yield
                return
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            with torch.cuda.stream(self.stream):
                yield
        finally:
            self.active = False

    def join(self) -> None:
        """Let what the current stream is given from now on wait for the side."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
