"""Records work of a GPU as CUDA graphs: what recordings of a process must heed; functions that record themselves."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from odedm.core.stored_names import stored

Result = TypeVar("Result")

CAPTURE_LOCK = threading.Lock()
"""Held while something is recorded, and wherever a recording is let go of.

Every graph enters itself with the device's default generator when it is recorded, and leaves it when it is freed. That
list is not made for threads: a lane that frees recordings while another records corrupts it, and the process dies of a
segmentation fault.
"""
EAGER = 2
"""Calls of a kind that run eagerly before one is recorded: what is made on first use is then there."""
MOST = 24
"""Recordings that a function keeps at most."""


def record(
    work: Callable[[], Result], pool: Any, generators: Iterable[torch.Generator] = ()
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record what some work asks of the GPU, without doing it; the graph, and what the work returned.

    The caller works on a stream of its own, which is the one that is recorded. `generators` are those that the work
    draws from; `pool` is the memory that recordings share which are replayed one after the other.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        if generator.device.type == "cuda":
            graph.register_generator_state(generator)
    with CAPTURE_LOCK, _no_garbage_collection():
        # thread_local: other runs go on in other threads of this process
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            result = work()
        except BaseException:
            with suppress(RuntimeError):  # the error that counts is the one that is on its way
                graph.capture_end()
            raise
        graph.capture_end()
    return graph, result


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect no garbage inside the block: it could be another graph, and freeing that would spoil a recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@stored("recorded")
class GraphedFunction:
    """A function of tensors, recorded once for each shape of its arguments that repeats, and replayed from then on.

    For parts of a step whose shapes are known only in the midst of it. Arguments are tensors, or data classes that hold
    tensors; all else in them counts for the shape. The function draws no random numbers and changes nothing. What a
    call returns is overwritten by the next. Nothing is recorded before `allowed` is set.

    >>> double = GraphedFunction(lambda x: (2 * x,))
    >>> double(torch.ones(2))
    (tensor([2., 2.]),)
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset(
        {"allowed", "replayed", "_seen", "_recordings", "_buffers", "_pool"}
    )

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self.function, self.allowed, self.replayed = function, False, 0
        self._seen: dict[Hashable, int] = {}
        self._recordings: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]] = {}
        self._buffers: dict[Hashable, Tensor] = {}
        self._pool: Any = None

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        """Return the function's value."""
        items = [item for argument in arguments for item in _values(argument).items()]
        tensors = [value for _, value in items if isinstance(value, Tensor)]
        if not (self.allowed and on_gpu(tensors[0])):
            return self.function(*arguments)
        kind = tuple((name, _kind(value)) for name, value in items)
        recording = self._recordings.pop(kind, None)
        if recording is None:
            self._seen[kind] = self._seen.get(kind, 0) + 1
            if self._seen[kind] <= EAGER:
                return self.function(*arguments)
            recording = self._record(arguments, tensors)
        self._recordings[kind] = recording  # at the end: the one that was not used for longest goes first
        graph, inputs, outputs = recording
        for buffer, tensor in zip(inputs, tensors, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        self.replayed += 1
        return outputs

    def _record(
        self, arguments: Sequence[Any], tensors: Sequence[Tensor]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]:
        with CAPTURE_LOCK:
            while len(self._recordings) >= MOST:
                self._recordings.pop(next(iter(self._recordings)))
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        inputs = [self._buffer(("in", i), tensor) for i, tensor in enumerate(tensors)]
        outputs = tuple(self._buffer(("out", i), out) for i, out in enumerate(self.function(*arguments)))
        rest = iter(inputs)
        held = [_with(argument, rest) for argument in arguments]

        def work() -> None:
            for buffer, out in zip(outputs, self.function(*held), strict=True):
                buffer.copy_(out)

        graph, _ = record(work, self._pool)
        return graph, inputs, outputs

    def _buffer(self, position: Hashable, like: Tensor) -> Tensor:
        """Return one buffer for all recordings with such a tensor in such a position: they are replayed in turn."""
        return self._buffers.setdefault((position, _kind(like)), like.detach().clone())

    def clear(self) -> None:
        """Let go of all recordings and their memory."""
        with CAPTURE_LOCK:
            self._recordings.clear()
            self._buffers.clear()
            self._seen.clear()
            self._pool = None


def on_gpu(tensor: Tensor) -> bool:
    """Return whether work on a tensor can be recorded."""
    return tensor.is_cuda


def _kind(value: Any) -> Hashable:
    """Return what a recording depends on: the shape of a tensor, anything else itself."""
    return (tuple(value.shape), str(value.dtype)) if isinstance(value, Tensor) else value


def _values(argument: Any) -> dict[str, Any]:
    """Return what an argument holds by name: a data class its fields, a tensor itself."""
    return {"": argument} if isinstance(argument, Tensor) else vars(argument)


def _with(argument: Any, tensors: Iterator[Tensor]) -> Any:
    """Return the argument with other tensors in the place of its own."""
    if isinstance(argument, Tensor):
        return next(tensors)
    names = [name for name, value in vars(argument).items() if isinstance(value, Tensor)]
    return dataclasses.replace(argument, **{name: next(tensors) for name in names})
