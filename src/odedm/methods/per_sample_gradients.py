"""The gradients of single rows, a few rows at a time: what each row alone would do to the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from odedm.core.errors import choose
from odedm.methods.gradients import trained
from odedm.nets.base import Net, modes_kept

OF = {"head": "The weights of the head.", "all": "All weights that are trained."}
ENTRIES = {"cpu": 2**25, "cuda": 2**29}
"""How many numbers the gradients of single rows may hold at once: a cache likes few of them, a GPU many.

The pass needs two to three times as much: about 5 GB on a GPU."""
CHUNK = 64
"""The most rows whose gradients are taken at once."""


def weights_of(net: nn.Module, of: str = "all") -> dict[str, Tensor]:
    """Return the trained weights by name, of the whole network or of its head, without their history."""
    choose("gradients of", of, OF)
    start = "head." if of == "head" else ""
    return {name: weight.detach() for name, weight in trained(net).items() if name.startswith(start)}


def per_sample_gradients(net: nn.Module, x: Tensor, label: Tensor, of: str = "head") -> Tensor:
    """The gradient [n, P] of each row's own cross-entropy, for inputs x [n, ...] and labels [n], in evaluation mode.

    All n are there at once: hand over no more than `rows_at_once`.

    >>> from odedm.nets.small import MLP
    >>> per_sample_gradients(MLP((4,), 3, width=8), torch.ones(2, 4), torch.tensor([0, 2])).shape
    torch.Size([2, 27])
    """
    weights = weights_of(net, of)

    def loss(at: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, at, (row[None],)), label[None])

    with statistics_kept(net, training=False):
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, label)
    count_rows(net, len(label))
    return torch.cat([gradients[name].flatten(1) for name in weights], 1)


def count_rows(net: nn.Module, rows: int) -> None:
    """Add to what training has cost: the network sees rows under `vmap` as a single one."""
    if isinstance(net, Net):
        net.count_gradient_rows(rows - 1)


def rows_at_once(weights: Mapping[str, Tensor]) -> int:
    """Return how many rows may have their gradients taken together, so that memory stays bounded.

    >>> rows_at_once({"weight": torch.zeros(2**20)}), rows_at_once({"weight": torch.zeros(10)})
    (32, 64)
    """
    first = next(iter(weights.values()))
    size = sum(weight.numel() for weight in weights.values())
    return max(1, min(CHUNK, ENTRIES.get(first.device.type, ENTRIES["cpu"]) // size))


@contextmanager
def statistics_kept(net: nn.Module, *, training: bool) -> Iterator[None]:
    """The network in one mode inside the block, with running statistics that nobody writes; all as before after it.

    Training mode without tracking: BatchNorm uses its batch and writes nothing, which `vmap` could not do in place.
    """
    compute = getattr(net, "compute", None)
    tracking = [module for module in net.modules() if training and getattr(module, "track_running_stats", False)]
    with modes_kept(net):
        net.train(training)
        try:
            if compute is not None:  # gradients of single rows have no batching rule for mixed types
                vars(net)["compute"] = None
            for module in tracking:
                vars(module)["track_running_stats"] = False
            yield
        finally:
            for module in tracking:
                vars(module)["track_running_stats"] = True
            if compute is not None:
                vars(net)["compute"] = compute
