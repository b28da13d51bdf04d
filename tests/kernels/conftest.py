"""Kernels on a CPU by Triton's interpreter: every access is checked, and memory that nobody wrote holds NaN.

Triton reads TRITON_INTERPRET when it is imported, so these files are collected only where it is set:
`TRITON_INTERPRET=1 pytest tests/kernels`. `test_interpreter.py` does that in a process of its own, so that no other
test of the suite meets an interpreted kernel.
"""

import os

import numpy as np
import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = ["test_interpreter.py"] if INTERPRETED else ["test_*_kernels.py"]

ACCESSES = {"create_masked_load": (0, 1), "create_masked_store": (0, 2), "create_atomic_rmw": (1, 3)}
"""What reads or writes memory, and at which places it takes its pointers and its mask."""


def _extent(tensor):
    """The first byte of a tensor and the first one after it."""
    if tensor.numel() == 0:
        return 0, 0
    entries = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + entries * tensor.element_size()


def _checked(access, places, arguments):
    """An access of the interpreter that fails where an address lies in none of the kernel's tensors."""

    def run(*given):
        pointers, mask = (given[place] for place in places)
        active = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        addresses = pointers.data[active].astype(np.uint64)
        inside = np.zeros(addresses.shape, dtype=bool)
        for low, high in map(_extent, arguments):
            inside |= (addresses >= low) & (addresses < high)
        assert inside.all(), f"{access.__name__}: {(~inside).sum()} of {inside.size} addresses lie outside the tensors"
        return access(*given)

    return run


def _wide(data):
    """Numbers in bfloat16, which numpy holds as their bits, in float32."""
    return (data.astype(np.uint32) << 16).view(np.float32)


def _narrow(data):
    """Numbers in float32 as the bits of bfloat16, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(data).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(data), np.uint16(0x7FC0), rounded)


def _with_bfloat16(monkeypatch, interpreter):
    """Let the interpreter compute in bfloat16: Triton 3.9 multiplies the bits as integers and carries no rounding."""
    from triton import language as tl

    convert, dot = interpreter._convert_float, interpreter.InterpreterBuilder.create_dot

    def converted(data, source, target, rounding):
        if (source, target) == (tl.bfloat16, tl.float32):
            return _wide(data)
        return (
            _narrow(data) if (source, target) == (tl.float32, tl.bfloat16) else convert(data, source, target, rounding)
        )

    def multiplied(self, *given):
        sides = [
            interpreter.TensorHandle(_wide(side.data), tl.float32) if side.dtype.scalar == tl.bfloat16 else side
            for side in given[:2]
        ]
        return dot(self, *sides, *given[2:])

    monkeypatch.setattr(interpreter, "_convert_float", converted)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", multiplied)


@pytest.fixture(autouse=True)
def _checked_memory(monkeypatch):
    """Loads, stores and atomics stay inside the tensors that a kernel was given; `torch.empty` gives NaN."""
    from triton.runtime import interpreter

    arguments = []
    launch = interpreter.GridExecutor.__call__

    def launched(self, *given, **words):
        arguments[:] = [value for value in (*given, *words.values()) if isinstance(value, torch.Tensor)]
        return launch(self, *given, **words)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launched)
    for name, places in ACCESSES.items():
        access = getattr(interpreter.interpreter_builder, name)
        monkeypatch.setattr(interpreter.interpreter_builder, name, _checked(access, places, arguments))
    _with_bfloat16(monkeypatch, interpreter)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with np.errstate(all="ignore"):  # the interpreter computes by numpy, which warns of infinities
        yield
    torch.use_deterministic_algorithms(False)
