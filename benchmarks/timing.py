"""Time a step: milliseconds of a call, and the same step recorded as a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from odedm.training.numerics import deterministic_numerics


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """Return a step as a CUDA graph that is replayed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with deterministic_numerics(1, "tf32"), torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with deterministic_numerics(1, "tf32"), torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(step: Callable[[], None], steps: int) -> float:
    """Return the milliseconds of a call, the mean of some after five that do not count."""

    def synchronize() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    with deterministic_numerics(1, "tf32"):
        for _ in range(5):
            step()
        synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
    return 1e3 * (time.perf_counter() - start) / steps
