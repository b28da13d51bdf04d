"""torch's stochastic gradient descent, bit for bit, without the seconds that its first use takes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from odedm.core.stored_names import stored

_add, _zero, _step = (inspect.unwrap(each) for each in (Optimizer.add_param_group, Optimizer.zero_grad, SGD.step))


@stored("optimizer/sgd")
class PlainSGD(SGD):
    """SGD that leaves torch's compiler asleep.

    torch's own optimizers import the compiler when they are made and at every step, to tell it that they are not for
    it: several seconds in every process, for something that no run here uses. The same functions are called here
    without that.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = PlainSGD([weight], lr=0.5, fused=True)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [0.5, 0.5]
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        _add(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        _zero(self, set_to_none)

    def step(self, closure: Any = None) -> Any:
        """As torch's, without gradients of its own."""
        with torch.no_grad():
            return _step(self, closure)
