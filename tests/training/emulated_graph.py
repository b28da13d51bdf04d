"""CUDA graphs on a processor: work is recorded and replayed as a graph does it, and what a graph cannot hold fails.

`record` stands in for `odedm.core.accel.recording.record`. It runs the work once, logs every operation of torch below
autograd, and undoes what they changed, as recording computes nothing. A replay runs no code of the step: it repeats the
logged operations on the recorded addresses, with the numbers (and so the optimizer's groups) that they were called with
then. Generators advance, as registered ones do.

`EmulatedDevice` makes the package take the ways of a GPU where it asks a tensor or a device where it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from driver import EachStep
from equal_states import first_difference
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from odedm import Dataset, Experiment, Run
from odedm.checkpoint.state_tree import state_tree
from odedm.training.cuda_graph import can_be_recorded
from odedm.training.divergence import DivergenceGuard

READ_BACK = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Of operations whose result, or its shape, the host must wait for."""
MASKED = {
    "aten::index.Tensor",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index.Tensor",
}
"""Operations that read back only where an index is a mask."""
UNINITIALISED = ("aten::empty", "aten::new_empty")


class NotRecordable(AssertionError):
    """Work does what no CUDA graph can hold, or a replay would compute on what is no longer there."""


_capturing: list[Graph] = []
"""The graph that is being recorded, if any."""


@dataclass(frozen=True)
class _Address:
    """Where a tensor lies: the number of its storage in the graph, and the layout in it."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def on(self, storage: torch.UntypedStorage) -> Tensor:
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)


@dataclass(frozen=True)
class _Operation:
    """A call with addresses in the place of tensors; `made` are those of its results that have new memory."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    made: tuple[tuple[int, _Address], ...]


class Graph:
    """The recorded operations of some work."""

    def __init__(self, generators: Iterable[torch.Generator]) -> None:
        self.generators = {each._cdata: each for each in generators}
        self.operations: list[_Operation] = []
        self._numbers: dict[int, int] = {}
        """Storages by the address of their handle: while recording, which keeps all of them alive."""
        self._alive: list[torch.UntypedStorage] = []
        self._own: dict[int, torch.UntypedStorage] = {}
        self._computed: list[torch.UntypedStorage] = []
        self._foreign: dict[int, StorageWeakRef] = {}
        self._before: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []
        self._drawn: dict[torch.Generator, Tensor] = {}
        self._tensors: dict[_Address, Tensor] = {}
        self._what: dict[int, str] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Log what is asked of torch in the block, and undo it afterwards."""
        if _capturing:
            raise NotRecordable("A graph is recorded while another one is.")
        _capturing.append(self)
        try:
            with _Log(self), _read_back_by_host():
                yield
        finally:
            _capturing.clear()
            self._undo()

    def _undo(self) -> None:
        for storage, before in self._before:
            storage.copy_(before)
        for rng, state in self._drawn.items():
            rng.set_state(state)
        for storage in self._computed:
            storage.fill_(255)  # not a number: recording has computed nothing
        self._computed.clear()
        self._before.clear()
        self._drawn.clear()
        self._numbers.clear()
        self._alive.clear()

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        """One operation while recording."""
        _check(function, args, kwargs)
        if function.name() == "aten::lift_fresh":  # a number of the host, which becomes one of a kernel's arguments
            self._address(args[0], constant=True)
            return function(*args, **kwargs)
        inputs = tree_map_only(Tensor, lambda tensor: self._address(tensor, f"an input of {function}"), (args, kwargs))
        self._draw(function, kwargs)
        known = len(self._alive)
        result = function(*args, **kwargs)
        made = []
        for place, tensor in enumerate(tree_leaves(result)):
            if isinstance(tensor, Tensor):
                address = self._address(tensor)
                if address.storage >= known:
                    made.append((place, address))
            elif tensor is not None:
                raise NotRecordable(f"{function} gives the host {tensor!r}, which it would have to wait for.")
        writes = any(each.alias_info is not None and each.alias_info.is_write for each in function._schema.arguments)
        if (made or writes) and not function.name().startswith(UNINITIALISED):
            self.operations.append(_Operation(function, *inputs, tuple(made)))
        return result

    def _draw(self, function: Any, kwargs: Any) -> None:
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return
        rng = kwargs.get("generator")
        if rng is None:
            raise NotRecordable(f"{function} draws from the global generator, which all runs of a process share.")
        if rng._cdata not in self.generators:  # operations are given it as another object of Python
            raise NotRecordable(f"{function} draws from a generator that is not registered with the graph.")
        self._drawn.setdefault(self.generators[rng._cdata], rng.get_state())

    def _address(self, tensor: Tensor, what: str = "", *, constant: bool = False) -> _Address:
        """Where a tensor lies; one that was not met before is an input if it is said of what, else the graph's own."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = len(self._alive)
            self._alive.append(storage)
            if not what:
                self._own[number] = storage
                if not constant:
                    self._computed.append(storage)
            else:
                self._foreign[number] = StorageWeakRef(storage)
                self._what[number] = f"{what}, {tensor.dtype} {list(tensor.shape)}"
                self._before.append((storage, storage.clone()))
        return _Address(number, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def replay(self) -> None:
        """Do the recorded operations once more, where and with what they were recorded."""
        if _capturing:
            raise NotRecordable("A graph is replayed while another one is recorded.")
        storages, given = dict(self._own), dict[_Address, Tensor]()
        for number, held in self._foreign.items():
            storage = torch.UntypedStorage._new_with_weak_ptr(held.cdata)
            if storage is None:
                raise NotRecordable(f"A replay reads memory that was freed since recording: {self._what[number]}.")
            storages[number] = storage

        def at(address: _Address) -> Tensor:
            table = self._tensors if address.storage in self._own else given
            tensor = table.get(address)
            if tensor is None:
                tensor = table[address] = address.on(storages[address.storage])
            return tensor

        with torch.inference_mode():
            for each in self.operations:
                result = each.function(
                    *tree_map_only(_Address, at, each.args), **tree_map_only(_Address, at, each.kwargs)
                )
                leaves = tree_leaves(result) if each.made else ()
                for place, address in each.made:
                    at(address).copy_(leaves[place])


class _Log(TorchDispatchMode):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        return self.graph.run(func, args, kwargs or {})


def _check(function: Any, args: Any, kwargs: Any) -> None:
    """Refuse an operation for which the host would wait."""
    name = function.name()
    if name in MASKED:
        masks = [each for each in args[1] if each is not None and each.dtype in (torch.bool, torch.uint8)]
        fills = name.startswith("aten::index_put") and args[2].numel() == 1 and len(masks) == len(args[1]) == 1
        if masks and not fills:
            raise NotRecordable(f"{function} with a mask asks how many rows it marks.")
    elif READ_BACK & set(function.tags):
        raise NotRecordable(f"{function} reads back from the device.")


@contextmanager
def _read_back_by_host() -> Iterator[None]:
    """Refuse what a processor's tensors give without an operation of torch, and tensors made of numbers of the host."""

    def refused(name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise NotRecordable(f"Tensor.{name} reads back from the device.")

        return refuse

    make = {name: getattr(torch, name) for name in ("tensor", "as_tensor", "asarray", "from_numpy")}

    def copied(name: str) -> Callable[..., Any]:
        def copy(data: Any, *args: Any, **words: Any) -> Any:
            if not isinstance(data, Tensor) and (words.get("device") is not None or not isinstance(data, int | float)):
                raise NotRecordable(f"torch.{name} copies numbers of the host to the device, which waits for it.")
            return make[name](data, *args, **words)

        return copy

    with pytest.MonkeyPatch.context() as patch:
        for name in ("tolist", "numpy", "cpu", "__array__", "new_tensor"):
            patch.setattr(Tensor, name, refused(name))
        for name in make:
            patch.setattr(torch, name, copied(name))
        yield


def record(work: Callable[[], Any], _pool: Any, generators: Iterable[torch.Generator] = ()) -> tuple[Graph, Any]:
    """As `odedm.core.accel.recording.record`."""
    graph = Graph(generators)
    with graph.recording():
        found = work()
    return graph, found


class _Guard(DivergenceGuard):
    """Notes every loss as on a GPU, and looks at the end of a task alone: there are no events."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.on_gpu = True

    def after_step(self, step: int, task: int) -> None:
        """Nothing is waited for."""


def _sees_a_gpu() -> bool:
    """Whether the code that asks is the package's, but for the choice of prototypes, which no step makes."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return name.startswith("odedm.") and not name.startswith("odedm.selection")


def emulate_device(patch: pytest.MonkeyPatch) -> None:
    """Let runs on the processor do what they do on a GPU, with `Graph` for CUDA's."""
    base = torch._C.TensorBase
    patch.setattr(Tensor, "is_cuda", property(lambda own: _sees_a_gpu() or base.is_cuda.__get__(own)))
    patch.setattr(Tensor, "is_cpu", property(lambda own: not _sees_a_gpu() and base.is_cpu.__get__(own)))
    for module in ("methods.base", "methods.icarl", "methods.refresh"):
        patch.setattr(f"odedm.{module}.launch_bound", lambda _device: True)
    patch.setattr("odedm.core.accel.recording.on_gpu", lambda _tensor: True)
    patch.setattr("odedm.core.accel.recording.record", record)
    patch.setattr("odedm.training.cuda_graph.record", record)
    patch.setattr("torch.cuda.graph_pool_handle", lambda: (0, 0))
    patch.setattr("torch.cuda.is_current_stream_capturing", lambda: bool(_capturing))
    patch.setattr("odedm.training.run.DivergenceGuard", _Guard)
    patch.setattr("odedm.training.run.can_be_recorded", _can_be_recorded)
    adam = sys.modules[torch.optim.Adam.__module__]
    patch.setattr(adam, "_get_capturable_supported_devices", lambda **_: ["cpu", "cuda"])


def _can_be_recorded(plan: Any, method: Any, net: Any, schedule: Any) -> bool:
    names = ("optimizer", "schedule", "transform", "memory", "cuda_graph")
    on_gpu: Any = SimpleNamespace(device="cuda", **{name: getattr(plan, name) for name in names})
    return can_be_recorded(on_gpu, method, net, schedule)


def states_of(run: Any) -> dict[str, Any]:
    """A digest of every tensor and number that the run's steps change, by its place."""
    seconds, run.timer.seconds = run.timer.seconds, {}  # which no two runs have alike
    state = state_tree({**run.engine.roots(), "loss": run.guard._broken}, run.external_tensors())
    run.timer.seconds = seconds
    found: dict[str, Any] = {name: hash(each.numpy().tobytes()) for name, each in state.tensors.items()}
    return {**found, "": state.tree}


def check_replayed_as_eager(plan: Experiment, data: Dataset, **more: Any) -> Run:
    """The run by recordings, once every step of it has led where that of an eager one led, bit for bit.

    To be called where `emulate_device` holds. `more` are the other arguments of a `Run`.
    """
    eager, replayed = Run(replace(plan, cuda_graph=False), data, **more), Run(plan, data, **more)
    after: list[dict[str, Any]] = []
    one = eager.finish(EachStep(lambda _: after.append(states_of(eager))))
    assert eager.stepper.captured == 0
    step = 0

    def compare(_: Run) -> None:
        nonlocal step
        own = states_of(replayed)
        places = sorted(name for name in own.keys() | after[step].keys() if own.get(name) != after[step].get(name))
        if places == [""]:
            places = [first_difference(own[""], after[step][""])]
        assert not places, f"after step {step + 1} of {len(after)} a replayed run differs in {', '.join(places)}"
        step += 1

    other = replayed.finish(EachStep(compare))
    assert step == len(after)
    for name in ("class_il", "class_counts", "sample_gradients", "anytime"):
        assert getattr(one.result, name) == getattr(other.result, name), name
    for one_table, other_table in (
        (one.memory.rows(), other.memory.rows()),
        (one.evidence or {}, other.evidence or {}),
    ):
        assert one_table.keys() == other_table.keys()
        for name, column in one_table.items():
            assert column.equal(other_table[name]), name
    return replayed
