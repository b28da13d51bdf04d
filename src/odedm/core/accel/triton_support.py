"""Whether kernels of our own, written in Triton, work on a device."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch

log = logging.getLogger(__name__)


@cache
def has_kernels(module: str, device: torch.device) -> bool:
    """Return whether a module's kernels work on a device, by its `trial`: Triton needs a compiler of the system.

    Without them torch's own operations do the same, more slowly.

    >>> has_kernels("odedm.nets.grouped_batch_norm_triton", torch.device("cpu"))
    False
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    try:
        with torch.inference_mode(False):  # whoever asks first, a trial may need gradients
            import_module(module).trial(device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler may lack, work goes on without it
        log.warning("Triton cannot compile the kernels of %s here, so it will be slower: %s", module, error)
        return False
    return True
