"""Sets how a run computes, whatever its caller has set: precision and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from odedm.nets.base import Net

AUTOCAST = ("cpu", "cuda")
HAS_CUDNN = torch.backends.cudnn.is_available()


class _Holding:
    """A block that holds a lock, which goes back also where an interrupt keeps `__exit__` from it."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._held = lock, False

    def __enter__(self) -> None:
        self._held = self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._held:
            # in one line: an interrupt comes before both or after both
            self._held = self._lock.release() is not None

    def __del__(self) -> None:
        self._release()


class ProcessNumerics:
    """What torch keeps once for all threads: settled while any block computes, then as the caller had it.

    If each thread put back what it found, one would put back what another had settled, and the caller's were lost.
    """

    def __init__(self) -> None:
        # a trace that keeps this block's end from its lock keeps the lock, too, until it is gone: this thread goes on
        self._lock = threading.RLock()
        self._open: dict[int, bool] = {}
        """Whether products may be rounded in each open block; the last one's word counts."""
        self._before: tuple[torch.dtype, str, AbstractContextManager[object] | None] | None = None

    def begin(self, block: int, rounds: bool) -> None:
        """Begin a block."""
        with _Holding(self._lock):
            if self._before is None:
                self._before = torch.get_default_dtype(), torch.get_float32_matmul_precision(), _cudnn(rounds)
                dtype, products, flags = self._before
                if flags is not None:
                    flags.__enter__()
                if dtype is not torch.float32:
                    torch.set_default_dtype(torch.float32)
                if products != "highest":
                    torch.set_float32_matmul_precision("highest")
            elif HAS_CUDNN:
                torch.backends.cudnn.allow_tf32 = rounds
            self._open[block] = rounds

    def end(self, block: int) -> None:
        """End a block; nothing happens where it has ended."""
        with _Holding(self._lock):
            self._open.pop(block, None)
            if self._before is None:
                return
            if self._open:
                if HAS_CUDNN:
                    torch.backends.cudnn.allow_tf32 = next(reversed(self._open.values()))
                return
            dtype, products, flags = self._before
            if dtype is not torch.float32:
                torch.set_default_dtype(dtype)
            if products != "highest":
                torch.set_float32_matmul_precision(products)
            if flags is not None:
                flags.__exit__(None, None, None)
            self._before = None


def _cudnn(rounds: bool) -> AbstractContextManager[object] | None:
    if not HAS_CUDNN:
        return None
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


class deterministic_numerics:
    """Compute the same way whatever the caller has set, and put that back afterwards.

    Threads, precision and cuDNN's choice of algorithms change the last digits or more, so they are fixed for the whole
    process; gradients, which are on unless told, and autocast are set for this thread. A forked child computes on one
    thread: torch waits there for ever for threads that only its parent has.
    """

    # a class, for a learner enters it for each prediction: a generator takes twice the time

    _is_open = False
    _stack: ExitStack | None = None

    def __init__(self, threads: int, precision: str = "fp32", *, gradients: bool = True) -> None:
        self._threads, self._rounds, self._gradients = 1 if _forked else threads, precision != "fp32", gradients

    def __enter__(self) -> None:
        self._threads_before, self._gradients_before = torch.get_num_threads(), torch.is_grad_enabled()
        self._process, self._is_open = _process, True
        try:
            if self._threads != self._threads_before:
                torch.set_num_threads(self._threads)
            self._process.begin(id(self), self._rounds)
            if torch.is_inference_mode_enabled() or torch._C._is_any_autocast_enabled():  # of each device it takes long
                self._stack = ExitStack()
                self._stack.enter_context(torch.inference_mode(False))
                for device in AUTOCAST:
                    self._stack.enter_context(torch.autocast(device, enabled=False))
            torch._C._set_grad_enabled(self._gradients)
        except BaseException:
            self._close()
            raise

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        """Put back what the caller had; a second call goes on where an interrupt has ended the first."""
        if self._stack is not None:
            stack, self._stack = self._stack, None
            stack.__exit__(None, None, None)
        torch._C._set_grad_enabled(self._gradients_before)
        self._process.end(id(self))
        if torch.get_num_threads() != self._threads_before:
            torch.set_num_threads(self._threads_before)
        self._is_open = False

    def __del__(self) -> None:
        if self._is_open:  # an interrupt came before `__exit__` was reached, or in the midst of it
            self._close()


def set_precision(net: Net, precision: str, *, second_order: bool) -> Net:
    """Return a net that computes in a precision, its weights laid out as its device likes them.

    A method that takes the weights as one vector keeps them in their usual order.
    """
    net.compute = torch.bfloat16 if precision == "bf16" else None
    if next(net.parameters()).is_cuda and not second_order:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return what waits for the work that this thread has given to the device; other runs' work is not waited for."""
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.current_stream(device).synchronize()
