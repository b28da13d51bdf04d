"""Sets how a run computes, whatever its caller has set: precision and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

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
def deterministic_numerics(threads: int, precision: str = "fp32") -> Iterator[None]:
    """The same, and what is set for each thread by itself: gradients and autocast."""
    with (
        process_numerics(threads, precision),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


def set_precision(net: Net, precision: str, *, second_order: bool) -> Net:
    """A net that computes in a precision, its weights laid out as its device likes them.

    A method that takes the weights as one vector keeps them in their usual order.
    """
    net.compute = torch.bfloat16 if precision == "bf16" else None
    if next(net.parameters()).is_cuda and not second_order:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def settle(device: torch.device) -> Callable[[], None]:
    """What waits for the work that this thread has given to the device; other runs' work is not waited for."""
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.current_stream(device).synchronize()
