"""A running average of the network, by which a run may predict: it follows the stream more calmly than the network.

A network that learns at a constant rate has been thrown about by its last batches, and leans towards their classes. The
average over many of its states does so less (Soutif-Cormerais et al., *Improving online continual learning performance
and stability with temporal ensembles*, CoLLAs 2023).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from odedm.core.stored_names import stored
from odedm.nets.base import Net

if TYPE_CHECKING:
    from odedm.methods.base import Method


@stored("ema")
class EMA(nn.Module):
    """An exponential moving average of a network; its first batches count alike, so the beginning leaves no trace.

    Args:
        net: the network, of which a copy is the first average.
        decay: how much of the average is left after a batch.

    >>> from odedm.nets.small import MLP
    >>> net = MLP((1,), 2, width=1)
    >>> ema = EMA(net, decay=0.9)
    >>> for bias in (1.0, 3.0, 5.0):
    ...     _ = nn.init.constant_(net.head.bias, bias)
    ...     ema.update(net)
    >>> ema.net.head.bias.tolist()
    [3.0, 3.0]
    """

    progress: Tensor

    def __init__(self, net: Net, decay: float) -> None:
        super().__init__()
        self.net: Net = copy.deepcopy(net).requires_grad_(False)
        device = next(net.parameters()).device
        self.register_buffer("progress", torch.tensor([0.0, 1.0 - decay], device=device))
        """How many batches there were, and the smallest share of a new one [2]."""

    @torch.no_grad()
    def update(self, net: Net) -> None:
        """Let the network as it is now join its average; all in place, as a recorded step must."""
        self.progress[0] += 1
        share = torch.maximum(1 / self.progress[0], self.progress[1])
        pairs = list(zip(self.net.state_dict().values(), net.state_dict().values(), strict=True))
        moving = [(old, new) for old, new in pairs if old.is_floating_point()]
        steps = torch._foreach_sub([new for _, new in moving], [old for old, _ in moving])
        torch._foreach_mul_(steps, share)
        torch._foreach_add_([old for old, _ in moving], steps)
        for old, new in pairs:
            if not old.is_floating_point():  # how many batches a BatchNorm has seen
                old.copy_(new)


def applied(method: Method) -> AbstractContextManager[None]:
    """Return a block in which the method's network is its average, where it keeps one."""
    return nullcontext() if method.ema is None else _swapped(method, method.ema.net)


@contextmanager
def _swapped(method: Method, net: Net) -> Iterator[None]:
    last, method.net = method.net, net
    try:
        yield
    finally:
        method.net = last
