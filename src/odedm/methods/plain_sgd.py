"""torch's stochastic gradient descent, bit for bit, without the seconds that its first use takes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from odedm.core.stored_names import stored

_add, _zero, _step = (
    inspect.unwrap(function) for function in (Optimizer.add_param_group, Optimizer.zero_grad, SGD.step)
)
SETTINGS = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
_hooked_step = Optimizer.profile_hook_step(_step)


def _is_plain(group: dict[str, Any]) -> bool:
    """Return whether torch's own step comes to one call of its kernel for this group of weights."""
    kinds = {(weight.device, weight.dtype, weight.grad.layout) for weight in _with_gradient(group)}
    return group["fused"] and not group["momentum"] and len(kinds) == 1 and kinds.pop()[2] is torch.strided


def _with_gradient(group: dict[str, Any]) -> list[Any]:
    return [weight for weight in group["params"] if weight.grad is not None]


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
        _add(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's, which reports each call to its profiler: that takes longer than the call itself."""
        if not set_to_none:
            _zero(self, set_to_none)
            return
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    def step(self, closure: Any = None) -> Any:
        """As torch's, without gradients of its own."""
        hooked = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        with torch.no_grad():
            if hooked or closure is not None or not all(map(_is_plain, self.param_groups)):
                return (_hooked_step if hooked else _step)(self, closure)
            for group in self.param_groups:
                weights = _with_gradient(group)
                gradients, settings = [weight.grad for weight in weights], {name: group[name] for name in SETTINGS}
                torch._fused_sgd_(weights, gradients, [], **settings, is_first_step=False)
            return None

    step.hooked = True  # type: ignore[attr-defined]  # so that torch does not wrap it in reports to its profiler
