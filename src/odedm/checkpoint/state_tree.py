"""Captures the state of any object as plain data: every tensor, generator and number below it, found by a walk.

A method or a memory says nothing of checkpoints: what it holds is walked. What the walk does not know is an error that
names the place, so a new method can be incomplete here, but never silently.

A node of the tree is a scalar as JSON holds it, or a mapping with its `type`. What can be reached by several ways has
a `path`, the first way on which it was found, and is a `ref` to that path everywhere else.
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

from odedm.core.plugins import ObjectName
from odedm.core.stored_names import STORED, is_of_package, is_ours, is_plain_object, stored_name, transient

Node = Any
MODULE_MACHINERY = frozenset(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}
"""Hooks and the like: torch's own, the same in every freshly built module."""
RNN_MACHINERY = frozenset({"_flat_weights", "_flat_weight_refs"})
"""How torch's recurrent layers find their parameters, which are stored as parameters."""
CODE = (type, partial, FunctionType, BuiltinFunctionType, MethodType, ModuleType, GenericAlias)
BIT_GENERATORS = ("PCG64", "PCG64DXSM")
"""What of numpy's generators is stored; the first is that of `numpy.random.default_rng`."""
HANDLES = frozenset({"CUDAGraph", "Stream", "Event", "ExternalStream"})
"""Of torch.cuda: made anew by whoever needs them."""


class StateError(Exception):
    """Something cannot be stored, or what was stored does not fit the object; names the place."""


@dataclass(frozen=True)
class State:
    """Tensors by the path where they were found, on the CPU, and a tree of plain data that refers to them."""

    tensors: dict[str, Tensor]
    tree: Node


def state_tree(value: Any, external_tensors: Mapping[str, Tensor] | None = None) -> State:
    """Copy everything below `value` that a run can change.

    A tensor or an object that is reached by two ways is stored once, and is one again after loading. Gradients are
    not state: every step makes its own. Functions, types and handles of a device are not stored, nor are
    `external_tensors`, such as the stream's rows: only their names are.

    >>> state = state_tree({"weights": torch.zeros(2), "rate": 0.1, "seen": [1, 2]})
    >>> sorted(state.tensors), state.tree["items"][1]
    (['weights'], ['rate', 0.1])
    """
    walk = _Walk(external_tensors or {})
    tree = walk.node("", value)
    return State(walk.tensors, tree)


def class_name(value: object) -> str:
    """Return what stands for the class of an object in files.

    >>> class_name([])
    'builtins.list'
    """
    return stored_name(type(value))


def is_code(value: object) -> bool:
    """Return whether an object is code or a handle, which the freshly built object has of its own."""
    kind = type(value)
    is_handle = kind.__module__.startswith("torch.cuda") and kind.__name__ in HANDLES
    return is_handle or isinstance(value, CODE)


def code_name(value: Any) -> str:
    """Return what a piece of code is called, to notice that it is another one; this package's is free to move.

    >>> code_name(len), code_name(partial(class_name, 3))
    ('builtins.len', 'odedm')
    """
    while isinstance(value, partial):
        value = value.func
    if is_of_package(value):
        return "odedm"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{getattr(value, '__module__', None) or 'builtins'}.{name}" if name else class_name(value)


def attributes(value: object) -> dict[str, Any]:
    """Return the attributes that are state: all but those that are `TRANSIENT`, and torch's machinery.

    Of an optimizer they are its groups, and what it knows of each parameter, by the parameter's number.
    """
    if isinstance(value, Optimizer):
        numbered = enumerate(parameters(value))
        known = {number: dict(value.state[weight]) for number, weight in numbered if weight in value.state}
        return {"param_groups": value.param_groups, "state": known}
    skipped = transient(type(value))
    if isinstance(value, nn.Module):
        skipped = skipped | MODULE_MACHINERY
    if isinstance(value, nn.RNNBase):
        skipped = skipped | RNN_MACHINERY
    return {name: attribute for name, attribute in vars(value).items() if name not in skipped}


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return what an optimizer updates, in its order."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


class _Walk:
    def __init__(self, external_tensors: Mapping[str, Tensor]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._external = {id(tensor): name for name, tensor in external_tensors.items()}
        self._path_of: dict[int, str] = {}
        self._alive: list[Any] = []  # an id is a name only while its object lives
        self._paths = {"__metadata__"}  # safetensors' own
        self._extents: dict[tuple[torch.device, int], list[tuple[int, int, str]]] = {}

    def node(self, path: str, value: Any) -> Node:
        """Return the node of a value that was found at `path`."""
        node = self._unnamed(path, value)
        if node is not NotImplemented:
            return node
        if id(value) in self._external:
            return {"type": "external", "name": self._external[id(value)]}
        if id(value) in self._path_of:
            return {"type": "ref", "to": self._path_of[id(value)]}
        while path in self._paths:  # two ways of spelling a place must not meet
            path += "'"
        self._paths.add(path)
        self._path_of[id(value)] = path
        self._alive.append(value)
        kind, content = self._named(path, value)
        return {"type": kind, "path": path, **content}

    def _unnamed(self, path: str, value: Any) -> Node:  # noqa: PLR0911 - one line for each type
        """Return what is the same wherever it is found; NotImplemented for all else."""
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, ObjectName):
            return str(value)
        if type(value) is float:
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        if isinstance(value, Enum):
            return {"type": "enum", "class": self._class(path, value), "member": value.name}
        if isinstance(value, torch.dtype | torch.device):
            return {"type": type(value).__name__, "value": str(value)}
        if type(value) in (tuple, torch.Size):
            return {"type": "tuple", "items": [self.node(f"{path}[{i}]", item) for i, item in enumerate(value)]}
        if is_code(value):
            return {"type": "code", "name": code_name(value)}
        return NotImplemented

    def _named(self, path: str, value: Any) -> tuple[str, dict[str, Any]]:  # noqa: PLR0911 - one line for each type
        """Return the type of a node, and what it holds beside its path."""
        if isinstance(value, Tensor):
            return "tensor", self._tensor(path, value)
        if isinstance(value, torch.Generator):
            self.tensors[path] = value.get_state().clone()
            return "generator", {"device": value.device.type}
        if isinstance(value, np.random.Generator):
            return "numpy_generator", self._numpy_generator(path, value.bit_generator)
        if isinstance(value, np.ndarray | np.generic):
            return "array", self._array(path, value)
        if type(value) is list:
            return "list", {"items": [self.node(f"{path}[{i}]", item) for i, item in enumerate(value)]}
        if type(value) in (dict, OrderedDict):
            items = [[self._key(path, key), self.node(_below(path, key), item)] for key, item in value.items()]
            return "dict", {"items": items}
        kind = _kind_with_attributes(value)
        if kind is None:
            raise StateError(
                f"{path or 'The object'} is a {class_name(value)}, which no checkpoint knows how to store. Keep it as "
                "a tensor, a number, a list, a dictionary or a data class without slots."
            )
        below = {name: self.node(_below(path, name), item) for name, item in attributes(value).items()}
        return kind, {"class": self._class(path, value), "attributes": below}

    def _class(self, path: str, value: object) -> str:
        """Return the name of an object's class; one of this package must not be the place where it is defined."""
        name = class_name(value)
        if is_of_package(type(value)) and name not in STORED:
            raise StateError(f"{path} is a {name}, a class without a stored name; give it one by @stored.")
        return name

    def _key(self, path: str, key: Any) -> Node:
        parts = key if type(key) is tuple else (key,)
        if not all(part is None or type(part) in (bool, int, str, float) or isinstance(part, Enum) for part in parts):
            raise StateError(f"{path} has a key of type {class_name(key)}; a checkpoint stores names and numbers.")
        return self.node(path, key)

    def _tensor(self, path: str, tensor: Tensor) -> dict[str, Any]:
        if tensor.grad_fn is not None:
            raise StateError(f"{path} holds on to the graph it was computed by; keep a detached copy.")
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise StateError(f"{path} is a tensor of layout {tensor.layout} on '{tensor.device}', which is not stored.")
        self._check_memory(path, tensor)
        self.tensors[path] = tensor.detach().to("cpu", copy=True).contiguous()
        content: dict[str, Any] = {"device": tensor.device.type, "requires_grad": tensor.requires_grad}
        content["is_parameter"] = isinstance(tensor, nn.Parameter)
        if not tensor.is_contiguous() and 0 not in tensor.stride():
            content["stride"] = [*tensor.stride()]
        return content

    def _check_memory(self, path: str, tensor: Tensor) -> None:
        """Refuse a tensor that overlaps another: loaded apart, what is written to one would not be seen by the other.

        Parts of one memory that do not overlap, such as the weights of a recurrent layer on a GPU, are like any others.
        """
        if not tensor.numel():
            return
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        start = tensor.data_ptr()
        end = start + (last + 1) * tensor.element_size()
        extents = self._extents.setdefault((tensor.device, tensor.untyped_storage().data_ptr()), [])
        for other_start, other_end, other in extents:
            if start < other_end and other_start < end:
                raise StateError(f"{path} shares memory with {other}; keep a copy of one of them (`.clone()`).")
        extents.append((start, end, path))

    def _numpy_generator(self, path: str, bits: np.random.BitGenerator) -> dict[str, Any]:
        kind = type(bits).__name__
        if kind not in BIT_GENERATORS:
            raise StateError(f"{path} draws by {kind}, which is not stored; draw by numpy.random.default_rng.")
        return {"bit_generator": kind, "state": bits.state}

    def _array(self, path: str, array: Any) -> dict[str, Any]:
        try:
            self.tensors[path] = torch.from_numpy(np.array(array))
        except TypeError:
            raise StateError(f"{path} is a numpy array of the type {array.dtype}, which is not stored.") from None
        return {"is_scalar": not isinstance(array, np.ndarray)}


def _kind_with_attributes(value: object) -> str | None:
    """Return what an object is whose attributes are its state: torch's, this package's or a plain one."""
    if isinstance(value, nn.Module | Optimizer):
        return "module" if isinstance(value, nn.Module) else "optimizer"
    return "object" if is_plain_object(value) and (is_ours(value) or is_dataclass(value)) else None


def _below(path: str, key: Any) -> str:
    name = key if isinstance(key, str) else f"[{key!r}]"
    return f"{path}.{name}" if path and isinstance(key, str) else f"{path}{name}"
