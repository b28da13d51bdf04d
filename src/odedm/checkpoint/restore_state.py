"""Puts a stored state back into newly built objects, writing tensors in place so that others who hold them see it."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, repeat
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from odedm.checkpoint.capture_state import (
    Node,
    State,
    StateError,
    attributes,
    class_name,
    constant_name,
    is_constant,
    parameters,
    storage_of,
)
from odedm.core.plugin_modules import registered_modules
from odedm.core.stored_names import STORED, transient

T = TypeVar("T")

NAMED = ("tensor", "view", "generator", "numpy_generator", "array", "list", "dict", "optimiser", "module", "object")
"""Kinds of nodes with a place of their own, which others may refer to."""
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""What numpy draws by."""


def restore_state(thing: Any, state: State, outside: Mapping[str, Tensor] | None = None) -> None:
    """Give `thing`, freshly built by the same configuration, the state that was captured from another.

    Tensors of the same shape and type are overwritten in place: an optimiser or a captured graph keeps their address.
    What the fresh object does not have yet is built. `outside` holds the tensors that were named and not stored. After
    an error the object is of no use any more.

    >>> from odedm.checkpoint.capture_state import capture_state
    >>> new = {"rate": 0.0, "seen": [], "velocity": None}
    >>> restore_state(new, capture_state({"rate": 0.5, "seen": [1, 2], "velocity": torch.ones(2)}))
    >>> new
    {'rate': 0.5, 'seen': [1, 2], 'velocity': tensor([1., 1.])}
    """
    try:
        with torch.no_grad():
            walk = _Restore(state, outside or {})
            walk.bind(state.plain, thing)
            if walk.build(state.plain) is not thing:
                raise StateError(f"The state is not that of a {class_name(thing)}.")
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError, RuntimeError) as error:
        raise StateError(f"The stored tree does not fit: {type(error).__name__}: {error}.") from error


class _Restore:
    def __init__(self, state: State, outside: Mapping[str, Tensor]) -> None:
        self._tensors, self._outside = state.tensors, outside
        self._nodes: dict[str, Node] = {}
        self._bound: dict[str, Any] = {}
        self._used: set[int] = set()
        self._storages: set[int] = set()
        self._made: dict[str, Any] = {}

    def bind(self, node: Node, fresh: Any) -> None:
        """Find the living counterpart of every stored object, by whichever of its ways there is one."""
        if not isinstance(node, list):
            return
        again = node[0] == "same"
        if again:
            node = self._nodes[node[1]]
        if node[0] in NAMED:
            self._nodes[node[1]] = node
            fresh = fresh if self._take(node, fresh) else None
            if again and fresh is None:
                return
        for each, value in self._pairs(node, fresh):
            self.bind(each, value)

    def _take(self, node: Node, fresh: Any) -> bool:
        """Whether a living object is now the counterpart of a node: if it fits, and neither has another one."""
        if fresh is None or node[1] in self._bound or id(fresh) in self._used or not _fits(node, fresh):
            return False
        if node[0] == "tensor" and not node[2].get("shared"):
            storage = storage_of(fresh)
            if storage and storage in self._storages:
                return False  # one memory where the state has two
            self._storages.add(storage)
        self._bound[node[1]] = fresh
        self._used.add(id(fresh))
        return True

    def _pairs(self, node: Node, fresh: Any) -> Iterable[tuple[Node, Any]]:
        """The nodes directly below a node, each with its living counterpart, or None where there is none."""
        kind = node[0]
        if kind == "tuple":
            alike = type(fresh) in (tuple, torch.Size) and len(fresh) == len(node[1])
            return zip(node[1], fresh if alike else repeat(None), strict=False)
        if kind == "list":
            return zip(node[2], chain(fresh or (), repeat(None)), strict=False)
        if kind == "dict":
            old = fresh or {}
            return [(each, old.get(self.build(key))) for key, each in node[2]]
        if kind in ("optimiser", "module", "object"):
            old = {} if fresh is None else attributes(fresh)
            return [(each, old.get(name)) for name, each in node[3].items()]
        return ()

    def build(self, node: Node, fresh: Any = None, owner: Any = None) -> Any:  # noqa: PLR0911
        """The value of a node; `fresh` is what stands in its place, `owner` whose attribute it is."""
        if not isinstance(node, list):
            return node
        kind = node[0]
        if kind == "same":
            return self._made[node[1]]
        if kind in NAMED:
            make = getattr(self, f"_{kind}")
            self._made[node[1]] = make(node, self._bound.get(node[1]), owner)
            return self._made[node[1]]
        if kind == "tuple":
            return tuple(self.build(each, value, owner) for each, value in self._pairs(node, fresh))
        if kind == "outside":
            return self._outside[node[1]]
        if kind == "float":
            return float(node[1])
        if kind == "constant":
            return _constant(node[1], fresh)
        if kind == "enum":
            return _class(node[1], Enum)[node[2]]
        if kind in ("dtype", "memory_format"):
            return _named(kind, node[1])
        if kind == "device":
            return fresh if isinstance(fresh, torch.device) else torch.device(node[1])
        raise StateError(f"The stored tree has an entry of the unknown kind {str(kind)[:40]!r}.")

    def _tensor(self, node: Node, bound: Tensor | None, _owner: Any) -> Tensor:
        _, path, info = node
        value = self._tensors[path]
        alike = bound is not None and bound.shape == value.shape and bound.dtype == value.dtype
        if bound is not None and alike and bound.device.type == info["device"] and _writable(bound):
            bound.copy_(value)
            return bound.requires_grad_(info["grad"]) if bound.is_leaf else bound
        if isinstance(bound, nn.Parameter) and not alike and not _has_grown(value, bound):
            there, here = (f"{each.dtype} {[*each.shape]}" for each in (value, bound))
            raise StateError(f"{path} is {there} in the state and {here} in the fresh object.")
        if info.get("shared"):
            raise StateError(f"{path} is a part of other tensors' memory and has another size in the fresh object.")
        stride = info.get("stride", value.stride())
        new = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=info["device"]).copy_(value)
        return nn.Parameter(new, info["grad"]) if info["parameter"] else new.requires_grad_(info["grad"])

    def _view(self, node: Node, bound: Tensor | None, _owner: Any) -> Tensor:
        _, _, base, how = node
        whole: Tensor = self._made[base]
        if bound is not None and storage_of(bound) == storage_of(whole):
            return bound
        view = torch.empty(0, dtype=_named("dtype", how["dtype"]), device=whole.device)
        return view.set_(whole.untyped_storage(), how["offset"], how["size"], how["stride"])

    def _generator(self, node: Node, bound: torch.Generator | None, _owner: Any) -> torch.Generator:
        _, path, device = node
        generator = bound if bound is not None and bound.device.type == device else torch.Generator(device)
        generator.set_state(self._tensors[path])
        return generator

    def _numpy_generator(self, node: Node, bound: np.random.Generator | None, _owner: Any) -> np.random.Generator:
        _, path, kind, state = node
        if kind not in BIT_GENERATORS:
            raise StateError(f"{path} draws by {str(kind)[:40]!r}, which numpy does not know.")
        fits = bound is not None and type(bound.bit_generator).__name__ == kind
        generator = bound if bound is not None and fits else np.random.Generator(getattr(np.random, kind)())
        generator.bit_generator.state = _unlisted(state)
        return generator

    def _array(self, node: Node, bound: Any, _owner: Any) -> Any:
        value = self._tensors[node[1]].numpy()
        if isinstance(bound, np.ndarray) and bound.shape == value.shape and bound.dtype == value.dtype:
            bound[...] = value
            return bound
        return value.copy() if node[2] == "array" else value[()]

    def _list(self, node: Node, bound: list[Any] | None, owner: Any) -> list[Any]:
        result = self._made[node[1]] = [] if bound is None else bound
        result[:] = [self.build(each, value, owner) for each, value in self._pairs(node, [*result])]
        return result

    def _dict(self, node: Node, bound: dict[Any, Any] | None, owner: Any) -> dict[Any, Any]:
        result = self._made[node[1]] = {} if bound is None else bound
        old = dict(result)
        result.clear()
        for key, each in node[2]:
            name = self.build(key)
            result[name] = self.build(each, old.get(name), owner)
        return result

    def _object(self, node: Node, bound: Any, _owner: Any) -> Any:
        if bound is None:
            kind = _class(node[2], object)
            bound = kind.__new__(kind)
        return self._filled(node, bound)

    def _module(self, node: Node, bound: nn.Module | None, owner: Any) -> nn.Module:
        if bound is None:  # such as a teacher: the network as it was
            pattern = getattr(owner, "net", None)
            if not isinstance(pattern, nn.Module) or class_name(pattern) != node[2]:
                raise StateError(f"{node[1]} is a {node[2]} that the fresh object has not, nor a net of that kind.")
            bound = copy.deepcopy(pattern)
            for parameter in bound.parameters():
                parameter.grad = None
            self.bind(node, bound)
        return self._filled(node, bound)

    def _filled(self, node: Node, living: T) -> T:
        """Set the attributes, past `frozen` and past torch's own way of setting them."""
        _, path, _, below = node
        self._made[path] = living
        old, skip = attributes(living), transient(type(living))
        extra = [each for each in old if each not in below and not is_constant(old[each])]
        if extra:
            raise StateError(f"{path or 'The object'} has '{extra[0]}', of which the state knows nothing.")
        for each, stored in below.items():
            if each not in skip:
                vars(living)[each] = self.build(stored, old.get(each), living)
        return living

    def _optimiser(self, node: Node, bound: Optimizer | None, owner: Any) -> Optimizer:
        _, path, name, below = node
        before = 0 if bound is None else len(bound.param_groups)
        groups, known = (self.build(below[part], owner=owner) for part in ("param_groups", "state"))
        if bound is None or len(groups) != before:
            raise StateError(f"{path} was a {name} with {len(groups)} groups, which the fresh object has not.")
        bound.param_groups = groups
        every = parameters(bound)
        bound.state.clear()
        bound.state.update({every[number]: each for number, each in known.items()})
        return bound


def _writable(tensor: Tensor) -> bool:
    """Whether every entry has memory of its own, as those of an expanded tensor do not."""
    return all(stride or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _has_grown(value: Tensor, fresh: Tensor) -> bool:
    """Whether weights are as those of a method that gives itself more of them when classes come."""
    longer = all(now >= then for now, then in zip(value.shape, fresh.shape, strict=False))
    return value.dtype == fresh.dtype and value.dim() == fresh.dim() and longer


def _fits(node: Node, fresh: Any) -> bool:
    """Whether a living object is of a node's kind and class."""
    kind = node[0]
    if kind in ("tensor", "view", "generator"):
        return isinstance(fresh, torch.Generator if kind == "generator" else Tensor)
    if kind in ("numpy_generator", "array"):
        return isinstance(fresh, np.random.Generator if kind == "numpy_generator" else np.ndarray)
    if kind in ("list", "dict"):
        return type(fresh) in ((list,) if kind == "list" else (dict, OrderedDict))
    return class_name(fresh) == str(node[2])


def _constant(name: str, fresh: Any) -> Any:
    """The fresh object's own code; None where it has not made its own yet."""
    if fresh is not None and (not is_constant(fresh) or constant_name(fresh) != name):
        raise StateError(f"The state was made with {name} where the fresh object has {constant_name(fresh)}.")
    return fresh


def _class(name: str, kind: type) -> Any:
    """A class of this package, or of a registered module, by its name; nothing is imported for it."""
    found: Any = STORED.get(name)
    module, _, own = name.rpartition(".")
    if module in registered_modules():
        found = getattr(sys.modules.get(module), own, None)
    if not isinstance(found, type) or not issubclass(found, kind):
        raise StateError(f"The state has an object of the class {name[:80]}, which is not one of this package.")
    return found


def _unlisted(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: _unlisted(each) for name, each in state.items()}
    return np.array(state[2], dtype=state[1]) if isinstance(state, list) else state


def _named(kind: str, name: str) -> Any:
    found = getattr(torch, name.removeprefix("torch."), None)
    if type(found) is not {"dtype": torch.dtype, "memory_format": torch.memory_format}[kind]:
        raise StateError(f"The state names the {kind} {name[:40]!r}, which torch does not know.")
    return found
