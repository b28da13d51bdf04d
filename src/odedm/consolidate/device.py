"""What a device is slow at decides how work is laid out, never what comes out."""

from __future__ import annotations

import torch


def launch_bound(device: torch.device) -> bool:
    """Whether starting an operation, and reading a number back, costs more than most operations themselves.

    So it is on a GPU: there all classes go through one batch of padded arrays, and convergence is looked at every few
    iterations. A processor takes one class after the other, without padding, and looks at every iteration.

    >>> launch_bound(torch.device("cpu"))
    False
    """
    return device.type != "cpu"
