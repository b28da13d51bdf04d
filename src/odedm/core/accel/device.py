"""What matters about a device: whether it is slow at starting operations, and what is said when its memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from odedm.core.errors import UsageError

NO_MEMORY = ("can't allocate memory", "Storage size calculation overflowed")
"""How torch says on a CPU, where it has no error of its own for it, that there is not so much memory."""


def launch_bound(device: torch.device) -> bool:
    """Return whether starting an operation, and reading a number back, costs more than most operations themselves.

    So it is on a GPU: there all classes go through one batch of padded arrays, and convergence is looked at every few
    iterations. A processor takes one class after the other, without padding, and looks at every iteration.

    >>> launch_bound(torch.device("cpu"))
    False
    """
    return device.type != "cpu"


def inference_mode_on_gpu(device: torch.device) -> AbstractContextManager[object]:
    """Start the block's operations with less ado, where starting is what costs; the numbers are the same.

    What is made in it must be copied before it is changed or learned from outside. It holds for its thread alone, so
    a processor, which shares work among threads, does without.

    >>> with torch.no_grad(), inference_mode_on_gpu(torch.device("cpu")):
    ...     torch.ones(1).is_inference(), torch.is_grad_enabled()
    (False, False)
    """
    return torch.inference_mode() if launch_bound(device) else nullcontext()


@contextmanager
def enough_memory() -> Iterator[None]:
    """Inside the block a lack of memory, of a GPU or of the machine, is a sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        gpu, message = isinstance(error, torch.OutOfMemoryError), (str(error).splitlines() or ["none at all."])[0]
        if not gpu and not isinstance(error, MemoryError) and not any(words in message for words in NO_MEMORY):
            raise
        message = message.rpartition("can't allocate memory: ")[2]
        raise UsageError(
            f"{'The GPU' if gpu else 'This machine'} has no memory left for this run: {message} Run fewer at once "
            "(--workers), or lower batch, draw, capacity (--batch …) or the net's width. A command given again goes on."
        ) from None
