"""Puts a stored state back into newly built objects, writing tensors in place so that others who hold them see it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from odedm.checkpoint.state_tree import (
    BIT_GENERATORS,
    Node,
    State,
    StateError,
    attributes,
    class_name,
    code_name,
    is_code,
    parameters,
)
from odedm.core.plugin_modules import registered_modules
from odedm.core.stored_names import STORED, transient

WITH_PATH: dict[str, type] = {
    "tensor": Tensor,
    "generator": torch.Generator,
    "numpy_generator": np.random.Generator,
    "array": np.ndarray,
    "list": list,
    "dict": dict,
    "optimizer": Optimizer,
    "module": nn.Module,
    "object": object,
}
"""Types of nodes that have a path, by which others refer to them, and what they are states of."""
ERRORS = (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError, RuntimeError)
"""What a tree of anyone's may raise."""


def load_state_tree(
    value: Any,
    state: State,
    external_tensors: Mapping[str, Tensor] | None = None,
    *,
    device: torch.device | None = None,
) -> None:
    """Give `value`, freshly built by the same configuration, the state that was captured from another.

    Tensors of the same shape and type are overwritten in place: an optimizer or a captured graph keeps their address.
    What the fresh object does not have yet is built. `external_tensors` are those that were named and not stored. With
    a `device` everything is put there, wherever it was; generators of another kind of device stay as they are. After an
    error the object is of no use any more.

    >>> from odedm.checkpoint.state_tree import state_tree
    >>> new = {"rate": 0.0, "seen": [], "velocity": None}
    >>> load_state_tree(new, state_tree({"rate": 0.5, "seen": [1, 2], "velocity": torch.ones(2)}))
    >>> new
    {'rate': 0.5, 'seen': [1, 2], 'velocity': tensor([1., 1.])}
    """
    try:
        with torch.no_grad():
            loader = _Loader(state, external_tensors or {}, device)
            loader.bind(state.tree, value)
            if loader.build(state.tree) is not value:
                raise StateError(f"The state is not that of a {class_name(value)}.")
    except ERRORS as error:
        raise StateError(f"The stored tree does not fit: {type(error).__name__}: {error}.") from error


class _Loader:
    """Binds each node with a path to its living counterpart, wherever the fresh object has one; then builds values."""

    def __init__(self, state: State, external_tensors: Mapping[str, Tensor], device: torch.device | None) -> None:
        self._tensors, self._external, self._device = state.tensors, external_tensors, device
        self._nodes: dict[str, Node] = {}
        self._living: dict[str, Any] = {}
        self._bound_ids: set[int] = set()
        self._built: dict[str, Any] = {}

    def bind(self, node: Node, fresh: Any) -> None:
        """Find the living counterparts of a node and of all below it, by whichever of its ways there is one."""
        if not isinstance(node, dict):
            return
        is_ref = node["type"] == "ref"
        if is_ref:
            node = self._nodes[node["to"]]
        if node["type"] in WITH_PATH:
            self._nodes[node["path"]] = node
            if not self._bind_one(node, fresh):
                if is_ref:
                    return
                fresh = None
        for child, counterpart in self._children(node, fresh):
            self.bind(child, counterpart)

    def _bind_one(self, node: Node, fresh: Any) -> bool:
        """Return whether a living object is now the counterpart of a node: if it fits, and neither has another one."""
        fits = isinstance(fresh, WITH_PATH[node["type"]]) and ("class" not in node or _is_of(fresh, node["class"]))
        if fresh is None or not fits or node["path"] in self._living or id(fresh) in self._bound_ids:
            return False
        self._living[node["path"]] = fresh
        self._bound_ids.add(id(fresh))
        return True

    def _children(self, node: Node, fresh: Any) -> Iterable[tuple[Node, Any]]:
        """Return the nodes directly below a node, each with its living counterpart, or None where there is none."""
        kind = node["type"]
        if kind == "tuple":
            fits = type(fresh) in (tuple, torch.Size) and len(fresh) == len(node["items"])
            return zip(node["items"], fresh if fits else repeat(None), strict=False)
        if kind == "list":
            return zip(node["items"], chain(fresh or (), repeat(None)), strict=False)
        if kind == "dict":
            old = fresh or {}
            return [(item, old.get(self.build(key))) for key, item in node["items"]]
        if kind in ("optimizer", "module", "object"):
            old = {} if fresh is None else attributes(fresh)
            return [(item, old.get(name)) for name, item in node["attributes"].items()]
        return ()

    def build(self, node: Node, fresh: Any = None, owner: Any = None) -> Any:  # noqa: PLR0911
        """Return the value of a node; `fresh` is what stands in its place, `owner` the object whose attribute it is."""
        if not isinstance(node, dict):
            return _scalar(node)
        kind = node["type"]
        if kind == "ref":
            return self._built[node["to"]]
        if kind in WITH_PATH:
            path = node["path"]
            self._built[path] = getattr(self, f"_{kind}")(node, self._living.get(path), owner)
            return self._built[path]
        if kind == "tuple":
            return tuple(self.build(item, value, owner) for item, value in self._children(node, fresh))
        if kind == "external":
            return self._external[node["name"]]
        if kind == "float":
            return float(node["value"])
        if kind == "code":
            return _code(node["name"], fresh)
        if kind == "enum":
            return _class(node["class"], Enum)[node["member"]]
        if kind == "dtype":
            return _dtype(node["value"])
        if kind == "device":
            return fresh if isinstance(fresh, torch.device) else self._device or torch.device(node["value"])
        raise StateError(f"The stored tree has an entry of the unknown type {str(kind)[:40]!r}.")

    def _tensor(self, node: Node, living: Tensor | None, _owner: Any) -> Tensor:
        path, requires_grad = node["path"], node["requires_grad"]
        value = self._tensors[path]
        if living is not None and living.shape == value.shape and living.dtype == value.dtype:
            if living.device.type == self._type(node) and _is_writable(living):
                living.copy_(value)
                return living.requires_grad_(requires_grad) if living.is_leaf else living
        elif isinstance(living, nn.Parameter) and not _has_grown(value, living):
            stored, fresh = (f"{tensor.dtype} {[*tensor.shape]}" for tensor in (value, living))
            raise StateError(f"{path} is {stored} in the state and {fresh} in the fresh object.")
        stride = node.get("stride", value.stride())
        device = self._device or node["device"]
        new = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=device).copy_(value)
        return nn.Parameter(new, requires_grad) if node["is_parameter"] else new.requires_grad_(requires_grad)

    def _generator(self, node: Node, living: torch.Generator | None, _owner: Any) -> torch.Generator:
        fits = living is not None and living.device.type == self._type(node)
        generator = living if living is not None and fits else torch.Generator(self._device or node["device"])
        if node["device"] == self._type(node):
            generator.set_state(self._tensors[node["path"]])
        return generator

    def _type(self, node: Node) -> str:
        """Return the kind of device that a tensor or a generator belongs on."""
        kind: str = self._device.type if self._device else node["device"]
        return kind

    def _numpy_generator(self, node: Node, living: np.random.Generator | None, _owner: Any) -> np.random.Generator:
        kind = node["bit_generator"]
        if kind not in BIT_GENERATORS:
            raise StateError(f"{node['path']} draws by {str(kind)[:40]!r}, which numpy does not know.")
        fits = living is not None and type(living.bit_generator).__name__ == kind
        generator = living if living is not None and fits else np.random.Generator(getattr(np.random, kind)())
        generator.bit_generator.state = node["state"]
        return generator

    def _array(self, node: Node, living: Any, _owner: Any) -> Any:
        value = self._tensors[node["path"]].numpy()
        if isinstance(living, np.ndarray) and living.shape == value.shape and living.dtype == value.dtype:
            living[...] = value
            return living
        return value[()] if node["is_scalar"] else value.copy()

    def _list(self, node: Node, living: list[Any] | None, owner: Any) -> list[Any]:
        result = self._built[node["path"]] = [] if living is None else living
        result[:] = [self.build(item, value, owner) for item, value in self._children(node, [*result])]
        return result

    def _dict(self, node: Node, living: dict[Any, Any] | None, owner: Any) -> dict[Any, Any]:
        result = self._built[node["path"]] = {} if living is None else living
        old = dict(result)
        result.clear()
        for key, item in node["items"]:
            name = self.build(key)
            result[name] = self.build(item, old.get(name), owner)
        return result

    def _object(self, node: Node, living: Any, _owner: Any) -> Any:
        if living is None:
            kind = _class(node["class"], object)
            living = kind.__new__(kind)
        return self._fill(node, living)

    def _module(self, node: Node, living: nn.Module | None, owner: Any) -> Any:
        if living is None:  # such as a teacher: the network as it was
            pattern = getattr(owner, "net", None)
            if not isinstance(pattern, nn.Module) or not _is_of(pattern, node["class"]):
                raise StateError(
                    f"{node['path']} is a {node['class']} that the fresh object has not, nor a net of that kind."
                )
            living = copy.deepcopy(pattern)
            for parameter in living.parameters():
                parameter.grad = None
            self.bind(node, living)
        return self._fill(node, living)

    def _fill(self, node: Node, living: Any) -> Any:
        """Set the attributes, past `frozen` and past torch's own way of setting them."""
        self._built[node["path"]] = living
        old, skipped = attributes(living), transient(type(living))
        unknown = [name for name in old if name not in node["attributes"] and not is_code(old[name])]
        if unknown:
            raise StateError(f"{node['path'] or 'The object'} has '{unknown[0]}', of which the state knows nothing.")
        for name, item in node["attributes"].items():
            if name not in skipped:
                vars(living)[name] = self.build(item, old.get(name), living)
        return living

    def _optimizer(self, node: Node, living: Optimizer | None, owner: Any) -> Optimizer:
        before = 0 if living is None else len(living.param_groups)
        groups, known = (self.build(node["attributes"][name], owner=owner) for name in ("param_groups", "state"))
        if living is None or len(groups) != before:
            kind = f"{node['class']} with {len(groups)} groups"
            raise StateError(f"{node['path']} was a {kind}, which the fresh object has not.")
        living.param_groups = groups
        weights = parameters(living)
        living.state.clear()
        living.state.update({weights[number]: values for number, values in known.items()})
        return living


def _scalar(node: Node) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise StateError(f"The stored tree has a {type(node).__name__} where a value or a node must be.")


def _is_writable(tensor: Tensor) -> bool:
    """Return whether every entry has memory of its own, as those of an expanded tensor do not."""
    return all(stride or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _has_grown(value: Tensor, fresh: Tensor) -> bool:
    """Return whether weights are as those of a method that gives itself more of them when classes come."""
    longer = all(now >= then for now, then in zip(value.shape, fresh.shape, strict=False))
    return value.dtype == fresh.dtype and value.dim() == fresh.dim() and longer


def _is_of(fresh: object, name: Any) -> bool:
    """Return whether an object is of the class that a state names; one from outside may have moved between modules."""
    now, then = class_name(fresh), str(name)
    moved = "." in now and "." in then and now.rpartition(".")[2] == then.rpartition(".")[2]
    return now == then or (moved and isinstance(fresh, nn.Module))


def _code(name: str, fresh: Any) -> Any:
    """Return the fresh object's own code; None where it has not made its own yet."""
    if fresh is not None and (not is_code(fresh) or code_name(fresh) != name):
        raise StateError(f"The state was made with {name} where the fresh object has {code_name(fresh)}.")
    return fresh


def _class(name: str, kind: type) -> Any:
    """Return a class of this package, or of a registered module, by its name; nothing is imported for it."""
    stored: Any = STORED.get(name)
    module, _, attribute = name.rpartition(".")
    if module in registered_modules():
        stored = getattr(sys.modules.get(module), attribute, None)
    if not isinstance(stored, type) or not issubclass(stored, kind):
        raise StateError(f"The state has an object of the class {name[:80]}, which is not one of this package.")
    return stored


def _dtype(name: str) -> torch.dtype:
    value = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(value, torch.dtype):
        raise StateError(f"The state names the type {name[:40]!r}, which torch does not know.")
    return value
