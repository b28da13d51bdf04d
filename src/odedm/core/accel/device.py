"""What matters about a device: whether it is slow at starting operations, and what is said when its memory is full."""

from __future__ import annotations

from contextlib import AbstractContextManager, ContextDecorator, nullcontext

import torch

from odedm.core.errors import UsageError, is_out_of_memory

FOR_A_RUN = (
    "Run fewer at once (--workers), or lower batch, draw, capacity (--batch …) or the net's width. A command given "
    "again goes on."
)
FOR_CALLS = "Give fewer rows at once, a smaller capacity or network, or more memory."


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


class enough_memory(ContextDecorator):
    """Inside the block, or the function that it decorates, a lack of memory, of a GPU or the machine, is a sentence."""

    # a class, for a learner enters it for each prediction: a generator takes longer

    def __init__(self, advice: str = FOR_CALLS) -> None:
        self._advice = advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, RuntimeError | MemoryError) or not is_out_of_memory(error):
            return
        where = "The GPU" if isinstance(error, torch.OutOfMemoryError) else "This machine"
        message = (str(error).splitlines() or ["none at all."])[0].rpartition("can't allocate memory: ")[2].rstrip(".")
        raise UsageError(f"{where} has no memory left: {message}. {self._advice}") from None
