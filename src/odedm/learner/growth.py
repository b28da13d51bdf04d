"""Gives a network outputs for classes that nobody announced, in mid-training; no other weight moves."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError
from odedm.methods.base import Method
from odedm.nets.base import Net


def check_growth(net: Net) -> None:
    """Refuse a net that cannot take further classes; one whose head has a `grow` of its own can."""
    if not callable(getattr(net.head, "grow", None)):
        output_layer(net)


def output_layer(net: Net) -> nn.Linear:
    """The linear layer with one output for each class, or a sentence that there is none."""
    found = [each for each in net.head.modules() if isinstance(each, nn.Linear) and each.out_features == net.classes]
    if len(found) != 1:
        raise UsageError(
            f"{type(net).__name__} has no single linear layer of {net.classes} outputs as its head, so it cannot grow "
            "when classes join. Name all labels at the first call, partial_fit(x, y, classes=[…]), or use another net."
        )
    return found[0]


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
        for each in map(output_layer, _nets(method)):
            own: nn.Parameter = getattr(each, name)
            setattr(each, name, nn.Parameter(torch.cat([own.detach(), start.to(own.device)]), own.requires_grad))
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
        group["params"] = [new if each is old else each for each in group["params"]]
    known: dict[str, Any] = optimizer.state.pop(old, {})
    kept = [each for each in known.values() if isinstance(each, Tensor) and each.dim()]
    if known and all(each.shape == old.shape for each in kept):
        optimizer.state[new] = {name: _longer(each, old, new) for name, each in known.items()}


def _longer(value: Any, old: Tensor, new: Tensor) -> Any:
    if not isinstance(value, Tensor) or value.shape != old.shape:
        return value
    return torch.cat([value, value.new_zeros(len(new) - len(old), *old.shape[1:])])
