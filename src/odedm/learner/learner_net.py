"""The network of a learner: from a name, a module, a class or a function; and outputs for classes that join."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.methods.base import Method
from odedm.nets.base import Net, evaluating, start_training
from odedm.nets.build import build, configure, initialising, pick
from odedm.nets.wrap import FINISHING, NetFactory, finished

WIDTH = 128
"""Units of each hidden layer for vectors, where the net is "auto"."""


def make_net(net: Any, shape: tuple[int, ...], classes: int, *, seed: int, options: Mapping[str, Any]) -> Net:
    """Make the network for rows of this shape: by name, by a class or function, or as a copy of a module.

    One from outside may be any module that ends with a linear layer (`net_options={"head": "fc"}` names it), with any
    number of outputs: where it has more than classes, they wait for others to come; where it has fewer, it grows.
    """
    if isinstance(net, str):
        name, given = named_net(net, shape, options)
        return build(name, shape, classes, seed=seed, options=configure(name, shape, classes, given))
    if not callable(net) or (isinstance(net, type) and not issubclass(net, nn.Module)):
        raise UsageError(
            "net must be a name in `odedm list nets`, an nn.Module, a class of one or a function that makes one; "
            f"{short_repr(net)} was given."
        )
    factory, given = NetFactory(net), dict(options)
    finishing = {name: str(given.pop(name, "")) for name in FINISHING if name not in factory.parameters}
    for name in given:
        if name not in factory.parameters or name in ("shape", "classes"):
            raise unknown_name_error(f"option of the net {factory.title}", name, list(factory.__signature__.parameters))
    with initialising(seed):
        made = finished(factory.make(shape, classes, given).cpu(), shape, None, **finishing)
    try:
        with evaluating(made):
            made(torch.zeros(2, *shape))
    except Exception as error:  # a module of anyone's may raise what it likes
        message = f"{factory.title} cannot take rows of shape {list(shape)}: {short_repr(str(error), 200)}."
        raise UsageError(message) from error
    return start_training(made)


def named_net(name: str, shape: tuple[int, ...], options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name that a net's name stands for with such rows, and its options."""
    picked = pick(name, shape)
    return picked, {"width": WIDTH, **options} if (name, picked) == ("auto", "mlp") else options


def check_growth(net: Net) -> None:
    """Refuse a net that cannot take further classes; one whose head has a `grow` of its own can."""
    if not callable(getattr(net.head, "grow", None)):
        output_layer(net)


def output_layer(net: Net) -> nn.Linear:
    """The linear layer with one output for each class, or a sentence that there is none."""
    layers = [
        module for module in net.head.modules() if isinstance(module, nn.Linear) and module.out_features == net.classes
    ]
    if len(layers) != 1:
        raise UsageError(
            f"{type(net).__name__} has no single linear layer of {net.classes} outputs as its head, so it cannot grow "
            "when classes join. Name all labels at the first call, partial_fit(x, y, classes=[…]), or use another net."
        )
    return layers[0]


def grow(method: Method, classes: int, rng: torch.Generator) -> None:
    """Give the method's network outputs for so many classes; the new ones start as a new linear layer's do.

    `rng` is on the CPU: one seed, one start anywhere. The optimizer knows nothing of the new weights yet, and an
    average of the weights begins with them.
    """
    if method.logit_adjustment is not None:
        method.logit_adjustment.grow(classes)
    if callable(getattr(method.net.head, "grow", None)):  # a head that has no output for each class
        for net in _nets(method):
            net.head.grow(classes)  # type: ignore[operator]
            net.classes = classes
        method.on_classes_added(classes)
        return
    layer = output_layer(method.net)
    bound = 1 / math.sqrt(layer.in_features)
    for name in ("weight", "bias"):
        old: nn.Parameter | None = getattr(layer, name)
        if old is None:
            continue
        start = torch.empty(classes - layer.out_features, *old.shape[1:], dtype=old.dtype)
        start.uniform_(-bound, bound, generator=rng)
        for grown in map(output_layer, _nets(method)):
            weight: nn.Parameter = getattr(grown, name)
            setattr(
                grown, name, nn.Parameter(torch.cat([weight.detach(), start.to(weight.device)]), weight.requires_grad)
            )
        _hand_over(method.optimizer, old, getattr(layer, name))
    for net in _nets(method):
        output_layer(net).out_features = classes
        net.classes = classes
    method.on_classes_added(classes)


def _nets(method: Method) -> list[Net]:
    """The network, and its average where one is kept."""
    return [method.net, *([method.ema.net] if method.ema is not None else [])]


def _hand_over(optimizer: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter) -> None:
    """The optimizer goes on with the longer weights: what it keeps of each entry is 0 for new ones.

    One that keeps tensors of another form, such as Adafactor's of rows and columns, begins anew with these weights.
    """
    for group in optimizer.param_groups:
        group["params"] = [new if value is old else value for value in group["params"]]
    known: dict[str, Any] = optimizer.state.pop(old, {})
    tensors = [value for value in known.values() if isinstance(value, Tensor) and value.dim()]
    if known and all(value.shape == old.shape for value in tensors):
        optimizer.state[new] = {name: _longer(value, old, new) for name, value in known.items()}


def _longer(value: Any, old: Tensor, new: Tensor) -> Any:
    if not isinstance(value, Tensor) or value.shape != old.shape:
        return value
    return torch.cat([value, value.new_zeros(len(new) - len(old), *old.shape[1:])])
