"""A running average of the network, by which a run may predict: it follows the stream more calmly than the network.

A network that learns at a constant rate has been thrown about by its last batches, and leans towards their classes. The
average over many of its states does so less (Soutif-Cormerais et al., *Improving online continual learning performance
and stability with temporal ensembles*, CoLLAs 2023).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from odedm.methods.base import Method


def begin_average(method: Method, left: float) -> None:
    """From now on `follow` keeps the average of the method's network; `left` of it is left after a batch."""
    method.averaged = copy.deepcopy(method.net).requires_grad_(False)
    method.averaging = torch.tensor([0.0, 1.0 - left], device=method.last_loss.device)


@torch.no_grad()
def follow(averaged: nn.Module, net: nn.Module, averaging: Tensor) -> None:
    """A batch was learned: the network as it is now joins its average; all in place, as a recorded step must.

    Args:
        averaged: the average so far.
        net: the network.
        averaging: how many batches there were, which is counted on here, and the smallest share of a new one [2]. The
            first batches count alike, so that the weights of the beginning leave no trace.

    >>> net, averaged = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> averaging = torch.tensor([0.0, 0.1])
    >>> for weight in (1.0, 3.0, 5.0):
    ...     _ = nn.init.constant_(net.weight, weight)
    ...     follow(averaged, net, averaging)
    >>> averaged.weight.item()
    3.0
    """
    averaging[0] += 1
    share = torch.maximum(1 / averaging[0], averaging[1])
    pairs = list(zip(averaged.state_dict().values(), net.state_dict().values(), strict=True))
    moving = [(old, new) for old, new in pairs if old.is_floating_point()]
    steps = torch._foreach_sub([new for _, new in moving], [old for old, _ in moving])
    torch._foreach_mul_(steps, share)
    torch._foreach_add_([old for old, _ in moving], steps)
    for old, new in pairs:
        if not old.is_floating_point():  # how many batches a BatchNorm has seen
            old.copy_(new)


def unlike_its_net(method: Method) -> str:
    """Why an average that comes from a file of anyone's cannot follow the network; empty where it can, or none is kept.

    >>> from odedm.methods.er import ER
    >>> from odedm.nets.small import MLP
    >>> method = ER(net=MLP((2,), 2, width=2), draw=1)
    >>> begin_average(method, 0.9)
    >>> method.averaging = torch.zeros(1)
    >>> unlike_its_net(method)
    "'averaging' is torch.float32 [1] where torch.float32 [2] is needed"
    """
    if method.averaged is None or method.averaging is None:
        return ""
    found = {"averaging": method.averaging, **method.averaged.state_dict(prefix="averaged.")}
    needed = {"averaging": method.last_loss.new_empty(2), **method.net.state_dict(prefix="averaged.")}
    for name in {**needed, **found}:
        there, here = (_form(each.get(name)) for each in (found, needed))
        if there != here:
            return f"'{name}' is {there} where {here} is needed"
    return ""


def _form(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {[*tensor.shape]}"


@contextmanager
def predicting(method: Method) -> Iterator[None]:
    """Inside the block the method's network is its average, where it keeps one."""
    last = method.net
    method.net = last if method.averaged is None else method.averaged
    try:
        yield
    finally:
        method.net = last
