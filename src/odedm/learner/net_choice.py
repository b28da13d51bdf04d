"""The network of a learner, from a name or from an object that was given."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from odedm.core.errors import UsageError, shown
from odedm.nets.base import Net
from odedm.nets.build import build, configure, pick
from odedm.nets.plain_module import wrap


def make_net(net: Any, shape: tuple[int, ...], classes: int, *, seed: int, options: Mapping[str, Any]) -> Net:
    """A network of its own for rows of this shape: built by name, or a copy of the one that was given.

    A given one may be any module that ends with a linear layer (`net_options={"head": "fc"}` names it), with at least
    as many outputs; where it has more, they wait for classes to come.
    """
    if isinstance(net, str):
        name = pick(net, shape)
        return build(name, shape, classes, seed=seed, options=configure(name, shape, classes, options))
    if not isinstance(net, nn.Module):
        raise UsageError(f"net must be a name in `odedm list nets`, or an nn.Module; {shown(net)} was given.")
    if isinstance(net, Net):
        if options:
            raise UsageError("net_options are for a net by its name; one that is given as an object has its own.")
        own = copy.deepcopy(net).cpu()
    else:
        if set(options) - {"head"}:
            raise UsageError("net_options of an nn.Module can only name its last layer, e.g. {'head': 'fc'}.")
        own = wrap(copy.deepcopy(net).cpu(), shape, None, str(options.get("head", "")))
    try:
        with torch.no_grad():
            own.eval()(torch.zeros(2, *shape))
    except Exception as error:  # a module of anyone's may raise what it likes
        raise UsageError(
            f"{type(net).__name__} cannot take rows of shape {list(shape)}: {shown(str(error), 200)}."
        ) from error
    return own.train()
