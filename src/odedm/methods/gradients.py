"""All gradients of a network as one vector, and back: for methods that bend them between backward and step."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained by name, in the order in which their gradients make one vector."""
    return {name: weight for name, weight in net.named_parameters() if weight.requires_grad}


def read_gradient(net: nn.Module) -> Tensor:
    """Return a copy of all gradients as one vector [P]; 0 where a parameter took no part.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> net.weight.grad = torch.tensor([[3.0, 4.0]])
    >>> read_gradient(net)
    tensor([3., 4.])
    """
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in trained(net).values()])


def write_gradient(net: nn.Module, vector: Tensor) -> None:
    """Put a vector [P] in the place of all gradients."""
    weights = list(trained(net).values())
    for weight, part in zip(weights, vector.split([weight.numel() for weight in weights]), strict=True):
        if weight.grad is None:
            weight.grad = part.view_as(weight).clone()
        else:
            weight.grad.copy_(part.view_as(weight))


def gradient_of(loss: Tensor, net: nn.Module) -> Tensor:
    """Return the gradient [P] of a loss (0-d), beside those that the parameters hold: they stay as they are.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> gradient_of(net(torch.tensor([[1.0, 2.0]])).sum(), net), net.weight.grad
    (tensor([1., 2.]), None)
    """
    parts = torch.autograd.grad(loss, list(trained(net).values()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])
