"""Tells whether a device is slow at starting operations, by which work is laid out in larger or smaller pieces."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def launch_bound(device: torch.device) -> bool:
    """Whether starting an operation, and reading a number back, costs more than most operations themselves.

    So it is on a GPU: there all classes go through one batch of padded arrays, and convergence is looked at every few
    iterations. A processor takes one class after the other, without padding, and looks at every iteration.

    >>> launch_bound(torch.device("cpu"))
    False
    """
    return device.type != "cpu"


def quick(device: torch.device) -> AbstractContextManager[object]:
    """A block in which an operation is started with less ado, where starting is what costs; the numbers are the same.

    What is made in it must be copied before it is changed or learned from outside. It holds for its thread alone, so
    a processor, which shares work among threads, does without.

    >>> with torch.no_grad(), quick(torch.device("cpu")):
    ...     torch.ones(1).is_inference(), torch.is_grad_enabled()
    (False, False)
    """
    return torch.inference_mode() if launch_bound(device) else nullcontext()
