"""Compares two captured states bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from odedm.checkpoint.state_tree import Node, State


def equal_states(one: State, other: State) -> list[str]:
    """The places where two states differ, bit for bit; none where they are equal.

    >>> from odedm.checkpoint.state_tree import state_tree
    >>> equal_states(state_tree({"a": torch.ones(2), "b": 1}), state_tree({"a": torch.zeros(2), "b": 1}))
    ['a']
    """
    places = []
    for name in sorted(one.tensors.keys() | other.tensors.keys()):
        a, b = one.tensors.get(name), other.tensors.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or not _bits(a).equal(_bits(b)):
            places.append(name)
    if one.tree != other.tree:
        places.append("the tree: " + first_difference(one.tree, other.tree))
    return places


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def first_difference(one: Node, other: Node, path: str = "") -> str:
    """Where two trees of plain data first differ, and what is there."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return first_difference(a, b, f"{path}/{place}")
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in [*one, *(other.keys() - one.keys())]:
            if one.get(name) != other.get(name):
                return first_difference(one.get(name), other.get(name), f"{path}/{name}")
    return f"{path}: {str(one)[:60]} and {str(other)[:60]}"
