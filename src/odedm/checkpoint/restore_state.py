"""Puts a stored state back into newly built objects, writing tensors in place so that others who hold them see it."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from odedm.checkpoint.capture_state import (
    VOLATILE,
    Node,
    State,
    StateError,
    attributes,
    class_name,
    constant_name,
    is_constant,
    storage_of,
)

KINDS = ("tensor", "view", "generator", "list", "dict", "optimiser", "module", "object")
"""Nodes with a place of their own, which others may refer to."""


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
        self._index(state.plain)

    def _index(self, node: Node) -> None:
        for each in _children(node):
            self._index(each)
        if isinstance(node, list) and node[0] in KINDS:
            self._nodes[node[1]] = node

    def bind(self, node: Node, fresh: Any) -> None:
        """Find the living counterpart of every stored object, by whichever of its ways there is one."""
        if isinstance(node, list) and node[0] == "same":
            node = self._nodes[node[1]]
        if not isinstance(node, list) or fresh is None:
            return
        if node[0] == "tuple":
            if type(fresh) in (tuple, torch.Size) and len(fresh) == len(node[1]):
                for each, value in zip(node[1], fresh, strict=True):
                    self.bind(each, value)
            return
        if node[0] not in KINDS or node[1] in self._bound or id(fresh) in self._used or not _fits(node, fresh):
            return
        if node[0] == "tensor" and not node[2].get("shared"):
            storage = storage_of(fresh)
            if storage and storage in self._storages:
                return  # one memory where the state has two
            self._storages.add(storage)
        self._bound[node[1]] = fresh
        self._used.add(id(fresh))
        for each, value in _pairs(node, fresh):
            self.bind(each, value)

    def build(self, node: Node, fresh: Any = None, owner: Any = None) -> Any:  # noqa: PLR0911
        """The value of a node; `fresh` is what stands in its place, `owner` whose attribute it is."""
        if not isinstance(node, list):
            return node
        kind = node[0]
        if kind == "same":
            return self._made[node[1]] if node[1] in self._made else self.build(self._nodes[node[1]], owner=owner)
        if kind in KINDS:
            if node[1] not in self._made:
                make = getattr(self, f"_{kind}")
                self._made[node[1]] = make(node, self._bound.get(node[1]), owner)
            return self._made[node[1]]
        if kind == "tuple":
            old = fresh if type(fresh) is tuple and len(fresh) == len(node[1]) else [None] * len(node[1])
            return tuple(self.build(each, value, owner) for each, value in zip(node[1], old, strict=True))
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
            if bound.is_leaf:
                bound.requires_grad_(bool(info.get("grad")))
            return bound
        if info.get("shared"):
            raise StateError(f"{path} is a part of other tensors' memory and has another size in the fresh object.")
        if "stride" in info:
            new = torch.empty_strided(value.shape, info["stride"], dtype=value.dtype, device=info["device"])
            new.copy_(value)
        else:
            new = value.to(info["device"], copy=True)
        if info.get("parameter"):
            return nn.Parameter(new, requires_grad=bool(info.get("grad")))
        return new.requires_grad_(bool(info.get("grad")))

    def _view(self, node: Node, bound: Tensor | None, owner: Any) -> Tensor:
        _, _, base, how = node
        whole: Tensor = self.build(self._nodes[base], owner=owner)
        if bound is not None and storage_of(bound) == storage_of(whole):
            return bound
        view = torch.empty(0, dtype=_named("dtype", how["dtype"]), device=whole.device)
        return view.set_(whole.untyped_storage(), how["offset"], how["size"], how["stride"])

    def _generator(self, node: Node, bound: torch.Generator | None, _owner: Any) -> torch.Generator:
        _, path, device = node
        generator = bound if bound is not None and bound.device.type == device else torch.Generator(device)
        generator.set_state(self._tensors[path])
        return generator

    def _list(self, node: Node, bound: list[Any] | None, owner: Any) -> list[Any]:
        result = self._made[node[1]] = [] if bound is None else bound
        old = [*result, *[None] * (len(node[2]) - len(result))]
        result[:] = [self.build(each, value, owner) for each, value in zip(node[2], old, strict=False)]
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
        _, path, name, _ = node
        if bound is None:
            kind = _class(name, object)
            bound = kind.__new__(kind)
        self._made[path] = bound
        self._fill(node, bound)
        return bound

    def _module(self, node: Node, bound: nn.Module | None, owner: Any) -> nn.Module:
        if bound is None:  # such as a teacher: the network as it was
            pattern = getattr(owner, "net", None)
            if not isinstance(pattern, nn.Module) or class_name(pattern) != node[2]:
                raise StateError(f"{node[1]} is a {node[2]} that the fresh object has not, nor a net of that kind.")
            bound = copy.deepcopy(pattern)
            for parameter in bound.parameters():
                parameter.grad = None
            self.bind(node, bound)
        self._made[node[1]] = bound
        self._fill(node, bound)
        return bound

    def _fill(self, node: Node, living: Any) -> None:
        """Set the attributes, past `frozen` and past torch's own way of setting them."""
        _, path, name, below = node
        old = attributes(living)
        extra = [each for each in old if each not in below and not is_constant(old[each])]
        if extra:
            raise StateError(f"{path or 'The object'} has '{extra[0]}', of which the state knows nothing.")
        for each, stored in below.items():
            if each not in VOLATILE.get(name, ()):
                vars(living)[each] = self.build(stored, old.get(each), living)

    def _optimiser(self, node: Node, bound: torch.optim.Optimizer | None, owner: Any) -> torch.optim.Optimizer:
        _, path, name, groups, states = node
        if bound is None or len(bound.param_groups) != len(groups):
            raise StateError(f"{path} was a {name} with {len(groups)} groups, which the fresh object has not.")
        for group, stored in zip(bound.param_groups, groups, strict=True):
            old = dict(group)
            group.clear()
            group.update({key: self.build(each, old.get(key), owner) for key, each in stored})
        every = [parameter for group in bound.param_groups for parameter in group["params"]]
        before = dict(bound.state)
        bound.state.clear()
        for number, each in states:
            bound.state[every[number]] = self.build(each, before.get(every[number]), owner)
        return bound


def _writable(tensor: Tensor) -> bool:
    """Whether every entry has memory of its own, as those of an expanded tensor do not."""
    return all(stride or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _children(node: Node) -> list[Node]:  # noqa: PLR0911 - one line for each kind
    """The nodes directly below a node."""
    if not isinstance(node, list):
        return []
    kind = node[0]
    if kind == "tuple":
        return list(node[1])
    if kind == "list":
        return list(node[2])
    if kind == "dict":
        return [each for _, each in node[2]]
    if kind in ("module", "object"):
        return list(node[3].values())
    if kind == "optimiser":
        return [each for group in node[3] for _, each in group] + [each for _, each in node[4]]
    return []


def _pairs(node: Node, fresh: Any) -> list[tuple[Node, Any]]:
    """The nodes directly below a node, each with its living counterpart."""
    kind = node[0]
    if kind == "list":
        return list(zip(node[2], fresh, strict=False))
    if kind == "dict":
        return [(each, fresh.get(tuple(key[1]) if isinstance(key, list) else key)) for key, each in node[2]]
    if kind in ("module", "object"):
        own = attributes(fresh)
        return [(each, own.get(name)) for name, each in node[3].items()]
    if kind == "optimiser":
        pairs = [
            (each, own.get(key))
            for stored, own in zip(node[3], fresh.param_groups, strict=False)
            for key, each in stored
        ]
        every = [parameter for group in fresh.param_groups for parameter in group["params"]]
        return pairs + [(each, fresh.state.get(every[number])) for number, each in node[4]]
    return []


def _fits(node: Node, fresh: Any) -> bool:
    """Whether a living object is of a node's kind and class."""
    kind = node[0]
    if kind in ("tensor", "view"):
        return isinstance(fresh, Tensor)
    if kind == "generator":
        return isinstance(fresh, torch.Generator)
    if kind == "list":
        return type(fresh) is list
    if kind == "dict":
        return type(fresh) in (dict, OrderedDict)
    return class_name(fresh) == str(node[2])


def _constant(name: str, fresh: Any) -> Any:
    """The fresh object's own code; None where it has not made its own yet."""
    if fresh is not None and (not is_constant(fresh) or constant_name(fresh) != name):
        raise StateError(f"The state was made with {name} where the fresh object has {constant_name(fresh)}.")
    return fresh


def _class(name: str, kind: type) -> Any:
    """A class of this package by its name; nothing is imported for it."""
    module, _, own = name.rpartition(".")
    found = getattr(sys.modules.get(module), own, None)
    if module.partition(".")[0] != "odedm" or not isinstance(found, type) or not issubclass(found, kind):
        raise StateError(f"The state has an object of the class {name[:80]}, which is not one of this package.")
    return found


def _named(kind: str, name: str) -> Any:
    found = getattr(torch, name.removeprefix("torch."), None)
    if type(found) is not {"dtype": torch.dtype, "memory_format": torch.memory_format}[kind]:
        raise StateError(f"The state names the {kind} {name[:40]!r}, which torch does not know.")
    return found


def equal_states(one: State, other: State) -> list[str]:
    """The places where two states differ, bit for bit; none where they are equal.

    >>> from odedm.checkpoint.capture_state import capture_state
    >>> equal_states(capture_state({"a": torch.ones(2), "b": 1}), capture_state({"a": torch.zeros(2), "b": 1}))
    ['a']
    """
    places = []
    for name in sorted(one.tensors.keys() | other.tensors.keys()):
        a, b = one.tensors.get(name), other.tensors.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or not _bits(a).equal(_bits(b)):
            places.append(name)
    if one.plain != other.plain:
        places.append("the tree: " + _first_difference(one.plain, other.plain, ""))
    return places


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _first_difference(one: Node, other: Node, path: str) -> str:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return _first_difference(a, b, f"{path}/{place}")
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        for name in one:
            if one[name] != other[name]:
                return _first_difference(one[name], other[name], f"{path}/{name}")
    return f"{path}: {str(one)[:60]} and {str(other)[:60]}"
