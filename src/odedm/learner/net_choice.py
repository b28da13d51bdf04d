"""The network of a learner, from a name, or from a module, class or function that was given."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.nets.base import Net, evaluating, start_training
from odedm.nets.build import build, configure, initialising, pick
from odedm.nets.wrap import NetFactory, wrap


def make_net(net: Any, shape: tuple[int, ...], classes: int, *, seed: int, options: Mapping[str, Any]) -> Net:
    """A network of its own for rows of this shape: built by name, made by a class or function, or a copy of a module.

    One from outside may be any module that ends with a linear layer (`net_options={"head": "fc"}` names it), with any
    number of outputs: where it has more than classes, they wait for others to come; where it has fewer, it grows.
    """
    if isinstance(net, str):
        name = pick(net, shape)
        return build(name, shape, classes, seed=seed, options=configure(name, shape, classes, options))
    if isinstance(net, nn.Module):
        own = _copied(net, shape, options)
    elif callable(net) and (not isinstance(net, type) or issubclass(net, nn.Module)):
        own = _called(net, shape, classes, seed, options)
    else:
        raise UsageError(
            "net must be a name in `odedm list nets`, an nn.Module, a class of one or a function that makes one; "
            f"{short_repr(net)} was given."
        )
    try:
        with evaluating(own):
            own(torch.zeros(2, *shape))
    except Exception as error:  # a module of anyone's may raise what it likes
        title = getattr(net, "__name__", type(net).__name__)
        raise UsageError(f"{title} cannot take rows of shape {list(shape)}: {short_repr(str(error), 200)}.") from error
    return start_training(own)


def _copied(net: nn.Module, shape: tuple[int, ...], options: Mapping[str, Any]) -> Net:
    if isinstance(net, Net):
        if options:
            raise UsageError(
                "net_options are for a net by its name or class; one that is given as an object has its own."
            )
        return copy.deepcopy(net).cpu()
    if set(options) - {"head"}:
        raise UsageError("net_options of an nn.Module can only name its last layer, e.g. {'head': 'fc'}.")
    return wrap(copy.deepcopy(net).cpu(), shape, None, str(options.get("head", "")))


def _called(net: Any, shape: tuple[int, ...], classes: int, seed: int, options: Mapping[str, Any]) -> Net:
    """What a class or function gives: told the shape and the number of classes where it asks, as `odedm.train` does."""
    factory, given = NetFactory(net), dict(options)
    head = "" if "head" in factory.parameters else str(given.pop("head", ""))
    for name in given:
        if name not in factory.parameters or name in ("shape", "classes"):
            raise unknown_name_error(f"option of the net {factory.title}", name, list(factory.__signature__.parameters))
    with initialising(seed):
        return wrap(factory.make(shape, classes, given).cpu(), shape, None, head)
