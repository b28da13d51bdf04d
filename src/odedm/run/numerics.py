"""How a run computes, whatever its caller has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_numerics(threads: int) -> Iterator[None]:
    """Compute the same way whatever the caller has set: threads, gradients, precision, cuDNN's choice of algorithms.

    All of it changes the last digits or more, so all of it is fixed here, and put back as it was afterwards.
    """
    before, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(before)
