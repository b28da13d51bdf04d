"""What a trained method holds beside its network, as a model's file keeps it: all but what it is built with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor, nn

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.stored_names import stored, transient
from odedm.methods.base import Method
from odedm.methods.hyperparameters import hyperparameters
from odedm.training.replay import MemoryReplay

BUILT = frozenset({"draw", "rng", "optimizer_factory", "optimizer"})
"""What a method gets anew where it is built: a model is no checkpoint."""


@stored("model-state")
class ModelState:
    """A method's attributes that are not built with it, the network among them; `put_back` sets them.

    A method from outside has nothing to declare: whatever a checkpoint can hold, this can.

    >>> from odedm.methods.er import ER
    >>> from odedm.nets.small import MLP
    >>> method = ER(net=MLP((2,), 2, width=2), draw=1)
    >>> method.means = {0: 3.5}
    >>> other = ER(net=MLP((2,), 2, width=2), draw=1)
    >>> ModelState.put_back(other, ModelState.of(method))
    >>> other.means, other.net.head.weight.equal(method.net.head.weight)
    ({0: 3.5}, True)
    """

    net: nn.Module

    def __init__(self, method: Method) -> None:
        built = _built(method)
        held = {name: value for name, value in vars(method).items() if name not in built}
        vars(self).update({name: value for name, value in held.items() if not isinstance(value, MemoryReplay)})

    @classmethod
    def of(cls, method: Method) -> State:
        """Return a copy of what the method holds; a sentence where a file cannot hold it."""
        try:
            return state_tree(cls(method))
        except StateError as error:
            raise UsageError(
                f"The model cannot be kept: {error} Or save the run without its model (keep_model=False)."
            ) from error

    @classmethod
    def put_back(cls, method: Method, state: State) -> None:
        """Give a method that was built anew what `of` has found, on the device where it is.

        The state may be of anyone's: `InvalidFileError` where it is not made as it should be.
        """
        held = cls(method)
        _check_tensors(state_tree(held.net).tensors, state.tensors)
        try:
            load_state_tree(held, state, device=method.last_loss.device)
        except StateError as error:
            raise InvalidFileError(str(error).rstrip(".")) from error
        built, declared = _built(method), {field.name for field in fields(method)}
        for name, value in vars(held).items():
            # a method may begin to keep something on the way; what its class defines is code
            is_data = name in declared or not hasattr(type(method), name)
            require(is_data and name not in built and not name.startswith("__"), f"its method has no '{name[:60]}'")
            setattr(method, name, value)


def _built(method: Method) -> set[str]:
    """Return the attributes that the run or the configuration sets."""
    return {*BUILT, *hyperparameters(type(method)), *transient(type(method))}


def _check_tensors(needed: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
    """Refuse weights of other names, shapes and types than the network has, and what is no finite number."""
    weights = {name.removeprefix("net."): tensor for name, tensor in given.items() if name.startswith("net.")}
    for name, tensor in needed.items():
        require(name in weights, f"the weights '{plain_name(name)}' are missing")
        alike = weights[name].shape == tensor.shape and weights[name].dtype == tensor.dtype
        found, wanted = list(weights[name].shape), list(tensor.shape)
        require(alike, f"the weights '{plain_name(name)}' are {found} where {wanted} are needed")
    for name, tensor in given.items():
        finite = not tensor.is_floating_point() or bool(tensor.isfinite().all())
        require(finite, f"'{plain_name(name)}' holds a NaN or an infinity")


def plain_name(path: str) -> str:
    """Return where a tensor is without torch's inner names.

    >>> plain_name("net._modules.head._parameters.weight")
    'net.head.weight'
    """
    for inner in ("_modules.", "_parameters.", "_buffers."):
        path = path.replace(inner, "")
    return path
