"""What a trained method keeps beside its network, such as iCaRL's class means, as plain values and tensors.

Everything is found by itself, so a method from outside has nothing to declare. Code, generators, the optimiser and
whatever refers to the run are left out: they are built anew.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from odedm.core.errors import require
from odedm.methods.base import Method
from odedm.methods.hyperparameters import RESERVED, hyperparameters

DEEPEST = 8
PLAIN = (bool, int, str, type(None))


class _Left(Exception):
    """Something that is neither plain nor a tensor nor a network."""


def own_state(method: Method) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The attributes of a method that are data: a tree for JSON, and the tensors to which it refers by name.

    >>> from odedm.methods.er import ER
    >>> from odedm.nets.small import MLP
    >>> method = ER(net=MLP((2,), 2, width=2), draw=1)
    >>> method.means = (torch.ones(2), None)
    >>> own_state(method)
    ({'means': ['tuple', [['tensor', 'means.0'], None]]}, {'means.0': tensor([1., 1.])})
    """
    tree: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name in _names(method):
        found: dict[str, Tensor] = {}
        try:
            tree[name] = _noted(getattr(method, name), name, found, method.net)
        except _Left:
            continue
        tensors |= found
    return tree, tensors


def _names(method: Method) -> list[str]:
    """Attributes that neither the run nor the configuration sets."""
    given = {*RESERVED, *hyperparameters(type(method))}
    return [name for name in vars(method) if name not in given]


def _noted(value: Any, name: str, tensors: dict[str, Tensor], net: nn.Module, depth: int = 0) -> Any:
    if type(value) in PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else ["float", str(value)]
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return ["tensor", name]
    if isinstance(value, nn.Module) and value is not net and type(value) is type(net):
        tensors |= {f"{name}.{each}": tensor for each, tensor in weights_of_net(value).items()}
        return ["net", name]
    if type(value) in (tuple, list) and depth < DEEPEST:
        parts = [_noted(each, f"{name}.{place}", tensors, net, depth + 1) for place, each in enumerate(value)]
        return [type(value).__name__, parts]
    if type(value) is dict and depth < DEEPEST and all(type(key) in (int, str) for key in value):
        pairs = enumerate(value.items())
        return [
            "dict",
            [[key, _noted(each, f"{name}.{place}", tensors, net, depth + 1)] for place, (key, each) in pairs],
        ]
    raise _Left


def give_state(method: Method, tree: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Put a state of anyone's into a method built anew; `InvalidFileError` where it is not made as it should be."""
    declared = {each.name for each in fields(method)}
    given = {*RESERVED, *hyperparameters(type(method))}
    for name, node in tree.items():
        # a method may begin to keep something on the way; what its class defines is code
        own = name in declared or not hasattr(type(method), name)
        require(own and name not in given and not name.startswith("__"), f"its method has no '{str(name)[:60]}'")
        setattr(method, name, _built(node, getattr(method, name, None), tensors, method.net))


def _built(node: Any, fresh: Any, tensors: Mapping[str, Tensor], net: nn.Module, depth: int = 0) -> Any:
    if not isinstance(node, list):
        require(type(node) in (*PLAIN, float), "its method holds what is no value")
        return node
    require(len(node) == 2 and isinstance(node[0], str) and depth <= DEEPEST, "its method's state is malformed")
    kind, inner = node
    if kind == "float":
        require(inner in ("inf", "-inf", "nan"), "its method holds what is no number")
        return float(inner)
    if kind == "tensor":
        require(isinstance(inner, str) and inner in tensors, "a tensor of its method is missing")
        return _tensor(tensors[inner], fresh, next(net.parameters()).device)
    if kind == "net":
        require(isinstance(inner, str), "a network of its method is missing")
        own = copy.deepcopy(net).requires_grad_(False).eval()
        prefix = f"{inner}."
        load_weights(
            own, {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
        )
        return own
    require(kind in ("tuple", "list", "dict") and isinstance(inner, list), "its method's state is malformed")
    if kind == "dict":
        pairs = all(isinstance(each, list) and len(each) == 2 and type(each[0]) in (int, str) for each in inner)
        require(pairs, "its method's state is malformed")
        before = fresh if isinstance(fresh, dict) else {}
        return {key: _built(each, before.get(key), tensors, net, depth + 1) for key, each in inner}
    alike = fresh if isinstance(fresh, tuple | list) and len(fresh) == len(inner) else [None] * len(inner)
    parts = [_built(each, old, tensors, net, depth + 1) for each, old in zip(inner, alike, strict=True)]
    return tuple(parts) if kind == "tuple" else parts


def _tensor(value: Tensor, fresh: Any, device: torch.device) -> Tensor:
    """In the place of the fresh one where that is alike: others may hold it."""
    if isinstance(fresh, Tensor) and fresh.shape == value.shape and fresh.dtype == value.dtype:
        with torch.no_grad():
            return fresh.copy_(value)
    return value.to(device, copy=True)


def weights_of_net(net: nn.Module) -> dict[str, Tensor]:
    """A network's parameters and buffers by their names; what is none of these has no place in a file."""
    return {name: each.detach() for name, each in net.state_dict().items() if isinstance(each, Tensor)}


def load_weights(net: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Weights of anyone's, of the very names, shapes and types that the network has; `InvalidFileError` else."""
    own = weights_of_net(net)
    for name, each in own.items():
        require(name in weights, f"the weights '{name}' are missing")
        found = weights[name]
        same = found.shape == each.shape and found.dtype == each.dtype
        require(same, f"the weights '{name}' are {list(found.shape)} where {list(each.shape)} are needed")
        require(not found.is_floating_point() or bool(found.isfinite().all()), f"'{name}' holds a NaN or an infinity")
    extra = sorted(set(weights) - set(own))
    require(not extra, f"the network has no weights '{extra[0][:80] if extra else ''}'")
    with torch.no_grad():
        for name, each in own.items():
            each.copy_(weights[name])
