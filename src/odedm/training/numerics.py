"""Sets how a run computes, whatever its caller has set: precision and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

from odedm.nets.base import Net

AUTOCAST = ("cpu", "cuda")
HAS_CUDNN = torch.backends.cudnn.is_available()


class ProcessNumerics:
    """What torch keeps once for all threads: settled while any of them computes, then as the caller had it.

    If each thread put back what it found, one would put back what another had settled, and the caller's were lost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[bool] = []
        """Whether products may be rounded in each block that is open; the last one's word counts."""
        self._before: tuple[torch.dtype, str, AbstractContextManager[object]] | None = None

    def settle(self, rounds: bool) -> None:
        """Begin a block."""
        with self._lock:
            if self._before is None:
                flags = _cudnn(rounds) if HAS_CUDNN else nullcontext()
                self._before = torch.get_default_dtype(), torch.get_float32_matmul_precision(), flags
                flags.__enter__()
                if self._before[0] is not torch.float32:
                    torch.set_default_dtype(torch.float32)
                torch.set_float32_matmul_precision("highest")
            elif rounds != self._open[-1]:
                torch.backends.cudnn.allow_tf32 = rounds
            self._open.append(rounds)

    def put_back(self, rounds: bool) -> None:
        """End a block."""
        with self._lock:
            last = self._open[-1]
            self._open.remove(rounds)
            if self._open:
                if self._open[-1] != last:
                    torch.backends.cudnn.allow_tf32 = self._open[-1]
                return
            assert self._before is not None
            (dtype, products, flags), self._before = self._before, None
            if dtype is not torch.float32:
                torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(products)
            flags.__exit__(None, None, None)


def _cudnn(rounds: bool) -> AbstractContextManager[object]:
    flags: AbstractContextManager[object] = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=rounds
    )
    return flags


_process = ProcessNumerics()
_forked = False


def _after_fork() -> None:
    """Begin anew in a child process: of the threads of its parent, and of their locks, nothing is left."""
    global _process, _forked
    _process, _forked = ProcessNumerics(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class process_numerics:
    """Compute the same way whatever the caller has set, as far as that is set for the whole process.

    Threads, precision and cuDNN's choice of algorithms change the last digits or more, so they are fixed here, and put
    back as they were afterwards. A forked child computes on one thread: torch waits there for ever for threads that
    only its parent has.
    """

    # a class, for a learner enters it for each prediction: a generator takes twice the time

    def __init__(self, threads: int, precision: str = "fp32") -> None:
        self._threads, self._rounds = 1 if _forked else threads, precision != "fp32"

    def __enter__(self) -> None:
        self._before, self._process = torch.get_num_threads(), _process
        if self._threads != self._before:
            torch.set_num_threads(self._threads)
        self._process.settle(self._rounds)

    def __exit__(self, *_error: object) -> None:
        self._process.put_back(self._rounds)
        if torch.get_num_threads() != self._before:
            torch.set_num_threads(self._before)


class deterministic_numerics(process_numerics):
    """The same, and what is set for each thread by itself: gradients and autocast."""

    def __enter__(self) -> None:
        super().__enter__()
        self._own = ExitStack()
        if torch.is_inference_mode_enabled():
            self._own.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            self._own.enter_context(torch.enable_grad())
        for device in AUTOCAST:
            if torch.is_autocast_enabled(device):
                self._own.enter_context(torch.autocast(device, enabled=False))

    def __exit__(self, *error: Any) -> None:
        try:
            self._own.__exit__(*error)
        finally:
            super().__exit__(*error)


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
