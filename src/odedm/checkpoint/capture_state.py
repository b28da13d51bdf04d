"""Captures the state of any object as plain data: every tensor, generator and number below it, found by a walk.

A method or a memory says nothing of checkpoints: what it holds is walked. What the walk does not know is an error that
names the place, so a new method can be incomplete here, but never silently.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, GenericAlias, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from odedm.core.generators import is_ours
from odedm.core.stored_names import STORED, is_of_package, stored_name, transient

Node = Any
"""What JSON can hold: a scalar as itself, anything else as a list that starts with its kind."""

MODULE_MACHINERY = frozenset(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}
"""Hooks and the like: torch's own, the same in every freshly built module."""

CONSTANTS = (type, partial, FunctionType, BuiltinFunctionType, MethodType, ModuleType, GenericAlias)
HANDLES = frozenset({"CUDAGraph", "Stream", "Event", "ExternalStream"})
"""Of torch.cuda: made anew by whoever needs them."""


class StateError(Exception):
    """Something cannot be stored, or what was stored does not fit the object; names the place."""


@dataclass(frozen=True)
class State:
    """Tensors by the place where they were found, on the CPU, and a tree of plain data that refers to them."""

    tensors: dict[str, Tensor]
    plain: Node

    @property
    def bytes(self) -> int:
        """What the tensors hold.

        >>> capture_state({"rate": torch.zeros(3)}).bytes
        12
        """
        return sum(tensor.nbytes for tensor in self.tensors.values())


def capture_state(thing: Any, outside: Mapping[str, Tensor] | None = None) -> State:
    """A copy of everything below `thing` that a run can change.

    A tensor or an object that is reached by two ways is stored once, and is one again after restoring. Gradients are
    not state: every step makes its own. Functions, types and handles of a device are not stored, nor are tensors
    `outside`, such as the stream's rows: only their names are.

    >>> state = capture_state({"weights": torch.zeros(2), "rate": 0.1, "seen": [1, 2]})
    >>> sorted(state.tensors), state.plain[2][1]
    (['weights'], ['rate', 0.1])
    """
    walk = _Capture(outside or {})
    plain = walk.node("", thing)
    walk.mark_shared()
    return State(walk.tensors, plain)


def class_name(thing: object) -> str:
    """What stands for the class of an object in files.

    >>> class_name([])
    'builtins.list'
    """
    return stored_name(type(thing))


def is_constant(thing: object) -> bool:
    """Whether an object is code or a handle, which the freshly built object has of its own."""
    kind = type(thing)
    handle = kind.__module__.startswith("torch.cuda") and kind.__name__ in HANDLES
    return handle or isinstance(thing, CONSTANTS)


def constant_name(thing: Any) -> str:
    """What a piece of code is called, to notice that it is another one; this package's is free to move.

    >>> constant_name(len), constant_name(partial(class_name, 3))
    ('builtins.len', 'partial of odedm')
    """
    if isinstance(thing, partial):
        return f"partial of {constant_name(thing.func)}"
    if is_of_package(thing):
        return "odedm"
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    return f"{getattr(thing, '__module__', None) or 'builtins'}.{name}" if name else class_name(thing)


def attributes(thing: object) -> dict[str, Any]:
    """The attributes that are state: all but those of one process, and torch's machinery.

    Of an optimiser they are its groups, and what it knows of each parameter, by the parameter's number.
    """
    if isinstance(thing, Optimizer):
        numbered = enumerate(parameters(thing))
        known = {number: dict(thing.state[each]) for number, each in numbered if each in thing.state}
        return {"param_groups": thing.param_groups, "state": known}
    skip = transient(type(thing))
    if isinstance(thing, nn.Module):
        skip = skip | MODULE_MACHINERY
    return {name: value for name, value in vars(thing).items() if name not in skip}


def parameters(optimiser: Optimizer) -> list[Tensor]:
    """What an optimiser updates, in its order."""
    return [each for group in optimiser.param_groups for each in group["params"]]


def storage_of(tensor: Tensor) -> int:
    """The address of a tensor's memory; 0 where it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.numel() else 0


class _Capture:
    def __init__(self, outside: Mapping[str, Tensor]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._outside = {id(tensor): name for name, tensor in outside.items()}
        self._known: dict[int, str] = {}
        self._alive: list[Any] = []  # an id is a name only while its object lives
        self._taken = {"__metadata__"}  # safetensors' own
        self._whole: dict[int, str] = {}
        self._on_storage: dict[int, list[dict[str, Any]]] = {}

    def node(self, path: str, thing: Any) -> Node:  # noqa: PLR0911 - one line for each kind
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else ["float", str(thing)]
        if isinstance(thing, Enum):
            return ["enum", self._class(path, thing), thing.name]
        if isinstance(thing, torch.dtype | torch.device | torch.memory_format):
            return [type(thing).__name__, str(thing)]
        if type(thing) in (tuple, torch.Size):
            return ["tuple", [self.node(f"{path}[{place}]", each) for place, each in enumerate(thing)]]
        if is_constant(thing):
            return ["constant", constant_name(thing)]
        if id(thing) in self._outside:
            return ["outside", self._outside[id(thing)]]
        if id(thing) in self._known:
            return ["same", self._known[id(thing)]]
        return self._compound(self._name(path, thing), thing)

    def _name(self, path: str, thing: Any) -> str:
        """A name of its own for each object: two ways of spelling a place must not meet."""
        while path in self._taken:
            path += "'"
        self._taken.add(path)
        self._known[id(thing)] = path
        self._alive.append(thing)
        return path

    def _compound(self, path: str, thing: Any) -> Node:  # noqa: PLR0911 - one line for each kind
        if isinstance(thing, Tensor):
            return self._tensor(path, thing)
        if isinstance(thing, torch.Generator):
            self.tensors[path] = thing.get_state().clone()
            return ["generator", path, thing.device.type]
        if isinstance(thing, np.random.Generator):
            return ["numpy_generator", path, type(thing.bit_generator).__name__, _listed(thing.bit_generator.state)]
        if isinstance(thing, np.ndarray | np.generic):
            return self._array(path, thing)
        if type(thing) is list:
            return ["list", path, [self.node(f"{path}[{place}]", each) for place, each in enumerate(thing)]]
        if type(thing) in (dict, OrderedDict):
            entries = [[self._key(path, key), self.node(_below(path, key), each)] for key, each in thing.items()]
            return ["dict", path, entries]
        kind = _kind_with_attributes(thing)
        if kind is not None:
            below = {name: self.node(_below(path, name), value) for name, value in attributes(thing).items()}
            return [kind, path, self._class(path, thing), below]
        raise StateError(
            f"{path or 'The object'} is a {class_name(thing)}, which no checkpoint knows how to store. Keep it as a "
            "tensor, a number, a list, a dictionary or a data class, or teach odedm.checkpoint.capture_state the type."
        )

    def _class(self, path: str, thing: object) -> str:
        """The name of an object's class, which of this package's must not be that of the place where it is defined."""
        name = class_name(thing)
        if is_of_package(type(thing)) and name not in STORED:
            raise StateError(f"{path} is a {name}, a class without a stored name; give it one by @stored.")
        return name

    def _key(self, path: str, key: Any) -> Node:
        plain = key is None or type(key) in (bool, int, str, float) or isinstance(key, Enum)
        if not plain and not (type(key) is tuple and all(type(each) in (bool, int, str, float) for each in key)):
            raise StateError(f"{path} has a key of type {class_name(key)}; a checkpoint stores names and numbers.")
        return self.node(path, key)

    def _tensor(self, path: str, tensor: Tensor) -> Node:
        if tensor.grad_fn is not None:
            raise StateError(f"{path} holds on to the graph it was computed by; keep a detached copy.")
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise StateError(f"{path} is a tensor of layout {tensor.layout} on '{tensor.device}', which is not stored.")
        storage = storage_of(tensor)
        if storage in self._whole:  # the same memory read in another way: in the store, rows as 64-bit words
            how = {"dtype": str(tensor.dtype), "offset": tensor.storage_offset()}
            return ["view", path, self._whole[storage], {**how, "size": [*tensor.shape], "stride": [*tensor.stride()]}]
        info: dict[str, Any] = {"device": tensor.device.type, "grad": tensor.requires_grad}
        info["parameter"] = isinstance(tensor, nn.Parameter)
        if not tensor.is_contiguous() and 0 not in tensor.stride():
            info["stride"] = [*tensor.stride()]
        if storage and tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes():
            self._whole[storage] = path
        elif storage:
            self._on_storage.setdefault(storage, []).append(info)
        self.tensors[path] = tensor.detach().to("cpu", copy=True).contiguous()
        return ["tensor", path, info]

    def _array(self, path: str, array: Any) -> Node:
        try:
            self.tensors[path] = torch.from_numpy(np.array(array))
        except TypeError:
            raise StateError(f"{path} is a numpy array of the type {array.dtype}, which is not stored.") from None
        return ["array", path, "array" if isinstance(array, np.ndarray) else "number"]

    def mark_shared(self) -> None:
        """Say of parts of one memory that they are such: built apart they would drift apart."""
        for storage, parts in self._on_storage.items():
            if len(parts) > 1 or storage in self._whole:
                for info in parts:
                    info["shared"] = True


def _kind_with_attributes(thing: object) -> str | None:
    """What an object is whose attributes are its state: torch's, one of this package, or a plain one of anyone."""
    if isinstance(thing, nn.Module | Optimizer):
        return "module" if isinstance(thing, nn.Module) else "optimiser"
    own = type(thing).__module__.partition(".")[0] == "odedm" or is_dataclass(thing)
    return "object" if (own and hasattr(thing, "__dict__")) or is_ours(thing) else None


def _listed(state: Any) -> Any:
    """The state of one of numpy's bit generators as JSON holds it."""
    if isinstance(state, dict):
        return {name: _listed(each) for name, each in state.items()}
    return ["array", str(state.dtype), state.tolist()] if isinstance(state, np.ndarray) else state


def _below(path: str, key: Any) -> str:
    name = key if isinstance(key, str) else f"[{key!r}]"
    return f"{path}.{name}" if path and isinstance(key, str) else f"{path}{name}"
