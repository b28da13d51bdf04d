"""Sets how a run computes, whatever its caller has set: precision, threads, streams of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from odedm.core.errors import UsageError
from odedm.nets.base import Net


@contextmanager
def process_numerics(threads: int, precision: str = "fp32") -> Iterator[None]:
    """Compute the same way whatever the caller has set, as far as that is set for the whole process.

    Threads, precision and cuDNN's choice of algorithms change the last digits or more, so they are fixed here, and put
    back as they were afterwards.
    """
    before, dtype = torch.get_num_threads(), torch.get_default_dtype()
    products = torch.get_float32_matmul_precision()
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    rounds = precision != "fp32"
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=rounds):
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(before)


@contextmanager
def own_numerics(threads: int, precision: str = "fp32") -> Iterator[None]:
    """The same, and what is set for each thread by itself: gradients and autocast."""
    with (
        process_numerics(threads, precision),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


def arranged(net: Net, precision: str, *, exacting: bool) -> Net:
    """A net that computes in a precision, its weights laid out as its device likes them.

    A method that takes the weights as one vector keeps them in their usual order.
    """
    net.compute = torch.bfloat16 if precision == "bf16" else None
    if next(net.parameters()).is_cuda and not exacting:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


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


_idle: dict[torch.device, list[torch.cuda.Stream]] = {}
_made: set[int] = set()
_taking = threading.Lock()


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


def settle(device: torch.device) -> Callable[[], None]:
    """What waits for the work that this thread has given to the device; other runs' work is not waited for."""
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.current_stream(device).synchronize()
